"""A real honed in a directory of its own, and clients that speak its protocol byte by byte."""

import ctypes
import glob
import json
import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

BIN = os.environ.get("HONE_BIN_DIR", os.path.join(os.path.dirname(__file__), "../../build/release/bin"))
SOURCE = os.environ.get("HONE_SOURCE_DIR", os.path.join(os.path.dirname(__file__), "../.."))
BUILD = os.environ.get("HONE_BUILD_DIR", os.path.dirname(BIN))

LIBC = ctypes.CDLL(None)
HEADER = struct.Struct("<4sHHQQ")
ERROR, HELLO, GET, STATUS = 1, 2, 4, 6
GET_REPLY, STATUS_REPLY = 5, 7

# Kernels that compile fast.
SMALL = "matmul(M=8,N=8,K=8)"


# Longer frames are refused at their header.
LARGEST_BODY = 2**20


# What users steer drivers by: tests of a machine without any hide them so.
STEERING = ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH", "VK_DRIVER_FILES", "VK_ICD_FILENAMES")


def drivers(kind):
    """The files of drivers that make a processor such a device, as their loaders find them here."""
    if kind == "opencl":
        folder = os.environ.get("OCL_ICD_VENDORS") or os.environ.get("OPENCL_VENDOR_PATH") or "/etc/OpenCL/vendors"
        return sorted(glob.glob(os.path.join(folder, "*pocl*.icd")))
    told = os.environ.get("VK_DRIVER_FILES") or os.environ.get("VK_ICD_FILENAMES")
    found = told.split(":") if told else glob.glob("/usr/share/vulkan/icd.d/*.json")
    return sorted(path for path in found if "lvp_icd" in path and os.path.exists(path))


def check_want_of(kind, why):
    """Nothing may be left out for want of a device of that kind where its driver is installed."""
    if found := drivers(kind):
        raise AssertionError(f"{found[0]} is installed, and yet: {why}")


def skip_for_want_of(kind, why):
    check_want_of(kind, why)
    raise unittest.SkipTest(f"[SKIP] {why.strip()}")


def small(n):
    return f"add(M=1,N={n})"


def text(value):
    data = value.encode()
    return struct.pack("<I", len(data)) + data


def frame(kind, body=b"", request_id=1, version=1, length=None):
    return HEADER.pack(b"HONE", version, kind, request_id, len(body) if length is None else length) + body


def get_frame(kernel, request_id=1, no_compile=False, no_artifact=False, budget_us=0):
    body = text(kernel) + text("") + struct.pack("<IQ??", 0, budget_us, no_compile, no_artifact)
    return frame(GET, body, request_id)


class Gone(Exception):
    """The daemon closed the connection."""


def be_limited():
    """As a user's daemon: 1,024 descriptors, and no privilege to have more on their way over sockets."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
    PR_CAPBSET_DROP, CAP_SYS_ADMIN, CAP_SYS_RESOURCE = 24, 21, 24
    for capability in (CAP_SYS_ADMIN, CAP_SYS_RESOURCE):
        LIBC.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


class RawClient:
    """A connection without libhone, which would not send what these tests send."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.socket.connect(path)
        except OSError:
            self.socket.close()
            raise
        self.socket.settimeout(30)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def send(self, data):
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            raise Gone from None

    def _read(self, count, descriptors):
        data = b""
        while len(data) < count:
            try:
                part, fds, _, _ = socket.recv_fds(self.socket, count - len(data), 4)
            except ConnectionResetError:
                raise Gone from None
            descriptors.extend(fds)
            if not part:
                raise Gone
            data += part
        return data

    def receive(self):
        """(type, request id, body, descriptors)"""
        descriptors = []
        magic, _, kind, request_id, length = HEADER.unpack(self._read(HEADER.size, descriptors))
        assert magic == b"HONE"
        return kind, request_id, self._read(length, descriptors), descriptors

    def get(self, kernel, **options):
        """The reply's type; descriptors are closed."""
        self.send(get_frame(kernel, **options))
        kind, _, _, descriptors = self.receive()
        for fd in descriptors:
            os.close(fd)
        return kind

    def is_closed(self):
        try:
            while self.socket.recv(65536):
                pass
        except (ConnectionResetError, BrokenPipeError):
            pass
        except socket.timeout:
            return False
        return True


class Directory:
    """A home for one test: socket, cache, configuration. HONE_* and XDG_* point into it."""

    def __init__(self):
        self.path = tempfile.mkdtemp(prefix="hone-")
        self.socket = os.path.join(self.path, "run", "hone", "honed.sock")
        self.cache = os.path.join(self.path, "cache", "hone")
        self.config = os.path.join(self.path, "honed.toml")
        os.mkdir(os.path.join(self.path, "run"), 0o700)
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": self.path,
            "XDG_RUNTIME_DIR": os.path.join(self.path, "run"),
            "XDG_CACHE_HOME": os.path.join(self.path, "cache"),
            "XDG_CONFIG_HOME": os.path.join(self.path, "config"),
        }
        for name, value in os.environ.items():
            if name.startswith(("ASAN_", "TSAN_", "UBSAN_", "LSAN_")) or name in (*STEERING, "VIRTUAL_ENV"):  # which may have NVRTC
                self.environment[name] = value

    def remove(self):
        shutil.rmtree(self.path, ignore_errors=True)


def children(pid, name):
    """Process ids of a process' children of that name."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8") as stat:
                fields = stat.read()
            command = fields[fields.index("(") + 1:fields.rindex(")")]
            parent = int(fields[fields.rindex(")") + 2:].split()[1])
        except (OSError, ValueError):
            continue
        if parent == pid and command == name[:15]:
            found.append(int(entry))
    return found


class Daemon:
    """honed as a child of the test, which calls `prepare` before it becomes honed."""

    def __init__(self, directory, *arguments, wait=True, prepare=None):
        self.directory = directory
        self.log_path = os.path.join(directory.path, "honed.log")
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [os.path.join(BIN, "honed"), *arguments], env=directory.environment, stderr=log,
                stdin=subprocess.DEVNULL, preexec_fn=prepare)
        if wait:
            self.wait_until_ready()

    @property
    def pid(self):
        return self.process.pid

    def wait_until_ready(self, limit=30):
        end = time.monotonic() + limit
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise AssertionError("honed ended: " + self.log())
            try:
                with RawClient(self.directory.socket) as client:
                    client.send(frame(STATUS))
                    if client.receive()[0] == STATUS_REPLY:
                        return
            except (OSError, Gone):
                time.sleep(0.005)
        raise AssertionError("honed is not ready: " + self.log())

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as log:
            return log.read()

    def wait_for_log(self, words, limit=20):
        end = time.monotonic() + limit
        while words not in self.log():
            if time.monotonic() > end:
                raise AssertionError(f"the log never said {words!r}: {self.log()}")
            time.sleep(0.01)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self, limit=20):
        """SIGTERM; the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
        return self.process.wait(limit)

    def children(self, name):
        """Process ids of our builders or runners."""
        return children(self.pid, name)

    def open_descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def resident_mib(self):
        with open(f"/proc/{self.pid}/statm", encoding="utf-8") as statm:
            return int(statm.read().split()[1]) * 4096 / 2**20


class HoneTest(unittest.TestCase):
    """Base of the tests: a directory, and `hone` run in it."""

    def setUp(self):
        self.directory = Directory()
        self.daemons = []
        self.addCleanup(self._clean)

    def _clean(self):
        for daemon in self.daemons:
            if daemon.process.poll() is None:
                daemon.kill()
        # One that a command started.
        lock = self.directory.socket + ".lock"
        try:
            with open(lock, encoding="utf-8") as file:
                pid = int(file.read())
            with open(f"/proc/{pid}/comm", encoding="utf-8") as comm:
                if comm.read().strip() == "honed":
                    os.kill(pid, signal.SIGKILL)
        except (OSError, ValueError):
            pass
        self.directory.remove()

    def start(self, *arguments, idle=False, **options):
        daemon = Daemon(self.directory, *([] if idle else ["--no-idle"]), *arguments, **options)
        self.daemons.append(daemon)
        return daemon

    def hone(self, *arguments, status=0, start=False, environment=None, limit=300):
        """Runs hone; its standard output. `status` is the exit status that is expected; None takes any."""
        words = [os.path.join(BIN, "hone"), *([] if start else ["--no-start"]), *arguments]
        done = subprocess.run(words, env={**self.directory.environment, **(environment or {})}, capture_output=True,
                              text=True, timeout=limit, check=False)
        if status is not None:
            self.assertEqual(done.returncode, status, f"{words}\n{done.stdout}\n{done.stderr}")
        self.last_error = done.stderr
        self.last_status = done.returncode
        return done.stdout

    def hone_json(self, *arguments, **options):
        """The objects that hone --json printed."""
        return [json.loads(line) for line in self.hone("--json", *arguments, **options).splitlines()]

    def tune_one_of_several(self, *arguments):
        """Some kernel gets better code. Which one does is the machine's affair: default code may be the best there is. Those that were
        tried, that one last."""
        tried = []
        for seed in range(1, 5):
            for kernel in ("matmul(M=33,N=65,K=129)", "layer_norm(M=128,N=300)", "dense(M=64,N=96,K=128,const=1)",
                           "matmul(M=128,N=128,K=128)", "softmax(M=64,N=200)"):
                tried = [other for other in tried if other != kernel] + [kernel]
                if self.hone_json("tune", kernel, *arguments, "--trials", "16", "--seed", str(seed))[-1]["origin"] == "tuned":
                    return tried
        return self.fail("no search found better code")

    def raw(self):
        return RawClient(self.directory.socket)

    def wait_until(self, condition, limit=30):
        end = time.monotonic() + limit
        while not condition():
            self.assertLess(time.monotonic(), end, "it never came")
            time.sleep(0.01)

    def assert_served(self, kernel=SMALL):
        """An honest client gets a kernel."""
        with self.raw() as client:
            self.assertEqual(client.get(kernel), GET_REPLY)


def main():
    # Programs ignore what they were started to ignore, as in the background of a shell: here they are to be interrupted.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[1:]])
