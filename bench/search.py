#!/usr/bin/env python3
"""What a search finds: `hone tune` on the kernels of bench/bench.kernels, then against onnxruntime.

usage: bench/search.py [--bin DIR] [--trials N] [--threads N] [--json FILE] [FILE.kernels …]

A fresh daemon, one search per kernel with the same number of trials; then what is served afterwards beside onnxruntime in
one process, as bench/peers.py does it. A trial is a distinct candidate that was built, checked and timed, or failed with
a reason; the rate counts whole searches, thinking and learning included."""
import argparse
import json
import os
import sys

import lib

lib.enter("bench-python")
import libhone  # noqa: E402
import peers  # noqa: E402

SMALL_FLOPS = 250e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bin", default=lib.BIN)
    parser.add_argument("--trials", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", help="a line per kernel")
    parser.add_argument("files", nargs="*")
    arguments = parser.parse_args()
    files = arguments.files or [os.path.join(lib.ROOT, "bench/bench.kernels")]
    rows = []
    with lib.Daemon(arguments.bin) as daemon:
        client = libhone.Client(os.path.join(arguments.bin, "../lib/libhone.so"), daemon.socket, arguments.threads)
        overhead = peers.overheads(client)
        print(f"{'default':>9} {'tuned':>9} {'times':>6} {'trials/s':>9} {'vs onnxruntime':>22}  kernel")
        for _, kernel in lib.kernels(files):
            lib.progress(f"searching {kernel}")
            end = daemon.hone("tune", kernel, "--trials", str(arguments.trials), "--threads", str(arguments.threads), "--seed", "1")[-1]
            if "error" in end:
                sys.exit(f"bench/search.py: {kernel}: {end['error']['message']}")
            lib.progress("")
            row = peers.compare(client, kernel, arguments.rounds, overhead, arguments.threads)
            row["rate"] = end["trials"] / end["elapsed_s"]
            row["gain"] = end["ratio"] or 1
            rows.append(row)
            print(f"{end['start_us']:9.1f} {row['hone_us']:9.1f} {row['gain']:6.2f} {row['rate']:9.1f} "
                  f"{row['ratio']:8.2f} ({row['least']:.2f} … {row['most']:.2f})  {kernel}", flush=True)
            if arguments.json:
                with open(arguments.json, "a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
    small = [row["rate"] for row in rows if row["flops"] < SMALL_FLOPS]
    ratios = [row["ratio"] for row in rows]
    lib.mark("trials a second, kernels < 250 MFLOP", lib.geometric_mean(small), "/s", 30, at_most=False)
    lib.mark("searched, against onnxruntime", lib.geometric_mean(ratios), "x", 1.0, at_most=False)
    lib.mark("searched, worst against onnxruntime", min(ratios), "x", 0.85, at_most=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
