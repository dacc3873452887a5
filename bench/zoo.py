#!/usr/bin/env python3
"""The zoo: real architectures through hone and onnxruntime, whether they run, agree, and how fast.

usage: bench/zoo.py [--bin DIR] [--zoo DIR] [--only REGEX] [--threads N …] [--rounds N] [--check-only] [--json FILE]
       bench/zoo.py --graphs DIR [--bin DIR] [--only REGEX]

The files are those of bench/zoo_export.py (build/zoo); what it has not exported yet it is asked for first, unless --zoo names
a folder. Each model gets a line: what `hone check` says, whether it runs, how far its outputs are from onnxruntime's on the
same inputs (the largest difference over the largest value, of the worst output; whole numbers and truth values must be equal),
hone's time over onnxruntime's (schedules that hone serves at once with an empty cache), and the share of hone's time that no
kernel ran. Where results differ by more than a thousandth it says how far onnxruntime's own move when it does not optimize. A summary
and the marks come last; then what keeps models from running, by cause. What onnxruntime cannot run is out: nothing says what is right.

--graphs: models without their weights (bench/zoo_graphs.py), which are made from seeds; none is timed, and the exit status is 1 if
one of them does not run and agree.

A model runs in a process of its own, so that one that dies costs its line alone."""
import argparse
import collections
import glob
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

import lib
import zoo_graphs

AGREE = 1e-3  # of the largest value: networks of a hundred layers round differently
BURST_S = 0.3
LIMIT_S = 900  # of one model
MOST_RATIO, MOST_MEAN, MOST_HOST = 1.5, 0.95, 0.02


def seconds(run):
    """Of one run: the median of a burst, of three at least unless they take seconds."""
    times, begin = [], time.perf_counter()
    while (len(times) < 3 or time.perf_counter() - begin < BURST_S) and time.perf_counter() - begin < 20 * BURST_S:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def difference(ours, theirs):
    """The largest difference over the largest value; infinite for another shape, type, or unequal whole numbers."""
    import numpy
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return float("inf")
    if ours.size == 0:
        return 0.0
    if ours.dtype.kind != "f":
        return 0.0 if numpy.array_equal(ours, theirs) else float("inf")
    ours, theirs = ours.astype(numpy.float64), theirs.astype(numpy.float64)
    is_finite = numpy.isfinite(theirs)
    if not numpy.array_equal(ours[~is_finite], theirs[~is_finite], equal_nan=True):
        return float("inf")
    if not is_finite.any():
        return 0.0
    off = float(numpy.abs(ours[is_finite] - theirs[is_finite]).max())
    return off / max(float(numpy.abs(theirs[is_finite]).max()), 1e-30) if off == off else float("inf")


def rows_differ(ours, theirs):
    """The same of lists of detections, whose order among equal scores is nobody's: rows of all outputs together, each beside
    the nearest that is left; infinite where the outputs are no such lists."""
    import numpy
    rows = {each.shape[0] for each in [*ours, *theirs] if each.ndim}
    if len(rows) != 1 or not 0 < (count := rows.pop()) <= 2000 or any(each.ndim == 0 for each in theirs) or len(theirs) < 2:
        return float("inf")

    def table(arrays):
        columns = [a.reshape(count, -1).astype(numpy.float64) / max(float(numpy.abs(b).max()), 1e-30) for a, b in zip(arrays, theirs)]
        return numpy.concatenate(columns, axis=1)

    left, wanted, worst = table(ours), table(theirs), 0.0
    if left.shape != wanted.shape or not (numpy.isfinite(left).all() and numpy.isfinite(wanted).all()):
        return float("inf")
    for row in wanted:
        distance = numpy.abs(left - row).max(axis=1)
        nearest = int(distance.argmin())
        worst = max(worst, float(distance[nearest]))
        left = numpy.delete(left, nearest, axis=0)
    return worst


def apart(ours, theirs):
    """The larger of two runs' differences, as rows where that is nearer; by output, and of all."""
    each = [difference(a, b) for a, b in zip(ours, theirs)]
    worst = max(each, default=0.0)
    return each, min(worst, rows_differ(ours, theirs)) if worst > AGREE else worst


def one(path, socket, threads, rounds):
    """In the model's own process: a dictionary."""
    import numpy
    import onnxruntime
    sys.path.insert(0, os.path.join(lib.ROOT, "python"))
    import hone
    inputs = dict(numpy.load(path[:-len(".onnx")] + ".npz"))
    result = {}
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.inter_op_num_threads = 1
    options.intra_op_num_threads = threads[0]
    try:
        theirs = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        inputs = {value.name: inputs[value.name] for value in theirs.get_inputs()}
        wanted = theirs.run(None, inputs)
    except Exception as error:
        if not type(error).__module__.startswith("onnxruntime"):  # its own kinds, which are not public
            raise
        return {"unjudged": " ".join(str(error).split())[:300]}
    names = [value.name for value in theirs.get_outputs()]
    result["finite"] = all(bool(numpy.isfinite(each).all()) for each in wanted if each.dtype.kind == "f")
    for count in threads:
        begin = time.perf_counter()
        ours = hone.Session(path, threads=count, socket=socket, start=False)
        given = {value.name: inputs[value.name] for value in ours.get_inputs()}
        seen = ours.run(given)
        result.setdefault("first_s", time.perf_counter() - begin)
        if "worst" not in result:
            each, result["worst"] = apart(seen, wanted)
            result["difference"] = dict(zip(names, each))
            if result["worst"] > AGREE:  # how far its own rounding moves what it computes
                options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
                plain = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
                result["its_own"] = apart(plain.run(None, inputs), wanted)[1]
                options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        if count != threads[0]:
            options.intra_op_num_threads = count
            theirs = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        if rounds == 0:
            ours.close()
            continue
        pairs = []
        for turn in range(rounds):
            runs = [lambda: ours.run(given), lambda: theirs.run(None, inputs)]
            pairs.append([seconds(run) for run in (runs if turn % 2 == 0 else runs[::-1])][::1 if turn % 2 == 0 else -1])
        result[f"hone_ms_{count}"] = statistics.median(p[0] for p in pairs) * 1e3
        result[f"onnxruntime_ms_{count}"] = statistics.median(p[1] for p in pairs) * 1e3
        result[f"ratio_{count}"] = statistics.median(p[0] / p[1] for p in pairs)
        ours.close()
    return result


def host_share(daemon, path, threads):
    """Of the time of all calls, what ran without a kernel; and by what."""
    answers = daemon.hone("run", path, "--threads", str(threads), "--repeat", "3", "--no-check")
    shares = answers[-1].get("shares", [])
    total = sum(each["time_us"] for each in shares)
    host = {each["kernel"]: each["time_us"] / total for each in shares if "no_kernel" in each and total > 0}
    return sum(host.values()), dict(sorted(host.items(), key=lambda item: -item[1])[:4])


def refusal_of_onnxruntime(path):
    """Why onnxruntime does not load it either: then the exporter wrote what is no model. "" if it does."""
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its own kinds, which are not public
        return " ".join(str(error).split())[:200]
    return ""


def measure(daemon, path, arguments):
    name = os.path.basename(path)[:-len(".onnx")]
    row = {"model": name}
    check = daemon.hone("check", path)[-1]
    row["runs"] = bool(check.get("runs"))
    row["missing"] = [[cause["op"], cause["reason"], len(cause["nodes"])] for cause in check.get("missing", [])]
    if "error" in check:
        row["missing"] = [["-", check["error"]["message"], 1]]
    row["host"] = {each["op"]: each["calls"] for each in check.get("host", [])}
    if not row["runs"] and (why := refusal_of_onnxruntime(path)):
        return {"model": name, "excluded": why}
    if not row["runs"] or arguments.check_only:
        return row
    words = [sys.executable, os.path.abspath(__file__), "--one", path, "--socket", daemon.socket, "--rounds", str(arguments.rounds),
             "--threads", *map(str, arguments.threads)]
    environment = dict(daemon.environment, HONE_LIBRARY=os.path.join(arguments.bin, "../lib/libhone.so"),
                       HONE_NETWORK_LIBRARY=os.path.join(arguments.bin, "../lib/libhone_network.so"))
    with tempfile.TemporaryFile("w+") as errors:
        try:
            done = subprocess.run(words, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment, check=False,
                                  timeout=LIMIT_S)
            lines = done.stdout.splitlines()
            if done.returncode == 0 and lines:
                row.update(json.loads(lines[-1]))
            else:
                errors.seek(0)
                last = (errors.read().strip().splitlines() or [f"it died with status {done.returncode}"])[-1]
                row["error"] = " ".join(last.split())[-300:]
        except subprocess.TimeoutExpired:
            row["error"] = f"no end within {LIMIT_S} s"
    if "unjudged" in row:
        return {"model": name, "excluded": row["unjudged"]}
    if "worst" in row:
        row["agrees"] = row["worst"] <= AGREE
        is_timed = arguments.rounds > 0 and row["host"]
        row["host_share"], row["host_by"] = host_share(daemon, path, arguments.threads[0]) if is_timed else (0.0, {})
    return row


def text(row, threads):
    if "excluded" in row:
        return f"out  {row['model']:52} onnxruntime does not run it: {row['excluded'][:120]}"
    if not row["runs"]:
        causes = ", ".join(f"{op} ×{count}" if op != "-" else why for op, why, count in row["missing"])
        return f"NO   {row['model']:52} {causes[:160]}"
    if "error" in row:
        return f"FAIL {row['model']:52} {row['error'][:160]}"
    if "worst" not in row:
        return f"yes  {row['model']:52} host {row['host']}"
    if f"ratio_{threads[0]}" not in row:
        own = f" (onnxruntime's own {row['its_own']:.1e})" if "its_own" in row else ""
        return f"{'yes ' if row['agrees'] else 'OFF '} {row['model']:52} off {row['worst']:8.1e}{own}"
    ratios = " ".join(f"{row[f'ratio_{count}']:6.2f}" for count in threads)
    return (f"{'yes ' if row['agrees'] else 'OFF '} {row['model']:52} off {row['worst']:8.1e}  "
            f"{row[f'hone_ms_{threads[0]}']:9.2f} ms  ratio {ratios}  host {100 * row['host_share']:5.1f} %  "
            f"{', '.join(row['host_by'])}")


def summarise(rows, threads):
    """Prints the marks."""
    ran = [row for row in rows if row.get("agrees")]
    print(f"\n{len(rows)} models: {sum(row['runs'] for row in rows)} load, {len([r for r in rows if 'worst' in r])} run, "
          f"{len(ran)} agree with onnxruntime")
    causes = collections.Counter()
    for row in rows:
        for op, why, _ in row["missing"]:
            causes[f"{op}: {why}"] += 1
    for cause, count in causes.most_common(30):
        print(f"  {count:3} {cause[:150]}")
    if not ran:
        return
    lib.mark("zoo: models that run and agree", len(ran) / len(rows), "", 0.95, at_most=False)
    for count in threads:
        ratios = [row[f"ratio_{count}"] for row in rows if f"ratio_{count}" in row]
        if not ratios:  # --rounds 0
            continue
        suffix = f", {count} thread{'s' if count > 1 else ''}"
        lib.mark(f"zoo: time / onnxruntime, mean{suffix}", lib.geometric_mean(ratios), "x", MOST_MEAN, at_most=True)
        lib.mark(f"zoo: time / onnxruntime, worst{suffix}", max(ratios), "x", MOST_RATIO, at_most=True)
    lib.mark("zoo: interpreted share of time, worst", max(row.get("host_share", 0) for row in rows), "", MOST_HOST, at_most=True)


def run_graphs(arguments):
    """Each model of the folder with weights from seeds; the exit status."""
    arguments.rounds = 0
    paths = [path for path in sorted(glob.glob(os.path.join(arguments.graphs, "*.onnx"))) if re.search(arguments.only, path)]
    failed = len(paths) == 0
    with lib.Daemon(arguments.bin) as daemon, tempfile.TemporaryDirectory(prefix="hone-zoo-") as folder:
        for path in paths:
            zoo_graphs.fill(path, folder)
            row = measure(daemon, os.path.join(folder, os.path.basename(path)), arguments)
            print(text(row, arguments.threads), flush=True)
            failed = failed or not row.get("agrees")
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=lib.BIN)
    parser.add_argument("--zoo")
    parser.add_argument("--graphs", metavar="DIR")
    parser.add_argument("--only", default="")
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--check-only", action="store_true", help="load the models and run none")
    parser.add_argument("--json", help="a line a model")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--socket", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.one and not arguments.zoo and not arguments.graphs:
        subprocess.run([sys.executable, os.path.join(lib.ROOT, "bench/zoo_export.py"), "--only", arguments.only], check=True)
    lib.enter("bench-python")
    if arguments.one:
        print(json.dumps(one(arguments.one, arguments.socket, arguments.threads, arguments.rounds)))
        return 0
    if arguments.graphs:
        return run_graphs(arguments)
    folder = arguments.zoo or os.path.join(lib.ROOT, "build/zoo")
    paths = [path for path in sorted(glob.glob(os.path.join(folder, "*.onnx")))
             if re.search(arguments.only, os.path.basename(path)) and not path.endswith(".part.onnx")]
    if not paths:
        sys.exit(f"bench/zoo.py: no models in {folder}")
    rows = []
    with lib.Daemon(arguments.bin) as daemon:
        for path in paths:
            rows.append(measure(daemon, path, arguments))
            print(text(rows[-1], arguments.threads), flush=True)
            if arguments.json:
                with open(arguments.json, "a", encoding="utf-8") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    summarise([row for row in rows if "excluded" not in row], arguments.threads)
    return 0


if __name__ == "__main__":
    sys.exit(main())
