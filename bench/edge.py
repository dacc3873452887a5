#!/usr/bin/env python3
"""What serving from a bundle costs a device without a compiler: honed-edge with a bundle of 5,000 kernels.

usage: bench/edge.py [--bin DIR] [--kernels N] [--hits N] [--bundle FILE --key FILE.pub]

honed makes the kernels (dense layers, matrix products and element-wise ones of random sizes; some minutes) and exports
them with their code; --bundle takes one that is there. Then honed-edge serves it: memory after the start, after each
kernel was asked for once (and so checked once), and after the hits; the latency of hits is a client's, code included,
each over one connection in turn:

  uniform   any of the kernels: most of them have left memory, and their code is unpacked from the file again
  model     a hundred of them, as one network asks for: from memory
"""
import argparse
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

import lib

HEADER = struct.Struct("<4sHHQQ")
GET, GET_REPLY = 4, 5


def kernels(count):
    """So many different ones, the same each time."""
    rng = random.Random(7)
    found = {}
    while len(found) < count:
        m, n, k = rng.choice((1, 2, 4, 8, 16)), rng.randrange(1, 96), rng.randrange(1, 96)
        found[rng.choice((f"dense(M={m},N={n},K={k},const=1)+bias+relu", f"matmul(M={m},N={n},K={k})",
                          f"softmax(M={m},N={n})", f"add(M={n},N={k})", f"gelu(M={n},N={k})"))] = None
    return list(found)


def make_kernels(daemon, count, folder):
    """Has them made; in the folder also keys named "bench"."""
    path = os.path.join(folder, "all.kernels")
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f"1 {kernel}\n" for kernel in kernels(count))
    summary = daemon.hone("warm", path)[-1]
    print(f"{summary['kernels']} kernels made in {summary['elapsed_s']:.0f} s, {summary['failed']} failed", flush=True)
    daemon.hone("keygen", "bench", "--dir", folder)


def make_bundle(arguments, folder):
    """The bundle's file and the public key's."""
    with lib.Daemon(arguments.bin) as daemon:
        make_kernels(daemon, arguments.kernels, folder)
        bundle = os.path.join(folder, "bench.bundle")
        daemon.hone("export", "-o", bundle, "--artifacts", "--key", os.path.join(folder, "bench.key"))
    return bundle, os.path.join(folder, "bench.pub")


def memory_mib(pid):
    """(resident now, of it not a file's, most so far)"""
    with open(f"/proc/{pid}/status", encoding="utf-8") as status:
        fields = dict(line.split(":", 1) for line in status)
    return tuple(int(fields[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon", "VmHWM"))


class Client:
    """One connection, byte by byte, so that the client costs little."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(path)

    def get(self, kernel):
        """Microseconds until code is here; None if it was refused."""
        text = kernel.encode()
        body = struct.pack("<I", len(text)) + text + struct.pack("<I", 0) + struct.pack("<IQ??", 0, 0, False, False)
        begin = time.perf_counter()
        self.socket.sendall(HEADER.pack(b"HONE", 1, GET, 1, len(body)) + body)
        data, fds = b"", []
        while len(data) < HEADER.size or len(data) < HEADER.size + HEADER.unpack(data[:HEADER.size])[4]:
            part, more, _, _ = socket.recv_fds(self.socket, 1 << 16, 4)
            if not part:
                sys.exit("bench: honed-edge closed the connection")
            data += part
            fds += more
        took = (time.perf_counter() - begin) * 1e6
        for fd in fds:
            os.close(fd)
        return took if HEADER.unpack(data[:HEADER.size])[2] == GET_REPLY and fds else None


def show(name, times):
    print(f"  {name:8} p50 {lib.quantile(times, 0.5):8.1f} us   p99 {lib.quantile(times, 0.99):8.1f} us   "
          f"most {max(times):8.1f} us   of {len(times)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--bin", default=lib.BIN)
    parser.add_argument("--kernels", type=int, default=5000)
    parser.add_argument("--hits", type=int, default=20000)
    parser.add_argument("--bundle")
    parser.add_argument("--key")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hone-bench-") as folder:
        bundle, key = (arguments.bundle, arguments.key) if arguments.bundle else make_bundle(arguments, folder)
        for name, file in (("bundles.d", bundle), ("keys", key)):
            os.mkdir(os.path.join(folder, name), 0o700)
            shutil.copy(file, os.path.join(folder, name))
        path = os.path.join(folder, "edge.sock")
        begin = time.monotonic()
        edge = subprocess.Popen([os.path.join(arguments.bin, "honed-edge"), "--socket", path, "--bundles",
                                 os.path.join(folder, "bundles.d"), "--keys", os.path.join(folder, "keys"), "--log", "error"])
        while True:
            if edge.poll() is not None:
                sys.exit("bench: honed-edge did not come up; its output is above")
            try:
                client = Client(path)
                break
            except OSError:
                time.sleep(0.002)
        print(f"bundle of {os.path.getsize(bundle) / 2**20:.1f} MiB, ready in {(time.monotonic() - begin) * 1e3:.0f} ms")
        measure(arguments, edge.pid, client)
        edge.send_signal(signal.SIGTERM)
        edge.wait()
    return 0


def measure(arguments, pid, client):
    """Memory and times of the daemon with that process id."""
    def tell(when):
        now, anonymous, most = memory_mib(pid)
        print(f"{when}: {now:.1f} MiB resident, {anonymous:.1f} of it not files', at most {most:.1f}", flush=True)
        return now
    tell("after the start")
    rng = random.Random(1)
    asked = kernels(arguments.kernels)
    first = [client.get(kernel) for kernel in asked]
    held = [kernel for kernel, took in zip(asked, first) if took is not None]
    print(f"{len(held)} of {len(asked)} kernels served, each checked once:")
    show("first", [took for took in first if took is not None])
    resident = [tell("afterwards")]
    uniform = [client.get(rng.choice(held)) for _ in range(arguments.hits)]
    resident.append(tell("after any of them"))
    model = rng.sample(held, min(100, len(held)))
    for kernel in model:
        client.get(kernel)
    network = [client.get(rng.choice(model)) for _ in range(arguments.hits)]
    show("uniform", uniform)
    show("model", network)
    resident.append(tell("at the end"))
    lib.mark("kernels of the bundle that are not served", len(asked) - len(held), "", 0, at_most=True)
    lib.mark("edge hit with its code, p99", lib.quantile(network, 0.99) / 1e3, "ms", 1, at_most=True)
    lib.mark("edge hit of any kernel, p99", lib.quantile(uniform, 0.99) / 1e3, "ms", 1, at_most=True)
    lib.mark("edge memory, resident", max(resident), "MiB", 20, at_most=True)


if __name__ == "__main__":
    sys.exit(main())
