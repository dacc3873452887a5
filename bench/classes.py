#!/usr/bin/env python3
"""What the search wins on each class of kernels of the eleven lists, and where it wins nothing, how near the best it stands.

usage: bench/classes.py [--bin DIR] [--pool CACHE] [--rounds N] [--json FILE]
                        [KERNEL | FILE.kernels …]   (default: the eleven lists)

The pool is a cache whose kernels were searched (bench/transfer.py makes it: one thread, 128 trials each). What each serves
now was compared with what it served before head to head when it was found, beyond noise; that ratio is the gain. Here the
served versions take turns with onnxruntime's (as bench/peers.py has it), and `hone explain` says how far they are from what
the machine can do. A class passes if some kernel of it gains 2 %, or if each stands within 10 % of onnxruntime or of the
roofline."""
import argparse
import json
import os
import shutil
import sys
import tempfile

import lib

lib.enter("bench-python")
import libhone  # noqa: E402
import peers  # noqa: E402

GAIN, NEAR = 1.02, 0.9


def facts(daemon):
    """kernel → what `hone explain` says of the version for one thread."""
    found = {}
    for row in daemon.hone("ls"):
        if row.get("origin") in ("tuned", "transferred", "default"):
            for told in daemon.hone("explain", row["fingerprint"]):
                if told.get("threads") == 1 and told.get("trials", 0) > 0:
                    found[told["kernel"]] = told
    return found


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
    print(f"{'class':40} {'kernels':>8} {'gained':>7} {'most':>6} {'onnxruntime / hone':>19} {'of the roofline':>16}")
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
    lib.mark("classes without a gain, and behind", len(behind), "", 0, at_most=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--bin", default=lib.BIN)
    parser.add_argument("--pool", default=os.path.join(lib.ROOT, "build/transfer-pool"))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", help="a line per kernel")
    parser.add_argument("files", nargs="*")
    arguments = parser.parse_args()
    if not os.path.isdir(arguments.pool):
        sys.exit(f"bench/classes.py: {arguments.pool} is not there; bench/transfer.py makes it")
    rows = []
    with tempfile.TemporaryDirectory(prefix="hone-classes-") as home:
        cache = os.path.join(home, "cache")
        shutil.copytree(arguments.pool, cache, ignore=shutil.ignore_patterns("LOCK"))
        with lib.Daemon(arguments.bin, "--cache", cache) as daemon:
            known = facts(daemon)
            client = libhone.Client(os.path.join(arguments.bin, "../lib/libhone.so"), daemon.socket, 1)
            overhead = peers.overheads(client)
            kernels = [kernel for _, kernel in lib.kernels(arguments.files) if kernel in known]
            for number, kernel in enumerate(kernels):
                lib.progress(f"kernel {number + 1} of {len(kernels)}")
                rows.append(row_of(kernel, known[kernel], peers.compare(client, kernel, arguments.rounds, overhead)))
    lib.progress("")
    report(rows)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
