#!/usr/bin/env python3
"""How much of tuned speed kernels of one type get without tuning from the tuned kernels of another: f32, i8, u8, bf16, f16.

usage: bench/narrow_transfer.py [--bin DIR] [--pool CACHE] [--trials N] [--json FILE] [--write FILE.md]

The same products and convolutions in each type, on one thread, are searched with N trials (64) first; the cache stays in
build/narrow-transfer-pool, and what was searched there is not searched again. Then for each pair of types
bench/transfer_lab.cc serves the kernels of the one from the tuned kernels of the other alone: what the ranker takes first,
nothing measured, beside the fastest that was seen of the kernel, in turns. --write puts the table between the marks of a
Markdown file."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

import lib
import transfer
from low_precision import HEAVY, LIGHT

TYPES = ["f32", "i8", "u8", "bf16", "f16"]
KERNELS = HEAVY + LIGHT + ["depthwise_conv2d(C=144,H=56,W=56,R=3,S=3,pad=1,const=1",
                           "depthwise_conv2d(C=96,H=112,W=112,R=3,S=3,stride=2,pad=1,const=1",
                           "conv2d(C=512,H=7,W=7,O=2048,R=1,S=1,const=1"]
BEGIN, END = "<!-- table: bench/narrow_transfer.py -->", "<!-- end of the table between types -->"


def kernel_of(start, dtype):
    return f"{start},dtype={dtype})" if dtype != "f32" else f"{start})"


def search(arguments, lists):
    os.makedirs(arguments.pool, exist_ok=True)
    for dtype, path in lists.items():
        done = os.path.join(arguments.pool, f"done-{dtype}-{arguments.trials}")
        if os.path.exists(done):
            continue
        print(f"searching kernels of {dtype}, {arguments.trials} trials each …", flush=True)
        with lib.Daemon(arguments.bin, "--cache", arguments.pool) as daemon:
            daemon.hone("tune", "--all", "--trials", str(arguments.trials), "--threads", "1", path)
        with open(done, "w", encoding="utf-8"):
            pass


def shares(arguments, lists, donor, dtype):
    """Of each kernel, tuned time over what is served, and over the default."""
    command = [os.path.join(arguments.bin, "transfer_lab"), "--pool", arguments.pool, "--threads", "1", "--donors", lists[donor],
               "--leave-out", lists[dtype], lists[dtype]]
    rows = [json.loads(line) for line in
            subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()]
    for row in rows:
        loose = [fit for fit in row["fits"] if not fit["strict"]]
        order = transfer.ranked(transfer.near(row["fits"]))
        row["best_us"] = transfer.chosen([{"us": row["tuned_us"], "pick_us": row["tuned_pick_us"]}, *loose])
        row["served_us"] = order[0]["us"] if order else row["default_us"]
        row["from"], row["to"] = donor, dtype
    return rows


def table(means):
    lines = ["| served \\ tuned | " + " | ".join(TYPES) + " | default |", "|---" * (len(TYPES) + 2) + "|"]
    for dtype in TYPES[1:]:
        cells = ["–" if donor == dtype else f"{means[donor, dtype][0]:.2f}" for donor in TYPES]
        default = statistics.mean(means[donor, dtype][1] for donor in TYPES if donor != dtype)
        lines.append(f"| {dtype} | " + " | ".join(cells) + f" | {default:.2f} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--bin", default=lib.BIN)
    parser.add_argument("--pool", default=os.path.join(lib.ROOT, "build/narrow-transfer-pool"))
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--json", help="a line per pair and kernel")
    parser.add_argument("--write", metavar="FILE.md")
    arguments = parser.parse_args()
    rows, means = [], {}
    with tempfile.TemporaryDirectory(prefix="hone-bench-") as folder:
        lists = {}
        for dtype in TYPES:
            lists[dtype] = os.path.join(folder, dtype + ".kernels")
            with open(lists[dtype], "w", encoding="utf-8") as file:
                file.writelines(f"1 {kernel_of(start, dtype)}\n" for start in KERNELS)
        search(arguments, lists)
        for dtype in TYPES[1:]:
            for donor in TYPES:
                if donor == dtype:
                    continue
                lib.progress(f"{dtype} from {donor}")
                seen = shares(arguments, lists, donor, dtype)
                rows += seen
                means[donor, dtype] = (statistics.mean(row["best_us"] / row["served_us"] for row in seen),
                                       statistics.mean(row["best_us"] / row["default_us"] for row in seen))
    lib.progress("")
    print(table(means))
    for row in sorted(rows, key=lambda row: row["best_us"] / row["served_us"])[:5]:
        print(f"  {row['best_us'] / row['served_us']:.2f} from {row['from']}: {row['kernel']}")
    lib.mark("narrow types from one another and f32, nothing measured, mean of the worst pair", min(mean for mean, _ in means.values()),
             "x", 0.9, at_most=False)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    if arguments.write:
        lib.write_between(arguments.write, BEGIN, END, table(means))
    return 0


if __name__ == "__main__":
    sys.exit(main())
