#!/usr/bin/env python3
"""Whole networks: hone's executor beside onnxruntime, on one and two threads.

usage: bench/models.py [--bin DIR] [--threads N …] [--rounds N] [--pool CACHE] [--json FILE] [MODEL.onnx …]
                       (default: resnet50 and bert_128 in $HONE_MODELS)

`hone run --export` makes seeded constants of the weights that a file lacks and writes the model with them inside, its
inputs, and what came out; onnxruntime loads that file, so that both have the same constants ahead of time (and both may
pack them), and computes from the same inputs. Outputs are compared. The two take turns, a process of hone and a burst of
onnxruntime a round; the ratio is hone's time over onnxruntime's (below 1: hone is faster), the median over the rounds.
Schedules are what hone serves at once with an empty cache: nothing is tuned. With --pool they come from a copy of that
cache, where bench/transfer.py searched the kernels of the lists with one thread: first by transfer alone, the model and its
family left out of it, then tuned. What was tuned for one thread is a donor with two; "tuned" means tuned for as many
threads, with 128 trials a kernel, minutes a network.

Needs Python's onnxruntime, onnx and numpy, in an environment of their own that is made the first time."""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import lib
import transfer
import warm

lib.enter("bench-python")
import numpy  # noqa: E402
import onnxruntime  # noqa: E402

BURST_S = 1.0  # of onnxruntime a round
TRIALS = 128
TYPES = {"float32": numpy.float32, "float64": numpy.float64, "int64": numpy.int64, "int32": numpy.int32,
         "int8": numpy.int8, "bool": numpy.bool_}


def hone(binaries, daemon, *words):
    done = subprocess.run([os.path.join(binaries, "hone"), "--socket", daemon.socket, "--no-start", "--json", *words],
                          capture_output=True, text=True, check=False)
    if not done.stdout.strip():
        raise SystemExit(f"hone {' '.join(words)}: {done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def tensors(directory):
    """Inputs and outputs by name, as hone wrote them."""
    with open(os.path.join(directory, "tensors.json"), encoding="utf-8") as file:
        listed = json.load(file)["tensors"]
    found = {"input": {}, "output": {}}
    for each in listed:
        data = numpy.fromfile(os.path.join(directory, each["file"]), TYPES[each["dtype"]])
        found[each["role"]][each["name"]] = data.reshape(each["shape"])
    return found["input"], found["output"]


def session_of(path, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def burst(session, inputs):
    """Seconds of one run: the median."""
    times, begin = [], time.perf_counter()
    while len(times) < 3 or time.perf_counter() - begin < BURST_S:
        start = time.perf_counter()
        session.run(None, inputs)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def compare(binaries, daemon, model, threads, rounds, directory):
    first = hone(binaries, daemon, "run", model, "--threads", str(threads), "--repeat", "3", "--export", directory)
    inputs, ours = tensors(directory)
    session = session_of(os.path.join(directory, "model.onnx"), threads)
    names = [each.name for each in session.get_outputs()]
    theirs = session.run(None, inputs)
    difference = 0.0
    for seen, expected in zip(ours.values(), theirs):
        largest = max(1e-30, float(numpy.max(numpy.abs(expected))))
        difference = max(difference, float(numpy.max(numpy.abs(seen.astype(numpy.float64) - expected))) / largest)
    hone_us, theirs_us = [], []
    for turn in range(rounds):
        for which in (turn % 2, 1 - turn % 2):
            if which == 0:
                report = hone(binaries, daemon, "run", model, "--threads", str(threads), "--repeat", "15", "--no-check")
                hone_us.append(report["time_us"])
            else:
                theirs_us.append(burst(session, inputs) * 1e6)
    ratios = sorted(a / b for a, b in zip(hone_us, theirs_us))
    return {"model": os.path.basename(model)[:-5], "threads": threads, "outputs": names,
            "hone_us": statistics.median(hone_us), "onnxruntime_us": statistics.median(theirs_us),
            "ratio": statistics.median(ratios), "least": ratios[0], "most": ratios[-1], "difference": difference,
            "tolerance": first["tolerance"], "verified": first["verified"], "kernels": first["kernels"],
            "calls": first["calls"], "arena_bytes": first["arena_bytes"], "values_bytes": first["values_bytes"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--bin", default=lib.BIN)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pool", help="a cache with tuned kernels")
    parser.add_argument("--json", help="a line per cache, model and number of threads")
    parser.add_argument("models", nargs="*")
    arguments = parser.parse_args()
    folder = os.environ.get("HONE_MODELS", "")
    models = arguments.models or [os.path.join(folder, f"{name}.onnx") for name in ("resnet50", "bert_128")]
    if missing := [model for model in models if not os.path.exists(model)]:
        sys.exit(f"bench/models.py: {missing[0]} is not there; name ONNX files, or the folder that has them in HONE_MODELS")
    limits = {"transferred": 1.3, "tuned": 1.0} if arguments.pool else {"untuned": 1.3}
    for schedules, most in limits.items():
        print(f"{schedules}:")
        report([row for model in models for row in run(arguments, model, schedules)], most, schedules)
    return 0


def run(arguments, model, schedules):
    """A row per number of threads, by a daemon of its own."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="hone-models-") as home:
        cache = os.path.join(home, "cache")
        if arguments.pool:
            shutil.copytree(arguments.pool, cache, ignore=shutil.ignore_patterns("LOCK"))
        with lib.Daemon(arguments.bin, "--cache", cache) as daemon:
            name = os.path.splitext(os.path.basename(model))[0]
            if schedules == "transferred" and os.path.exists(transfer.list_of(name)):
                warm.leave_out(daemon, transfer.family_of(name))
            for threads in arguments.threads:
                if schedules == "tuned" and threads != 1:  # the pool's are tuned for one
                    lib.progress(f"tuning {name} for {threads} threads")
                    daemon.hone("tune", "--trials", str(TRIALS), "--threads", str(threads), model)
                lib.progress(f"{name}, {threads} threads")
                with tempfile.TemporaryDirectory(prefix="hone-models-") as directory:
                    row = {"schedules": schedules, **compare(arguments.bin, daemon, model, threads, arguments.rounds, directory)}
                rows.append(row)
                lib.progress("")
                print(f"{row['model']:18} {threads} threads  hone {row['hone_us'] / 1e3:9.2f} ms  onnxruntime "
                      f"{row['onnxruntime_us'] / 1e3:9.2f} ms  ratio {row['ratio']:5.2f} ({row['least']:.2f} … "
                      f"{row['most']:.2f})  outputs differ by {row['difference']:.1e}, {row['tolerance']:.1e} is rounding",
                      flush=True)
                if arguments.json:
                    with open(arguments.json, "a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")
    return rows


def report(rows, most, schedules):
    for row in rows:
        lib.mark(f"{row['model']} beside onnxruntime, {schedules}, {row['threads']} threads", row["ratio"], "x", most,
                 at_most=True)
    wrong = [row for row in rows if not row["verified"] or row["difference"] > row["tolerance"]]
    lib.mark(f"networks whose outputs differ, {schedules}", len(wrong), "", 0, at_most=True)


if __name__ == "__main__":
    sys.exit(main())
