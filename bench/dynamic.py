#!/usr/bin/env python3
"""A range of sizes from a few schedules, against tuning each size by itself.

usage: bench/dynamic.py [--bin DIR] [--kernel KERNEL] [--sizes N] [--trials N] [--tune N] [--threads N] [--json FILE]

The kernel with the range is tuned once, with --tune trials for all its cases together. Then, at sizes drawn evenly from
the range (one at random from each of so many equal parts, with a fixed seed), it runs in turns with the kernel for that
size alone: as it is served without a search, and tuned with --trials trials for that size. The loss at a size is the
median over turns of the ratio of times, less one; the mean counts every size of the range alike."""
import argparse
import json
import random
import re
import sys

import lib

KERNEL = "dense(M=1..512,N=768,K=768,const=1)"


def sizes_of(kernel, count):
    name, low, high = re.search(r"(\w+)=(\d+)\.\.(\d+)", kernel).groups()
    low, high, draw = int(low), int(high), random.Random(1)
    parts = [low + (high + 1 - low) * i // count for i in range(count + 1)]
    return name, sorted({draw.randrange(begin, end) for begin, end in zip(parts, parts[1:]) if end > begin})


def run(daemon, arguments, chosen, *options):
    answer = daemon.hone("run", arguments.kernel, "--threads", str(arguments.threads), "--repeat", str(arguments.rounds),
                         "--sizes", chosen, *options)[-1]
    if "error" in answer or not answer["verified"]:
        sys.exit(f"bench/dynamic.py: {answer.get('error', answer)}")
    return answer


def mean(rows, field):
    return sum(row[field] for row in rows) / len(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bin", default=lib.BIN)
    parser.add_argument("--kernel", default=KERNEL)
    parser.add_argument("--sizes", type=int, default=24)
    parser.add_argument("--trials", type=int, default=128, help="for each size alone; 0: only what is served without")
    parser.add_argument("--tune", type=int, default=384, help="for the range; 0: the default schedules")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", help="a line per size")
    arguments = parser.parse_args()
    name, sizes = sizes_of(arguments.kernel, arguments.sizes)
    chosen = f"{name}=" + ",".join(map(str, sizes))
    suffix = "" if arguments.threads == 1 else f", {arguments.threads} threads"
    with lib.Daemon(arguments.bin) as daemon:
        before = run(daemon, arguments, chosen)
        if arguments.tune:
            end = daemon.hone("tune", arguments.kernel, "--trials", str(arguments.tune), "--threads", str(arguments.threads),
                              "--seed", "1")[-1]
            if "error" in end:
                sys.exit(f"bench/dynamic.py: {end['error']['message']}")
            print(f"{arguments.kernel}: {end['trials']} trials in {end['elapsed_s']:.0f} s, {end['ratio'] or 1:.2f} times "
                  f"as fast as the default schedules ({end['stopped']})", flush=True)
        answer = before
        if arguments.trials:
            answer = run(daemon, arguments, chosen, "--tune-each", str(arguments.trials))
        elif arguments.tune:
            answer = run(daemon, arguments, chosen)
    print(f"{'size':>6} {'default':>9} {'loss':>7} {'tuned':>9} {'alone':>9} {'loss':>7}   us; loss against the size alone")
    rows = []
    for one, other in zip(before["at"], answer["at"]):
        rows.append({"sizes": one["sizes"], "default_us": one["time_us"], "default_loss": one["loss"],
                     "time_us": other["time_us"], "alone_us": other["fixed_us"], "loss": other["loss"],
                     "alone": other["fixed_origin"]})
        row = rows[-1]
        print(f"{row['sizes']:>6} {row['default_us']:9.1f} {row['default_loss'] * 100:6.1f}% {row['time_us']:9.1f} "
              f"{row['alone_us']:9.1f} {row['loss'] * 100:6.1f}%", flush=True)
    print(f"mean loss of default schedules against each size's default {mean(rows, 'default_loss') * 100:.1f} %, worst size "
          f"{max(row['default_loss'] for row in rows) * 100:.1f} %")
    lib.mark("dynamic: schedules for the range" + suffix, answer["schedules"], "", 8, at_most=True)
    lib.mark("dynamic: mean loss against tuning each" + suffix, mean(rows, "loss") * 100, "%", 10, at_most=True)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
