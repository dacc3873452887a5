#!/usr/bin/env python3
"""What it costs to ship a cache: a bundle of 5,000 kernels written and taken up, a network that is ready from one.

usage: bench/ship.py [--bin DIR] [--kernels N] [--rounds N] [--model FILE.onnx]

honed makes the kernels that bench/edge.py has (some minutes). Then, each some times, the median counts, and the slowest is
said beside it:

  export   `hone export`, the whole command: schedules alone, and with code, both signed
  import   `hone import` into an empty cache, the whole command, and after it a hit: the kernel asked for most often. Of a
           bundle of schedules it is compiled and checked then; of one with code it is checked
  network  ResNet-50 (--model; constants as `hone run --export` makes them): from a session's creation until it can run, the
           first time with a cache that a bundle filled, and afterwards, and how long the bytes of its file take to be read
           and copied once, which is the least that any session needs. Before each, memory of twice that size is touched
           and given back: the host of a virtual machine may take long to hand out what was not in use for a while. And
           NumPy, which the session's module imports, starts no threads, since they keep processors busy at first"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import edge
import lib

MODEL = os.path.join(os.environ.get("HONE_MODELS", ""), "resnet50.onnx")
SESSION = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
import hone
begin = time.perf_counter()
session = hone.Session(sys.argv[2], threads=1, socket=sys.argv[3], start=False)
print(json.dumps(time.perf_counter() - begin))
"""


def show(name, seconds, least=None):
    more = "" if least is None else f"; its file read and copied: {least * 1e3:.0f} ms"
    print(f"  {name:34} {statistics.median(seconds) * 1e3:8.1f} ms, slowest {max(seconds) * 1e3:8.1f} of {len(seconds)}{more}",
          flush=True)
    return statistics.median(seconds)


def timed(run):
    begin = time.perf_counter()
    done = run()
    return time.perf_counter() - begin, done


def checked(answers):
    if error := answers[-1].get("error"):
        sys.exit(f"bench: {error['message']}")
    return answers[-1]


def export(daemon, folder, rounds):
    """The two bundles' files: of schedules, and with code."""
    files = []
    for name, options, limit in (("schedules", [], 1), ("with code", ["--artifacts"], 1)):
        path = os.path.join(folder, f"{len(files)}.bundle")
        seconds = []
        for _ in range(rounds):
            took, answers = timed(lambda: daemon.hone("export", "-o", path, "--key", os.path.join(folder, "bench.key"), *options))
            count = checked(answers)["records"]
            seconds.append(took)
        median = show(f"export, {count} kernels, {name}", seconds)
        print(f"    {os.path.getsize(path) / 2**20:.1f} MiB", flush=True)
        lib.mark(f"export of 5,000 kernels, {name}", median, "s", limit, at_most=True)
        files.append(path)
    return files


def take_up(arguments, folder, path, name, limit):
    imports, firsts = [], []
    for _ in range(arguments.rounds):
        with lib.Daemon(arguments.bin) as daemon:
            took, answers = timed(lambda: daemon.hone("import", path, "--trust", os.path.join(folder, "bench.pub")))
            if checked(answers)["added"] < arguments.kernels * 0.99:
                sys.exit(f"bench: imported {answers[-1]}")
            hit, answers = timed(lambda: daemon.hone("get", edge.kernels(arguments.kernels)[0]))
            if checked(answers)["origin"] != "imported":
                sys.exit(f"bench: served {answers[-1]}")
            imports.append(took)
            firsts.append(took + hit)
    show(f"import, {name}", imports)
    lib.mark(f"import until the first hit, {name}", show(f"and the first hit, {name}", firsts), "s", limit, at_most=True)


def have_memory_at_hand(path):
    """A process takes memory for two copies of a file and gives it back."""
    count = 2 * os.path.getsize(path)
    subprocess.run([sys.executable, "-c", f"bytearray({count})[::4096] = b'x' * -(-{count} // 4096)"],
                   check=True)


def session_seconds(arguments, daemon, model):
    have_memory_at_hand(model)
    libraries = os.path.join(os.path.dirname(arguments.bin), "lib")
    done = subprocess.run([lib.environment("bench-python"), "-c", SESSION, os.path.join(lib.ROOT, "python"), model, daemon.socket],
                          capture_output=True, text=True, check=False,
                          env=dict(daemon.environment, OPENBLAS_NUM_THREADS="1",
                                   HONE_LIBRARY=os.path.join(libraries, "libhone.so"),
                                   HONE_NETWORK_LIBRARY=os.path.join(libraries, "libhone_network.so")))
    if done.returncode:
        sys.exit(f"bench: {done.stderr}")
    return json.loads(done.stdout)


def read_and_copied(path):
    def work():
        with open(path, "rb") as file:
            return bytearray(file.read())
    return timed(work)[0]


def network(arguments, folder):
    with lib.Daemon(arguments.bin) as daemon:
        where = os.path.join(folder, "network")
        checked(daemon.hone("run", arguments.model, "--threads", "1", "--export", where))
        model = os.path.join(where, next(name for name in os.listdir(where) if name.endswith(".onnx")))
        checked(daemon.hone("keygen", "bench", "--dir", where))
        bundle = os.path.join(where, "network.bundle")
        checked(daemon.hone("export", "-o", bundle, "--artifacts", "--key", os.path.join(where, "bench.key")))
    firsts, laters = [], []
    for _ in range(arguments.rounds):
        with lib.Daemon(arguments.bin) as daemon:
            checked(daemon.hone("import", bundle, "--trust", os.path.join(where, "bench.pub")))
            firsts.append(session_seconds(arguments, daemon, model))
            laters += [session_seconds(arguments, daemon, model) for _ in range(3)]
    leasts = []
    for _ in range(5):
        have_memory_at_hand(model)
        leasts.append(read_and_copied(model))
    least = statistics.median(leasts)
    lib.mark("ResNet-50 from a bundle, session ready", show("session, from a bundle", firsts, least), "s", 0.1, at_most=True)
    lib.mark("ResNet-50 from a warm cache, session ready", show("session, warm cache", laters, least), "s", 0.05, at_most=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--bin", default=lib.BIN)
    parser.add_argument("--kernels", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", default=MODEL)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hone-bench-") as folder:
        with lib.Daemon(arguments.bin) as daemon:
            edge.make_kernels(daemon, arguments.kernels, folder)
            files = export(daemon, folder, arguments.rounds)
        take_up(arguments, folder, files[0], "schedules", 1)
        take_up(arguments, folder, files[1], "with code", 2)
        if os.path.exists(arguments.model):
            network(arguments, folder)
        else:
            print(f"left out: {arguments.model} is not there; name it with --model, or its folder in HONE_MODELS")
        shutil.rmtree(os.path.join(folder, "network"), ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
