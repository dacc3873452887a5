#!/usr/bin/env python3
"""Honest clients beside a thousand hostile ones of another user.

usage: bench/crowd.py [--bin DIR] [--clients N] [--seconds N]

The crowd is tests/integration/crowd.py's: slow readers, connections that are held silent or in the middle of a frame, garbage,
clients that come and go, hostile texts, long builds, floods of new kernels. The daemon's own user and a third one ask for what is
known and for new kernels meanwhile. What a bare exchange over a socket takes at the same moments is taken off the hits' time:
every core is wanted all the time. As root, to be several users."""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import lib


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--bin", default=lib.BIN)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hone-bench-") as folder:
        path = os.path.join(folder, "crowd.json")
        script = os.path.join(lib.ROOT, "tests/integration/crowd.py")
        subprocess.run([sys.executable, script, "--clients", str(arguments.clients), "--seconds", str(arguments.seconds),
                        "--json", path], env=dict(os.environ, HONE_BIN_DIR=os.path.abspath(arguments.bin)), check=False)
        if not os.path.exists(path):
            sys.exit("bench: the crowd could not be measured; see above")
        with open(path, encoding="utf-8") as file:
            seen = json.load(file)
    for each in seen["honest"]:
        lib.mark(f"hits' p99 beside a crowd, {each['who']}", each["hit_p99_ms"] - each["bare_p99_ms"], "ms", 5, at_most=True)
        lib.mark(f"misses' p95 beside a crowd, {each['who']}", each["miss_p95_ms"], "ms", 500, at_most=True)
    lib.mark("requests refused beside a crowd", sum(each["problems"] for each in seen["honest"]), "", 0, at_most=True)
    lib.mark("the daemon's memory beside a crowd, more", seen["more_mib"], "MiB", 64, at_most=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
