"""honed as a service: what its units allow, how systemd's socket starts it, its signs of life, and its end when nobody
wants anything. No systemd runs here but its tools."""
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

import harness
import unit_filter
from harness import SMALL

# Where the units are, and the program that they start.
LEVELS = {"system": ("systemd", "honed"), "user": ("systemd/user", "honed"), "edge": ("systemd", "honed-edge")}


def need(test, program):
    if shutil.which(program) is None:
        print(f"[SKIP] no {program}")
        test.skipTest(f"no {program}")


class Units(unittest.TestCase):
    def setUp(self):
        need(self, "systemd-analyze")
        self.folder = tempfile.mkdtemp(prefix="hone-units-")
        self.addCleanup(shutil.rmtree, self.folder)

    def written(self, level):
        """The units as an installation has them, with a program that is there."""
        paths = []
        folder, program = LEVELS[level]
        for name in (f"{program}.service", f"{program}.socket"):
            source = os.path.join(harness.SOURCE, folder, name)
            with open(source + (".in" if name.endswith("service") else ""), encoding="utf-8") as file:
                text = file.read().replace("@HONE_BINDIR@", "/bin").replace("@HONE_DATADIR@", "/usr/share")
            text = re.sub(r"^ExecStart=\S+", f"ExecStart={os.path.join(harness.BIN, program)}", text, flags=re.M)
            text = re.sub(r"^Documentation=.*\n", "", text, flags=re.M)  # man looks for installed pages
            os.makedirs(os.path.join(self.folder, level), exist_ok=True)
            paths.append(os.path.join(self.folder, level, name))
            with open(paths[-1], "w", encoding="utf-8") as file:
                file.write(text)
        return paths

    def verify(self, level):
        return subprocess.run(["systemd-analyze", "--man=no", "verify", *self.written(level)], capture_output=True, text=True,
                              check=False, env={**os.environ, "SYSTEMD_UNIT_PATH": os.path.join(self.folder, level) + ":"})

    def test_verify_is_silent(self):
        for level in LEVELS:
            with self.subTest(level):
                done = self.verify(level)
                self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_verify_hears_what_is_wrong(self):
        paths = self.written("system")
        with open(paths[0], "a", encoding="utf-8") as file:
            file.write("[Service]\nProtectEverything=yes\n")
        done = subprocess.run(["systemd-analyze", "--man=no", "verify", *paths], capture_output=True, text=True, check=False)
        self.assertIn("ProtectEverything", done.stderr)

    def test_exposure_is_at_most_2(self):
        for level in LEVELS:
            with self.subTest(level):
                service = self.written(level)[0]
                done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=20", service],
                                      capture_output=True, text=True, check=False)
                found = re.search(r"exposure level for honed(?:-edge)?.service: ([\d.]+)", done.stdout)
                self.assertIsNotNone(found, done.stdout + done.stderr)
                print(f"{level}: {found.group(1)}")
                self.assertLessEqual(float(found.group(1)), 2.0)


class Filters(harness.HoneTest):
    def test_all_that_honed_does_passes_the_units_filters(self):
        if os.environ.get("HONE_SANITIZE"):
            self.skipTest("sanitizers make other calls")
        for unit in ("systemd/honed.service.in", "systemd/user/honed.service.in"):
            with self.subTest(unit):
                daemon = self.start(prepare=unit_filter.preparation(unit))
                self.assertTrue(self.hone_json("run", SMALL)[0]["verified"])
                self.hone("tune", "softmax(M=64,N=200,threads=1)", "--trials", "8")
                self.hone("explain", SMALL)
                self.hone("verify", "--run")
                self.assertNotIn("incomplete", daemon.log())
                self.assertEqual(daemon.stop(), 0)
                shutil.rmtree(self.directory.cache)

    def test_all_that_honed_edge_does_passes_its_units_filter(self):
        if os.environ.get("HONE_SANITIZE"):
            self.skipTest("sanitizers make other calls")
        bundles = os.path.join(self.directory.path, "bundles.d")
        os.mkdir(bundles, 0o700)
        self.hone("keygen", "fleet", "--dir", self.directory.path)
        daemon = self.start()
        self.hone("get", SMALL)
        self.hone("export", "-o", os.path.join(bundles, "small.bundle"), "--artifacts", "--key",
                  os.path.join(self.directory.path, "fleet.key"))
        self.assertEqual(daemon.stop(), 0)
        path = os.path.join(self.directory.path, "edge.log")
        with open(path, "wb") as log:
            edge = subprocess.Popen([os.path.join(harness.BIN, "honed-edge"), "--bundles", bundles, "--keys", self.directory.path],
                                    env=self.directory.environment, stderr=log,
                                    preexec_fn=unit_filter.preparation("systemd/honed-edge.service.in"))
        self.addCleanup(lambda: (edge.kill(), edge.wait()))
        self.wait_until(lambda: os.path.exists(self.directory.socket))
        self.assertTrue(self.hone_json("run", SMALL)[0]["verified"])

        def said():
            with open(path, encoding="utf-8") as log:
                return log.read()

        self.wait_until(lambda: "sandbox child=launcher" in said() or "incomplete" in said())
        self.assertNotIn("incomplete", said())
        self.assertIn("runner: system calls filtered, no files", said())
        edge.terminate()
        self.assertEqual(edge.wait(20), 0)

    def test_the_filters_deny_what_they_say(self):
        def attempt(unit, words):
            return subprocess.run(["python3", "-c", words], preexec_fn=unit_filter.preparation(unit), check=False,
                                  capture_output=True, text=True).stderr
        system = "systemd/honed.service.in"
        self.assertIn("Operation not permitted", attempt(system, "import os; os.chroot('/')"))
        self.assertIn("Address family", attempt(system, "import socket; socket.socket(socket.AF_INET)"))
        writable = "import mmap; mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)"
        self.assertIn("Operation not permitted", attempt(system, writable))
        self.assertEqual(attempt("systemd/user/honed.service.in", writable), "")


class Activator:
    """What systemd does with a socket unit: listens, starts honed when somebody connects, and again when it has ended."""

    def __init__(self, directory, *arguments, user=None):
        self.user = user
        self.directory = directory
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        os.makedirs(os.path.dirname(directory.socket), mode=0o700, exist_ok=True)
        self.socket.bind(directory.socket)
        self.socket.listen(128)
        self.log = open(os.path.join(directory.path, "honed.log"), "ab")
        self.words = [os.path.join(harness.BIN, "honed"), "--no-idle", *arguments]
        self.starts, self.statuses, self.process = 0, [], None
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        own = self.socket.fileno()
        # The process' number is part of its environment: a shell that becomes honed knows it.
        shell = f'export LISTEN_PID=$$ LISTEN_FDS=1; exec "$@" 3<&{own}' + ("" if own == 3 else f" {own}<&-")
        while not self.done.is_set():
            if not select.select([self.socket], [], [], 0.05)[0]:
                continue
            self.process = subprocess.Popen(["/bin/sh", "-c", shell, "sh", *self.words], env=self.directory.environment,
                                            stderr=self.log, pass_fds=(own,), user=self.user, group=self.user,
                                            extra_groups=None if self.user is None else [])
            self.starts += 1
            self.statuses.append(self.process.wait())

    def close(self):
        self.done.set()
        if self.process and self.process.poll() is None:
            self.process.terminate()
        self.thread.join()
        self.socket.close()
        self.log.close()


class Activation(harness.HoneTest):
    def configure(self, text):
        with open(self.directory.config, "w", encoding="utf-8") as file:
            file.write(text)
        return "--config", self.directory.config

    def test_systemd_socket_activate_starts_it(self):
        need(self, "systemd-socket-activate")
        os.makedirs(os.path.dirname(self.directory.socket), mode=0o700)
        with open(os.path.join(self.directory.path, "honed.log"), "ab") as log:
            process = subprocess.Popen(
                ["systemd-socket-activate", "-E", "HOME", "-E", "XDG_RUNTIME_DIR", "-E", "XDG_CACHE_HOME", "-l", self.directory.socket,
                 os.path.join(harness.BIN, "honed"), "--no-idle"], env=self.directory.environment, stderr=log)
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        self.wait_until(lambda: os.path.exists(self.directory.socket))
        with open(f"/proc/{process.pid}/comm", encoding="utf-8") as comm:
            self.assertEqual(comm.read().strip(), "systemd-socket-"[:15])
        self.assertTrue(self.hone_json("run", SMALL)[0]["verified"])
        with open(f"/proc/{process.pid}/comm", encoding="utf-8") as comm:
            self.assertEqual(comm.read().strip(), "honed")
        process.terminate()
        self.assertEqual(process.wait(20), 0)
        self.assertTrue(os.path.exists(self.directory.socket))  # it is systemd's

    def test_it_ends_when_nobody_wants_anything_and_the_next_connection_starts_it(self):
        activator = Activator(self.directory, *self.configure('[service]\nidle_exit = "300ms"\n'))
        self.addCleanup(activator.close)
        for start in range(1, 3):
            self.hone("get", SMALL)
            self.wait_until(lambda start=start: len(activator.statuses) == activator.starts >= start)
            self.assertEqual(set(activator.statuses), {0})
        # The second found what the first had compiled.
        self.assertTrue(self.hone_json("get", SMALL, "--no-compile")[0]["hit"])

    def test_it_stays_while_somebody_is_connected_or_it_works(self):
        activator = Activator(self.directory, *self.configure('[service]\nidle_exit = "200ms"\n'))
        self.addCleanup(activator.close)
        with self.raw() as client:
            self.assertEqual(client.get(SMALL), harness.GET_REPLY)
            time.sleep(1)
            self.assertEqual(client.get(SMALL), harness.GET_REPLY)
            self.assertEqual(activator.statuses, [])

    def test_no_connection_is_lost_at_its_end(self):
        """Clients come at the very moment at which it leaves, again and again: each is answered."""
        activator = Activator(self.directory, *self.configure('[service]\nidle_exit = "40ms"\n'))
        self.addCleanup(activator.close)
        end, answered, pause = time.monotonic() + 20, 0, 0.0
        while time.monotonic() < end and activator.starts < 25:
            with self.raw() as client:
                self.assertEqual(client.get(SMALL), harness.GET_REPLY)
            answered += 1
            pause = (pause + 0.0013) % 0.02
            time.sleep(0.035 + pause)
        print(f"{answered} answers by {activator.starts} daemons")
        self.assertGreater(activator.starts, 5)
        self.assertEqual(set(activator.statuses), {0})

    def test_who_opened_the_socket_is_who_clients_see(self):
        """Root opens the system's, and honed runs as a user whom programs of others do not know."""
        if os.geteuid() != 0:
            self.skipTest("only root becomes another user")
        user = 12345
        if subprocess.run(["test", "-x", os.path.join(harness.BIN, "honed")], user=user, group=user, extra_groups=[], check=False).returncode:
            self.skipTest("[SKIP] the build lies where other users cannot go")
        os.chmod(self.directory.path, 0o755)
        os.mkdir(os.path.dirname(self.directory.socket), 0o755)
        os.chmod(os.path.dirname(os.path.dirname(self.directory.socket)), 0o755)
        os.makedirs(self.directory.environment["XDG_CACHE_HOME"])
        os.chown(self.directory.environment["XDG_CACHE_HOME"], user, user)
        activator = Activator(self.directory, *self.configure('[server]\nusers = "any"\n'), user=user)
        self.addCleanup(activator.close)
        os.chmod(self.directory.socket, 0o666)
        home = os.path.join(self.directory.path, "other")
        os.mkdir(home)
        os.chown(home, user + 1, user + 1)
        for _ in range(3):
            done = subprocess.run([os.path.join(harness.BIN, "hone"), "run", SMALL], user=user + 1, group=user + 1, extra_groups=[],
                                  env={"HOME": home, "HONE_SOCKET": self.directory.socket, "PATH": "/usr/bin:/bin"}, cwd="/",
                                  capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_one_that_nobody_activates_stays(self):
        daemon = self.start(*self.configure('[service]\nidle_exit = "50ms"\n'))
        time.sleep(0.5)
        self.assertIsNone(daemon.process.poll())


class SignsOfLife(harness.HoneTest):
    def listen(self):
        path = os.path.join(self.directory.path, "notify")
        manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(manager.close)
        manager.bind(path)
        manager.settimeout(20)
        self.directory.environment["NOTIFY_SOCKET"] = path
        return manager

    def test_it_says_that_it_is_ready_lives_and_ends(self):
        manager = self.listen()
        self.directory.environment["WATCHDOG_USEC"] = "400000"
        daemon = self.start()
        self.assertEqual(manager.recv(99), b"READY=1")
        begun = time.monotonic()
        for _ in range(5):
            self.assertEqual(manager.recv(99), b"WATCHDOG=1")
        self.assertLess(time.monotonic() - begun, 5 * 0.4)
        daemon.process.send_signal(signal.SIGSTOP)
        time.sleep(0.3)
        manager.setblocking(False)
        with self.assertRaises(BlockingIOError):
            while True:
                manager.recv(99)
        time.sleep(0.5)
        with self.assertRaises(BlockingIOError):
            manager.recv(99)
        manager.settimeout(20)
        daemon.process.send_signal(signal.SIGCONT)
        self.assertEqual(manager.recv(99), b"WATCHDOG=1")
        self.assertEqual(daemon.stop(), 0)
        said = set()
        manager.setblocking(False)
        with self.assertRaises(BlockingIOError):
            while True:
                said.add(manager.recv(99))
        self.assertIn(b"STOPPING=1", said)

    def test_it_is_silent_where_nobody_asks_or_another_process_is_asked(self):
        manager = self.listen()
        self.directory.environment.update(WATCHDOG_USEC="100000", WATCHDOG_PID="1")
        self.start()
        self.assertEqual(manager.recv(99), b"READY=1")
        manager.settimeout(0.5)
        with self.assertRaises(socket.timeout):
            manager.recv(99)


class WithoutRoot(harness.HoneTest):
    def test_honed_serves_in_a_namespace_of_users_that_has_no_root(self):
        """As the user unit's PrivateUsers= has it."""
        if os.geteuid() != 0:
            self.skipTest("only root becomes another user")
        user = 12345
        os.chmod(self.directory.path, 0o755)
        os.chown(self.directory.path, user, user)
        os.chown(os.path.join(self.directory.path, "run"), user, user)
        os.makedirs(self.directory.environment["XDG_CACHE_HOME"], exist_ok=True)
        os.chown(self.directory.environment["XDG_CACHE_HOME"], user, user)
        libc = unit_filter.LIBC

        def enter():
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            libc.prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: its own map can be written
            if libc.unshare(0x10000000) != 0:
                os._exit(77)
            fd = os.open("/proc/self/uid_map", os.O_WRONLY)  # this user may not be able to read Python's modules
            os.write(fd, b"%d %d 1" % (user, user))
            os.close(fd)

        daemon = self.start(prepare=enter, wait=False)
        self.wait_until(lambda: daemon.process.poll() is not None or " ready " in daemon.log())
        if daemon.process.poll() == 77:
            print("[SKIP] no namespaces of users here")
            self.skipTest("no namespaces of users here")
        done = subprocess.run([os.path.join(harness.BIN, "hone"), "--no-start", "run", SMALL], env=self.directory.environment,
                              user=user, group=user, extra_groups=[], cwd="/", capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr + daemon.log())
        with self.raw() as root:  # who is nobody there, as is anybody else
            self.assertTrue(root.is_closed())
        self.assertEqual(daemon.stop(), 0)


if __name__ == "__main__":
    harness.main()
