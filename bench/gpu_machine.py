#!/usr/bin/env python3
"""Everything that wants a machine with a GPU, in one go: builds what it needs, runs the device's tests, checks every
kernel of the eleven lists there, searches some, measures marks, and leaves records and figures in a directory.

  bench/gpu_machine.py [--target cuda:0] [--out DIR] [--trials N] [--torch PYTHON] [LIST.kernels …]

For cuda:0 the machine needs NVIDIA's driver and what scripts/install_dependencies.sh installs; NVRTC is installed from
the Python registry into build/ unless a CUDA installation has it. With --torch, an interpreter that has PyTorch with
CUDA, marks are measured beside cuBLAS and cuDNN (f32, TF32 off) and the copy bandwidth that PyTorch reaches.

No machine with an NVIDIA GPU has run this yet: it was tried with --target opencl:0 and vulkan:0, on a processor.
Exit status 1 if anything is wrong or could not be measured."""
import argparse
import glob
import json
import os
import re
import subprocess
import sys

import lib

GEMM = [f"matmul(M={n},N={n},K={n})" for n in (512, 1024, 2048, 4096)]
ROWS = ["softmax(M=16384,N=1024)", "layer_norm(M=16384,N=1024)"]
COPY = "kernel copy(x: f32[N]) -> y: f32[N] where N=67108864 { y[i] = x[i] }"
ADD = "kernel add(x: f32[N], z: f32[N]) -> y: f32[N] where N=67108864 { y[i] = x[i] + z[i] }"
TUNED = ["matmul(M=1024,N=1024,K=1024)", "conv2d(C=256,H=14,W=14,O=256,R=3,S=3,pad=1,const=1)+bias+relu",
         "depthwise_conv2d(C=96,H=112,W=112,R=3,S=3,stride=2,pad=1,const=1)", "softmax(M=4096,N=1024)"]

# Runs in --torch's interpreter: kernels on standard input, a line of JSON each.
PEER = r'''
import json, re, sys, torch
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
torch.backends.cudnn.benchmark = True
def time_us(call):
    for _ in range(5): call()
    torch.cuda.synchronize()
    best = []
    for _ in range(9):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(20): call()
        end.record(); torch.cuda.synchronize()
        best.append(begin.elapsed_time(end) * 1000 / 20)
    return sorted(best)[len(best) // 2]
for line in sys.stdin:
    text = line.strip()
    sizes = {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", text)}
    rand = lambda *shape: torch.rand(*shape, device="cuda") - 0.5
    if text.startswith("matmul"):
        a, b = rand(sizes["M"], sizes["K"]), rand(sizes["K"], sizes["N"])
        out = torch.empty(sizes["M"], sizes["N"], device="cuda")
        call = lambda: torch.matmul(a, b, out=out)
    elif text.startswith("conv2d"):
        x = rand(1, sizes["C"], sizes["H"], sizes["W"])
        w, bias = rand(sizes["O"], sizes["C"], sizes["R"], sizes["S"]), rand(sizes["O"])
        call = lambda: torch.nn.functional.conv2d(x, w, bias, stride=sizes.get("stride", 1), padding=sizes.get("pad", 0))
    elif text.startswith("kernel copy"):
        x = rand(sizes["N"]); y = torch.empty_like(x)
        call = lambda: y.copy_(x)
    else:
        continue
    print(json.dumps({"kernel": text, "us": time_us(call)}), flush=True)
'''


def build():
    if not os.path.exists(os.path.join(lib.ROOT, "build/release/build.ninja")):
        subprocess.run(["cmake", "--preset", "release"], cwd=lib.ROOT, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", "--preset", "release", "--target", "honed", "hone", "hone-builder", "hone-runner",
                    "hone-device-runner", "backends_tests"], cwd=lib.ROOT, check=True, stdout=subprocess.DEVNULL)


def find_nvrtc():
    if not glob.glob("/usr/local/cuda*/lib64/libnvrtc.so*") and "VIRTUAL_ENV" not in os.environ:
        lib.environment("bench-nvrtc-python")
        os.environ["VIRTUAL_ENV"] = os.path.join(lib.ROOT, "build/bench-nvrtc-python")


def run_tests(kind, out):
    """(passed, failed, skipped) of the tests that go through every kind of device."""
    done = subprocess.run([os.path.join(lib.BIN, "backends_tests"), f"--gtest_filter=*GpuDevice*/{kind}"],
                          capture_output=True, text=True, check=False)
    with open(os.path.join(out, "tests.txt"), "w", encoding="utf-8") as file:
        file.write(done.stdout + done.stderr)
    counts = [re.search(rf"\[ *{word} *\] (\d+) tests?", done.stdout) for word in ("PASSED", "FAILED", "SKIPPED")]
    return [int(found.group(1)) if found else 0 for found in counts]


def check_lists(daemon, target, lists, out):
    """Runs every kernel; the rows that are not verified."""
    wrong, checked = [], 0
    for name in lists:
        rows = daemon.hone("run", name, "--target", target, "--repeat", "5")
        short = os.path.basename(name)
        with open(os.path.join(out, short + ".json"), "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
        bad = [row for row in rows if not row.get("verified")]
        wrong += bad
        checked += len(rows)
        total_us = sum(row["time_us"] * row["count"] for row in rows if "time_us" in row)
        print(f"{short:28} {len(rows) - len(bad):4} of {len(rows):4} verified, {total_us / 1000:9.3f} ms a run of all", flush=True)
        for row in bad[:5]:
            print(f"  {row.get('kernel', '')}: {row.get('error', {}).get('message', 'wrong')}")
    return checked, wrong


def time_of(daemon, target, kernel):
    row = daemon.hone("run", kernel, "--target", target, "--repeat", "15")[0]
    if not row.get("verified"):
        print(f"  {kernel}: {row.get('error', {}).get('message', 'not verified')}")
        return None
    return row["time_us"]


def peers(interpreter, kernels):
    done = subprocess.run([interpreter, "-c", PEER], input="\n".join(kernels), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(f"peers were not measured: {done.stderr.strip().splitlines()[-1:]}")
    return {row["kernel"]: row["us"] for row in map(json.loads, done.stdout.splitlines())}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="cuda:0")
    parser.add_argument("--out", default=os.path.join(lib.ROOT, "build/gpu_machine"))
    parser.add_argument("--trials", type=int, default=128, help="of each search; 0: none")
    parser.add_argument("--torch", help="a Python interpreter that has PyTorch with CUDA")
    parser.add_argument("--quick", action="store_true", help="no marks that want large operands")
    parser.add_argument("lists", nargs="*")
    options = parser.parse_args()
    kind = options.target.split(":")[0]
    os.makedirs(options.out, exist_ok=True)
    lists = options.lists or sorted(glob.glob(os.path.join(lib.ROOT, "models/*.kernels")))
    build()
    if kind == "cuda":
        find_nvrtc()
    is_wrong = False
    with lib.Daemon() as daemon:
        status = daemon.hone("status")[0]
        with open(os.path.join(options.out, "status.json"), "w", encoding="utf-8") as file:
            json.dump(status, file, indent=1)
        here = [text for text in status["targets"] if text.split(" ")[0] == kind and " unchecked=" not in text]
        if not here:
            answer = daemon.hone("get", "matmul(M=8,N=8,K=8)", "--target", options.target)[0]
            sys.exit(f"gpu_machine: {answer.get('error', {}).get('message', 'no such device')}")
        print(f"device: {here[0]}", flush=True)

        passed, failed, skipped = run_tests(kind, options.out)
        print(f"tests: {passed} passed, {failed} failed, {skipped} skipped", flush=True)
        is_wrong |= failed > 0 or skipped > 0 or passed == 0

        checked, wrong = check_lists(daemon, options.target, lists, options.out)
        lib.mark(f"{kind}_kernels_not_verified", len(wrong), "", 0, True)
        is_wrong |= bool(wrong) or checked == 0

        figures = {"by_default": {}, "tuned": {}, "peers": {}}
        measured = GEMM[:1] if options.quick else [*GEMM, *ROWS, COPY, ADD]
        convolutions = [] if options.quick else [kernel for _, kernel in lib.kernels([os.path.join(lib.ROOT, "models/resnet50.kernels")])
                                                 if kernel.startswith("conv2d")]
        for kernel in [*measured, *convolutions]:
            us = time_of(daemon, options.target, kernel)
            is_wrong |= us is None
            if us is not None:
                figures["by_default"][kernel] = us
        by_default = figures["by_default"]
        for kernel in GEMM:
            if kernel in by_default:
                n = int(re.search(r"M=(\d+)", kernel).group(1))
                print(f"{kernel:36} {by_default[kernel]:12.1f} us  {2 * n ** 3 / by_default[kernel] / 1e3:10.1f} GFLOP/s by default")
        if options.torch:
            figures["peers"] = peers(options.torch, [*GEMM, *convolutions, COPY])
        them = figures["peers"]
        for name, group, limit in (("gemm", GEMM, 0.9), ("convolutions", convolutions, 0.9)):
            ratios = [them[kernel] / by_default[kernel] for kernel in group if kernel in them and kernel in by_default]
            if ratios:
                lib.mark(f"{kind}_{name}_against_libraries", lib.geometric_mean(ratios), "x", limit, False)
        copy_us = them.get(COPY, by_default.get(COPY))
        if copy_us:
            copied = 2 * 4 * 67108864 / copy_us
            for name, kernel, moved in (("softmax", ROWS[0], 2 * 4 * 16384 * 1024), ("layer_norm", ROWS[1], 2 * 4 * 16384 * 1024),
                                        ("element_wise", ADD, 3 * 4 * 67108864)):
                if kernel in by_default:
                    lib.mark(f"{kind}_{name}_of_copy_bandwidth", moved / by_default[kernel] / copied, "x", 0.9, False)

        for kernel in TUNED if options.trials else []:
            end = daemon.hone("tune", kernel, "--target", options.target, "--trials", str(options.trials))[-1]
            figures["tuned"][kernel] = end
            if end.get("error"):
                print(f"  {kernel}: {end['error']['message']}")
                is_wrong = True
            else:
                print(f"tuned {kernel}: {end.get('ratio', 0):.2f} times as fast as before, {end.get('trials')} trials", flush=True)
        with open(os.path.join(options.out, "figures.json"), "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)
        answer = daemon.hone("export", "-o", os.path.join(options.out, "records.bundle"))[-1]
        if answer.get("error"):
            print(f"records were not exported: {answer['error']['message']}")
            is_wrong = True
    print(f"figures and records: {options.out}")
    return 1 if is_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
