#!/usr/bin/env python3
"""Everything that wants a machine with a GPU, in one go: runs the device's tests, checks every kernel of the eleven lists there,
measures marks, runs networks whole, searches some kernels, and leaves records and figures in a directory.

  bench/gpu_machine.py [--target cuda:0] [--out DIR] [--steps WORDS] [--trials N] [--torch PYTHON] [LIST.kernels …]
  bench/gpu_machine.py --pack FILE.tar.xz

The first builds what it needs. For cuda:0 the machine needs NVIDIA's driver and what scripts/install_dependencies.sh installs;
NVRTC is installed from the Python registry into build/ unless a CUDA installation has it. With --torch, an interpreter that has
PyTorch with CUDA, marks are measured beside cuBLAS and cuDNN (f32, TF32 off) and the copy bandwidth that PyTorch reaches.

The second packs programs that are built, the libraries that they need but the C and C++ libraries, this script and what it
reads, for a machine that has no compiler and that is lent by the minute: unpack there, and start bench/gpu_machine.py in it.
Networks are taken along, and run, if HONE_MODELS names a directory of ONNX graphs.

--steps takes some of tests, lists, marks, networks, tune; --minutes ends each step's programs after so long.
Exit status 1 if anything is wrong or could not be measured."""
import argparse
import concurrent.futures
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

import lib

STEPS = ["tests", "lists", "marks", "networks", "tune"]
SIZES = (512, 1024, 2048, 4096)
GEMM = [f"matmul(M={n},N={n},K={n})" for n in SIZES]
NARROW = {dtype: [f"matmul(M={n},N={n},K={n},dtype={dtype},accuracy=fast)" for n in SIZES] for dtype in ("f16", "bf16")}
ROWS = ["softmax(M=16384,N=1024)", "layer_norm(M=16384,N=1024)"]
COPY = "kernel copy(x: f32[N]) -> y: f32[N] where N=67108864 { y[i] = x[i] }"
ADD = "kernel add(x: f32[N], z: f32[N]) -> y: f32[N] where N=67108864 { y[i] = x[i] + z[i] }"
TUNED = ["matmul(M=1024,N=1024,K=1024)", "conv2d(C=256,H=14,W=14,O=256,R=3,S=3,pad=1,const=1)+bias+relu",
         "depthwise_conv2d(C=96,H=112,W=112,R=3,S=3,stride=2,pad=1,const=1)", "softmax(M=4096,N=1024)"]
NETWORKS = ["resnet50", "bert_128", "mobilenet_v2"]
PROGRAMS = ["honed", "hone", "hone-builder", "hone-runner", "hone-device-runner", "backends_tests"]
LIBRARIES = ["libhone_cuda.so", "libhone_opencl.so", "libhone_vulkan.so"]
OF_THE_SYSTEM = re.compile(r"^(ld-linux|lib(c|m|pthread|dl|rt|resolv|stdc\+\+|gcc_s)\.so)")
TESTS = "*GpuDevice*/{kind}:CompileCuda*"
AT_ONCE = 4  # lists that are checked


def is_packed():
    return not os.path.exists(os.path.join(lib.ROOT, "CMakeLists.txt"))


def build():
    if not os.path.exists(os.path.join(lib.ROOT, "build/release/build.ninja")):
        subprocess.run(["cmake", "--preset", "release"], cwd=lib.ROOT, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", "--preset", "release", "--target", *PROGRAMS], cwd=lib.ROOT, check=True,
                   stdout=subprocess.DEVNULL)


def libraries_of(program):
    done = subprocess.run(["ldd", program], capture_output=True, text=True, check=True)
    return {name: path for name, path in re.findall(r"(\S+) => (/\S+)", done.stdout) if not OF_THE_SYSTEM.match(name)}


def pack(path):
    lib.install("patchelf", "xz-utils")
    root = os.path.join(lib.ROOT, "build/release")
    with tempfile.TemporaryDirectory() as scratch:
        there = os.path.join(scratch, "hone")
        shutil.copytree(os.path.join(lib.ROOT, "models"), os.path.join(there, "models"))
        graphs = os.environ.get("HONE_MODELS")
        for name in NETWORKS if graphs else []:
            shutil.copy(os.path.join(graphs, name + ".onnx"), os.path.join(there, "models"))
        os.makedirs(os.path.join(there, "bench"))
        for name in ("gpu_machine.py", "gpu_peers.py", "lib.py"):
            shutil.copy2(os.path.join(lib.ROOT, "bench", name), os.path.join(there, "bench"))
        found = {}
        files = [("bin", name) for name in PROGRAMS] + [("lib", name) for name in LIBRARIES]
        for folder, name in files:
            source = os.path.join(root, folder, name)
            if not os.path.exists(source):
                sys.exit(f"gpu_machine: {source} is not built")
            found |= libraries_of(source)
            os.makedirs(os.path.join(there, "build/release", folder), exist_ok=True)
            shutil.copy(source, os.path.join(there, "build/release", folder))
        for name, source in found.items():
            shutil.copy(source, os.path.join(there, "build/release/lib", name))
        for folder in ("bin", "lib"):
            for binary in glob.glob(os.path.join(there, "build/release", folder, "*")):
                os.chmod(binary, 0o755)
                subprocess.run(["strip", "--strip-unneeded", binary], check=True)
                subprocess.run(["patchelf", "--set-rpath", "$ORIGIN/../lib", binary], check=True)
        with open(os.path.join(there, "built_in"), "w", encoding="utf-8") as file:
            file.write(root)
        with tarfile.open(path, "w:xz") as archive:
            archive.add(there, "hone")
    print(f"{path}: {os.path.getsize(path) / 2**20:.1f} MiB")


def find_nvrtc():
    if not glob.glob("/usr/local/cuda*/lib64/libnvrtc.so*") and "VIRTUAL_ENV" not in os.environ and not is_packed():
        lib.environment("bench-nvrtc-python")
        os.environ["VIRTUAL_ENV"] = os.path.join(lib.ROOT, "build/bench-nvrtc-python")


class Machine:
    """A daemon beside the device, and what is found out."""

    def __init__(self, daemon, options):
        self.daemon, self.options = daemon, options
        self.target, self.kind = options.target, options.target.split(":")[0]
        self.seconds = options.minutes * 60
        self.is_wrong = False
        self.figures = {"by_default": {}, "tuned": {}, "peers": {}, "networks": {}}

    def wrong(self, text):
        self.is_wrong = True
        print(text, flush=True)

    def write(self, name, value):
        with open(os.path.join(self.options.out, name), "w", encoding="utf-8") as file:
            file.write(value if isinstance(value, str) else json.dumps(value, indent=1))

    def tests(self):
        """Those that go through the kind of device, each in a process of its own."""
        program = os.path.join(lib.BIN, "backends_tests")
        if is_packed():  # the tests know where they were built
            with open(os.path.join(lib.ROOT, "built_in"), encoding="utf-8") as file:
                built_in = file.read()
            if not os.path.exists(built_in):
                os.makedirs(os.path.dirname(built_in), exist_ok=True)
                os.symlink(os.path.dirname(lib.BIN), built_in)
        listed = subprocess.run([program, "--gtest_list_tests", f"--gtest_filter={TESTS.format(kind=self.kind)}"],
                                capture_output=True, text=True, check=False).stdout
        suite, names, words, counts = "", [], "", {"OK": 0, "FAILED": 0, "SKIPPED": 0}
        for line in listed.splitlines():
            name = line.split("#")[0].rstrip()
            if name.startswith(" "):
                names.append(suite + name.strip())
            else:
                suite = name
        for name in names:
            try:
                done = subprocess.run([program, f"--gtest_filter={name}"], capture_output=True, text=True, check=False,
                                      timeout=self.seconds)
                said = done.stdout + done.stderr
            except subprocess.TimeoutExpired as late:
                said = f"took too long\n{late.stdout}"
            words += said
            result = next((word for word in ("SKIPPED", "FAILED", "OK") if re.search(rf"\[ *{word} *\] {re.escape(name)}", said)),
                          "FAILED")
            counts[result] += 1
            if result == "FAILED":
                print(f"  {name} failed: " + " ".join(said.split())[-400:], flush=True)
        self.write("tests.txt", words)
        print(f"tests: {counts['OK']} passed, {counts['FAILED']} failed, {counts['SKIPPED']} skipped", flush=True)
        self.is_wrong |= counts["FAILED"] > 0 or counts["OK"] == 0

    def check_list(self, name):
        rows = self.hone("run", name, "--target", self.target, "--repeat", "5")
        short = os.path.basename(name)
        self.write(short + ".json", rows)
        bad = [row for row in rows if not row.get("verified")]
        total_us = sum(row["time_us"] * row["count"] for row in rows if "time_us" in row)
        text = f"{short:28} {len(rows) - len(bad):4} of {len(rows):4} verified, {total_us / 1000:9.3f} ms a run of all"
        for row in bad[:5]:
            text += f"\n  {row.get('kernel', '')}: {row.get('error', {}).get('message', 'wrong')}"
        print(text, flush=True)
        return len(rows), len(bad)

    def lists(self):
        """Runs every kernel."""
        lists = self.options.lists or sorted(glob.glob(os.path.join(lib.ROOT, "models/*.kernels")))
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            counts = list(pool.map(self.check_list, lists))
        wrong = sum(bad for _, bad in counts)
        lib.mark(f"{self.kind}_kernels_not_verified", wrong, "", 0, True)
        self.is_wrong |= wrong > 0 or not any(rows for rows, _ in counts)

    def hone(self, *arguments):
        try:
            return self.daemon.hone(*arguments, timeout=self.seconds)
        except subprocess.TimeoutExpired:
            return [{"error": {"message": f"took more than {self.seconds:.0f} s"}}]

    def time_of(self, kernel):
        row = self.hone("run", kernel, "--target", self.target, "--repeat", "15")[0]
        if not row.get("verified"):
            self.wrong(f"  {kernel}: {row.get('error', {}).get('message', 'not verified')}")
            return None
        return row["time_us"]

    def peers(self, lines):
        if not self.options.torch:
            return {}
        script = os.path.join(lib.ROOT, "bench/gpu_peers.py")
        try:
            done = subprocess.run([self.options.torch, script], input="\n".join(lines), capture_output=True, text=True, check=False,
                                  timeout=self.seconds)
        except subprocess.TimeoutExpired as late:
            self.wrong(f"peers took more than {self.seconds:.0f} s")
            return {row["kernel"]: row["us"] for row in map(json.loads, (late.stdout or b"").decode().splitlines())}
        if done.stderr:
            print("peers: " + "\n".join(done.stderr.strip().splitlines()[-5:]), flush=True)
        return {row["kernel"]: row["us"] for row in map(json.loads, done.stdout.splitlines())}

    def marks(self):
        convolutions = [kernel for _, kernel in lib.kernels([os.path.join(lib.ROOT, "models/resnet50.kernels")])
                        if kernel.startswith("conv2d")]
        narrow = [kernel for kernels in NARROW.values() for kernel in kernels]
        measured = [*GEMM, *narrow, *ROWS, COPY, ADD, *convolutions] if not self.options.quick else GEMM[:1]
        times = {kernel: self.time_of(kernel) for kernel in measured}
        times = {kernel: us for kernel, us in times.items() if us is not None}
        them = self.peers([*GEMM, *narrow, *ROWS, COPY, *convolutions])
        self.figures["by_default"], self.figures["peers"] = times, them
        for kernel in [*GEMM, *narrow]:
            if kernel in times:
                n = int(re.search(r"M=(\d+)", kernel).group(1))
                print(f"{kernel:60} {times[kernel]:10.1f} us {2 * n ** 3 / times[kernel] / 1e6:8.2f} TFLOP/s"
                      + (f", {them[kernel] / times[kernel]:.2f} of cuBLAS" if kernel in them else ""), flush=True)
        groups = [("gemm", GEMM, 0.9), ("convolutions", convolutions, 0.9),
                  *((f"gemm_{dtype}", kernels, 0.8) for dtype, kernels in NARROW.items())]
        for name, group, limit in groups:
            ratios = [them[kernel] / times[kernel] for kernel in group if kernel in them and kernel in times]
            if ratios:
                lib.mark(f"{self.kind}_{name}_against_libraries", lib.geometric_mean(ratios), "x", limit, False)
        copy_us = them.get(COPY, times.get(COPY))
        if copy_us:
            copied = 2 * 4 * 67108864 / copy_us
            for name, kernel, moved in (("softmax", ROWS[0], 2 * 4 * 16384 * 1024), ("layer_norm", ROWS[1], 2 * 4 * 16384 * 1024),
                                        ("element_wise", ADD, 3 * 4 * 67108864)):
                if kernel in times:
                    lib.mark(f"{self.kind}_{name}_of_copy_bandwidth", moved / times[kernel] / copied, "x", 0.9, False)

    def networks(self):
        graphs = os.environ.get("HONE_MODELS") or os.path.join(lib.ROOT, "models")
        them = self.peers([f"network {name}" for name in NETWORKS])
        for name in NETWORKS:
            path = os.path.join(graphs, name + ".onnx")
            if not os.path.exists(path):
                continue
            answer = self.hone("run", path, "--target", self.target)[-1]
            self.figures["networks"][name] = answer
            if answer.get("error") or not answer.get("verified"):
                self.wrong(f"  {name}: {answer.get('error', {}).get('message', 'not verified')}")
                continue
            print(f"{name}: {answer['time_us'] / 1000:.3f} ms", flush=True)
            if f"network {name}" in them:
                lib.mark(f"{self.kind}_{name}_against_pytorch", answer["time_us"] / them[f"network {name}"], "x", 1.0, True)

    def tune(self):
        for kernel in TUNED if self.options.trials else []:
            end = self.hone("tune", kernel, "--target", self.target, "--trials", str(self.options.trials))[-1]
            self.figures["tuned"][kernel] = end
            if end.get("error"):
                self.wrong(f"  {kernel}: {end['error']['message']}")
            else:
                gain = f"{end['ratio']:.2f} times as fast as before" if end.get("ratio") else "nothing better"
                print(f"tuned {kernel}: {gain}, {end.get('trials')} trials", flush=True)

    def run(self, steps):
        self.write("status.json", self.hone("status")[0])
        answer = self.hone("get", "matmul(M=8,N=8,K=8)", "--target", self.target)[0]
        targets = self.hone("status")[0].get("targets", [])
        here = [text for text in targets if text.split(" ")[0] == self.kind and " unchecked=" not in text]
        if not here:
            sys.exit(f"gpu_machine: {answer.get('error', {}).get('message', 'no such device')}")
        print(f"device: {here[0]}", flush=True)
        for step in steps:
            begin = time.monotonic()
            print(f"== {step}", flush=True)
            getattr(self, step)()
            print(f"   {time.monotonic() - begin:.0f} s", flush=True)
        self.write("figures.json", self.figures)
        answer = self.hone("export", "-o", os.path.join(self.options.out, "records.bundle"))[-1]
        if answer.get("error"):
            self.wrong(f"records were not exported: {answer['error']['message']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="cuda:0")
    parser.add_argument("--out", default=os.path.join(lib.ROOT, "build/gpu_machine"))
    parser.add_argument("--pack", metavar="FILE")
    parser.add_argument("--steps", default=",".join(STEPS))
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--trials", type=int, default=128, help="of each search")
    parser.add_argument("--torch", help="a Python interpreter that has PyTorch with CUDA")
    parser.add_argument("--quick", action="store_true", help="of marks the smallest alone")
    parser.add_argument("lists", nargs="*")
    options = parser.parse_args()
    steps = options.steps.split(",")
    if unknown := [step for step in steps if step not in STEPS]:
        parser.error(f"--steps: {unknown[0]} is none of {', '.join(STEPS)}")
    if options.pack:
        pack(os.path.abspath(options.pack))
        return 0
    os.makedirs(options.out, exist_ok=True)
    if not is_packed():
        build()
    if options.target.startswith("cuda"):
        find_nvrtc()
    with lib.Daemon() as daemon:
        machine = Machine(daemon, options)
        machine.run(steps)
    print(f"figures and records: {options.out}")
    return 1 if machine.is_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
