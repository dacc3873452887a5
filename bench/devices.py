#!/usr/bin/env python3
"""An OpenCL device beside CLBlast and this machine's own code, misses and searches on devices, and transfer between its kernels.

usage: bench/devices.py [--bin DIR] [--pool DIR] [--trials N] [--only PART]… [--json FILE] [--write FILE.md]

Parts, all unless some are named:
  products   products of matrices, served and searched, beside CLBlast as its own tuners leave it (kept in build/clblast-tuned),
             on the same queue and buffers, in turns; the best of those schedules that share block storage among several threads;
             the same kernels as code for this machine and for a Vulkan device there, which are reported
  misses     every eighth kernel of the lists on OpenCL, Vulkan and, where NVRTC is, CUDA without a device: where the time of a miss goes
  transfer   kernels searched with N trials (48) each; then others, served from those alone with nothing measured, beside their
             default schedules and what a search of their own finds, in turns; candidates a second of these searches
  serving    hits of CPU kernels with devices there and without

The device is the first of the first OpenCL platform: PoCL makes one of a processor. Searches are kept in build/devices-pool.
--write puts the tables of `transfer` between the marks of a Markdown file (docs/transfer.md); bench/check has it do so when it records
the marks."""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

import lib

lib.enter("bench-python")

import opencl  # noqa: E402

BEGIN, END = "<!-- table: bench/devices.py -->", "<!-- end of the table of devices -->"
TARGET = "opencl:0"
PRODUCTS = {"matmul(M=256,N=256,K=256)": (256, 256, 256, 1), "matmul(M=512,N=512,K=512)": (512, 512, 512, 1),
            "matmul(M=1024,N=1024,K=1024)": (1024, 1024, 1024, 1),
            "batch_matmul(B=12,M=128,N=128,K=64)": (128, 128, 64, 12), "batch_matmul(B=16,M=256,N=256,K=256)": (256, 256, 256, 16)}
SHARING = [f"y.share=1 y.columns={columns} y.rows={rows} y.threads_x={x} y.threads_y={y} y.steps={steps}"
           for columns, rows in ((4, 4), (8, 4), (8, 8), (16, 4)) for x, y in ((4, 1), (4, 4), (8, 8)) for steps in (8, 32)]
# What is searched first, and what is then served from it: other sizes of the same operations.
DONORS = ["matmul(M=256,N=256,K=256)", "matmul(M=128,N=768,K=768)", "matmul(M=512,N=512,K=512)",
          "conv2d(C=64,H=56,W=56,O=64,R=1,S=1,const=1)+bias+relu", "conv2d(C=64,H=28,W=28,O=64,R=3,S=3,pad=1,const=1)+bias+relu",
          "conv2d(C=128,H=14,W=14,O=128,R=3,S=3,pad=1,const=1)+bias+relu",
          "depthwise_conv2d(C=96,H=112,W=112,R=3,S=3,stride=2,pad=1,const=1)", "depthwise_conv2d(C=144,H=56,W=56,R=3,S=3,pad=1,const=1)",
          "depthwise_conv2d(C=384,H=14,W=14,R=3,S=3,pad=1,const=1)", "softmax(M=1024,N=256)", "softmax(M=128,N=128)",
          "softmax(M=64,N=1000)"]
LEFT_OUT = ["matmul(M=384,N=384,K=384)", "matmul(M=128,N=3072,K=768)", "matmul(M=320,N=512,K=256)",
            "conv2d(C=128,H=28,W=28,O=128,R=1,S=1,const=1)+bias+relu", "conv2d(C=32,H=56,W=56,O=32,R=3,S=3,pad=1,const=1)+bias+relu",
            "conv2d(C=96,H=28,W=28,O=96,R=3,S=3,pad=1,const=1)+bias+relu",
            "depthwise_conv2d(C=144,H=56,W=56,R=3,S=3,stride=2,pad=1,const=1)", "depthwise_conv2d(C=192,H=28,W=28,R=3,S=3,pad=1,const=1)",
            "depthwise_conv2d(C=32,H=112,W=112,R=3,S=3,pad=1,const=1)", "softmax(M=512,N=512)", "softmax(M=196,N=196)",
            "softmax(M=768,N=128)"]
STEPS = ["schedule", "lower", "emit", "codegen", "build", "check"]
WITHOUT_DEVICES = {"OCL_ICD_VENDORS": "/nonexistent", "VK_DRIVER_FILES": "/nonexistent", "VK_ICD_FILENAMES": "/nonexistent"}
ROUNDS = 18  # of transfer's, half of which choose
NARROW = 1e-3  # by which CLBlast's result may differ, of the largest element


def pooled(arguments, name):
    directory = os.path.join(arguments.pool, name)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    return lib.Daemon(arguments.bin, "--cache", directory)


def search(daemon, arguments, name, kernels):
    """Searches what has not been yet; a list of seconds and trials that it took, kept beside the pool."""
    path = os.path.join(arguments.pool, f"{name}.json")
    done = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            done = json.load(file)
    for kernel in kernels:
        if kernel in done:
            continue
        lib.progress(f"searching {kernel}")
        end = daemon.hone("tune", kernel, "--target", TARGET, "--trials", str(arguments.trials))[-1]
        if "error" in end:
            sys.exit(f"devices.py: {kernel}: {end['error']['message']}")
        done[kernel] = {"trials": end["trials"], "seconds": end["elapsed_s"], "ratio": end["ratio"]}
        with open(path, "w", encoding="utf-8") as file:
            json.dump(done, file, indent=1)
    lib.progress("")
    return {kernel: done[kernel] for kernel in kernels}


def of_target(daemon, kernel, target, *options):
    """Microseconds of a kernel on a target as honed times it, 0 where it has none."""
    row = daemon.hone("run", kernel, "--target", target, *options)[-1]
    return row.get("time_us", 0)


def sharing(arguments, kernel):
    """Microseconds of the best schedule whose blocks of several threads share storage, and which it is."""
    with tempfile.TemporaryDirectory(prefix="hone-bench-") as folder:
        with lib.Daemon(arguments.bin) as daemon:
            target = daemon.hone("get", kernel, "--target", TARGET)[0]["target"]
        path = os.path.join(folder, "sharing.sweep")
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join([kernel, *SHARING]) + "\n")
        program = os.path.join(arguments.bin, "gpu_times")
        built = os.path.join(folder, "built")
        subprocess.run([program, "--save", built, "--target", target, path], check=True, stdout=subprocess.DEVNULL)
        said = subprocess.run([program, "--device", TARGET, "--rounds", "3", built], capture_output=True, text=True, check=False).stdout
    rows = [(float(us), line) for line in said.splitlines() for us in re.findall(r"^ *([\d.]+) us", line)]
    return min(rows, default=(0, ""))


def are_near(results, others):
    largest = max(abs(value) for value in others)
    return all(abs(x - y) <= NARROW * largest for x, y in zip(results, others))  # of no NaN


def products(arguments, rows):
    device = opencl.Device()
    clblast = opencl.ClBlast(device)
    print(f"products of matrices on {device.name}; us, and times CLBlast's speed")
    print(f"{'CLBlast':>10}{'served':>10}{'searched':>10}{'':>15}{'sharing':>10}{'CPU':>9}{'Vulkan':>10}  kernel")
    found = []
    with lib.Daemon(arguments.bin) as fresh, pooled(arguments, "products") as tuned:
        search(tuned, arguments, "products", PRODUCTS)
        served, searched = (opencl.Hone(device, arguments.bin, daemon.socket) for daemon in (fresh, tuned))
        for kernel, (m, n, k, batch) in PRODUCTS.items():
            first = served.get(kernel)
            best = searched.get(kernel, first.buffers[:-1] + [device.buffer(first.operands[-1].bytes)])
            c = device.buffer(first.operands[-1].bytes)
            theirs = clblast.gemm(m, n, k, first.buffers[0], first.buffers[1], c, batch)
            device.in_turns([first], 1)
            ours = first.output()
            least = {}
            clblast.take_best()
            for indirect in (False, True):  # the faster of its two ways
                clblast.route(indirect)
                while True:
                    microseconds = min(device.in_turns([theirs], 3)[0])
                    if are_near(ours, device.read(c, first.operands[-1].bytes // opencl.FLOAT)):
                        least[indirect] = microseconds
                        break
                    print("CLBlast computes something else as it was tuned; with the next best of its tuner:")
                    if not indirect or not clblast.take_next():
                        sys.exit(f"devices.py: {kernel}: results differ from CLBlast's")
                    clblast.route(indirect)
            clblast.route(min(least, key=least.get))
            times = device.in_turns([theirs, first, best])
            if not are_near(best.output(), ours):
                sys.exit(f"devices.py: {kernel}: what was searched differs from what is served")
            medians = [statistics.median(row) for row in times]
            row = {"kernel": kernel, "clblast_us": medians[0], "served_us": medians[1], "searched_us": medians[2],
                   "spread": [[min(row), max(row)] for row in times],
                   "served": statistics.median(x / y for x, y in zip(times[0], times[1])),
                   "searched": statistics.median(x / y for x, y in zip(times[0], times[2]))}
            row["sharing_us"], row["sharing"] = sharing(arguments, kernel)
            row["cpu_us"] = of_target(fresh, kernel, "cpu", "--threads", str(os.cpu_count()))
            row["vulkan_us"] = of_target(fresh, kernel, "vulkan:0")
            found.append(row)
            print(f"{medians[0]:10.1f}{medians[1]:10.1f}{medians[2]:10.1f}{row['served']:7.2f}{row['searched']:7.2f}x"
                  f"{row['sharing_us']:10.1f}{row['cpu_us']:9.1f}{row['vulkan_us']:10.1f}  {kernel}", flush=True)
            best.release(False)
            device.free(best.buffers[-1], c)
            first.release()
    rows["products"] = found
    for state in ("served", "searched"):
        lib.mark(f"OpenCL products / tuned CLBlast, {state}, mean", lib.geometric_mean([row[state] for row in found]), "x", 1.2,
                 at_most=False)
        lib.mark(f"OpenCL products / tuned CLBlast, {state}, worst", min(row[state] for row in found), "x", 1.2, at_most=False)


def misses(arguments, rows):
    kernels = [kernel for _, kernel in lib.kernels()][::8]
    rows["misses"] = {}
    with lib.Daemon(arguments.bin) as daemon:
        for target, name in ((TARGET, "OpenCL"), ("vulkan:0", "Vulkan"), ("cuda:sm_90", "CUDA, compiled alone")):
            found, refused = [], []
            for kernel in kernels:
                lib.progress(f"{name}: {kernel}")
                row = daemon.hone("get", kernel, "--target", target)[0]
                if "error" in row:
                    refused.append(f"{kernel}: {row['error']['message']}")
                elif not row["hit"]:
                    found.append(row)
            lib.progress("")
            if not found:
                print(f"{name}: none of {len(kernels)} kernels was served: {refused[0]}")
                continue
            print(f"{name}: {len(found)} misses, {len(refused)} refused; ms {'p50':>22}{'p95':>8}{'most':>8}")
            for step in STEPS:
                print_times(step, [row["steps_us"].get(step, 0) / 1e3 for row in found])
            compiled = [(row["served_us"] - row["steps_us"].get("check", 0)) / 1e3 for row in found]
            print_times("all", [row["served_us"] / 1e3 for row in found])
            print_times("all but checking", compiled)
            rows["misses"][target] = compiled
            for why in refused:
                print(f"  refused: {why}")
            if target.startswith("cuda"):  # the others' drivers compile where code is checked
                lib.mark("miss, compiling alone, CUDA, p95", lib.quantile(compiled, 0.95), "ms", 300, at_most=True)


def print_times(name, times):
    print(f"  {name:44}{statistics.median(times):8.1f}{lib.quantile(times, 0.95):8.1f}{max(times):8.1f}")


def transfer(arguments, rows):
    device = opencl.Device()
    with pooled(arguments, "donors") as daemon:
        donors = search(daemon, arguments, "donors", DONORS)
    # Left out: the pool that serves them stays as it is, what they come to is searched in another.
    with pooled(arguments, "left_out") as daemon:
        search(daemon, arguments, "left_out", LEFT_OUT)
    found = []
    print(f"{'default':>10}{'served':>10}{'searched':>10}{'share':>8}{'over default':>14}  origin       kernel")
    with lib.Daemon(arguments.bin) as fresh, pooled(arguments, "left_out") as tuned, tempfile.TemporaryDirectory() as folder:
        copied = os.path.join(folder, "pool")
        # With the key beside it: a cost model without this cache's mark is not taken.
        for kind in ("", ".state"):
            subprocess.run(["cp", "-a", os.path.join(arguments.pool, "donors" + kind), copied + kind], check=True)
        with lib.Daemon(arguments.bin, "--cache", copied) as pool:
            sides = [opencl.Hone(device, arguments.bin, daemon.socket) for daemon in (fresh, pool, tuned)]
            for kernel in LEFT_OUT:
                kernels = [sides[0].get(kernel)]
                kernels += [side.get(kernel, kernels[0].buffers) for side in sides[1:]]
                times = device.in_turns(kernels, ROUNDS)
                row = {"kernel": kernel, "origin": kernels[1].origin}
                row["default_us"], row["served_us"], row["searched_us"] = (statistics.median(each) for each in times)
                # The fastest by every other round, how much faster by those between: the least of three times of one
                # program is less than another of its times, and would count as a share of 0.9.
                fastest = min(times, key=lambda each: statistics.median(each[::2]))
                row["share"] = min(1.0, statistics.median(x / y for x, y in zip(fastest[1::2], times[1][1::2])))
                # What nothing was transferred to is the default's own code, whose times beside themselves say nothing.
                row["gain"] = (1.0 if row["origin"] == kernels[0].origin == "default"
                               else statistics.median(x / y for x, y in zip(times[0], times[1])))
                found.append(row)
                print(f"{row['default_us']:10.1f}{row['served_us']:10.1f}{row['searched_us']:10.1f}{row['share']:8.2f}"
                      f"{row['gain']:13.2f}x  {row['origin']:12} {kernel}", flush=True)
                for each in kernels[1:]:
                    each.release(False)
                kernels[0].release()
    rows["transfer"], rows["donors"] = found, donors
    small = [each["trials"] / each["seconds"] for each in donors.values()]
    lib.mark("candidates a second, OpenCL", lib.geometric_mean(small), "/s", 6, at_most=False)
    for operation in ("matmul", "conv2d", "depthwise_conv2d", "softmax"):
        best = max(each["ratio"] or 1 for kernel, each in donors.items() if kernel.startswith(operation + "("))
        lib.mark(f"OpenCL {operation}, searched over default, most", best, "x", 1.01, at_most=False)
    lib.mark("OpenCL, share of tuned speed, nothing measured, mean", statistics.mean(row["share"] for row in found), "", 0.9,
             at_most=False)
    lib.mark("OpenCL, transferred over default, mean", lib.geometric_mean([row["gain"] for row in found]), "x", 1, at_most=False)
    if arguments.write:
        lib.write_between(arguments.write, BEGIN, END, table(rows))


def hits(arguments, environment):
    said = subprocess.run([os.path.join(arguments.bin, "serving_bench"), "--bin", arguments.bin],
                          env=dict(os.environ, **environment), capture_output=True, text=True, check=True).stdout
    return {int(clients): float(us) for clients, us in re.findall(r"^ *(\d+) clients  hit p50 ([\d.]+)", said, re.MULTILINE)}


def serving(arguments, rows):
    pairs = []
    for turn in range(6):
        sides = [{}, WITHOUT_DEVICES]
        with_devices, without = (hits(arguments, sides[i]) for i in ((0, 1) if turn % 2 == 0 else (1, 0)))
        if turn % 2:
            with_devices, without = without, with_devices
        pairs.append({clients: without[clients] / with_devices[clients] for clients in with_devices})
        print("  hits' p50 without devices over that with: "
              + ", ".join(f"{clients} clients {ratio:.3f}" for clients, ratio in pairs[-1].items()), flush=True)
    rows["serving"] = pairs
    lib.mark("CPU hits with devices there, speed", statistics.median(pair[1] for pair in pairs), "x", 0.99, at_most=False)


def table(rows):
    lines = ["| searched on PoCL | over default |", "|---|---|"]
    lines += [f"| `{kernel}` | {each['ratio'] or 1:.2f} |" for kernel, each in rows["donors"].items()]
    lines += ["", "| left out, served from those | default | served | searched | share of the fastest | over default |",
              "|---|---|---|---|---|---|"]
    lines += [f"| `{row['kernel']}` | {row['default_us']:.0f} µs | {row['served_us']:.0f} µs | {row['searched_us']:.0f} µs | "
              f"{row['share']:.2f} | {row['gain']:.2f} |" for row in rows["transfer"]]
    share, gain = statistics.mean(row["share"] for row in rows["transfer"]), lib.geometric_mean([row["gain"] for row in rows["transfer"]])
    return "\n".join([*lines, f"| mean | | | | {share:.3g} | {gain:.3g} |"])  # as docs/performance.md has them


PARTS = {"products": products, "misses": misses, "transfer": transfer, "serving": serving}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=lib.BIN)
    parser.add_argument("--pool", default=os.path.join(lib.ROOT, "build/devices-pool"))
    parser.add_argument("--trials", type=int, default=48)
    parser.add_argument("--only", action="append", choices=list(PARTS), metavar="PART")
    parser.add_argument("--json", help="what was measured")
    parser.add_argument("--write", metavar="FILE.md")
    arguments = parser.parse_args()
    rows = {}
    for part in arguments.only or PARTS:
        PARTS[part](arguments, rows)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
