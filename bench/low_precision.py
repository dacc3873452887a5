#!/usr/bin/env python3
"""What narrow types gain by default schedules, one thread: matrix products of 1024 as a share of the measured peak of the
instruction that does them, kernels of i8, u8, bf16 and f16, and of f32 that say accuracy=fast, beside the same ones of f32, in turns,
and weights of i8 as they come from memory. Then layers and networks beside other libraries (bench/narrow_peers.py).

usage: bench/low_precision.py [--bin DIR] [--rounds N] [--no-peers]

Peaks are measured again beside each product (build/release/bin/peak). A processor without an instruction leaves its marks
out, and says so. Kernels below 50 MFLOP, and targets without dot products, may gain nothing but must not lose."""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys

import lib

HEAVY = ["dense(M=128,N=768,K=768,const=1", "dense(M=128,N=3072,K=768,const=1",
         "conv2d(C=64,H=56,W=56,O=64,R=3,S=3,pad=1,const=1", "conv2d(C=256,H=14,W=14,O=256,R=3,S=3,pad=1,const=1",
         "conv2d(C=256,H=56,W=56,O=64,R=1,S=1,const=1", "conv2d(C=1024,H=14,W=14,O=256,R=1,S=1,const=1"]
LIGHT = ["dense(M=1,N=768,K=768,const=1", "dense(M=16,N=256,K=256,const=1", "conv2d(C=64,H=14,W=14,O=64,R=1,S=1,const=1"]
PLAIN = {"avx2": "avx2 cpu=haswell l1=32768 l2=1048576 l3=33554432 cores=2",
         "avx512": "avx512 cpu=skylake-avx512 l1=32768 l2=1048576 l3=33554432 cores=2"}
SPEED = re.compile(r" ([\d.]+) GFLOP/s +err/tol +[\d.]+ ok")


def speed(bin_directory, kernel, target=None):
    """GFLOP/s of a kernel, whose result was checked."""
    command = [os.path.join(bin_directory, "kernel_lab"), "--threads", "1"]
    command += ["--target", target] if target else []
    output = subprocess.run(command + [kernel], capture_output=True, text=True, check=True).stdout
    seen = SPEED.search(output)
    if not seen:
        raise SystemExit(f"{kernel} is wrong, or was not timed: {output}")
    return float(seen[1])


def peak(bin_directory):
    return json.loads(subprocess.run([os.path.join(bin_directory, "peak")], capture_output=True, text=True, check=True).stdout)


def gain(bin_directory, kernel, option, rounds, target=None):
    """Median over the rounds of its speed with a type or accuracy over that of f32."""
    return statistics.median(speed(bin_directory, f"{kernel},{option})", target) /
                             speed(bin_directory, f"{kernel})", target) for _ in range(rounds))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(lib.ROOT, "build/release/bin"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-peers", action="store_true")
    options = parser.parse_args()
    here = peak(options.bin)
    instructions = {"i8": "vpdpbusd_gops", "u8": "vpdpbusd_gops", "bf16": "vdpbf16ps_gflops"}
    for dtype, key in instructions.items():
        if here[key] == 0:
            print(f"no instruction for {dtype} here: its marks are left out")
            continue
        shares = [speed(options.bin, f"matmul(M=1024,N=1024,K=1024,const=1,dtype={dtype})") / peak(options.bin)[key]
                  for _ in range(options.rounds)]
        lib.mark(f"1024^3 of {dtype}, share of its instruction's peak", statistics.median(shares), "x", 0.85, False)
        gains = [gain(options.bin, kernel, f"dtype={dtype}", options.rounds) for kernel in HEAVY]
        for kernel, ratio in zip(HEAVY, gains):
            print(f"  {ratio:5.2f}x f32: {kernel},dtype={dtype})")
        lib.mark(f"{dtype} over f32 above 50 MFLOP, least", min(gains), "x", 1.6 if dtype == "bf16" else 2.5, False)
        lib.mark(f"{dtype} over f32 below 50 MFLOP, least",
                 min(gain(options.bin, kernel, f"dtype={dtype}", options.rounds) for kernel in LIGHT), "x", 1, False)
    for isa, target in PLAIN.items():
        if isa == "avx512" and here["isa"] != "avx512":
            continue
        for dtype in ("i8", "u8", "bf16", "f16"):
            ratio = min(gain(options.bin, kernel, f"dtype={dtype}", options.rounds, target) for kernel in HEAVY + LIGHT)
            lib.mark(f"{dtype} over f32 on plain {isa}, least", ratio, "x", 1, False)
    if here["vdpbf16ps_gflops"] > 0:
        # Of convolutions whose window is 3x3 Winograd's algorithm is the other way.
        kernels = [kernel for kernel in HEAVY + LIGHT if "R=3" not in kernel]
        lib.mark("f32 of accuracy=fast over strict, least",
                 min(gain(options.bin, kernel, "accuracy=fast", options.rounds) for kernel in kernels), "x", 1.5, False)
    row = "dense(M=1,N=4096,K=4096,weights=i8,const=1)"
    shares = [4096 * 4096 / (2 * 4096 * 4096 / speed(options.bin, row)) / peak(options.bin)["read_gb_s"]
              for _ in range(options.rounds)]
    lib.mark("one row of 4096^2 weights of i8, of memory's bandwidth", statistics.median(shares), "x", 0.85, False)
    if options.no_peers:
        return 0
    return subprocess.run([sys.executable, os.path.join(lib.ROOT, "bench/narrow_peers.py"), "--bin", options.bin],
                          check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
