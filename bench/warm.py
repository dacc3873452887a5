#!/usr/bin/env python3
"""How soon a model's kernels are there when others were tuned before: misses served by ranked transfer.

usage: bench/warm.py [--bin DIR] [--pool CACHE] [--threads N] [--rounds N] [MODEL …]

For each model (default: resnet50, and some of other kinds) a copy of the pool (bench/transfer.py makes it) loses the
model's kernels and those of its family; a fresh daemon on it serves them again with one `hone warm`, code included, N times.
Beside it the same with an empty cache: default schedules. Times of single kernels are the client's, from asking to a
callable kernel: while `hone warm` asks for several at once, and, "alone", when each is asked for by itself, as an application
does (bench/misses.py)."""
import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time

import lib
import transfer

MODELS = ["resnet50", "mobilenet_v2", "bert_128", "googlenet", "efficientnet_b0"]


def leave_out(daemon, models):
    """Takes the models' kernels out of the daemon's cache; how many there were."""
    left_out = {kernel for model in models for _, kernel in transfer.kernels_of(model)}
    gone = 0
    for row in daemon.hone("ls"):
        if row.get("kernel") in left_out:
            daemon.hone("rm", row["fingerprint"])
            gone += 1
    return gone


def warm(daemon, model, threads):
    """Seconds of the whole, and the rows of the kernels."""
    begin = time.monotonic()
    rows = daemon.hone("warm", "--threads", str(threads), transfer.list_of(model))
    seconds = time.monotonic() - begin
    return seconds, [row for row in rows if "served_us" in row]


def one_by_one(daemon, model, threads):
    """The rows of the kernels, each asked for when the one before is there."""
    kernels = dict.fromkeys(kernel for _, kernel in transfer.kernels_of(model))
    return [daemon.hone("get", "--threads", str(threads), kernel)[0] for kernel in kernels]


def one_round(arguments, model, pool, ask=warm):
    """What `ask` gives with a fresh daemon, on a copy of the pool without the model or on nothing."""
    with tempfile.TemporaryDirectory(prefix="hone-warm-") as folder:
        cache = os.path.join(folder, "cache")
        if pool:
            shutil.copytree(pool, cache, ignore=shutil.ignore_patterns("LOCK"))
            with lib.Daemon(arguments.bin, "--cache", cache) as daemon:
                leave_out(daemon, transfer.family_of(model))
        with lib.Daemon(arguments.bin, "--cache", cache) as daemon:
            daemon.hone("get", "add(M=1,N=1)")  # builders and runners are up
            return ask(daemon, model, arguments.threads)


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--bin", default=lib.BIN)
    parser.add_argument("--pool", default=os.path.join(lib.ROOT, "build/transfer-pool"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("models", nargs="*", default=MODELS)
    arguments = parser.parse_args()
    if not os.path.isdir(arguments.pool):
        sys.exit(f"bench/warm.py: there is no pool in {arguments.pool}; bench/transfer.py makes it")
    print(f"{'model':18} {'kernels':>7} {'transferred':>11} {'seconds':>8} {'p50 ms':>7} {'p95 ms':>7} {'alone: p50':>10} "
          f"{'p95 ms':>7}   {'defaults: s':>11} {'p95 ms':>7}")
    alone_ms, seconds_of = [], {}
    for model in arguments.models:
        rounds = [(one_round(arguments, model, arguments.pool), one_round(arguments, model, None))
                  for _ in range(arguments.rounds)]
        fitted = [rows for (_, rows), _ in rounds]
        ms = [row["served_us"] / 1e3 for rows in fitted for row in rows]
        plain_ms = [row["served_us"] / 1e3 for _, (_, rows) in rounds for row in rows]
        seconds_of[model] = statistics.median(seconds for (seconds, _), _ in rounds)
        alone = [row["served_us"] / 1e3 for row in one_round(arguments, model, arguments.pool, one_by_one)]
        transferred = sum(row["origin"] == "transferred" for row in fitted[-1])
        print(f"{model:18} {len(fitted[-1]):7} {transferred:11} {seconds_of[model]:8.2f} {statistics.median(ms):7.1f} "
              f"{percentile(ms, 0.95):7.1f} {statistics.median(alone):10.1f} {percentile(alone, 0.95):7.1f}   "
              f"{statistics.median(s for _, (s, _) in rounds):11.2f} "
              f"{percentile(plain_ms, 0.95):7.1f}", flush=True)
        alone_ms += alone
    lib.mark("a miss by ranked transfer, p95", percentile(alone_ms, 0.95), "ms", 60, True)
    if "resnet50" in seconds_of:
        lib.mark("warming ResNet-50 from the others", seconds_of["resnet50"], "s", 3, True)


if __name__ == "__main__":
    main()
