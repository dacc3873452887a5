"""What befalls a search: kill -9 of any of its processes, a full disk, a spoilt model, clocks and machines that stop.

Each costs the trial in hand at most."""

import os
import random
import signal
import subprocess
import threading
import time

import harness

HERE = os.path.dirname(os.path.abspath(__file__))
KERNEL = "softmax(M=64,N=200,threads=1)"
OTHER = "layer_norm(M=128,N=300,threads=1)"
OUTCOMES = {"timed", "not built", "crashed", "timed out", "wrong", "disturbed"}


def descendants(pid):
    """Children, their children and so on; a process comes after its parent."""
    found = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="utf-8") as children:
                for child in map(int, children.read().split()):
                    found += [child, *descendants(child)]
    except OSError:
        pass
    return found


def children_of(pid):
    """Of a process with one thread."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as children:
            return list(map(int, children.read().split()))
    except OSError:
        return []


def send(pid, number):
    """A signal to a process that may have ended."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


class Search(threading.Thread):
    """`hone tune`, running: its rounds, and how it ended."""

    def __init__(self, test, kernel, *options):
        super().__init__(daemon=True)
        self.process = subprocess.Popen([os.path.join(harness.BIN, "hone"), "--no-start", "--json", "tune", kernel, *options],
                                        env=test.directory.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        test.addCleanup(self.close)
        self.lines = []
        self.start()

    def run(self):
        for line in self.process.stdout:
            self.lines.append(harness.json.loads(line))

    def wait(self, test, limit=60):
        """The last line, of a search that ends well."""
        status = self.process.wait(limit)
        self.join(10)
        test.assertEqual(status, 0, self.process.stderr.read())
        return self.lines[-1]

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.join(10)
        self.process.stdout.close()
        self.process.stderr.close()


class SearchFaults(harness.HoneTest):
    def tool(self, *arguments):
        done = subprocess.run([os.path.join(harness.BIN, "store_tool"), *arguments], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def trials(self):
        """(kernel, verdict, nanoseconds, choices) of the log of trials. The daemon may be dead, or be running."""
        return [line.split("\t") for line in self.tool("trials", self.directory.cache).splitlines()]

    def stat(self, name):
        return self.hone_json("stats")[0][name]

    def idle_daemon(self):
        """One that refines all the time."""
        with open(self.directory.config, "w", encoding="utf-8") as file:
            file.write('[idle]\nbusy = 1000\nquiet = "100ms"\non_battery = true\n')
        return self.start("--config", self.directory.config, idle=True)

    def test_the_daemon_killed_while_it_searches(self):
        seed = int.from_bytes(os.urandom(4), "little")
        print(f"seed {seed}", flush=True)
        rng = random.Random(seed)
        known = []
        for round_number in range(6):
            daemon = self.start()
            search = Search(self, KERNEL, "--trials", "5000", "--seed", str(round_number + 1))
            self.wait_until(lambda: search.lines)
            time.sleep(rng.uniform(0, 0.5))
            counted = self.stat("trials")  # at that moment; more when it dies
            daemon.kill()
            search.close()
            log = self.trials()
            self.assertEqual(log[:len(known)], known, "what was measured before is there, in its order")
            self.assertGreaterEqual(len(log), len(known) + counted - 1, "more than the trial in hand was lost")
            self.assertLessEqual({row[1] for row in log}, OUTCOMES)
            known = log
        self.start()
        self.assertEqual(self.stat("cache_quarantined"), 0)
        self.assertEqual(self.hone_json("verify", "--run")[-1]["bad"], 0)
        self.assertEqual(self.hone_json("tune", KERNEL, "--trials", "20")[-1]["trials"], 20)
        self.assertTrue(self.hone_json("run", KERNEL, "--no-compile")[0]["verified"])

    def test_a_disk_that_fills_during_a_search(self):
        os.makedirs(self.directory.cache, 0o700)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=700", "none", self.directory.cache],
                                 capture_output=True, check=False)
        if mounted.returncode != 0:
            self.skipTest("[SKIP] cannot mount a small disk here")
        self.addCleanup(subprocess.run, ["umount", "-l", self.directory.cache], check=False)
        daemon = self.start()
        search = Search(self, KERNEL, "--trials", "120", "--seed", "1")
        self.wait_until(lambda: search.lines)
        ballast = os.path.join(self.directory.cache, "ballast")
        with open(ballast, "wb", buffering=0) as file:
            try:
                while file.write(bytes(1 << 16)) == 1 << 16:
                    pass
            except OSError:
                pass
        daemon.wait_for_log("cache_not_persisting")
        self.assertEqual(daemon.log().count("cache_not_persisting"), 1)
        self.assertIn("space", self.hone_json("status")[0]["cache_problem"].lower())
        self.assert_served("add(M=7,N=77)")  # a miss, and a hit
        self.assert_served("add(M=7,N=77)")
        error = self.hone_json("warm", "add(M=7,N=78)", status=1)[-1]["error"]
        self.assertEqual(error["kind"], "io")
        self.assertRegex(error["message"], r"\d+ kernels are in honed's memory and not on disk; nothing is kept: .*[Ss]pace")
        end = search.wait(self)
        self.assertEqual(end["trials"], 120)
        if end["ratio"] > 0:  # better code is served, and it is said where it stands
            self.assertEqual(end["origin"], "tuned")
            self.assertIn("not on disk yet", end["stopped"])
            self.assertEqual(self.hone_json("run", KERNEL, "--no-compile")[0]["origin"], "tuned")
        self.assertIsNone(daemon.process.poll())
        os.remove(ballast)
        daemon.wait_for_log("cache_persisting")
        self.assertEqual(self.hone_json("status")[0]["cache_problem"], "")
        self.hone("warm", "add(M=7,N=78)")
        more = self.hone_json("tune", KERNEL, "--trials", "8", "--seed", "2")[-1]
        self.assertNotIn("on disk", more["stopped"])
        daemon.stop()
        self.assertEqual(len(self.trials()), 128, "what was measured meanwhile is written, too")
        self.start()
        self.hone("get", "add(M=7,N=77)", "--no-compile")
        self.assertEqual(self.hone_json("verify")[-1]["bad"], 0)

    def test_a_model_that_is_of_no_use_is_replaced(self):
        self.start()
        self.hone("tune", KERNEL, "--trials", "40")
        self.daemons[-1].stop()
        self.assertEqual(self.tool("model", self.directory.cache), "none\n")
        for fault, words in [("newer", "trained anew"), ("damaged", "checksum"), ("garbage", "")]:
            self.tool("model", self.directory.cache, fault)
            self.assertNotIn("good", self.tool("model", self.directory.cache))
            daemon = self.start()
            logged = daemon.log().count("model_left_out")
            self.hone("predict", KERNEL, status=1)
            self.assertIn("of no use", self.last_error)
            self.assertIn(words, self.last_error)
            self.assertEqual(self.hone_json("tune", KERNEL, "--trials", "16")[-1]["trials"], 16)
            self.assertEqual(daemon.log().count("model_left_out"), logged + 1)
            self.assertGreater(self.hone_json("predict", KERNEL)[0]["default"]["expected_us"], 0)
            self.assertEqual(daemon.stop(), 0)
            self.assertEqual(self.tool("model", self.directory.cache), "good\n", fault)

    def test_the_clock_set_back(self):
        shim = os.path.join(self.directory.path, "clock_shift.so")
        subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror",
                        os.path.join(HERE, "clock_shift.c"), "-o", shim], check=True)
        shift = os.path.join(self.directory.path, "shift")

        def set_clock(seconds):
            with open(shift, "r+b" if os.path.exists(shift) else "wb") as file:
                file.write(f"{seconds}".encode().ljust(64, b"\0"))

        set_clock(0)
        self.directory.environment.update(LD_PRELOAD=shim, CLOCK_SHIFT_FILE=shift)
        if os.environ.get("HONE_SANITIZE"):
            self.skipTest("[SKIP] a sanitizer wants to be loaded first")
        daemon = self.start()
        today = time.strftime("%Y-%m-%d", time.gmtime())
        self.assertIn(today, daemon.log())
        log = []
        for round_number, seconds in enumerate((0, -86400 * 3, -86400 * 400, 86400)):
            if round_number == 2:  # while nobody looks
                self.assertEqual(daemon.stop(), 0)
                set_clock(seconds)
                daemon = self.start()
            search = Search(self, KERNEL, "--trials", "40", "--seed", str(round_number + 1))
            self.wait_until(lambda: search.lines)
            set_clock(seconds)  # in the middle
            end = search.wait(self)
            self.assertEqual(end["trials"], 40)
            self.assertLess(end["elapsed_s"], 60)
            time.sleep(1.1)  # a reader sees what was written a second ago
            now = self.trials()
            self.assertEqual(now[:len(log)], log, "the order in which trials were made")
            self.assertEqual(len(now), len(log) + 40)
            log = now
        self.assertNotIn(today, daemon.log().splitlines()[-1], "the shim was at work")
        self.assert_served()
        self.assertEqual(self.hone_json("verify")[-1]["bad"], 0)

    def test_a_machine_that_sleeps_in_the_middle(self):
        daemon = self.start()
        # No candidate of it takes 20 times the best, and none is wrong: whatever else is said of one is the pause's doing.
        search = Search(self, OTHER, "--trials", "100", "--seed", "3")
        self.wait_until(lambda: search.lines)
        pauses = 0
        runners = daemon.children("hone-runner")
        launchers = [launcher for runner in runners for launcher in children_of(runner)]
        while search.process.poll() is None and pauses < 5:
            stopped, looked_until = [], time.monotonic() + 2
            while not (candidates := sum(map(children_of, launchers), [])) and time.monotonic() < looked_until:
                pass  # one lives for milliseconds
            for pid in (*launchers, *candidates, *runners, daemon.pid):  # who looks at the clock first
                send(pid, signal.SIGSTOP)
            while set(stopped) != set(now := [daemon.pid, *descendants(daemon.pid)]):  # some were being forked
                for pid in now:
                    send(pid, signal.SIGSTOP)
                stopped = now
            time.sleep(1)
            for pid in reversed(stopped):
                send(pid, signal.SIGCONT)
            pauses += 1
            time.sleep(random.uniform(0.05, 0.2))
        end = search.wait(self)
        self.assertGreaterEqual(pauses, 3)
        self.assertEqual(end["trials"], 100)
        daemon.stop()
        log = self.trials()
        self.assertEqual(len(log), 100)
        unfair = [row for row in log if row[1] not in ("timed", "disturbed")]
        self.assertEqual(unfair, [])
        times = sorted(int(row[2]) for row in log if row[1] == "timed")
        self.assertGreater(len(times), 50)
        self.assertLess(times[-1], 5_000_000, "a time with a pause in it")  # of some 10,000
        self.start()
        self.assertTrue(self.hone_json("run", OTHER, "--no-compile")[0]["verified"])

    def kill_children(self, daemon, rng):
        """A builder or a runner, or all that runs below one."""
        children = daemon.children("hone-builder") + daemon.children("hone-runner")
        if not children:
            return 0
        victim = rng.choice(children)
        below = descendants(victim)
        send(rng.choice(below) if below and rng.random() < 0.3 else victim, signal.SIGKILL)
        return 1

    def test_builders_and_runners_killed_while_it_searches(self):
        daemon = self.start()
        self.hone("get", KERNEL)
        rng = random.Random(5)
        search = Search(self, KERNEL, "--trials", "150", "--seed", "4")
        self.wait_until(lambda: search.lines)
        kills = 0
        while search.process.poll() is None and kills < 12:
            kills += self.kill_children(daemon, rng)
            time.sleep(rng.uniform(0.05, 0.25))
        end = search.wait(self)
        self.assertGreater(kills, 3)
        self.assertEqual(end["trials"], 150)
        self.assertIn("150 trials", end["stopped"])
        daemon.stop()
        log = self.trials()
        failed = [row for row in log if row[1] not in ("timed", "disturbed")]
        # A builder takes the candidate in hand along, a candidate itself.
        self.assertLessEqual(len(failed), kills, failed)
        self.start()
        self.assertTrue(self.hone_json("run", KERNEL, "--no-compile")[0]["verified"])

    def test_builders_and_runners_killed_in_idle_time(self):
        daemon = self.idle_daemon()
        self.hone("get", KERNEL)
        self.hone("get", OTHER)
        rng = random.Random(6)
        self.wait_until(lambda: self.stat("trials") > 5)
        begun, kills = time.monotonic(), 0
        while time.monotonic() - begun < 4 or self.stat("trials") <= 10:  # among them, too, however slow the machine
            self.assertLess(time.monotonic() - begun, 60)
            kills += self.kill_children(daemon, rng)
            time.sleep(rng.uniform(0.05, 0.3))
        self.assertGreater(kills, 5)
        before = self.stat("trials")
        self.wait_until(lambda: self.stat("trials") > before + 20, limit=10)  # it goes on at once
        self.assertIsNone(daemon.process.poll())
        self.assert_served("add(M=3,N=33)")
        for kernel in (KERNEL, OTHER):
            self.assertTrue(self.hone_json("run", kernel)[0]["verified"])
        self.assertEqual(daemon.stop(), 0)


if __name__ == "__main__":
    harness.main()
