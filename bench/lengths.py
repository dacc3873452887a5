#!/usr/bin/env python3
"""One session for every length: BERT with an open length, beside sessions of one length each and onnxruntime's.

usage: bench/lengths.py [--bin DIR] [--lengths N …] [--all] [--threads N] [--rounds N] [--layers N] [--json FILE]

BERT-base (random weights, torch's exporter, both dimensions of its inputs open) is opened once. For each length, in random
order: how long the first run of that length takes, in which its kernels are made, and how long later ones do, in turns with a
session of that length alone and with onnxruntime's session of any length. The loss is the open session's time over that of the
session of one length, less one. Then runs of random lengths among them, which have all been met, and what the process keeps in
memory. Outputs are compared with onnxruntime's.

--all: each length from 1 to 512 is met before anything is timed, which takes minutes.

The packages that export the model (torch's wheel, gigabytes) are installed into build/ the first time."""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time

import lib

MOST_LOSS = 0.05
LENGTHS = [1, 2, 5, 8, 16, 27, 32, 50, 64, 77, 100, 128, 150, 197, 256, 300, 384, 450, 512]
AGREE = 1e-4


def export(path, layers):
    """In the environment that has torch."""
    import torch
    import zoo_export
    model, _ = zoo_export.configured("BertModel", zoo_export.TEXT, {"num_hidden_layers": layers})
    names = ["input_ids", "attention_mask"]
    wrapped = zoo_export.Named.wrap(model.eval(), names)
    ids = torch.randint(5, 1000, (2, 48))
    with torch.no_grad():
        torch.onnx.export(wrapped, (ids, torch.ones_like(ids)), path + ".part", input_names=names, dynamo=False,
                          dynamic_axes={name: {0: "batch", 1: "length"} for name in names})
    os.rename(path + ".part", path)


def resident():
    """Bytes of this process in memory."""
    with open("/proc/self/statm", encoding="utf-8") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def seconds(run):
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def measure(arguments, path, socket):
    import numpy
    import onnxruntime
    sys.path.insert(0, os.path.join(lib.ROOT, "python"))
    import hone

    def session(**words):
        return hone.Session(path, threads=arguments.threads, socket=socket, start=False, **words)

    def inputs_of(length):
        ids = numpy.random.default_rng(length).integers(5, 1000, (1, length))
        return {"input_ids": ids, "attention_mask": numpy.ones_like(ids)}

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.inter_op_num_threads, options.intra_op_num_threads = 3, 1, arguments.threads
    theirs = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    before = resident()
    open_session = session()
    lengths = random.Random(7).sample(arguments.lengths, len(arguments.lengths))
    if arguments.all:
        every = random.Random(8).sample(range(1, 513), 512)
        took = seconds(lambda: [open_session.run(inputs_of(length)) for length in every])
        print(f"512 lengths met in {took:.0f} s; {(resident() - before) / 2**20:.0f} MiB", flush=True)
    rows = []
    for length in lengths:
        given = inputs_of(length)
        first = seconds(lambda: open_session.run(given))
        seen, wanted = open_session.run(given), theirs.run(None, given)
        off = max(float(numpy.abs(a - b).max() / numpy.abs(b).max()) for a, b in zip(seen, wanted))
        if off > AGREE:
            sys.exit(f"bench/lengths.py: length {length}: outputs differ from onnxruntime's by {off:.1e}")
        fixed = session(shapes={name: array.shape for name, array in given.items()})
        runs = [lambda: open_session.run(given), lambda: fixed.run(given), lambda: theirs.run(None, given)]
        for run in runs:
            run()
        burst = max(1, int(0.1 / max(1e-4, seconds(runs[0]))))
        ratios, against = [], []
        for turn in range(arguments.rounds):
            times = [0.0] * 3
            for which in (0, 1, 2) if turn % 2 == 0 else (2, 1, 0):
                times[which] = statistics.median(seconds(runs[which]) for _ in range(burst))
            ratios.append(times[0] / times[1])
            against.append(times[2] / times[0])
        fixed.close()
        rows.append({"length": length, "first_ms": first * 1e3, "ms": times[0] * 1e3, "loss": statistics.median(ratios) - 1,
                     "against_onnxruntime": statistics.median(against), "difference": off})
        row = rows[-1]
        print(f"{length:4}  first {row['first_ms']:8.1f} ms  then {row['ms']:7.2f} ms  loss {100 * row['loss']:5.1f} %  "
              f"against onnxruntime {row['against_onnxruntime']:.2f}", flush=True)
    order = random.Random(9).choices(lengths, k=200)
    known = {row["length"]: row["ms"] for row in rows}
    mixed = seconds(lambda: [open_session.run(inputs_of(length)) for length in order])
    return {"rows": rows, "mixed": mixed * 1e3 / sum(known[length] for length in order), "bytes": resident() - before,
            "file": os.path.getsize(path)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=lib.BIN)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--json", help="a line a length")
    parser.add_argument("--export", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.export:
        export(arguments.export, arguments.layers)
        return 0
    path = os.path.join(lib.ROOT, f"build/zoo/lengths/bert_{arguments.layers}.onnx")
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        subprocess.run([lib.environment("bench-zoo-python"), os.path.abspath(__file__), "--export", path, "--layers",
                        str(arguments.layers)], check=True, stdout=subprocess.DEVNULL)
    lib.enter("bench-python")
    os.environ["HONE_LIBRARY"] = os.path.join(arguments.bin, "../lib/libhone.so")
    os.environ["HONE_NETWORK_LIBRARY"] = os.path.join(arguments.bin, "../lib/libhone_network.so")
    with lib.Daemon(arguments.bin) as daemon:
        result = measure(arguments, path, daemon.socket)
    losses = [row["loss"] for row in result["rows"]]
    print(f"200 runs of random lengths: {result['mixed']:.2f} times as long as alone; {result['bytes'] / 2**20:.0f} MiB for a file of "
          f"{result['file'] / 2**20:.0f} MiB")
    if arguments.json:
        with open(arguments.json, "a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in result["rows"])
    lib.mark("lengths: mean loss against sessions of one length", 100 * sum(losses) / len(losses), "%", 100 * MOST_LOSS, at_most=True)
    lib.mark("lengths: against onnxruntime, mean", lib.geometric_mean([row["against_onnxruntime"] for row in result["rows"]]), "x", 1.0,
             at_most=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
