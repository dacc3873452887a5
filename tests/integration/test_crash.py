"""kill -9 of the daemon, of its builders and runners, at any moment: nothing acknowledged is lost, nothing wrong served.

A disk that forgets what was not synced (forgetful_disk.c) makes each kill of the daemon a power cut: a kill alone leaves
what was written in the system's hands, and would hide a sync that is missing.
"""

import os
import random
import signal
import subprocess
import threading
import time

import harness
from harness import GET_REPLY, SMALL, Gone

HERE = os.path.dirname(os.path.abspath(__file__))
KILLS = int(os.environ.get("HONE_KILLS", "100"))


class Load(threading.Thread):
    """Asks for kernels, hits and misses mixed, until the daemon dies."""

    def __init__(self, path, seed):
        super().__init__(daemon=True)
        self.path = path
        self.rng = random.Random(seed)

    def run(self):
        try:
            with harness.RawClient(self.path) as client:
                while True:
                    kernel = f"add(M={self.rng.randrange(1, 9)},N={self.rng.randrange(1, 400)})"
                    client.get(kernel)
        except (Gone, OSError):
            pass


class Crash(harness.HoneTest):
    def setUp(self):
        super().setUp()
        self.notes = os.path.join(self.directory.path, "synced")
        if os.environ.get("HONE_SANITIZE"):
            print("[SKIP] a sanitizer wants to be loaded first: only kills here, no power cuts", flush=True)
            return
        shim = os.path.join(self.directory.path, "forgetful_disk.so")
        subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror",
                        os.path.join(HERE, "forgetful_disk.c"), "-o", shim], check=True)
        self.directory.environment.update(LD_PRELOAD=shim, SYNCED_FILES=self.notes)

    def cut_power(self, daemon):
        """kill -9, and of the store's logs what was synced is left. The bytes that went."""
        daemon.kill()
        if "LD_PRELOAD" not in self.directory.environment:
            return 0
        synced, lost = {}, 0
        with open(self.notes, encoding="utf-8") as notes:
            for line in notes:
                size, path = line.rstrip("\n").split(" ", 1)
                synced[path] = int(size)
        for folder, _, names in os.walk(self.directory.cache):
            for path in (os.path.join(folder, name) for name in names if name.endswith(".log")):
                beyond = os.path.getsize(path) - synced.get(path, 0)
                if beyond > 0:
                    os.truncate(path, synced.get(path, 0))
                    lost += beyond
        return lost

    def test_kill_9_at_random_moments_under_load(self):
        seed = int.from_bytes(os.urandom(4), "little")
        print(f"seed {seed}", flush=True)
        rng = random.Random(seed)
        kept = {}  # kernel -> fingerprint, of what must be there after the kill
        pinned = set()
        lost = 0
        for _ in range(KILLS):
            daemon = self.start()
            # What was on disk before is a hit now, under the same name.
            for kernel in rng.sample(sorted(kept), min(3, len(kept))):
                answer = self.hone_json("get", kernel, "--no-compile")[0]
                self.assertEqual(answer["fingerprint"], kept[kernel])
                self.assertEqual(answer["pinned"], kernel in pinned)
            loads = [Load(self.directory.socket, rng.random()) for _ in range(3)]
            for load in loads:
                load.start()
            if rng.random() < 0.2:  # acknowledged by pin: synced before the answer
                kernel = f"mul(M=1,N={rng.randrange(1, 400)})"
                kept[kernel] = self.hone_json("get", kernel)[0]["fingerprint"]
                self.hone("pin", kept[kernel])
                pinned.add(kernel)
            time.sleep(rng.choice((0, 0.002, 0.02, 0.1, 0.3)))
            lost += self.cut_power(daemon)
            for load in loads:
                load.join(30)
        self.start()
        for kernel, fingerprint in kept.items():
            self.assertEqual(self.hone_json("get", kernel, "--no-compile")[0]["fingerprint"], fingerprint)
        self.assertGreater(len(pinned), 0)
        print(f"{lost} bytes that were not synced went", flush=True)
        summary = self.hone_json("verify", "--run")[-1]
        self.assertEqual(summary["bad"], 0)
        self.assertGreater(summary["checked"], 0)

    def test_what_was_served_over_a_second_ago_survives(self):
        daemon = self.start()
        kernels = [f"add(M=3,N={n})" for n in range(1, 30)]
        with self.raw() as client:
            for kernel in kernels:
                self.assertEqual(client.get(kernel), GET_REPLY)
        time.sleep(1.5)
        self.cut_power(daemon)
        self.start()
        for kernel in kernels:
            self.hone("get", kernel, "--no-compile")

    def test_pins_and_removals_that_were_acknowledged_survive(self):
        lost = 0
        for number in range(1, 9):
            daemon = self.start()
            with self.raw() as client:  # written, not synced
                self.assertEqual(client.get(f"add(M=4,N={number})"), GET_REPLY)
            pinned = self.hone_json("get", f"mul(M=4,N={number})")[0]["fingerprint"]
            self.hone("pin", pinned)
            if number % 2 == 0:
                self.hone("unpin", pinned)
                self.hone("rm", pinned)
            with self.raw() as client:
                self.assertEqual(client.get(f"add(M=5,N={number})"), GET_REPLY)
            lost += self.cut_power(daemon)
            self.start()
            rows = {row["fingerprint"]: row["pinned"] for row in self.hone_json("ls")}
            self.assertEqual(rows.get(pinned), True if number % 2 else None)
            self.daemons.pop().kill()
        print(f"{lost} bytes that were not synced went", flush=True)
        if "LD_PRELOAD" in self.directory.environment:
            self.assertGreater(lost, 0)


class Children(harness.HoneTest):
    def setUp(self):
        super().setUp()
        with open(self.directory.config, "w", encoding="utf-8") as file:
            file.write('[build]\nbuilders = 1\nrunners = 1\nbuild_limit = "3s"\ncheck_limit = "4s"\n')
        self.daemon = self.start("--config", self.directory.config)
        self.assert_served()

    def signal_children(self, name, number):
        children = self.daemon.children(name)
        self.assertTrue(children, f"no {name}")
        for pid in children:
            os.kill(pid, number)

    def test_builders_that_die_cost_no_request(self):
        for n in range(1, 8):
            self.signal_children("hone-builder", signal.SIGKILL)
            self.assert_served(f"add(M=2,N={n})")
        self.assertEqual(self.hone_json("run", "add(M=2,N=3)")[0]["verified"], True)

    def test_a_builder_that_dies_in_the_middle(self):
        with self.raw() as client:
            client.send(harness.get_frame("conv2d(C=64,H=56,W=56,O=64,R=3,S=3,pad=1,const=1)+bias+relu"))
            time.sleep(0.012)
            self.signal_children("hone-builder", signal.SIGKILL)
            kind, _, body, descriptors = client.receive()
            self.assertEqual(kind, GET_REPLY, body)
            os.close(descriptors[0])
        self.assert_served("add(M=5,N=5)")

    def test_a_builder_that_hangs_is_replaced_and_hits_go_on(self):
        self.signal_children("hone-builder", signal.SIGSTOP)
        with self.raw() as client:
            client.send(harness.get_frame("add(M=7,N=7)"))
            begun = time.monotonic()
            while time.monotonic() - begun < 1:
                self.assert_served()  # a hit
            kind, _, body, _ = client.receive()
            self.assertEqual(kind, harness.ERROR)
            self.assertIn(body[0], (8, 10), body)  # timeout, build failed
            if body[0] == 8:
                self.assertIn(b"(3 s: build.build_limit in honed's configuration)", body)
            self.assertLess(time.monotonic() - begun, 10)
        self.assert_served("add(M=7,N=8)")  # that kernel's failure is remembered for a while

    def test_a_runner_that_dies_or_hangs_is_replaced(self):
        for number in (signal.SIGKILL, signal.SIGSTOP):
            self.signal_children("hone-runner", number)
            with self.raw() as client:
                client.get(f"add(M={int(number)},N=9)")
            self.assert_served(f"add(M={int(number)},N=8)")  # that kernel's failure is remembered for a while

    def test_children_end_with_the_daemon(self):
        children = self.daemon.children("hone-builder") + self.daemon.children("hone-runner")
        self.assertTrue(children)
        self.daemon.kill()
        end = time.monotonic() + 10
        while any(os.path.exists(f"/proc/{pid}") for pid in children):
            self.assertLess(time.monotonic(), end, "a child outlived the daemon")
            time.sleep(0.01)


if __name__ == "__main__":
    harness.main()
