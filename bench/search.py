#!/usr/bin/env python3
"""What a search finds: `hone tune` on the kernels of bench/bench.kernels, then against the fastest library of each.

usage: bench/search.py [--bin DIR] [--trials N] [--threads N] [--json FILE] [KERNEL | FILE.kernels …]

A fresh daemon, one search per kernel with the same number of trials; then what is served afterwards beside OpenBLAS, oneDNN
and onnxruntime, as bench/libraries.py does it, and with one thread two convolutions again at accuracy=relaxed. A trial is
a distinct candidate that was built, checked and timed, or failed with a reason; the rate counts whole searches, thinking
and learning included."""
import argparse
import json
import os
import sys

import lib

lib.enter("bench-python")
import libraries  # noqa: E402

SMALL_FLOPS = 250e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bin", default=lib.BIN)
    parser.add_argument("--trials", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", help="a line per kernel")
    parser.add_argument("files", nargs="*")
    arguments = parser.parse_args()
    files = arguments.files or [os.path.join(lib.ROOT, "bench/bench.kernels")]
    kernels = [kernel for _, kernel in lib.kernels(files)]
    suffix = "" if arguments.threads == 1 else f", {arguments.threads} threads"
    ends = {}
    libraries.program(arguments.bin)  # what is missing is installed now, not after the long part
    with lib.Daemon(arguments.bin) as daemon:
        print(f"{'default':>9} {'tuned':>9} {'times':>6} {'trials/s':>9}  kernel")
        for kernel in kernels:
            lib.progress(f"searching {kernel}")
            end = daemon.hone("tune", kernel, "--trials", str(arguments.trials), "--threads", str(arguments.threads),
                              "--seed", "1")[-1]
            if "error" in end:
                sys.exit(f"bench/search.py: {kernel}: {end['error']['message']}")
            lib.progress("")
            ends[kernel] = end
            print(f"{end['start_us']:9.1f} {end['best_us']:9.1f} {end['ratio'] or 1:6.2f} "
                  f"{end['trials'] / end['elapsed_s']:9.1f}  {kernel}", flush=True)
        rows = libraries.measure(daemon, kernels, arguments.threads, arguments.rounds)
        for row in rows:
            end = ends[row["kernel"]]
            row.update(rate=end["trials"] / end["elapsed_s"], gain=end["ratio"] or 1, default_us=end["start_us"])
        libraries.show(rows)
        small = [row["rate"] for row in rows if row["flops"] < SMALL_FLOPS]
        if small:
            lib.mark("trials a second, kernels < 250 MFLOP" + suffix, lib.geometric_mean(small), "/s", 30, at_most=False)
        libraries.report(rows, suffix)
        if arguments.threads == 1 and not arguments.files:
            rows += libraries.relaxed(daemon, arguments.trials, arguments.rounds)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
