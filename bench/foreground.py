#!/usr/bin/env python3
"""What refining in idle time costs whoever works on the machine, and what it still gets done.

usage: bench/foreground.py [--bin DIR] [--pairs N] [--only PROGRAM]… [--json FILE]

Programs: compile (a source file of this tree), gemm (a loop of matrix products, one thread), gemm2 (two threads), echo (a
server asked a thousand times a second; its median and its p99). Each runs for some seconds, with honed and without it: with
it a run begins while refining is under way, without it after as long a pause.

Runs come in the order with, without, without, with. Neighbours of different kind are pairs: seconds apart, since this
machine may be another one a minute later, and each way round as often. The slowdown is the Hodges-Lehmann estimate of the
pairs' ratio, with the 95 % interval of the signed-rank test: as sharp as a mean where noise is normal, and deaf to single
spikes. Neighbours of the same kind are the control, which shows what the machine itself does.

Then how soon refining comes back: trials a second before two threads of matrix products, and the time from their end to
the begin of the first two seconds with at least 80 % of that, for kernels whose trials take a fiftieth of a second."""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time

import lib

lib.enter("bench-python")

ORDER = ["with", "without", "without", "with"]
PATIENCE_S = 20
WORK_S = 2
KERNELS = os.path.join(lib.ROOT, "bench/bench.kernels")
QUICK = [f"conv2d(C=128,H=28,W=28,O={filters},R=1,S=1,const=1)" for filters in range(96, 161, 8)]
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


def run_all(arguments, name, program):
    """2 · pairs runs in ORDER; what each took, how long it was quiet before, and what was refined meanwhile."""
    runs, quiet_s = [], 0
    with lib.Daemon(arguments.bin, idle=True) as daemon:
        daemon.hone("warm", KERNELS, "--threads", "1")
        daemon.stop()
        for number in range(2 * arguments.pairs):
            condition = ORDER[number % len(ORDER)]
            lib.progress(f"{name}: run {number + 1} of {2 * arguments.pairs}, {condition}")
            begin = time.monotonic()
            if condition == "with":
                daemon.start()
                while not (before := trials_of(daemon)) and time.monotonic() < begin + PATIENCE_S:
                    time.sleep(0.25)
                refining, quiet_s = before > 0 and is_refining(daemon), time.monotonic() - begin
            else:
                time.sleep(quiet_s)
            began = time.monotonic()
            run = {"condition": condition, "times": program.run(), "seconds": time.monotonic() - began}
            if condition == "with":
                run.update(refining=refining, trials=trials_of(daemon) - before)
                daemon.stop()
            runs.append(run)
    lib.progress("")
    return runs


def location(logs):
    """The Hodges-Lehmann estimate of where ratios lie, given as logarithms, and its 95 % interval: the median of all means
    of two, and those that the signed-rank test does not refuse (Hollander and Wolfe, Nonparametric Statistical Methods, 3.2
    and 3.3; its normal approximation)."""
    means = sorted((a + b) / 2 for i, a in enumerate(logs) for b in logs[i:])
    n = len(logs)
    rank = max(0, math.floor(len(means) / 2 - 1.96 * math.sqrt(n * (n + 1) * (2 * n + 1) / 24)))
    return tuple(map(math.exp, (statistics.median(means), means[rank], means[-1 - rank])))


def neighbours(runs, figure):
    """Logarithms of the ratios of neighbours: with over without, and of one kind, every other one turned round."""
    pairs, control = [], []
    for first, second in zip(runs, runs[1:]):
        ratio = math.log(first["times"][figure] / second["times"][figure])
        if first["condition"] != second["condition"]:
            pairs.append(ratio if first["condition"] == "with" else -ratio)
        else:
            control.append(ratio if len(control) % 2 else -ratio)
    return pairs, control


def recovery(arguments, load, repeats):
    """Undisturbed trials a second; seconds until 80 % of it is back, one for each repeat (inf: not within 15)."""
    window, step, watch = 2.0, 0.25, 15.0
    rates, waits = [], []
    with lib.Daemon(arguments.bin, idle=True) as daemon:
        listed = os.path.join(daemon.directory.name, "quick.kernels")
        with open(listed, "w", encoding="utf-8") as file:
            file.writelines(f"1 {kernel}\n" for kernel in QUICK)
        daemon.hone("warm", listed, "--threads", "1")
        time.sleep(6)
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
    parser.add_argument("--pairs", type=int, default=40, help="of neighbouring runs, about 12 s each")
    parser.add_argument("--repeats", type=int, default=5, help="of the return to refining")
    parser.add_argument("--only", action="append", choices=["compile", "gemm", "gemm2", "echo"])
    parser.add_argument("--json", help="one document with every time")
    arguments = parser.parse_args()
    make = {"compile": Compile, "gemm": lambda: Gemm(1), "gemm2": lambda: Gemm(2), "echo": lambda: Echo(arguments.bin)}
    rows, runs = [], {}
    print(f"{'':10} {'without':>9} {'slowdown by refining':>27} {'control':>27} {'trials/s':>9} {'refining':>9}")
    for name in arguments.only or make:
        program = make[name]()
        runs[name] = run_all(arguments, name, program)
        program.close()
        rows += report(name, runs[name])
    print("seconds, µs; trials/s under the load; refining: when the program began")
    for row in rows:
        lib.mark(f"slowdown of {row['program']}, upper end", 100 * (row["slowdown"][2] - 1), "%", 1, at_most=True)
    lib.mark("runs that began without refining", sum(row["runs"] - row["refining"] for row in rows), "", 0, at_most=True)
    lib.progress("how soon refining comes back")
    load = Gemm(2)
    rates, waits = recovery(arguments, load, arguments.repeats)
    lib.progress("")
    load.close()
    print(f"undisturbed: {statistics.median(rates):.1f} trials a second ({min(rates):.1f} … {max(rates):.1f}); back after "
          f"{', '.join(f'{wait:.1f}' for wait in waits)} s")
    lib.mark("quiet to 80 % of the trial rate", statistics.median(waits), "s", 5, at_most=True)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"rows": rows, "runs": runs, "rates": rates, "waits": waits}, file, indent=1)
    return 0


def report(name, runs):
    under = [run for run in runs if run["condition"] == "with"]
    rate = sum(run["trials"] for run in under) / sum(run["seconds"] for run in under)
    refining, rows = sum(run["refining"] for run in under), []
    for figure in runs[0]["times"]:
        alone = statistics.median(run["times"][figure] for run in runs if run["condition"] == "without")
        slow, control = map(location, neighbours(runs, figure))
        percent = lambda x: f"{100 * (x[0] - 1):+6.2f} % ({100 * (x[1] - 1):+.2f} … {100 * (x[2] - 1):+.2f})"  # noqa: E731
        label = name if figure == "s" else f"{name} {figure}"
        print(f"{label:10} {alone:9.3g} {percent(slow):>27} {percent(control):>27} {rate:9.1f} {refining:4}/{len(under)}", flush=True)
        rows.append({"program": label, "alone": alone, "slowdown": slow, "control": control, "trials_s": rate,
                     "refining": refining, "runs": len(under)})
    return rows


if __name__ == "__main__":
    sys.exit(main())
