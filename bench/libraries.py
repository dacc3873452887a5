#!/usr/bin/env python3
"""hone's kernels beside every library: OpenBLAS and oneDNN in one process with them, onnxruntime in another.

usage: bench/libraries.py [--bin DIR] [--trials N] [--threads N] [--rounds N] [--json FILE] [KERNEL | FILE.kernels …]

A fresh daemon serves the kernels (default: bench/bench.kernels), after a search of N trials each if there are to be any;
then bench/library_bench.cc and bench/peers.py measure. A round's ratio is a library's time over hone's (above 1:
hone is faster), a library's is the median over the rounds, and the fastest library is the one with the lowest among those
that compute the same from the same operands; constants may have been reordered ahead of time. Apart from them stand
oneDNN in layouts of its own with reorders of inputs and results left out, and Winograd convolutions.

Installs what Debian has of them, and builds library_bench."""
import argparse
import json
import os
import statistics
import subprocess
import sys

import lib

lib.enter("bench-python")
import libhone  # noqa: E402
import peers  # noqa: E402

PACKAGES = ["libopenblas-dev", "libdnnl-dev", "ocl-icd-opencl-dev"]  # the last is wanted by oneDNN's own CMake files
PROCESSES = 3  # where stack and operands lie differs from process to process, and times with it


def program(bin_directory):
    """Where library_bench is; builds it the first time."""
    path = os.path.join(bin_directory, "library_bench")
    if not os.path.exists(path):
        lib.install(*PACKAGES)
        build = os.path.dirname(os.path.abspath(bin_directory))
        print("building library_bench …", flush=True)
        for command in (["cmake", "-S", lib.ROOT, "-B", build], ["cmake", "--build", build, "--target", "library_bench"]):
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return path


def openblas_core():
    """OpenBLAS takes processors that are newer than itself for very old ones; these kernels they can all run."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        flags = next((line.split() for line in file if line.startswith("flags")), [])
    return "SkylakeX" if "avx512dq" in flags else "Haswell" if "avx2" in flags else ""


def run_beside(daemon, kernels, threads, rounds):
    """What library_bench prints, a row per kernel."""
    command = [program(daemon.bin), "--socket", daemon.socket, "--threads", str(threads), "--rounds", str(rounds), *kernels]
    environment = dict(daemon.environment, OMP_NUM_THREADS=str(threads), OPENBLAS_NUM_THREADS=str(threads))
    environment.setdefault("OPENBLAS_CORETYPE", openblas_core())
    rows = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        for line in process.stdout:
            row = json.loads(line)
            if "error" in row:
                sys.exit(f"bench/libraries.py: {row['kernel']}: {row['error']}")
            if "kernel" in row:
                rows.append(row)
                lib.progress(f"beside libraries: {len(rows)} of {len(kernels)}")
    if process.returncode != 0 or len(rows) != len(kernels):
        sys.exit(f"bench/libraries.py: library_bench ended with {process.returncode}, its message is above")
    return rows


def merged(rows):
    """One kernel's rows from several processes: medians, and the range of all rounds."""
    middle = lambda name, some: statistics.median(each[name] for each in some)  # noqa: E731
    row = dict(rows[0], hone_us=middle("hone_us", rows), hone_least_us=min(each["hone_least_us"] for each in rows),
               hone_most_us=max(each["hone_most_us"] for each in rows), peers=[])
    for some in zip(*(each["peers"] for each in rows)):
        row["peers"].append(dict(some[0], us=middle("us", some), ratio=middle("ratio", some),
                                 least=min(peer["least"] for peer in some), most=max(peer["most"] for peer in some),
                                 difference=max(peer["difference"] for peer in some)))
    return row


def measure(daemon, kernels, threads, rounds):
    """A row per kernel as library_bench prints it, onnxruntime among its peers."""
    each = max(1, rounds // PROCESSES)
    rows = [merged(some) for some in zip(*(run_beside(daemon, kernels, threads, each) for _ in range(PROCESSES)))]
    client = libhone.Client(os.path.join(daemon.bin, "../lib/libhone.so"), daemon.socket, threads)
    overhead = peers.overheads(client)
    for row in rows:
        lib.progress(f"beside onnxruntime: {row['kernel']}")
        other = peers.compare(client, row["kernel"], rounds, overhead, threads)
        row["peers"].append({"name": "onnxruntime", "kind": "same", "us": other["onnxruntime_us"], "ratio": other["ratio"],
                             "least": other["least"], "most": other["most"], "difference": other["difference"]})
    lib.progress("")
    return rows


def fastest(row):
    """Of the libraries that compute the same."""
    return min((peer for peer in row["peers"] if peer["kind"] == "same"), key=lambda peer: peer["ratio"])


def best_of(row, kind):
    return min((peer["ratio"] for peer in row["peers"] if peer["kind"] == kind), default=None)


def show(rows):
    print(f"{'hone us':>9} {'its time / hone time':>22} {'blocked':>8} {'Winograd':>8}  fastest library, kernel")
    for row in rows:
        first = fastest(row)
        apart = "".join(f" {ratio:8.2f}" if ratio else "        -" for ratio in
                        (best_of(row, "blocked"), best_of(row, "relaxed")))
        print(f"{row['hone_us']:9.1f} {first['ratio']:8.2f} ({first['least']:.2f} … {first['most']:.2f}){apart}  "
              f"{first['name']:28} {row['kernel']}")
    print("blocked: oneDNN without the reorders to and from its own layouts; Winograd: oneDNN's, larger errors; both apart")


def report(rows, suffix=""):
    """Marks of a list of kernels at strict accuracy."""
    ratios = [fastest(row)["ratio"] for row in rows]
    wrong = 0
    for row in rows:
        for peer in row["peers"]:
            if not peer["difference"] < (1e-2 if peer["kind"] == "relaxed" else 1e-4):
                wrong += 1
                print(f"  results differ by {peer['difference']:.2g} of the largest value: {peer['name']}, {row['kernel']}")
    lib.mark("results that differ from a library's" + suffix, wrong, "", 0, at_most=True)
    lib.mark("against the fastest library" + suffix, lib.geometric_mean(ratios), "x", 1.0, at_most=False)
    lib.mark("against the fastest library, worst" + suffix, min(ratios), "x", 0.85, at_most=False)


def relaxed(daemon, trials, rounds):
    """Convolutions whose accuracy allows Winograd, against libraries that compute them strictly."""
    cases = [("conv2d(C=64,H=56,W=56,O=64,R=3,S=3,stride=1,pad=1,const=1,accuracy=relaxed)", "64x56x56", 1.2),
             ("conv2d(C=512,H=7,W=7,O=512,R=3,S=3,pad=1,const=1,accuracy=relaxed)", "512x7x7", 1.0)]
    search(daemon, [kernel for kernel, _, _ in cases], trials, 1)
    rows = measure(daemon, [kernel for kernel, _, _ in cases], 1, rounds)
    show(rows)
    for row, (_, name, limit) in zip(rows, cases):
        lib.mark(f"relaxed {name} against the fastest library", fastest(row)["ratio"], "x", limit, at_most=False)
    return rows


def search(daemon, kernels, trials, threads):
    for kernel in kernels:
        lib.progress(f"searching {kernel}")
        end = daemon.hone("tune", kernel, "--trials", str(trials), "--threads", str(threads), "--seed", "1")[-1]
        if "error" in end:
            sys.exit(f"bench/libraries.py: {kernel}: {end['error']['message']}")
    lib.progress("")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=lib.BIN)
    parser.add_argument("--trials", type=int, default=0, help="of a search before; 0: what is served at once")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", help="a line per kernel, every peer in it")
    parser.add_argument("files", nargs="*")
    arguments = parser.parse_args()
    kernels = [kernel for _, kernel in lib.kernels(arguments.files or [os.path.join(lib.ROOT, "bench/bench.kernels")])]
    with lib.Daemon(arguments.bin) as daemon:
        if arguments.trials:
            search(daemon, kernels, arguments.trials, arguments.threads)
        rows = measure(daemon, kernels, arguments.threads, arguments.rounds)
        show(rows)
        report(rows, "" if arguments.threads == 1 else f", {arguments.threads} threads")
        if arguments.trials and arguments.threads == 1 and not arguments.files:
            rows += relaxed(daemon, arguments.trials, arguments.rounds)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
