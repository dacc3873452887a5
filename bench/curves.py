#!/usr/bin/env python3
"""How soon a search is near the best there is, with the cost model, without it, and at random; where its time goes.

usage: bench/curves.py [--bin DIR] [--trials N] [--seeds N] [--threads N] [--store DIR] [--json FILE]
                       [KERNEL | FILE.kernels …]
       bench/curves.py --replay FILE|CACHE [--by-choices] [--bin DIR] [--trials N] [--seeds N] [--json FILE]

Every kernel (default: bench/bench.kernels), strategy and seed (3) is one search of N trials (2,000) with a model that has
seen nothing before, by bench/curve_lab.cc; results stay in DIR (build/bench-curves), and what is there already is not
searched again. All of it takes hours of the whole machine, a line each.

Speeds are relative to the default schedule, timed again beside it after the search; the best of a kernel is the best of
all its searches. Trials to a share of it are medians over kernels and seeds; a search that never came there counts as
endless. What the default is against the fastest library is measured in this run (bench/libraries.py).

--replay compares the strategies among recorded trials instead (tuner/replay.h; `search_lab --record` makes recordings, and
every cache's directory is one): minutes, no noise, and the same figures again wherever it runs. Seeds default to 20; the best is
the best that was recorded."""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time

import lib

STORE = os.path.join(lib.ROOT, "build/bench-curves")
STRATEGIES = ["model", "evolution", "random"]
SHARES = [0.5, 0.9, 0.95, 1 / 1.022, 0.99]
BATCH = 16  # trials a round


def curve_lab(arguments, *options):
    """The objects that it printed."""
    done = subprocess.run([os.path.join(arguments.bin, "curve_lab"), *map(str, options)], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        sys.exit(f"bench/curves.py: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def replayed(arguments):
    """curve_lab's options for a search among recorded trials."""
    return ["--replay", arguments.replay] + (["--by-choices"] if arguments.by_choices else [])


def search(arguments, kernel, strategy, seed):
    """curve_lab's answer, from the store if it is there."""
    options = ["--trials", arguments.trials, "--seed", seed, "--strategy", strategy, kernel]
    if arguments.replay:
        return curve_lab(arguments, *replayed(arguments), *options)[0]
    name = re.sub(r"[^\w=]+", "_", kernel).strip("_")
    directory = os.path.join(arguments.store, f"threads-{arguments.threads}-trials-{arguments.trials}", name)
    path = os.path.join(directory, f"{strategy}-{seed}.json")
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    row = curve_lab(arguments, "--threads", arguments.threads, *options)[0]
    os.makedirs(directory, exist_ok=True)
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(row, file)
    os.replace(path + ".new", path)
    return row


def speeds(row):
    """(trial, speed relative to the default): the best so far, timed again."""
    best, curve = 0, []
    for trial, _, _, again_us in row["curve"]:
        if row["default_us"] / again_us > best:
            best = row["default_us"] / again_us
            curve.append((trial, best))
    return curve


def trials_to(row, speed):
    return next((trial for trial, reached in speeds(row) if reached >= speed), float("inf"))


def best_speed(rows):
    """Of what was recorded, or the best that these searches found."""
    if "recorded" in rows[0]:
        return rows[0]["default_us"] / rows[0]["recorded"]["best_us"]
    return max(reached for row in rows for _, reached in speeds(row))


def count_text(trials, limit):
    return f"> {limit}" if trials == float("inf") else f"{trials:.0f}"


def convergence(kernels, rows, limit):
    """The table over kernels and seeds, and a line a kernel; median trials by strategy and share."""
    print("trials to a share of the best speed, median over kernels and seeds:")
    print(f"{'':12}" + "".join(f"{share:>9.1%}" for share in SHARES))
    medians = {}
    for strategy in STRATEGIES:
        for share in SHARES:
            counts = [trials_to(row, share * best_speed(rows[kernel])) for kernel in kernels for row in rows[kernel]
                      if row["strategy"] == strategy]
            medians[strategy, share] = statistics.median_high(counts)
        print(f"  {strategy:10}" + "".join(f"{count_text(medians[strategy, share], limit):>9}" for share in SHARES))
    print(f"  {'best/default':>12}" + "".join(f"{strategy:>11}" for strategy in STRATEGIES) + "   to 95 %: model, without, "
          "random; kernel")
    for kernel in kernels:
        best = best_speed(rows[kernel])
        ends, counts = [], []
        for strategy in STRATEGIES:
            some = [row for row in rows[kernel] if row["strategy"] == strategy]
            ends.append(statistics.median(speeds(row)[-1][1] / best for row in some))
            counts.append(count_text(statistics.median_high([trials_to(row, 0.95 * best) for row in some]), limit))
        print(f"  {best:12.2f}" + "".join(f"{end:11.3f}" for end in ends) + f"   {', '.join(counts)}; {kernel}")
    return medians


def costs(kernels, rows):
    """Where the time of a candidate goes, with the model."""
    print("milliseconds a trial (builds overlap); microseconds a candidate before it is built:")
    steps = ["plan", "apply", "lower", "hash", "features"]
    print(f"{'trials/s':>9}{'think':>7}{'learn':>7}{'build':>7}{'check':>7}{'time':>7}   " + "".join(f"{s:>9}" for s in steps))
    updates, before = [], []
    for kernel in kernels:
        row = next(row for row in rows[kernel] if row["strategy"] == "model")
        made, spent, taken = row["made"], row["costs_s"], row["candidate_us"]
        updates.append(1e3 * spent["learn"] / max(1, made / BATCH))
        before.append(sum(taken.values()) / 1e3)
        print(f"{made / row['elapsed_s']:9.1f}" + "".join(f"{1e3 * spent[part] / made:7.2f}" for part in
                                                         ("think", "learn", "build", "check", "time"))
              + "   " + "".join(f"{taken[step]:9.1f}" for step in steps) + f"  {kernel}")
    lib.mark("a candidate before it is built, worst", max(before), "ms", 0.5, at_most=True)
    lib.mark("model update a round, worst", max(updates), "ms", 100, at_most=True)


def beside_libraries(arguments, kernels, rows, medians, document):
    """The best with the model against the fastest library."""
    import libraries  # of the environment that a replay does without
    with lib.Daemon(arguments.bin) as daemon:
        beside = libraries.measure(daemon, kernels, arguments.threads, arguments.rounds)
    shares = [libraries.fastest(row)["ratio"] * best_speed([each for each in rows[row["kernel"]] if each["strategy"] == "model"])
              for row in beside]
    print("the best with the model, as a share of the fastest library's speed: "
          + ", ".join(f"{share:.2f}" for share in shares))
    lib.mark("trials to within 2.2 %, median", medians["model", 1 / 1.022], "", 300, at_most=True)
    lib.mark("the long search's best over the library's", min(shares), "x", 0.95, at_most=False)
    document.update(libraries=beside, shares=shares)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=lib.BIN)
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--seeds", type=int, help="3, or 20 of a replay")
    parser.add_argument("--replay", metavar="FILE|CACHE", help="among recorded trials")
    parser.add_argument("--by-choices", action="store_true", help="recorded trials whose program is another one now count, too")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15, help="of the comparison with the libraries")
    parser.add_argument("--store", default=STORE)
    parser.add_argument("--json", help="one document")
    parser.add_argument("files", nargs="*")
    arguments = parser.parse_args()
    arguments.seeds = arguments.seeds or (20 if arguments.replay else 3)
    if arguments.replay:
        kernels = [row["kernel"] for row in curve_lab(arguments, "--replay", arguments.replay, "--list")]
    else:
        lib.enter("bench-python")
        import libraries
        libraries.program(arguments.bin)  # what is missing is installed now, not after the long part
        kernels = [kernel for _, kernel in lib.kernels(arguments.files or [os.path.join(lib.ROOT, "bench/bench.kernels")])]
    rows = {kernel: [] for kernel in kernels}
    begin, number = time.monotonic(), 0
    for seed in range(1, arguments.seeds + 1):
        for kernel in kernels:
            for strategy in STRATEGIES:
                number += 1
                lib.progress(f"{strategy}, seed {seed}: {kernel}")
                row = search(arguments, kernel, strategy, seed)
                rows[kernel].append(row)
                lib.progress("")
                print(f"[{number}/{arguments.seeds * len(kernels) * len(STRATEGIES)}] {time.monotonic() - begin:6.0f} s  "
                      f"{speeds(row)[-1][1]:5.2f} of the default's speed after {row['made']} trials, {strategy}, seed {seed}: "
                      f"{kernel}", flush=True)
    medians = convergence(kernels, rows, arguments.trials)
    document = {"rows": rows, "medians": [[*key, value] for key, value in medians.items()]}
    if arguments.replay:
        for row in (rows[kernel][0] for kernel in kernels):
            print(f"{row['recorded']['programs']} programs, {row['recorded']['left_out']} trials left out: {row['kernel']}")
    else:
        costs(kernels, rows)
        beside_libraries(arguments, kernels, rows, medians, document)
    for other in ["evolution", "random"]:
        lib.mark(f"trials to 95 %, {'without the model' if other == 'evolution' else 'at random'} / with",
                 medians[other, 0.95] / medians["model", 0.95], "x", 1, at_most=False)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
