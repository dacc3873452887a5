#!/usr/bin/env python3
"""hone's search against TVM MetaSchedule: how fast what each found is, and how long each took.

usage: bench/against_tvm.py [--bin DIR] [--trials N] [--threads N] [--store DIR] [--tune] [--rounds N]
                            [--json FILE] [KERNEL | FILE.kernels …]                     (default: bench/bench.kernels)

bench/tvm_tune.py comes first: it tunes with TVM and keeps the modules (--tune calls it for what is missing). Here each
kernel is searched with as many trials by a fresh daemon, and then three take turns in one process, on the same operands,
their results compared and the cost of an empty call taken off: what hone serves, TVM's best of all trials, TVM's best of
half of them. Several processes do so one after the other, since a kernel with buffers on the stack may take three times as
long where these happen to lie badly beside its operands; figures are medians over the processes.

Seconds are those of each search: TVM's until half of its trials were made, hone's until a round ended with something
within 2 % of what TVM had by then, both clocks started with the search. The times of hone's rounds are its own runner's;
they are scaled by what the served kernel takes here over what it took there.

Exit status: 0, or 2 if a kernel is not tuned with TVM."""
import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys

import lib
import tvm_tune

CLOSE = 1.02  # times as long as TVM's half result


def load(directory, name, arrays):
    """A function without arguments that calls TVM's module on the arrays, results included."""
    import tvm  # pylint: disable=import-outside-toplevel
    main = tvm.runtime.load_module(os.path.join(directory, f"{name}.so"))["main"]
    tensors = [tvm.runtime.from_dlpack(array) for array in arrays]
    return lambda: main(*tensors)


def empty_call():
    """What a call into TVM costs: a kernel that copies one number."""
    import tvm  # pylint: disable=import-outside-toplevel
    from tvm import te  # pylint: disable=import-outside-toplevel
    import libhone  # pylint: disable=import-outside-toplevel
    x = te.placeholder((1,), name="x")
    built = tvm.compile(te.create_prim_func([x, te.compute((1,), lambda i: x[i], name="y")]), target="llvm")
    tensors = [tvm.runtime.from_dlpack(libhone.aligned((1,), "float32")) for _ in range(2)]
    main = built["main"]
    return lambda: main(*tensors)


def search(daemon, kernel, arguments):
    """The end of hone's search and its rounds as (seconds, best µs)."""
    curve, end = [], {}
    for _, line in daemon.follow("tune", kernel, "--trials", str(arguments.trials), "--threads",
                                 str(arguments.threads), "--seed", "1"):
        if "error" in line:
            sys.exit(f"bench/against_tvm.py: {kernel}: {line['error']['message']}")
        if line["best_us"]:
            curve.append((line["elapsed_s"], line["best_us"]))
        end = line
    return end, curve


def first_within(curve, limit_us):
    return next((seconds for seconds, best_us in curve if best_us <= limit_us), float("inf"))


def measure(arguments, kernel):
    """In a process of its own: seconds of a call of hone's version, TVM's and its half result, over the rounds."""
    import libhone  # pylint: disable=import-outside-toplevel
    import turns  # pylint: disable=import-outside-toplevel
    client = libhone.Client(os.path.join(arguments.bin, "../lib/libhone.so"), arguments.socket, arguments.threads)
    call, nothing = client.library.hone_call, (ctypes.c_void_p * 1)()
    hone_s, tvm_s = turns.overhead(lambda: call(None, nothing, None)), turns.overhead(empty_call())
    held = client.get(kernel, arguments.threads)
    arrays = turns.operands(held)
    result = libhone.aligned(arrays[-1].shape, arrays[-1].dtype)
    directory = tvm_tune.directory_of(arguments.store, arguments.threads, kernel)
    works = [held.bind(arrays)] + [load(directory, name, [*arrays[:-1], result]) for name in ("tuned", "half")]
    differences = []
    for work in works[1:]:
        result[...] = 0
        work()
        differences.append(turns.difference(arrays[-1], result))
    times = turns.take(works, [hone_s, tvm_s, tvm_s], arguments.rounds, arguments.threads)
    print(json.dumps({"us": [statistics.median(each) * 1e6 for each in times], "ratio": turns.ratios(times[0], times[1])[0],
                      "difference": max(differences), "flops": held.info.flops, "overheads_us": [hone_s * 1e6, tvm_s * 1e6]}))


def compare(daemon, kernel, end, curve, tuned, arguments):
    command = [sys.executable, os.path.abspath(__file__), "--bin", arguments.bin, "--threads", str(arguments.threads),
               "--rounds", str(arguments.rounds), "--store", arguments.store, "--socket", daemon.socket, kernel]
    seen = []
    for _ in range(arguments.processes):
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"bench/against_tvm.py: {kernel}: could not be measured")
        seen.append(json.loads(done.stdout.splitlines()[-1]))
    hone_us, tvm_us, half_us = (statistics.median(each["us"][which] for each in seen) for which in range(3))
    ratios = sorted(each["ratio"] for each in seen)
    served_us = end["best_us"] if end["ratio"] else end["start_us"]  # as the search saw what is served now
    hone_s = first_within(curve, CLOSE * half_us * served_us / hone_us)
    half_s = tuned["half_s"]
    # The stricter reading: TVM, too, may have been that far before half of its trials were made.
    tvm_s = first_within([(s, us) for _, s, us in tuned["curve"] if us], CLOSE * tuned["half_us"])
    flops = seen[0]["flops"]
    return {"kernel": kernel, "threads": arguments.threads, "hone_us": hone_us, "tvm_us": tvm_us, "half_us": half_us,
            "ratio": statistics.median(ratios), "least": ratios[0], "most": ratios[-1], "processes": seen,
            "difference": max(each["difference"] for each in seen), "flops": flops,
            "tvm_gflops": flops / tvm_us / 1e3, "hone_s": hone_s, "tvm_half_s": half_s, "tvm_first_s": tvm_s,
            "seconds": hone_s / half_s, "seconds_strict": hone_s / tvm_s, "trials": end["trials"],
            "tvm_trials": tuned["made"], "tvm_wall_s": tuned["wall_s"], "hone_wall_s": end["elapsed_s"],
            "tvm_load": tuned["load"]}


def peak_gflops(bin_directory, threads):
    """Of so many cores at once."""
    processes = [subprocess.Popen([os.path.join(bin_directory, "peak")], stdout=subprocess.PIPE, text=True)
                 for _ in range(threads)]
    return sum(json.loads(process.communicate()[0])["fma_gflops"] for process in processes)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=lib.BIN)
    parser.add_argument("--trials", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7, help="in a process")
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--socket", help=argparse.SUPPRESS)
    parser.add_argument("--tune", action="store_true", help="tune with TVM first what is not tuned yet")
    parser.add_argument("--store", default=tvm_tune.STORE)
    parser.add_argument("--json", help="a line per kernel")
    parser.add_argument("files", nargs="*")
    arguments = parser.parse_args()
    os.environ["TVM_NUM_THREADS"] = str(arguments.threads)
    lib.enter("bench-tvm-python")
    if arguments.socket:
        measure(arguments, arguments.files[0])
        return 0
    kernels = [kernel for _, kernel in lib.kernels(arguments.files or [os.path.join(lib.ROOT, "bench/bench.kernels")])]
    if arguments.tune:
        subprocess.run([sys.executable, os.path.join(lib.ROOT, "bench/tvm_tune.py"), "--trials", str(arguments.trials),
                        "--threads", str(arguments.threads), "--store", arguments.store, *kernels], check=False)
    rows, missing = [], []
    with lib.Daemon(arguments.bin) as daemon:
        print(f"{'hone us':>9} {'TVM us':>9} {'TVM/hone':>22} {'share':>6} {'hone s':>7} {'TVM s':>7} {'of it':>6}  kernel")
        for kernel in kernels:
            tuned = tvm_tune.result_of(tvm_tune.directory_of(arguments.store, arguments.threads, kernel))
            if not tuned or tuned["trials"] < arguments.trials:
                missing.append(kernel)
                continue
            lib.progress(f"searching {kernel}")
            end, curve = search(daemon, kernel, arguments)
            lib.progress("")
            row = compare(daemon, kernel, end, curve, tuned, arguments)
            row["tvm_share"] = row["tvm_gflops"] / peak_gflops(arguments.bin, arguments.threads)
            rows.append(row)
            print(f"{row['hone_us']:9.1f} {row['tvm_us']:9.1f} {row['ratio']:6.2f} ({row['least']:.2f} … {row['most']:.2f})"
                  f" {row['tvm_share']:6.2f} {row['hone_s']:7.2f} {row['tvm_half_s']:7.1f} {row['seconds']:6.3f}  {kernel}",
                  flush=True)
            if arguments.json:
                with open(arguments.json, "w" if len(rows) == 1 else "a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
    for kernel in missing:
        print(f"  not tuned with TVM and {arguments.trials} trials, see bench/tvm_tune.py: {kernel}")
    if rows:
        report(rows, "" if arguments.threads == 1 else f", {arguments.threads} threads")
    return 2 if missing else 0


def report(rows, suffix):
    ratios = [row["ratio"] for row in rows]
    open_rows = [row["ratio"] for row in rows if row["tvm_share"] < 0.9]
    wrong = [row for row in rows if not row["difference"] < 1e-4]
    for row in wrong:
        print(f"  results differ by {row['difference']:.2g} of the largest value: {row['kernel']}")
    strict = max(row["seconds_strict"] for row in rows)
    print(f"share: TVM's of the FMA peak; TVM s: until half of its trials. Against TVM's own first round within 2 % of "
          f"that: at most {strict:.3f}")
    lib.mark("results that differ from TVM's" + suffix, len(wrong), "", 0, at_most=True)
    lib.mark("against TVM" + suffix, lib.geometric_mean(ratios), "x", 1.3, at_most=False)
    lib.mark("against TVM, worst" + suffix, min(ratios), "x", 0.97, at_most=False)
    if open_rows:
        lib.mark("against TVM below 0.9 of peak, worst" + suffix, min(open_rows), "x", 1.0, at_most=False)
    lib.mark("seconds to TVM's half result, worst" + suffix, max(row["seconds"] for row in rows), "x", 0.05, at_most=True)


if __name__ == "__main__":
    sys.exit(main())
