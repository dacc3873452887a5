#!/usr/bin/env python3
"""Tunes kernels with TVM MetaSchedule, its own defaults, and keeps what it found for bench/against_tvm.py.

usage: bench/tvm_tune.py [--trials N] [--threads N] [--store DIR] [--again] [KERNEL | FILE.kernels …]

The default is bench/bench.kernels with 256 trials, which takes about an hour of the whole machine; a line per kernel and
round says how far it is. A kernel that was tuned with as many trials already is left out, so an interrupted run goes on
where it was (--again tunes anew). Under DIR (build/bench-tvm), threads-N/KERNEL/:

  tuned.so, half.so   the best after all trials, and after half of them
  result.json         versions, the target, seconds, and the best so far after every round
  log                 what TVM said

Weights are plain inputs to TVM, as its operators take them. Needs apache-tvm, in an environment of its own that is made
the first time.

Exit status: 0 all kernels are tuned, 1 some could not be."""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time

import lib

STORE = os.path.join(lib.ROOT, "build/bench-tvm")
LIMIT_S = 120  # of a build, of a run: TVM's own 30 s are too short for its processes to come up on a busy machine


def directory_of(store, threads, kernel):
    return os.path.join(store, f"threads-{threads}", re.sub(r"[^\w=]+", "_", kernel).strip("_"))


def result_of(directory):
    """What an earlier run found; None if it did not come to its end."""
    try:
        with open(os.path.join(directory, "result.json"), encoding="utf-8") as file:
            return json.load(file)
    except OSError:
        return None


# ---- the parent: a process per kernel, since a tuner that crashes must not take the others' results along

def tune_all(arguments, kernels):
    failed = []
    begin = time.monotonic()
    for number, kernel in enumerate(kernels):
        place = f"[{number + 1}/{len(kernels)}]"
        directory = directory_of(arguments.store, arguments.threads, kernel)
        known = result_of(directory)
        if known and known["trials"] >= arguments.trials and not arguments.again:
            print(f"{place} {kernel}: tuned already, {known['best_us']:.1f} us", flush=True)
            continue
        shutil.rmtree(directory, ignore_errors=True)
        os.makedirs(directory)
        command = [sys.executable, os.path.abspath(__file__), "--one", "--trials", str(arguments.trials), "--threads",
                   str(arguments.threads), "--store", arguments.store, kernel]
        with open(os.path.join(directory, "log"), "w", encoding="utf-8") as log, \
                subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process:
            for line in process.stdout:
                if line.startswith("round "):
                    print(f"{place} {time.monotonic() - begin:6.0f} s  {line[6:].strip()}  {kernel}", flush=True)
                else:
                    log.write(line)
        if process.returncode != 0:
            failed.append(kernel)
            print(f"{place} {kernel}: could not be tuned, see {directory}/log", flush=True)
    return 1 if failed else 0


# ---- the child: one kernel

def tensors_of(kernel):
    """The kernel as TVM's tensor expressions: operands in hone's order, the result last."""
    import turns  # pylint: disable=import-outside-toplevel
    from tvm import te, topi  # pylint: disable=import-outside-toplevel
    name, a, epilogues = turns.attributes(kernel)
    if epilogues:
        raise ValueError(f"no TVM operator for {kernel}")
    if name in ("matmul", "dense"):
        m, n, k = a["M"], a["N"], a["K"]
        x = te.placeholder((m, k), name="x")
        w = te.placeholder((k, n) if name == "matmul" else (n, k), name="w")
        axis = te.reduce_axis((0, k), name="k")
        y = te.compute((m, n), lambda i, j: te.sum(x[i, axis] * (w[axis, j] if name == "matmul" else w[j, axis]), axis),
                       name="y")
        return [x, w, y]
    stride, pad = a.get("stride", 1), a.get("pad", 0)
    if name == "conv2d":
        groups = a.get("groups", 1)
        x = te.placeholder((a.get("N", 1), a["C"], a["H"], a["W"]), name="x")
        w = te.placeholder((a["O"], a["C"] // groups, a["R"], a["S"]), name="w")
        convolve = topi.nn.conv2d_nchw if groups == 1 else topi.nn.group_conv2d_nchw
        return [x, w, convolve(x, w, stride, pad, a.get("dilation", 1), *([] if groups == 1 else [groups]))]
    if name == "depthwise_conv2d":
        x = te.placeholder((a.get("N", 1), a["C"], a["H"], a["W"]), name="x")
        w = te.placeholder((a["C"], 1, a["R"], a["S"]), name="w")
        return [x, w, topi.nn.depthwise_conv2d_nchw(x, w, stride, pad, a.get("dilation", 1))]
    if name == "softmax":
        x = te.placeholder((a["M"], a["N"]), name="x")
        return [x, topi.nn.softmax(x, axis=1)]
    raise ValueError(f"no TVM operator for {kernel}")


def tune_one(arguments, kernel):
    os.environ["TVM_NUM_THREADS"] = str(arguments.threads)  # read when TVM comes up, by its runners too
    import tvm  # pylint: disable=import-outside-toplevel
    from tvm import te  # pylint: disable=import-outside-toplevel
    from tvm.ir.utils import derived_object  # pylint: disable=import-outside-toplevel
    from tvm.s_tir import meta_schedule  # pylint: disable=import-outside-toplevel
    directory = directory_of(arguments.store, arguments.threads, kernel)
    function = te.create_prim_func(tensors_of(kernel))
    target = tvm.target.Target({"kind": "llvm", "mcpu": tvm.target.codegen.llvm_get_system_cpu(),
                                "num-cores": arguments.threads})
    work = os.path.join(directory, "work")
    half = os.path.join(directory, "half")
    half_trials = arguments.trials // 2
    curve, load = [], [os.getloadavg()[0]]
    begin = time.monotonic()

    @derived_object
    class Watch(meta_schedule.measure_callback.PyMeasureCallback):
        """After every round: the curve, and once half of the trials are made, what is known by then."""

        def __init__(self):
            super().__init__()
            self.trials = self.timed = 0
            self.best_us = None

        def apply(self, scheduler, task, candidates, builds, results):  # pylint: disable=unused-argument
            for result in results:
                self.trials += 1
                if result.run_secs:
                    self.timed += 1
                    us = sum(map(float, result.run_secs)) / len(result.run_secs) * 1e6
                    self.best_us = min(self.best_us or us, us)
            curve.append([self.trials, time.monotonic() - begin, self.best_us])
            if self.trials >= half_trials and not os.path.exists(half):
                shutil.copytree(work, half)
            print(f"round {self.trials:4} of {arguments.trials} trials, {self.timed} timed, {curve[-1][1]:6.1f} s, "
                  f"best {self.best_us or 0:9.1f} us", flush=True)

    watch = Watch()
    meta_schedule.tir_integration.tune_tir(
        function, target, work, max_trials_global=arguments.trials,
        num_trials_per_iter=min(64, max(1, half_trials)), num_tuning_cores=os.cpu_count(), seed=1,
        builder=meta_schedule.builder.LocalBuilder(max_workers=os.cpu_count(), timeout_sec=LIMIT_S),
        runner=meta_schedule.runner.LocalRunner(timeout_sec=LIMIT_S),
        measure_callbacks=[meta_schedule.measure_callback.AddToDatabase(), watch])
    wall_s = time.monotonic() - begin
    for name, database in (("tuned", work), ("half", half)):
        found = meta_schedule.tir_integration.compile_tir(meta_schedule.database.JSONDatabase(work_dir=database),
                                                          function, target)
        if found is None:
            sys.exit(f"{kernel}: no trial was timed")
        tvm.compile(found.mod, target=target).export_library(os.path.join(directory, f"{name}.so"))
    load.append(os.getloadavg()[0])
    by_half = next(row for row in curve if row[0] >= half_trials)
    result = {"kernel": kernel, "threads": arguments.threads, "trials": arguments.trials, "made": watch.trials,
              "timed": watch.timed, "wall_s": wall_s, "best_us": watch.best_us, "half_trials": by_half[0],
              "half_s": by_half[1], "half_us": by_half[2], "curve": curve, "target": str(target),
              "tvm": tvm.__version__, "load": load}
    temporary = os.path.join(directory, "result.json.new")
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
    os.replace(temporary, os.path.join(directory, "result.json"))
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--store", default=STORE)
    parser.add_argument("--again", action="store_true", help="tune what is tuned already, too")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("kernels", nargs="*")
    arguments = parser.parse_args()
    lib.enter("bench-tvm-python")
    arguments.store = os.path.abspath(arguments.store)
    if arguments.one:
        return tune_one(arguments, arguments.kernels[0])
    wanted = arguments.kernels or [os.path.join(lib.ROOT, "bench/bench.kernels")]
    return tune_all(arguments, [kernel for _, kernel in lib.kernels(wanted)])


if __name__ == "__main__":
    sys.exit(main())
