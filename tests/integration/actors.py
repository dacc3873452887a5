"""Clients of a daemon under attack, honest ones and others, each a process of its own: shares go by process.

A test starts them as `Actor(test, "slow_reader", connections=200)`; they go on until it asks for their report, or ends.
"""

import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time

import harness
import hostile_texts
import protocol_grammar
from harness import GET_REPLY, SMALL, Gone, RawClient, get_frame
from protocol_grammar import request

HOUR_US = 3600 * 1_000_000


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else float("nan")


class Actor:
    """One of the functions below at work on a test's daemon; with the option `user`, as that user."""

    def __init__(self, test, role, **options):
        self.role = role
        self.process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), role, test.directory.socket, json.dumps(options)],
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True)
        test.addCleanup(self.close)
        assert self.process.stdout.readline() == "ready\n", f"{role} does not come up"

    def finish(self):
        """Ends it; what it saw: its `problems`, and what its role adds."""
        out, _ = self.process.communicate(timeout=30)
        return json.loads(out)

    def kill(self):
        """Ends it as a client that dies."""
        self.process.kill()
        self.process.wait()

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def timed_get(client, kernel, request_id=1, **options):
    """(milliseconds, "" or what was answered instead of code)"""
    begun = time.monotonic()
    client.send(get_frame(kernel, request_id, **options))
    kind, _, body, descriptors = client.receive()
    ms = (time.monotonic() - begun) * 1000
    for descriptor in descriptors:
        os.close(descriptor)
    return ms, "" if kind == GET_REPLY else protocol_grammar.decode("ErrorReply", body)["message"]


def echo():
    """A socket that answers a hit's bytes with as many as a hit has: what an exchange costs without a daemon."""
    ours, theirs = socket.socketpair()

    if os.fork() == 0:
        try:
            ours.close()
            while data := theirs.recv(65536):
                theirs.sendall(data)
        finally:
            os._exit(0)
    theirs.close()
    return ours


def hits(path, report, kernel=SMALL, pause=0.002, echoes=False):
    """An honest client that asks for what is known. `hits` and `echoes` are milliseconds."""
    report.update(hits=[], echoes=[])
    bare = echo() if echoes else None
    data = get_frame(kernel) * 8
    with RawClient(path) as client:
        for number in itertools.count(1):
            ms, problem = timed_get(client, kernel, number)
            report["hits"].append(ms)
            if problem:
                report["problems"].append(problem)
            time.sleep(pause / 2)
            if bare:
                begun = time.monotonic()
                bare.sendall(data)
                left = len(data)
                while left > 0:
                    left -= len(bare.recv(65536))
                report["echoes"].append((time.monotonic() - begun) * 1000)
            time.sleep(pause / 2)


def misses(path, report, pause=0.1, first=1):
    """An honest client that asks for kernels that nobody asked for before. `misses` are milliseconds."""
    report["misses"] = []
    with RawClient(path) as client:
        for number in itertools.count(first):
            ms, problem = timed_get(client, f"add(M=7,N={number})", number)
            report["misses"].append(ms)
            if problem:
                report["problems"].append(problem)
            time.sleep(pause)


def slow_reader(path, report, connections=200, each=64, kernel=SMALL):
    """Asks for code on many connections and reads nothing; `dropped` connections come again."""
    report["dropped"] = 0

    def connect():
        client = RawClient(path)
        client.socket.setblocking(False)
        try:
            client.socket.send(b"".join(get_frame(kernel, number + 1) for number in range(each)))
        except OSError:
            pass
        return client

    clients = []
    while True:
        try:
            while len(clients) < connections:
                clients.append(connect())
        except OSError:
            pass  # no room at the moment
        time.sleep(0.1)
        for client in list(clients):
            try:
                client.socket.send(get_frame(kernel))
            except BlockingIOError:
                pass
            except OSError:
                report["dropped"] += 1
                client.close()
                clients.remove(client)


def slow_lister(path, report, connections=4, lists=60):
    """Asks for lists and reads a byte of them now and then."""
    report["bytes"] = 0
    clients = [RawClient(path) for _ in range(connections)]
    for client in clients:
        client.socket.settimeout(1)
        client.send(b"".join(request("ListRequest", number + 1) for number in range(lists)))
    while True:
        for client in clients:
            try:
                report["bytes"] += len(client.socket.recv(1))
            except OSError:
                pass
        time.sleep(0.5)


def deep_texts(path, report):
    """Sends texts that are refused, in every message that has a kernel. `slowest` is in milliseconds."""
    report.update(answers=0, slowest=0)
    texts = [text for _, text in hostile_texts.refused()]
    for number in itertools.count(1):
        text = texts[number % len(texts)]
        messages = (request("GetRequest", kernel=text, no_compile=True), request("PredictRequest", kernel=text),
                    request("TuneRequest", kernel=text, trials=1), request("ExplainRequest", name={"kernel": text}),
                    request("TextRequest", what=1, name={"kernel": text}))
        try:
            with RawClient(path) as client:
                begun = time.monotonic()
                client.send(messages[number % len(messages)])
                client.receive()
                report["answers"] += 1
                report["slowest"] = max(report["slowest"], (time.monotonic() - begun) * 1000)
        except (Gone, OSError):
            pass  # the daemon may refuse to have it
        time.sleep(0.05)


def long_texts(path, report, at_once=60):
    """Has kernels looked up that take long to read, many at a time, all the time."""
    report["answers"] = 0
    texts = [hostile_texts.long_to_read(number) for number in range(at_once)]
    with RawClient(path) as client:
        client.socket.settimeout(None)
        for number, text in enumerate(texts):
            client.send(get_frame(text, number + 1, no_compile=True))
        while True:
            number = client.receive()[1]
            report["answers"] += 1
            client.send(get_frame(texts[number - 1], number, no_compile=True))


def long_builds(path, report, requests=2, stages=200, seed=0):
    """Waits for kernels that take long to compile, some at a time."""
    report["answers"] = 0
    numbers = itertools.count(seed * 1_000_000)
    with RawClient(path) as client:
        client.socket.settimeout(None)
        for _ in range(requests):
            client.send(get_frame(hostile_texts.chain(stages, next(numbers))))
        while True:
            for descriptor in client.receive()[3]:
                os.close(descriptor)
            report["answers"] += 1
            client.send(get_frame(hostile_texts.chain(stages, next(numbers))))


def abandoned_budgets(path, report, at_once=12, stages=200, pause=1.0, rounds=10**9, seed=1):
    """Asks for kernels that take long, with no time to wait for them, and is gone."""
    report["asked"] = 0
    numbers = itertools.count(seed * 1_000_000)
    for _ in range(rounds):
        try:
            with RawClient(path) as client:
                for number in range(at_once):
                    client.send(get_frame(hostile_texts.chain(stages, next(numbers)), number + 1, budget_us=1))
                for _ in range(at_once):
                    client.receive()
                    report["asked"] += 1
        except (Gone, OSError):
            pass
        time.sleep(pause)


def searches(path, report, kernels=("softmax(M=64,N=200)", "layer_norm(M=128,N=300)"), budget_us=HOUR_US):
    """Gives the daemon an hour for each of some new kernels."""
    report["answers"] = 0
    clients = [RawClient(path) for _ in kernels]
    for client, kernel in zip(clients, kernels):
        client.socket.settimeout(None)
        client.send(get_frame(kernel, budget_us=budget_us))
    for client in clients:
        client.receive()
        report["answers"] += 1
    threading.Event().wait()


def tunes(path, report, kernels=("softmax(M=64,N=200)",), trials=100_000):
    """Has kernels refined for as long as it is allowed. `rounds` counts what it hears of it."""
    report["rounds"] = 0
    with RawClient(path) as client:
        client.socket.settimeout(None)
        for number, kernel in enumerate(kernels):
            client.send(request("TuneRequest", number + 1, kernel=kernel, trials=trials))
        while True:
            client.receive()
            report["rounds"] += 1


def flood(path, report, at_once=60, seed=2):
    """Asks for new kernels, many at a time, all the time."""
    report["answers"] = 0
    numbers = itertools.count(seed * 1_000_000)
    with RawClient(path) as client:
        client.socket.settimeout(None)
        waiting = 0
        while True:
            for _ in range(at_once - waiting):
                number = next(numbers)
                client.send(get_frame(f"{('add', 'mul')[number % 2]}(M=3,N={number % 2**16 + 1})"))
                waiting += 1
            for descriptor in client.receive()[3]:
                os.close(descriptor)
            waiting -= 1
            report["answers"] += 1
            time.sleep(0.005)  # who is told "busy" comes again


def pins(path, report, fingerprint, pause=0.002):
    """Pins and unpins a kernel, again and again."""
    report["edits"] = 0
    with RawClient(path) as client:
        for number in itertools.count(1):
            client.send(request("EditRequest", number, action=2 + number % 2, fingerprint=fingerprint))
            client.receive()
            report["edits"] += 1
            time.sleep(pause)


def held(path, report, what, connections=100, pause=0.1):
    """Holds so many connections and never ends a frame on them: "silent" sends nothing, "endless" a byte now and then
    of the largest frame that there is, "garbage" random bytes. `dropped` ones come again."""
    report["dropped"] = 0
    rng = random.Random(what)
    openings = {"silent": lambda: b"", "endless": lambda: harness.frame(harness.GET, length=harness.LARGEST_BODY),
                "garbage": lambda: rng.randbytes(rng.randint(1, 200))}
    later = {"silent": b"", "endless": b"x", "garbage": b"HONE" * 8}[what]
    clients = []
    for number in itertools.count():
        try:
            while len(clients) < connections:
                clients.append(RawClient(path))
                clients[-1].socket.setblocking(False)
                clients[-1].send(openings[what]())
        except (Gone, OSError):
            pass  # no room at the moment
        time.sleep(pause)
        for client in list(clients):
            try:
                client.socket.send(later)
                if client.socket.recv(65536) == b"":
                    raise Gone
            except BlockingIOError:
                pass
            except (Gone, OSError):
                report["dropped"] += 1
                client.close()
                clients.remove(client)


def churn(path, report, at_once=20, pause=0.05):
    """Connects, asks for what is known, and is gone before the answer."""
    report["connections"] = 0
    while True:
        clients = []
        try:
            for _ in range(at_once):
                clients.append(RawClient(path))
                clients[-1].socket.send(get_frame(SMALL))
                report["connections"] += 1
        except OSError:
            pass
        for client in clients:
            client.close()
        time.sleep(pause)


def child_killer(_, report, pid, pause=0.7, names=("hone-builder", "hone-runner")):
    """kill -9 of one of the daemon's children, now and then."""
    report["kills"] = 0
    rng = random.Random(3)
    while True:
        time.sleep(pause)
        children = [child for name in names for child in harness.children(pid, name)]
        if children:
            try:
                os.kill(rng.choice(children), signal.SIGKILL)
                report["kills"] += 1
            except ProcessLookupError:
                pass


ROLES = (hits, misses, slow_reader, slow_lister, deep_texts, long_texts, long_builds, abandoned_budgets, searches,
         tunes, flood, pins, held, churn, child_killer)


def main():
    name, path, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    role = next(role for role in ROLES if role.__name__ == name)
    report = {"problems": []}
    user = options.pop("user", None)
    if user is not None:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)

    def act():
        try:
            role(path, report, **options)
        except (Gone, OSError) as problem:
            report["problems"].append(repr(problem))

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    while role is hits and thread.is_alive() and not report.get("hits"):
        time.sleep(0.001)  # it is served before others come
    print("ready", flush=True)
    sys.stdin.read()  # until it is asked for its report; when the test dies, too
    print(json.dumps(report), flush=True)
    os._exit(0)  # whatever it waits for


if __name__ == "__main__":
    main()
