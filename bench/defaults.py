#!/usr/bin/env python3
"""What default schedules reach: as a share of this machine's measured FMA peak, and on two threads against one.

usage: bench/defaults.py [--bin DIR] [--rounds N] [--threads N] [KERNEL | FILE.kernels …]

The share is taken on the matrix products and convolutions of bench/bench.kernels, one thread; the peak is measured
again beside each kernel. Two threads against one: every kernel above 50 MFLOP of the given lists (default: the eleven
models'), both held at once and called in turns."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import lib

lib.enter("bench-python")
import libhone  # noqa: E402
import turns  # noqa: E402

BURST_S = 0.01
HEAVY_FLOPS = 50e6


def peak_gflops(bin_directory):
    done = subprocess.run([os.path.join(bin_directory, "peak")], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["fma_gflops"]


def prepared(client, kernel, threads, arrays=None):
    """A callable of the kernel's computation over random operands, and the operands."""
    held = client.get(kernel, threads)
    arrays = arrays or turns.operands(held)
    return held, held.bind(arrays), arrays


def burst(work, seconds=BURST_S):
    """Seconds of one call: the mean over a burst of them."""
    begin = time.perf_counter()
    calls = 0
    while (now := time.perf_counter()) - begin < seconds:
        work()
        calls += 1
    return (now - begin) / max(calls, 1)


def shares(client, bin_directory, rounds):
    print("one thread, share of the FMA peak (range over the rounds):")
    medians = []
    for _, kernel in lib.kernels([os.path.join(lib.ROOT, "bench/bench.kernels")]):
        if not kernel.startswith(("matmul", "dense", "conv2d")):
            continue
        held, work, _ = prepared(client, kernel, 1)
        work()
        ratios = []
        for _ in range(rounds):
            peak = peak_gflops(bin_directory)
            ratios.append(held.info.flops / burst(work, 0.1) / 1e9 / peak)
        medians.append(statistics.median(ratios))
        print(f"  {medians[-1]:5.2f} ({min(ratios):.2f} … {max(ratios):.2f})  {medians[-1] * peak:6.1f} GFLOP/s  {kernel}")
        held.release()
    lib.mark("default schedules, share of FMA peak", lib.geometric_mean(medians), "x", 0.75, at_most=False)


def scaling(one, two, kernels, rounds):
    print("two threads against one, kernels above 50 MFLOP:")
    rows = []
    for number, (_, kernel) in enumerate(kernels):
        lib.progress(f"kernel {number + 1} of {len(kernels)}")
        alone, serial, arrays = prepared(one, kernel, 1)
        if alone.info.flops > HEAVY_FLOPS:
            pair, parallel, _ = prepared(two, kernel, 2, arrays)
            serial(), parallel()
            ratios = [burst(serial, 3 * BURST_S) / burst(parallel, 3 * BURST_S) for _ in range(rounds)]
            rows.append((statistics.median(ratios), min(ratios), max(ratios), kernel))
            pair.release()
        alone.release()
    lib.progress("")
    rows.sort()
    medians = [row[0] for row in rows]
    print(f"  {len(rows)} kernels: median {statistics.median(medians):.2f}, geometric mean {lib.geometric_mean(medians):.2f}, "
          f"{sum(m < 1.8 for m in medians)} below 1.8; the lowest:")
    for median, least, most, kernel in rows[:10]:
        print(f"  {median:5.2f} ({least:.2f} … {most:.2f})  {kernel}")
    lib.mark("two threads / one, geometric mean", lib.geometric_mean(medians), "x", 1.8, at_most=False)
    lib.mark("two threads / one, worst kernel", medians[0], "x", 1.8, at_most=False)


def two_peaks(bin_directory):
    """What two cores can do against one: two peaks at once, over twice the peak alone."""
    command = [os.path.join(bin_directory, "peak")]
    alone = peak_gflops(bin_directory)
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    rates = [json.loads(process.communicate()[0])["fma_gflops"] for process in both]
    print(f"the FMA peak of two cores at once: {sum(rates) / alone:.2f} of one core's ({alone:.0f} GFLOP/s)")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bin", default=lib.BIN)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("files", nargs="*")
    arguments = parser.parse_args()
    with lib.Daemon(arguments.bin) as daemon:
        library = os.path.join(arguments.bin, "../lib/libhone.so")
        one, two = (libhone.Client(library, daemon.socket, threads) for threads in (1, 2))
        shares(one, arguments.bin, arguments.rounds)
        two_peaks(arguments.bin)
        scaling(one, two, lib.kernels(arguments.files), arguments.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
