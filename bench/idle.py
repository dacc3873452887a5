#!/usr/bin/env python3
"""What idle time wins: a daemon is left alone, and what it serves afterwards is measured against what it served before.

usage: bench/idle.py [--bin DIR] [--minutes N] [--threads N] [--rounds N] [--json FILE] [FILE.kernels …]

The list (default: models/resnet18.kernels) is warmed in a fresh daemon, which is then left idle for N minutes (10) and
stopped. It starts again without refining, beside another fresh one that serves default schedules; both versions of each
kernel take turns in one process on the same operands. Then the libraries take turns with the new version, as in
bench/libraries.py, and every record is verified: its checksums, and its code against the reference.

The mark is either of: calls × time, summed over the list, at least 1.15 times lower; or no kernel more than 10 % behind the
fastest library."""
import argparse
import json
import os
import statistics
import sys
import time

import lib

lib.enter("bench-python")
import libhone  # noqa: E402
import libraries  # noqa: E402
import turns  # noqa: E402

LOOK_S = 5  # seldom: looking is work, too


def leave_alone(daemon, minutes):
    """A line when it goes on to another kernel; how many trials it made, and the share of the time it was at work."""
    begin, task, looks, at_work = time.monotonic(), "", 0, 0
    while (left := begin + 60 * minutes - time.monotonic()) > 0:
        time.sleep(min(LOOK_S, left))
        status, stats = daemon.hone("status")[0], daemon.hone("stats")[0]
        looks += 1
        at_work += bool(status.get("tuning"))
        if status.get("tuning", "") != task:
            task = status["tuning"]
            print(f"  {time.monotonic() - begin:5.0f} s {stats['trials']:6} trials  {task or status['idle']}", flush=True)
    return daemon.hone("stats")[0]["trials"], at_work / max(1, looks)


def duel(client_old, client_new, kernel, threads, rounds):
    """Times of the old and the new version in turns, and whether they agree."""
    old, new = client_old.get(kernel, threads), client_new.get(kernel, threads)
    arrays = turns.operands(old)
    other = libhone.aligned(arrays[-1].shape, arrays[-1].dtype)
    works = [new.bind(arrays), old.bind([*arrays[:-1], other])]
    difference = turns.difference(arrays[-1], other)
    call, nothing = client_new.library.hone_call, (libhone.ctypes.c_void_p * 1)()
    overhead = turns.overhead(lambda: call(None, nothing, None))
    new_s, old_s = turns.take(works, [overhead, overhead], rounds, threads)
    ratio, least, most = turns.ratios(new_s, old_s)
    row = {"kernel": kernel, "origin": new.info.origin.decode(), "old_us": statistics.median(old_s) * 1e6,
           "new_us": statistics.median(new_s) * 1e6, "gain": ratio, "gain_least": least, "gain_most": most,
           "differs": difference, "rounds": [old_s, new_s]}
    old.release()
    new.release()
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=lib.BIN)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="as hone warm: the cores there are")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", help="one document")
    parser.add_argument("files", nargs="*")
    arguments = parser.parse_args()
    files = arguments.files or [os.path.join(lib.ROOT, "models/resnet18.kernels")]
    kernels = lib.kernels(files)
    threads = str(arguments.threads)
    libraries.program(arguments.bin)  # what is missing is installed now, not after the long part
    with lib.Daemon(arguments.bin, idle=True) as daemon:
        daemon.hone("warm", *files, "--threads", threads)
        print(f"{len(kernels)} kernels warmed, {threads} threads; idle for {arguments.minutes:g} minutes", flush=True)
        trials, at_work = leave_alone(daemon, arguments.minutes)
        print(f"{trials} trials; refining at {at_work:.0%} of the looks")
        daemon.stop()
        daemon.start("--no-idle")
        with lib.Daemon(arguments.bin) as fresh:
            fresh.hone("warm", *files, "--threads", threads)
            library = os.path.join(arguments.bin, "../lib/libhone.so")
            old, new = (libhone.Client(library, each.socket, arguments.threads) for each in (fresh, daemon))
            rows = []
            for number, (calls, kernel) in enumerate(kernels):
                lib.progress(f"old against new, kernel {number + 1} of {len(kernels)}")
                rows.append({"calls": calls, **duel(old, new, kernel, arguments.threads, arguments.rounds)})
            lib.progress("")
        for row, beside in zip(rows, libraries.measure(daemon, [kernel for _, kernel in kernels], arguments.threads,
                                                       arguments.rounds)):
            first = libraries.fastest(beside)
            row.update(library=first["name"], library_ratio=first["ratio"], library_least=first["least"],
                       library_most=first["most"], peers=beside["peers"])
        verified = daemon.hone("verify", "--run")
    show(rows)
    old_us, new_us = sums(rows)
    by_round = [sum(row["calls"] * row["rounds"][0][r] for row in rows) / sum(row["calls"] * row["rounds"][1][r] for row in rows)
                for r in range(arguments.rounds)]
    behind = min(row["library_ratio"] for row in rows)
    print(f"calls x time: {old_us:.0f} -> {new_us:.0f} us, {old_us / new_us:.3f} ({min(by_round):.3f} … {max(by_round):.3f})")
    bad = [record for record in verified if record.get("ok") is False or "error" in record]
    unsure = verified[-1].get("checked", 0) < len(kernels)
    for record in bad:
        print(f"  not sound: {record}")
    lib.mark("records that do not verify", len(bad) + unsure, "", 0, at_most=True)
    differ = sum(not row["differs"] < 1e-4 for row in rows)
    lib.mark("new versions that differ from the old", differ, "", 0, at_most=True)
    if behind >= 0.9 and old_us / new_us < 1.15:
        lib.mark("idle, worst against the fastest library", behind, "x", 0.9, at_most=False)
    else:
        lib.mark("idle, calls x time", old_us / new_us, "x", 1.15, at_most=False)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"minutes": arguments.minutes, "threads": arguments.threads, "trials": trials, "at_work": at_work,
                       "old_us": old_us, "new_us": new_us, "by_round": by_round, "worst_against_library": behind,
                       "kernels": rows, "verified": verified[-1]}, file, indent=1)
    return 0


def sums(rows):
    return (sum(row["calls"] * row[version] for row in rows) for version in ("old_us", "new_us"))


def show(rows):
    print(f"{'calls':>5} {'old us':>9} {'new us':>9} {'old / new':>20} {'library / new':>20}  fastest library, kernel")
    for row in rows:
        print(f"{row['calls']:5} {row['old_us']:9.1f} {row['new_us']:9.1f} {row['gain']:6.2f} ({row['gain_least']:.2f} … "
              f"{row['gain_most']:.2f}) {row['library_ratio']:6.2f} ({row['library_least']:.2f} … {row['library_most']:.2f})"
              f"  {row['library']:22} {row['kernel']}")


if __name__ == "__main__":
    sys.exit(main())
