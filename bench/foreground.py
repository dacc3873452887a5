#!/usr/bin/env python3
"""What refining in idle time costs whoever works on the machine, and what it still gets done.

usage: bench/foreground.py [--bin DIR] [--cycles N] [--only PROGRAM]… [--json FILE]

Programs: compile (a source file of this tree), gemm (a loop of matrix products, one thread), gemm2 (two threads), echo (a
server asked a thousand times a second; its median and its p99). Each begins on a machine that has been quiet for some
seconds, so that refining is under way, and takes about two.

A cycle is six blocks, each with a fresh daemon of its own: without, with, without, without, with, without refining (honed
--no-idle). Outer blocks and their neighbours are pairs; the slowdown is the geometric mean of their ratios, with a 95 %
interval from a bootstrap over the pairs. The blocks in the middle against the outer ones are the control: the same
program under the same conditions.

Then how soon refining comes back: trials a second before two threads of matrix products, and the time from their end to
the begin of the first two seconds with at least 80 % of that."""
import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import time

import lib

lib.enter("bench-python")

ORDER = ["without", "with", "control", "control", "with", "without"]
QUIET_S = 4.5  # two until the gate opens, and some of refining
PATIENCE_S = 20
WORK_S = 2
KERNELS = os.path.join(lib.ROOT, "bench/bench.kernels")
GEMM = """
import sys, time, numpy
a = numpy.random.default_rng(1).random((1024, 1024), dtype=numpy.float32)
b, c = a.copy(), a.copy()
for line in sys.stdin:
    begin = time.perf_counter()
    for _ in range(int(line)):
        numpy.matmul(a, b, out=c)
    print(time.perf_counter() - begin, flush=True)
"""


class Gemm:
    """A process that waits for its turns; its loop takes WORK_S when nothing disturbs it."""

    def __init__(self, threads):
        environment = dict(os.environ, OPENBLAS_NUM_THREADS=str(threads), OMP_NUM_THREADS=str(threads))
        self.process = subprocess.Popen([sys.executable, "-c", GEMM], env=environment, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.seconds(5)
        self.count = max(1, round(WORK_S / min(self.seconds(10) / 10 for _ in range(20))))

    def seconds(self, count):
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def run(self):
        return {"s": self.seconds(self.count)}

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Compile:
    COMMAND = [os.environ.get("CXX", "g++"), "-std=c++20", "-O2", "-I", lib.ROOT, "-DFMT_HEADER_ONLY", "-c",
               os.path.join(lib.ROOT, "ir/print.cc"), "-o", "/dev/null"]

    def run(self):
        begin = time.perf_counter()
        subprocess.run(self.COMMAND, check=True)
        return {"s": time.perf_counter() - begin}

    def close(self):
        pass


class Echo:
    def __init__(self, bin_directory):
        self.command = [os.path.join(bin_directory, "echo_bench"), "--seconds", str(WORK_S)]

    def run(self):
        done = json.loads(subprocess.run(self.command, check=True, capture_output=True, text=True).stdout)
        return {"p50": done["p50_us"], "p99": done["p99_us"]}

    def close(self):
        pass


def trials_of(daemon):
    return daemon.hone("stats")[0]["trials"]


def is_refining(daemon):
    return bool(daemon.hone("status")[0].get("tuning"))


def block(arguments, condition, programs):
    """Each program once; what it took, and what was refined meanwhile."""
    results = {}
    with lib.Daemon(arguments.bin, idle=condition == "with") as daemon:
        daemon.hone("warm", KERNELS, "--threads", "1")
        for name, program in programs.items():
            time.sleep(QUIET_S)
            refining = False
            if condition == "with":
                until = time.monotonic() + PATIENCE_S
                while not (refining := is_refining(daemon)) and time.monotonic() < until:
                    time.sleep(0.5)
            before, begin = trials_of(daemon), time.monotonic()
            times = program.run()
            seconds = time.monotonic() - begin
            results[name] = {"times": times, "refining": refining, "trials": trials_of(daemon) - before,
                             "seconds": seconds}
    return results


def interval(logs):
    """Geometric mean of ratios, given as logarithms, and its 95 % interval."""
    draw = random.Random(1)
    means = sorted(statistics.fmean(draw.choices(logs, k=len(logs))) for _ in range(5000))
    return tuple(math.exp(x) for x in (statistics.fmean(logs), means[124], means[4874]))


def pairs(blocks, name, figure, condition):
    """Logarithms of the ratios of adjacent blocks: "with" or the control over "without"."""
    logs = []
    for begin in range(0, len(blocks), 6):
        cycle = [each[name]["times"][figure] for each in blocks[begin:begin + 6]]
        ends = [cycle[0], cycle[5]]
        others = {"with": [cycle[1], cycle[4]], "control": [cycle[2], cycle[3]]}[condition]
        logs += [math.log(other / end) for other, end in zip(others, ends)]
    return logs


def recovery(arguments, load, repeats):
    """Undisturbed trials a second; seconds until 80 % of it is back, one for each repeat (inf: not within 15)."""
    window, step, watch = 2.0, 0.25, 15.0
    rates, waits = [], []
    with lib.Daemon(arguments.bin, idle=True) as daemon:
        daemon.hone("warm", KERNELS, "--threads", "1")
        time.sleep(QUIET_S + 3)
        for _ in range(repeats):
            begin, count = time.monotonic(), trials_of(daemon)
            time.sleep(10)
            rates.append((trials_of(daemon) - count) / (time.monotonic() - begin))
            load.run()
            begin, seen = time.monotonic(), []
            while (now := time.monotonic() - begin) < watch:
                seen.append((now, trials_of(daemon)))
                time.sleep(step)
            waits.append(first_fast(seen, window, 0.8 * rates[-1]))
    return rates, waits


def first_fast(seen, window, rate):
    """The begin of the first window with so many trials a second, from (seconds, trials)."""
    for i, (begin, count) in enumerate(seen):
        later = next(((s, n) for s, n in seen[i:] if s >= begin + window), None)
        if later and rate > 0 and (later[1] - count) / (later[0] - begin) >= rate:
            return begin
    return float("inf")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=lib.BIN)
    parser.add_argument("--cycles", type=int, default=10, help="of six blocks, about 35 s each")
    parser.add_argument("--repeats", type=int, default=5, help="of the return to refining")
    parser.add_argument("--only", action="append", choices=["compile", "gemm", "gemm2", "echo"])
    parser.add_argument("--json", help="one document with every time")
    arguments = parser.parse_args()
    make = {"compile": Compile, "gemm": lambda: Gemm(1), "gemm2": lambda: Gemm(2), "echo": lambda: Echo(arguments.bin)}
    programs = {name: make[name]() for name in arguments.only or make}
    blocks = []
    for cycle in range(arguments.cycles):
        for number, condition in enumerate(ORDER):
            lib.progress(f"cycle {cycle + 1} of {arguments.cycles}, block {number + 1} of 6: {condition}")
            blocks.append({"condition": condition, **block(arguments, condition, programs)})
        lib.progress("")
        print(f"cycle {cycle + 1} of {arguments.cycles} done", flush=True)
    lib.progress("how soon refining comes back")
    load = programs.get("gemm2") or Gemm(2)
    rates, waits = recovery(arguments, load, arguments.repeats)
    lib.progress("")
    rows = report(blocks, programs, statistics.median(rates))
    print(f"undisturbed: {statistics.median(rates):.1f} trials a second ({min(rates):.1f} … {max(rates):.1f}); back after "
          f"{', '.join(f'{wait:.1f}' for wait in waits)} s")
    lib.mark("quiet to 80 % of the trial rate", statistics.median(waits), "s", 5, at_most=True)
    for program in {*programs.values(), load}:
        program.close()
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"rows": rows, "blocks": blocks, "rates": rates, "waits": waits}, file, indent=1)
    return 0


def report(blocks, programs, undisturbed):
    rows = []
    print(f"{'':14} {'without':>9} {'slowdown by refining':>30} {'control':>30} {'trials/s':>9} {'refining':>9}")
    for name in programs:
        under = [each[name] for each in blocks if each["condition"] == "with"]
        rate = sum(each["trials"] for each in under) / sum(each["seconds"] for each in under)
        refining = sum(each["refining"] for each in under)
        for figure in blocks[0][name]["times"]:
            alone = statistics.median(each[name]["times"][figure] for each in blocks if each["condition"] != "with")
            slow, control = (interval(pairs(blocks, name, figure, each)) for each in ("with", "control"))
            percent = lambda x: f"{100 * (x[0] - 1):+6.2f} % ({100 * (x[1] - 1):+.2f} … {100 * (x[2] - 1):+.2f})"  # noqa: E731
            label = name if figure == "s" else f"{name} {figure}"
            print(f"{label:14} {alone:9.3g} {percent(slow):>30} {percent(control):>30} {rate:9.1f} {refining:4}/{len(under)}")
            rows.append({"program": label, "alone": alone, "slowdown": slow, "control": control, "trials_s": rate,
                         "refining": refining, "runs": len(under)})
    print(f"seconds, µs; trials/s under the load, undisturbed {undisturbed:.1f}; refining: when the program began")
    for row in rows:
        lib.mark(f"slowdown of {row['program']}, upper end", 100 * (row["slowdown"][2] - 1), "%", 1, at_most=True)
    idle_starts = sum(row["runs"] - row["refining"] for row in rows)
    lib.mark("runs that began without refining", idle_starts, "", 0, at_most=True)
    return rows


if __name__ == "__main__":
    sys.exit(main())
