#!/usr/bin/env python3
"""What refining in idle time costs whoever works on the machine, and what it still gets done.

usage: bench/foreground.py [--bin DIR] [--pairs N] [--only PROGRAM]… [--json FILE]

Programs: compile (a source file of this tree), gemm (matrix products, one thread) and gemm2 (two threads), for two seconds,
echo (a server asked a thousand times a second; its median and its p99). Each runs with honed and without it: with it a run
begins while refining is under way, without it after as long a pause. Runs come in the order with, without, without, with;
neighbours of different kind are pairs, whose ratio is the slowdown; neighbours of the same kind are the control, which shows
what the machine itself does. Estimates are Hodges and Lehmann's with the 95 % interval of the signed-rank test: as sharp as a
mean where noise is normal, and deaf to single spikes.

One run differs from the next by some per cent on a shared machine, which may be more than the slowdown. Since refining ends
when somebody else is at work, its cost lies in the first moments: of the loops, beside it and without a mark, what the rounds
of the first half second take longer than the median of the later ones do, as a share of the whole run.

Then how soon refining ends: from the begin of somebody's busy loop on one processor until all of its processes are stopped or
gone. And how soon it comes back: trials a second before two threads of matrix products, and the time from their end to the
end of the first two seconds with at least 80 % of that, for kernels whose trials take a fiftieth of a second."""
import argparse
import glob
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
EARLY_S = 0.5
KERNELS = os.path.join(lib.ROOT, "bench/bench.kernels")
QUICK = [f"conv2d(C=128,H=28,W=28,O={filters},R=1,S=1,const=1)" for filters in range(96, 161, 8)]
GEMM = """
import json, sys, time, numpy
a = numpy.random.default_rng(1).random((512, 512), dtype=numpy.float32)
b, c = a.copy(), a.copy()
for line in sys.stdin:
    times = [time.perf_counter()]
    while times[-1] < times[0] + float(line):
        numpy.matmul(a, b, out=c)
        times.append(time.perf_counter())
    print(json.dumps([end - begin for begin, end in zip(times, times[1:])]), flush=True)
"""


def loop_figures(rounds):
    """Of the seconds that each round of a loop took: a mean round, and what those of the first half second lost."""
    early = 0
    while sum(rounds[:early]) < EARLY_S:
        early += 1
    return {"round": statistics.fmean(rounds), "lost": sum(rounds[:early]) - early * statistics.median(rounds[early:])}


class Gemm:
    """A process that waits for its turns."""

    def __init__(self, threads):
        environment = dict(os.environ, OPENBLAS_NUM_THREADS=str(threads), OMP_NUM_THREADS=str(threads))
        self.process = subprocess.Popen([sys.executable, "-c", GEMM], env=environment, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.run(1)

    def run(self, seconds=WORK_S):
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        return loop_figures(json.loads(self.process.stdout.readline()))

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Compile:
    COMMAND = [os.environ.get("CXX", "g++"), "-std=c++20", "-O2", "-I", lib.ROOT, "-DFMT_HEADER_ONLY", "-c",
               os.path.join(lib.ROOT, "ir/graph/print.cc"), "-o", "/dev/null"]

    def run(self):
        begin = time.perf_counter()
        subprocess.run(self.COMMAND, check=True)
        return {"round": time.perf_counter() - begin}

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


def location(values):
    """The Hodges-Lehmann estimate of where they lie and its 95 % interval: the median of all means of two, and those that
    the signed-rank test does not refuse (Hollander and Wolfe, Nonparametric Statistical Methods, 3.2 and 3.3; its normal
    approximation)."""
    means = sorted((a + b) / 2 for i, a in enumerate(values) for b in values[i:])
    n = len(values)
    rank = max(0, math.floor(len(means) / 2 - 1.96 * math.sqrt(n * (n + 1) * (2 * n + 1) / 24)))
    return statistics.median(means), means[rank], means[-1 - rank]


def neighbours(runs, value):
    """Differences of neighbours: with less without; and of one kind, every other one turned round."""
    pairs, control = [], []
    for first, second in zip(runs, runs[1:]):
        difference = value(first["times"]) - value(second["times"])
        if first["condition"] != second["condition"]:
            pairs.append(difference if first["condition"] == "with" else -difference)
        else:
            control.append(difference if len(control) % 2 else -difference)
    return location(pairs), location(control)


def percent(low_to_high):
    return f"{low_to_high[0]:+6.2f} % ({low_to_high[1]:+.2f} … {low_to_high[2]:+.2f})"


def recovery(arguments, load, repeats):
    """Undisturbed trials a second; seconds until 80 % of it is back, one for each repeat (inf: not within 15)."""
    before_s, watch_s = 10, 15
    with lib.Daemon(arguments.bin, idle=True) as daemon:
        listed = os.path.join(daemon.directory.name, "quick.kernels")
        with open(listed, "w", encoding="utf-8") as file:
            file.writelines(f"1 {kernel}\n" for kernel in QUICK)
        daemon.hone("warm", listed, "--threads", "1")
        rates, waits, phase, since, seen = [], [], "start", 0, []
        # One program that watches all the time: to start one for each look would be somebody's work.
        for now, answer in daemon.follow("top", "--every", "250ms"):
            count = answer["all_trials"]
            if phase == "start" and count > 0:
                phase, since, seen = "before", now, [(now, count)]
            elif phase == "before" and now > since + before_s:
                rates.append((count - seen[0][1]) / (now - seen[0][0]))
                load.run()
                phase, seen = "after", []
            elif phase == "after":
                if not seen:
                    since = now
                seen.append((now - since, count))
                if now > since + watch_s:
                    waits.append(first_fast(seen, 2.0, 0.8 * rates[-1]))
                    phase, since, seen = "before", now, [(now, count)]
                    if len(waits) == repeats:
                        break
    return rates, waits


def refiners(parent):
    """Processes below it that run only when nobody else wants to, and are not stopped."""
    found = []
    for task in glob.glob(f"/proc/{parent}/task/*/children"):
        try:
            with open(task, encoding="ascii") as file:
                children = [int(word) for word in file.read().split()]
        except OSError:
            continue
        for child in children:
            try:
                with open(f"/proc/{child}/stat", encoding="utf-8") as file:
                    is_alive = file.read().rsplit(")", 1)[1].split()[0] not in "TZX"
                if is_alive and os.sched_getscheduler(child) == os.SCHED_IDLE:
                    found.append(child)
            except OSError:
                continue
            found += refiners(child)
    return found


def closing(arguments, repeats):
    """Seconds from the begin of a busy loop on one processor until nothing refines any more, one for each repeat."""
    waits = []
    with lib.Daemon(arguments.bin, idle=True) as daemon:
        daemon.hone("warm", KERNELS, "--threads", "1")
        for _ in range(repeats):
            before = trials_of(daemon)
            while trials_of(daemon) == before:
                time.sleep(0.5)
            begin = time.monotonic()
            with subprocess.Popen(["sh", "-c", "while :; do :; done"]) as load:
                while refiners(daemon.process.pid) and time.monotonic() < begin + 5:
                    time.sleep(0.001)
                waits.append(time.monotonic() - begin)
                load.kill()
    return waits


def first_fast(seen, window, rate):
    """The end of the first window with so many trials a second, from (seconds, trials)."""
    for i, (begin, count) in enumerate(seen):
        later = next(((s, n) for s, n in seen[i:] if s >= begin + window), None)
        if later and rate > 0 and (later[1] - count) / (later[0] - begin) >= rate:
            return later[0]
    return float("inf")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=lib.BIN)
    parser.add_argument("--pairs", type=int, default=40, help="of neighbouring runs, about 12 s each")
    parser.add_argument("--repeats", type=int, default=5, help="of the return to refining; four times as many of its end")
    parser.add_argument("--only", action="append", choices=["compile", "gemm", "gemm2", "echo"])
    parser.add_argument("--json", help="one document with every time")
    arguments = parser.parse_args()
    if arguments.pairs < 6:
        parser.error("the signed-rank test says nothing with 95 % of fewer than 6 pairs")
    make = {"compile": Compile, "gemm": lambda: Gemm(1), "gemm2": lambda: Gemm(2), "echo": lambda: Echo(arguments.bin)}
    rows, runs = [], {}
    print(f"{'':15}{'without':>9} {'':10} {'slowdown by refining':>27} {'control':>27} {'trials/s':>9} {'refining':>9}")
    for name in arguments.only or make:
        program = make[name]()
        runs[name] = run_all(arguments, name, program)
        program.close()
        rows += report(name, runs[name])
    print("trials/s: under the load; refining: when the program began")
    for row in rows:
        if row["is_marked"]:
            lib.mark(f"slowdown of {row['program']}, upper end", row["slowdown"][2], "%", 1, at_most=True)
    lib.mark("runs that began without refining", sum(row["runs"] - row["refining"] for row in rows), "", 0, at_most=True)
    lib.progress("how soon refining ends")
    ends = [1e3 * wait for wait in closing(arguments, 4 * arguments.repeats)]
    lib.progress("")
    print(f"ended {statistics.median(ends):.0f} ms ({min(ends):.0f} … {max(ends):.0f}) after the begin of a busy loop")
    lib.mark("others' work until refining has ended, most", max(ends), "ms", 200, at_most=True)
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
            json.dump({"rows": rows, "runs": runs, "ends": ends, "rates": rates, "waits": waits}, file, indent=1)
    return 0


def report(name, runs):
    """Lines of a program's figures, each what it is without honed, its slowdown, the control; all in per cent."""
    under = [run for run in runs if run["condition"] == "with"]
    facts = {"refining": sum(run["refining"] for run in under), "runs": len(under),
             "trials_s": sum(run["trials"] for run in under) / sum(run["seconds"] for run in under)}
    ratio = lambda figure: lambda times: math.log(times[figure])  # noqa: E731
    figures = {"round": (name, "ms a round", 1e3, ratio("round")), "p50": ("echo p50", "us", 1, ratio("p50")),
               "p99": ("echo p99", "us", 1, ratio("p99")),
               "lost": (f"{name}, early", "ms lost", 1e3, lambda times: times["lost"] / WORK_S)}
    rows = []
    for figure in runs[0]["times"]:
        label, unit, scale, value = figures[figure]
        alone = scale * statistics.median(run["times"][figure] for run in runs if run["condition"] == "without")
        to_percent = lambda x: 100 * (x if figure == "lost" else math.expm1(x))  # noqa: E731
        slow, control = ([to_percent(x) for x in each] for each in neighbours(runs, value))
        print(f"{label:15}{alone:9.3g} {unit:10} {percent(slow):>27} {percent(control):>27} {facts['trials_s']:9.1f} "
              f"{facts['refining']:4}/{len(under)}", flush=True)
        rows.append({"program": label, "is_marked": figure != "lost", "alone": alone, "slowdown": slow, "control": control,
                     **facts})
    return rows


if __name__ == "__main__":
    sys.exit(main())
