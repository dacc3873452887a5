#!/usr/bin/env python3
"""How long a kernel takes that nobody asked for before, from the request to a verified, callable kernel in the client.

usage: bench/misses.py [--bin DIR] [--seed N] [KERNEL | FILE.kernels …]      (default: the eleven lists in models/)

A fresh daemon, an empty cache, one client that asks for each kernel once, in random order. The table shows where the
time of the daemon goes; what is left to the client's own clock is the socket, the client's checks and the mapping. Then
the whole command where no daemon runs yet, so that it starts one."""
import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import lib

FIRST_GETS = 9
STEPS = ["parse", "lookup", "queue", "schedule", "lower", "emit", "optimize", "codegen", "link", "check", "store"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bin", default=lib.BIN)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("files", nargs="*")
    arguments = parser.parse_args()
    kernels = [kernel for _, kernel in lib.kernels(arguments.files)]
    random.Random(arguments.seed).shuffle(kernels)
    rows, failures = [], []
    with lib.Daemon(arguments.bin) as daemon:
        for number, kernel in enumerate(kernels):
            lib.progress(f"miss {number + 1} of {len(kernels)}")
            row = daemon.hone("get", kernel)[0]
            if "error" in row:
                failures.append((kernel, row["error"]["message"]))
            elif not row["hit"]:  # kernels that differ in their text alone are one kernel
                rows.append((kernel, row))
    lib.progress("")

    total = [row["served_us"] / 1e3 for _, row in rows]
    print(f"{len(rows)} misses, {len(failures)} refused; ms from the request to a callable kernel")
    print(f"{'':24}{'p50':>8}{'p95':>8}{'most':>8}{'mean':>8}")
    for step in STEPS:
        times = [row["steps_us"].get(step, 0) / 1e3 for _, row in rows]
        print(f"  {step:22}" + line(times))
    rest = [row["served_us"] / 1e3 - sum(row["steps_us"].get(step, 0) for step in STEPS) / 1e3 for _, row in rows]
    print(f"  {'else (client, waiting)':22}" + line(rest))
    print(f"  {'all':22}" + line(total))
    print("slowest:")
    for kernel, row in sorted(rows, key=lambda each: -each[1]["served_us"])[:10]:
        print(f"  {row['served_us'] / 1e3:7.1f} ms  {kernel}")
    for kernel, why in failures:
        print(f"  refused: {kernel}: {why}")
    lib.mark("misses refused", len(failures), "", 0, at_most=True)
    starts = [1e3 * first_get(arguments.bin, kernels[0]) for _ in range(FIRST_GETS)]
    print(f"hone get that starts honed: {statistics.median(starts):.0f} ({min(starts):.0f} … {max(starts):.0f}) ms")
    lib.mark("hone get that starts honed, p50", statistics.median(starts), "ms", 200, at_most=True)
    lib.mark("miss p95", lib.quantile(total, 0.95), "ms", 50, at_most=True)
    return 0


def first_get(binaries, kernel):
    """Seconds of `hone get` that starts honed."""
    with tempfile.TemporaryDirectory(prefix="hone-bench-") as directory:
        environment = {name: value for name, value in os.environ.items() if name != "HONE_SOCKET"}
        environment.update(dict.fromkeys(("HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"), directory))
        hone = [os.path.join(binaries, "hone"), "--json"]
        begin = time.perf_counter()
        subprocess.run([*hone, "get", kernel], env=environment, check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - begin
        status = subprocess.run([*hone, "status"], env=environment, check=True, capture_output=True, text=True).stdout
        daemon = json.loads(status)["pid"]
        os.kill(daemon, signal.SIGTERM)
        while os.path.exists(f"/proc/{daemon}"):
            time.sleep(0.01)
        return seconds


def line(times):
    return "".join(f"{t:8.2f}" for t in
                   (statistics.median(times), lib.quantile(times, 0.95), max(times), statistics.mean(times)))


if __name__ == "__main__":
    sys.exit(main())
