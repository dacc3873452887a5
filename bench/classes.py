#!/usr/bin/env python3
"""What `hone tune` wins on each kind of kernels of the eleven lists, and where it wins nothing, how near the best it stands.

usage: bench/classes.py [--bin DIR] [--each N] [--trials N] [--rounds N] [--json FILE]
                        [KERNEL | FILE.kernels …]   (default: the eleven lists)

Of each kind N kernels (default 3), spread over its sizes, are tuned on one thread, each with a cache of its own, so that it
begins with the default and nothing is transferred. The gain is over the default, head to head and beyond noise, as honed
decides whether to keep what it found. Then the kept version takes turns with onnxruntime's (as bench/peers.py has it), and
`hone explain` says how far it is from what the machine can do. A kind passes if some kernel of it gains 2 %, or if each
stands within 10 % of onnxruntime or of the roofline."""
import argparse
import json
import math
import os
import re
import sys

import lib

lib.enter("bench-python")
import libhone  # noqa: E402
import peers  # noqa: E402

GAIN, NEAR = 1.02, 0.9


def size(kernel):
    """Something that grows with the work: the product of all extents."""
    return math.prod(int(value) for value in re.findall(r"\b[A-Z]+=(\d+)", kernel))


def some_of(kernels, each):
    """`each` of every kind, from the smallest to the largest."""
    kinds = {}
    for _, kernel in kernels:
        kinds.setdefault(lib.kind(kernel), []).append(kernel)
    chosen = []
    for some in kinds.values():
        some.sort(key=size)
        count = min(each, len(some))
        chosen += [some[round(i * (len(some) - 1) / max(1, count - 1))] for i in range(count)]
    return chosen


def tuned(daemon, kernel, trials):
    """What `hone explain` says of the kernel once it is tuned."""
    served = daemon.hone("get", kernel, "--threads", "1")[0]
    if served.get("origin") != "default":
        sys.exit(f"bench/classes.py: {kernel} is not served by default: {served}")
    answer = daemon.hone("tune", kernel, "--threads", "1", "--trials", str(trials))[-1]
    if "error" in answer:
        sys.exit(f"bench/classes.py: {kernel}: {answer['error']}")
    return next(told for told in daemon.hone("explain", answer["fingerprint"]) if told.get("threads") == 1)


def row_of(kernel, told, beside):
    return {"kernel": kernel, "kind": lib.kind(kernel), "gain": told["won_ratio"] or 1, "trials": told["trials"],
            "share": told["roofline"].get("share", 0), "us": beside["hone_us"], "library": beside["ratio"],
            "least": beside["least"], "most": beside["most"]}


def stands(row):
    return row["library"] >= NEAR or row["share"] >= NEAR


def report(rows):
    kinds = {}
    for row in rows:
        kinds.setdefault(row["kind"], []).append(row)
    print(f"{'kind':40} {'kernels':>8} {'gained':>7} {'most':>6} {'onnxruntime / hone':>19} {'of the roofline':>16}")
    behind = []
    for kind, some in sorted(kinds.items()):
        gained = [row for row in some if row["gain"] >= GAIN]
        ratios, shares = [row["library"] for row in some], [row["share"] for row in some]
        print(f"  {kind:38} {len(some):8} {len(gained):7} {max(row['gain'] for row in some):6.2f} "
              f"{min(ratios):8.2f} … {max(ratios):8.2f} {min(shares):6.2f} … {max(shares):7.2f}")
        if not gained and not all(stands(row) for row in some):
            behind.append(kind)
            for row in (row for row in some if not stands(row)):
                print(f"      {row['library']:.2f} ({row['least']:.2f} … {row['most']:.2f}) of onnxruntime's speed, "
                      f"{row['share']:.2f} of the roofline: {row['kernel']}")
    lib.mark("kinds without a gain, and behind", len(behind), "", 0, at_most=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--bin", default=lib.BIN)
    parser.add_argument("--each", type=int, default=3, metavar="N")
    parser.add_argument("--trials", type=int, default=128, metavar="N")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", help="a line per kernel")
    parser.add_argument("files", nargs="*")
    arguments = parser.parse_args()
    rows, overhead = [], None
    kernels = some_of(lib.kernels(arguments.files), arguments.each)
    for number, kernel in enumerate(kernels):
        lib.progress(f"kernel {number + 1} of {len(kernels)}: {kernel}")
        with lib.Daemon(arguments.bin) as daemon:
            client = libhone.Client(os.path.join(arguments.bin, "../lib/libhone.so"), daemon.socket, 1)
            overhead = overhead or peers.overheads(client)
            told = tuned(daemon, kernel, arguments.trials)
            rows.append(row_of(kernel, told, peers.compare(client, kernel, arguments.rounds, overhead)))
            client.close()
    lib.progress("")
    report(rows)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
