"""What the measuring scripts share: a daemon of their own, kernel lists, quantiles, and how a mark is printed.

Python's own library is enough for this file: whoever needs more asks for an environment."""
import glob
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BIN = os.path.join(ROOT, "build/release/bin")
ENVIRONMENTS = {
    "bench-python": ["onnxruntime", "onnx", "numpy", "sympy"],
    "bench-nvrtc-python": ["nvidia-cuda-nvrtc-cu12==12.9.86"],
    "bench-zoo-python": ["torch", "torchvision", "timm", "transformers", "onnxscript", "onnx", "numpy"],
    "bench-narrow-python": ["torch", "openvino", "onnxruntime", "onnx", "numpy"],
    # Later releases of tvm-ffi crash with this TVM; the rest is what its tuner imports.
    "bench-tvm-python": ["apache-tvm==0.27.0.post1", "apache-tvm-ffi==0.1.14.post1", "xgboost-cpu", "scipy", "psutil",
                         "cloudpickle", "tornado", "numpy"],
}


def environment(name):
    """An interpreter that has the packages of ENVIRONMENTS[name], in build/; makes it the first time."""
    directory, packages = os.path.join(ROOT, "build", name), ENVIRONMENTS[name]
    interpreter, stamp = os.path.join(directory, "bin/python"), os.path.join(directory, "packages")
    if not os.path.exists(stamp) or open(stamp, encoding="utf-8").read().split() != packages:
        print(f"installing {', '.join(packages)} into {directory} …", flush=True)
        subprocess.run([sys.executable, "-m", "venv", directory], check=True)
        subprocess.run([interpreter, "-m", "pip", "install", "--quiet", *packages], check=True)
        with open(stamp, "w", encoding="utf-8") as file:
            file.write("\n".join(packages))
    return interpreter


def enter(name):
    """Goes on in the environment, where the script was started with another interpreter."""
    if sys.prefix != os.path.join(ROOT, "build", name):
        interpreter = environment(name)
        os.execv(interpreter, [interpreter, *sys.argv])


def find_nvrtc():
    """Has the programs that are started find NVRTC: a CUDA installation's, or one from the Python registry, in build/."""
    if not glob.glob("/usr/local/cuda*/lib64/libnvrtc.so*") and "VIRTUAL_ENV" not in os.environ:
        environment("bench-nvrtc-python")
        os.environ["VIRTUAL_ENV"] = os.path.join(ROOT, "build/bench-nvrtc-python")


def install(*packages):
    """Debian packages, where they are missing."""
    def is_there(package):
        done = subprocess.run(["dpkg-query", "-W", "-f", "${Status}", package], capture_output=True, text=True, check=False)
        return "install ok installed" in done.stdout
    missing = [package for package in packages if not is_there(package)]
    if missing:
        print(f"installing {', '.join(missing)} …", flush=True)
        as_root = [] if os.geteuid() == 0 else ["sudo"]
        subprocess.run([*as_root, "apt-get", "install", "-y", "-q", "--no-install-recommends", *missing], check=True,
                       stdout=subprocess.DEVNULL, env=dict(os.environ, DEBIAN_FRONTEND="noninteractive"))


def kernels(words=()):
    """(calls, kernel) of lists and of kernels written out, each kernel once; of the eleven models if none is given."""
    found = {}
    for word in words or sorted(glob.glob(os.path.join(ROOT, "models/*.kernels"))):
        if "(" in word:
            found[word] = found.get(word, 0) + 1
            continue
        with open(word, encoding="utf-8") as file:
            for line in file:
                words = line.split("#")[0].split(None, 1)
                if words:
                    kernel = words[1].strip()
                    found[kernel] = found.get(kernel, 0) + int(words[0])
    return [(calls, kernel) for kernel, calls in found.items()]


def kind(kernel):
    """The operation and its epilogues: conv2d(…)+bias → conv2d+bias."""
    return re.sub(r"\([^)]*\)", "", kernel)


def quantile(values, q):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, math.ceil(q * len(ordered)) - 1))]


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def mark(name, value, unit, limit, at_most):
    """One line that bench/check collects; the benchmark programs in C++ print the same."""
    met = value <= limit if at_most else value >= limit
    print(f"mark {name:40} {value:10.3f} {unit:4} {'at most' if at_most else 'at least'} {limit:g}  "
          f"{'met' if met else 'missed'}", flush=True)


def write_between(path, begin, end, text):
    """Replaces what a document has between two marker lines."""
    with open(path, encoding="utf-8") as file:
        old = file.read()
    if begin not in old or end not in old:
        sys.exit(f"bench: {path} has no \"{begin}\" … \"{end}\" to write between")
    with open(path, "w", encoding="utf-8") as file:
        file.write(old[:old.index(begin) + len(begin)] + "\n\n" + text + "\n" + old[old.index(end):])


def progress(text):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


class Daemon:
    """honed with a cache and a socket of its own in a temporary directory."""

    def __init__(self, bin_directory=BIN, *options, idle=False):
        self.bin = bin_directory
        self.directory = tempfile.TemporaryDirectory(prefix="hone-bench-")
        self.socket = os.path.join(self.directory.name, "socket")
        self.environment = dict(os.environ, HONE_SOCKET=self.socket, XDG_CACHE_HOME=self.directory.name)
        self.command = [os.path.join(self.bin, "honed"), "--socket", self.socket,
                        "--cache", os.path.join(self.directory.name, "cache"), "--log", "error", *([] if idle else ["--no-idle"]), *options]
        self.process = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()
        self.directory.cleanup()

    def start(self, *options):
        self.process = subprocess.Popen([*self.command, *options], env=self.environment)
        for _ in range(200):
            if self.process.poll() is not None:
                break
            if not self.hone("status")[0].get("error"):
                return
            time.sleep(0.02)
        sys.exit("bench: honed did not come up; its output is above")

    def stop(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        self.process.wait()

    def hone(self, *arguments, timeout=None):
        """The answers of `hone --json`, one dictionary a line. subprocess.TimeoutExpired after so many seconds."""
        done = subprocess.run([os.path.join(self.bin, "hone"), "--no-start", "--json", *arguments],
                              env=self.environment, capture_output=True, text=True, check=False, timeout=timeout)
        return [json.loads(line) for line in done.stdout.splitlines()] or [{"error": {"message": done.stderr.strip()}}]

    def follow(self, *arguments):
        """As hone(), a line when it comes: (seconds since the command was started, answer)."""
        begin = time.monotonic()
        with subprocess.Popen([os.path.join(self.bin, "hone"), "--no-start", "--json", *arguments],
                              env=self.environment, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout:
                yield time.monotonic() - begin, json.loads(line)
