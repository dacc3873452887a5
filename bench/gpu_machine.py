#!/usr/bin/env python3
"""Everything that wants a machine with a GPU, in one go: runs the device's tests, checks every kernel of the eleven lists there,
measures marks, runs networks whole, has a C program call kernels in a context of its own, searches some kernels, and leaves
records and figures in a directory.

  bench/gpu_machine.py [--target cuda:0[,…]] [--out DIR] [--steps WORDS] [--trials N] [--torch PYTHON] [LIST.kernels …]
  bench/gpu_machine.py --pack FILE.tar.xz

The first builds what it needs. For cuda:0 the machine needs NVIDIA's driver and what scripts/install_dependencies.sh installs;
NVRTC is installed from the Python registry into build/ unless a CUDA installation has it. With --torch, an interpreter that has
PyTorch with CUDA, kernels are measured beside cuBLAS and cuDNN, by default and searched (f32 without TF32, and with it where the
kernel's accuracy allows that), and beside the copy bandwidth that PyTorch reaches; bench/gpu_marks.py has the limits.

The second packs programs that are built, the libraries that they need but the C and C++ libraries, this script and what it
reads, for a machine that has no compiler and that is lent by the minute: unpack there, and start bench/gpu_machine.py in it.
Networks are taken along, and run, if HONE_MODELS names a directory of ONNX graphs.

--steps takes some of tests, lists, marks, networks, libraries, tune; --minutes ends each step's programs after so long. Of a
processor's devices, --target opencl:0,vulkan:0 --steps lists,networks is the part device_lists of bench/check.
Exit status 1 if anything is wrong or could not be measured."""
import argparse
import concurrent.futures
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

import gpu_marks
import lib

STEPS = ["tests", "lists", "marks", "networks", "libraries", "tune"]
PROGRAMS = ["honed", "hone", "hone-builder", "hone-runner", "hone-device-runner", "backends_tests"]
LIBRARIES = ["libhone_cuda.so", "libhone_opencl.so", "libhone_vulkan.so"]
SCRIPTS = ["bench/gpu_machine.py", "bench/gpu_marks.py", "bench/gpu_peers.py", "bench/lib.py", "tests/integration/harness.py",
           "tests/integration/test_cuda_library.py", "tests/integration/test_device_libraries.py"]
USER = "cuda_user"  # tests/integration's, in a pack
OF_THE_SYSTEM = re.compile(r"^(ld-linux|lib(c|m|pthread|dl|rt|resolv|stdc\+\+|gcc_s|cuda)\.so)")
TESTS = "*GpuDevice*/{kind}:CompileCuda*"
# A C program that calls kernels on its own queue, of each kind.
LIBRARY_TESTS = {"cuda": ("test_cuda_library.py", "CudaLibrary.test_on_a_gpu"),
                 "opencl": ("test_device_libraries.py", "DeviceLibraries.test_opencl_on_queues_of_the_application"),
                 "vulkan": ("test_device_libraries.py", "DeviceLibraries.test_vulkan_in_command_buffers_of_the_application")}
AT_ONCE = {"cuda": 4}  # lists that are checked; one where the device is the processor, which would be too slow for what is checked


def is_packed():
    return not os.path.exists(os.path.join(lib.ROOT, "CMakeLists.txt"))


def build(kinds, steps):
    if not os.path.exists(os.path.join(lib.ROOT, "build/release/build.ninja")):
        subprocess.run(["cmake", "--preset", "release"], cwd=lib.ROOT, check=True, stdout=subprocess.DEVNULL)
    libraries = [f"hone_{kind}" for kind in kinds] + ["fake_cuda"] * ("cuda" in kinds) if "libraries" in steps else []
    subprocess.run(["cmake", "--build", "--preset", "release", "--target", *PROGRAMS, *libraries], cwd=lib.ROOT, check=True,
                   stdout=subprocess.DEVNULL)


def build_user(root, path):
    """The C program for libhone_cuda. Which libcuda.so.1 it has is decided where it runs."""
    subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", "-O2", "-I", os.path.join(lib.ROOT, "client"), "-I", lib.ROOT,
                    os.path.join(lib.ROOT, "tests/integration/cuda_user.c"), "-o", path, os.path.join(root, "lib/libhone_cuda.so"),
                    os.path.join(root, "tests/fake_cuda/libcuda.so.1"), "-lm", "-pthread", "-Wl,-rpath," + os.path.join(root, "lib")],
                   check=True)


def libraries_of(program):
    done = subprocess.run(["ldd", program], capture_output=True, text=True, check=True)
    return {name: path for name, path in re.findall(r"(\S+) => (/\S+)", done.stdout) if not OF_THE_SYSTEM.match(name)}


def pack(path):
    lib.install("patchelf", "xz-utils")
    root = os.path.join(lib.ROOT, "build/release")
    with tempfile.TemporaryDirectory() as scratch:
        there = os.path.join(scratch, "hone")
        shutil.copytree(os.path.join(lib.ROOT, "models"), os.path.join(there, "models"))
        for source in graphs().values():
            shutil.copy(source, os.path.join(there, "models"))
        for name in SCRIPTS:
            os.makedirs(os.path.dirname(os.path.join(there, name)), exist_ok=True)
            shutil.copy2(os.path.join(lib.ROOT, name), os.path.join(there, name))
        found = {}
        files = [("bin", name) for name in PROGRAMS] + [("lib", name) for name in LIBRARIES]
        for folder, name in files:
            source = os.path.join(root, folder, name)
            if not os.path.exists(source):
                sys.exit(f"gpu_machine: {source} is not built")
            found |= libraries_of(source)
            os.makedirs(os.path.join(there, "build/release", folder), exist_ok=True)
            shutil.copy(source, os.path.join(there, "build/release", folder))
        build_user(root, os.path.join(there, "build/release/bin", USER))
        found |= libraries_of(os.path.join(there, "build/release/bin", USER))
        for name, source in found.items():
            shutil.copy(source, os.path.join(there, "build/release/lib", name))
        for folder in ("bin", "lib"):
            for binary in glob.glob(os.path.join(there, "build/release", folder, "*")):
                os.chmod(binary, 0o755)
                subprocess.run(["strip", "--strip-unneeded", binary], check=True)
                subprocess.run(["patchelf", "--set-rpath", "$ORIGIN/../lib", binary], check=True)
        with open(os.path.join(there, "built_in"), "w", encoding="utf-8") as file:
            file.write(root)
        with tarfile.open(path, "w:xz") as archive:
            archive.add(there, "hone")
    print(f"{path}: {os.path.getsize(path) / 2**20:.1f} MiB")


def graphs():
    """Paths of those networks that are there."""
    directory = os.environ.get("HONE_MODELS") or os.path.join(lib.ROOT, "models")
    paths = {name: os.path.join(directory, name + ".onnx") for name in gpu_marks.NETWORKS}
    return {name: path for name, path in paths.items() if os.path.exists(path)}


class Machine:
    """A daemon beside the device, and what is found out."""

    def __init__(self, daemon, options, target):
        self.daemon, self.options, self.bin = daemon, options, os.path.abspath(options.bin)
        self.target, self.kind = target, target.split(":")[0]
        self.out = os.path.join(options.out, target.replace(":", "_"))
        os.makedirs(self.out, exist_ok=True)
        self.seconds = options.minutes * 60
        self.is_wrong = False
        self.figures = {"by_default": {}, "tuned": {}, "peers": {}, "networks": {}}

    def wrong(self, text):
        self.is_wrong = True
        print(text, flush=True)

    def write(self, name, value):
        with open(os.path.join(self.out, name), "w", encoding="utf-8") as file:
            file.write(value if isinstance(value, str) else json.dumps(value, indent=1))

    def tests(self):
        """Those that go through the kind of device, each in a process of its own."""
        program = os.path.join(self.bin, "backends_tests")
        if is_packed():  # the tests know where they were built
            with open(os.path.join(lib.ROOT, "built_in"), encoding="utf-8") as file:
                built_in = file.read()
            if not os.path.exists(built_in):
                os.makedirs(os.path.dirname(built_in), exist_ok=True)
                os.symlink(os.path.dirname(self.bin), built_in)
        listed = subprocess.run([program, "--gtest_list_tests", f"--gtest_filter={TESTS.format(kind=self.kind)}"],
                                capture_output=True, text=True, check=False).stdout
        suite, names, words, counts = "", [], "", {"OK": 0, "FAILED": 0, "SKIPPED": 0}
        for line in listed.splitlines():
            name = line.split("#")[0].rstrip()
            if name.startswith(" "):
                names.append(suite + name.strip())
            else:
                suite = name
        for name in names:
            try:
                done = subprocess.run([program, f"--gtest_filter={name}"], capture_output=True, text=True, check=False,
                                      timeout=self.seconds)
                said = done.stdout + done.stderr
            except subprocess.TimeoutExpired as late:
                said = f"took too long\n{late.stdout}"
            words += said
            result = next((word for word in ("SKIPPED", "FAILED", "OK") if re.search(rf"\[ *{word} *\] {re.escape(name)}", said)),
                          "FAILED")
            counts[result] += 1
            if result == "FAILED":
                print(f"  {name} failed: " + " ".join(said.split())[-400:], flush=True)
        self.write("tests.txt", words)
        print(f"tests: {counts['OK']} passed, {counts['FAILED']} failed, {counts['SKIPPED']} skipped", flush=True)
        self.is_wrong |= counts["FAILED"] > 0 or counts["OK"] == 0

    def check_list(self, name):
        rows = self.hone("run", name, "--target", self.target, "--repeat", "5")
        short = os.path.basename(name)
        self.write(short + ".json", rows)
        bad = [row for row in rows if not row.get("verified")]
        total_us = sum(row["time_us"] * row["count"] for row in rows if "time_us" in row)
        text = f"{short:28} {len(rows) - len(bad):4} of {len(rows):4} verified, {total_us / 1000:9.3f} ms a run of all"
        for row in bad[:5]:
            text += f"\n  {row.get('kernel', '')}: {row.get('error', {}).get('message', 'wrong')}"
        print(text, flush=True)
        return len(rows), len(bad)

    def lists(self):
        """Runs every kernel."""
        lists = self.options.lists or sorted(glob.glob(os.path.join(lib.ROOT, "models/*.kernels")))
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE.get(self.kind, 1)) as pool:
            counts = list(pool.map(self.check_list, lists))
        wrong = sum(bad for _, bad in counts)
        lib.mark(gpu_marks.not_verified(self.kind), wrong, "", 0, True)
        self.is_wrong |= wrong > 0 or not any(rows for rows, _ in counts)

    def hone(self, *arguments):
        try:
            return self.daemon.hone(*arguments, timeout=self.seconds)
        except subprocess.TimeoutExpired:
            return [{"error": {"message": f"took more than {self.seconds:.0f} s"}}]

    def time_of(self, kernel):
        row = self.hone("run", kernel, "--target", self.target, "--repeat", "15")[0]
        if not row.get("verified"):
            self.wrong(f"  {kernel}: {row.get('error', {}).get('message', 'not verified')}")
            return None
        return row["time_us"]

    def peers(self, lines):
        if not self.options.torch:
            return {}
        script = os.path.join(lib.ROOT, "bench/gpu_peers.py")
        try:
            done = subprocess.run([self.options.torch, script], input="\n".join(lines), capture_output=True, text=True, check=False,
                                  timeout=self.seconds)
        except subprocess.TimeoutExpired as late:
            self.wrong(f"peers took more than {self.seconds:.0f} s")
            return {row["kernel"]: row["us"] for row in map(json.loads, (late.stdout or b"").decode().splitlines())}
        if done.stderr:
            print("peers: " + "\n".join(done.stderr.strip().splitlines()[-5:]), flush=True)
        return {row["kernel"]: row["us"] for row in map(json.loads, done.stdout.splitlines())}

    def print_time(self, kernel, us, them):
        group = next(group for group in gpu_marks.groups().values() if kernel in group.kernels)
        rate = f" {gpu_marks.operations(kernel) / us / 1e6:8.2f} TFLOP/s" if gpu_marks.operations(kernel) else ""
        beside = f", {them[kernel] / us:.2f} of {group.library}" if kernel in them else ""
        print(f"{kernel:76} {us:10.1f} us{rate}{beside}", flush=True)

    def compare(self, state, times, them):
        """A mark for each group of kernels that a library has, too."""
        for name, group in gpu_marks.groups().items():
            ratios = [them[kernel] / times[kernel] for kernel in group.kernels if kernel in them and kernel in times]
            if ratios:
                lib.mark(gpu_marks.against(self.kind, name, state), lib.geometric_mean(ratios), "x",
                         group.by_default if state == "default" else group.searched, False)

    def times_of(self, kernels):
        times = {kernel: self.time_of(kernel) for kernel in kernels}
        return {kernel: us for kernel, us in times.items() if us is not None}

    def marks(self):
        compared = [kernel for group in gpu_marks.groups().values() for kernel in group.kernels]
        also = [*gpu_marks.ROWS.values(), gpu_marks.COPY, gpu_marks.ADD]
        if self.options.quick:
            compared, also = compared[:1], []
        times = self.times_of([*compared, *also])
        them = self.peers([*compared, *also])
        self.figures["by_default"], self.figures["peers"] = times, them
        for kernel in compared:
            if kernel in times:
                self.print_time(kernel, times[kernel], them)
        self.compare("default", times, them)
        copy_us = them.get(gpu_marks.COPY, times.get(gpu_marks.COPY))
        for name, (kernel, moved) in gpu_marks.MOVED.items():
            if copy_us and kernel in times:
                share = moved / times[kernel] / (2 * 4 * gpu_marks.LONG / copy_us)
                lib.mark(gpu_marks.of_bandwidth(self.kind, name), share, "x", 0.9, False)

    def networks(self):
        there = graphs()
        for name in [name for name in gpu_marks.NETWORKS if name not in there]:
            self.wrong(f"  {name}.onnx is not there; HONE_MODELS names a directory of ONNX graphs")
        them = self.peers([f"network {name}" for name in there])
        bad = 0
        for name, path in there.items():
            answer = self.hone("run", path, "--target", self.target)[-1]
            self.figures["networks"][name] = answer
            if answer.get("error") or not answer.get("verified"):
                self.wrong(f"  {name}: {answer.get('error', {}).get('message', 'not verified')}")
                bad += 1
                continue
            print(f"{name}: {answer['time_us'] / 1000:.3f} ms", flush=True)
            if f"network {name}" in them:
                lib.mark(gpu_marks.of_pytorch(self.kind, name), answer["time_us"] / them[f"network {name}"], "x", 1.0, True)
        if there:
            lib.mark(gpu_marks.networks_differ(self.kind), bad, "", 0, True)

    def libraries(self):
        """The C program of tests/integration on its own queue, through a search and the death of a honed."""
        file, test = LIBRARY_TESTS[self.kind]
        environment = dict(os.environ, HONE_BIN_DIR=self.bin, HONE_BUILD_DIR=os.path.dirname(self.bin), HONE_SOURCE_DIR=lib.ROOT)
        if is_packed():
            if self.kind != "cuda":
                self.wrong(f"libraries: the pack holds no program for {self.kind}")
                return
            environment["HONE_CUDA_USER"] = os.path.join(self.bin, USER)
        try:
            done = subprocess.run([sys.executable, "-B", file, test], cwd=os.path.join(lib.ROOT, "tests/integration"), env=environment,
                                  capture_output=True, text=True, check=False, timeout=self.seconds)
            said, is_right = done.stdout + done.stderr, done.returncode == 0 and "skipped" not in done.stderr
        except subprocess.TimeoutExpired as late:
            said, is_right = f"took too long\n{late.stderr}", False
        self.write("libraries.txt", said)
        if is_right:
            print(f"libhone_{self.kind}: right on queues of the application, through a live swap and a death of honed", flush=True)
        else:
            self.wrong(f"libhone_{self.kind}: " + " ".join(said.split())[-600:])

    def search(self, kernel):
        end = self.hone("tune", kernel, "--target", self.target, "--trials", str(self.options.trials))[-1]
        self.figures["tuned"][kernel] = end
        if end.get("error"):
            self.wrong(f"  {kernel}: {end['error']['message']}")
            return
        gain = f"{end['ratio']:.2f} times as fast as before" if end.get("ratio") else "nothing better"
        print(f"tuned {kernel}: {gain}, {end.get('trials')} trials", flush=True)

    def tune(self):
        """Searches, and what is served then beside the libraries, whose times are taken right after."""
        if not self.options.trials:
            return
        compared = [kernel for group in gpu_marks.groups().values() for kernel in group.tuned]
        also = gpu_marks.ALSO_TUNED
        if self.options.quick:
            compared, also = compared[:1], []
        for kernel in [*compared, *also]:
            self.search(kernel)
        times = self.times_of(compared)
        them = self.peers(compared)
        self.figures["searched"], self.figures["peers_of_searched"] = times, them
        for kernel, us in times.items():
            self.print_time(kernel, us, them)
        self.compare("tuned", times, them)

    def run(self, steps):
        self.write("status.json", self.hone("status")[0])
        answer = self.hone("get", "matmul(M=8,N=8,K=8)", "--target", self.target)[0]
        targets = self.hone("status")[0].get("targets", [])
        here = [text for text in targets if text.split(" ")[0] == self.kind and " unchecked=" not in text]
        if not here:
            sys.exit(f"gpu_machine: {answer.get('error', {}).get('message', 'no such device')}")
        print(f"device: {here[0]}", flush=True)
        for step in steps:
            begin = time.monotonic()
            print(f"== {step}", flush=True)
            getattr(self, step)()
            print(f"   {time.monotonic() - begin:.0f} s", flush=True)
        self.write("figures.json", self.figures)
        answer = self.hone("export", "-o", os.path.join(self.out, "records.bundle"))[-1]
        if answer.get("error"):
            self.wrong(f"records were not exported: {answer['error']['message']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="cuda:0", help="some, with commas between them")
    parser.add_argument("--bin", help="programs to run; without it those in build/release, which are built")
    parser.add_argument("--out", default=os.path.join(lib.ROOT, "build/gpu_machine"))
    parser.add_argument("--pack", metavar="FILE")
    parser.add_argument("--steps", help=f"some of {', '.join(STEPS)}, with commas; all, networks if their graphs are there")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--trials", type=int, default=128, help="of each search")
    parser.add_argument("--torch", help="a Python interpreter that has PyTorch with CUDA")
    parser.add_argument("--quick", action="store_true", help="of marks the smallest alone")
    parser.add_argument("lists", nargs="*")
    options = parser.parse_args()
    steps = options.steps.split(",") if options.steps else [step for step in STEPS if step != "networks" or graphs()]
    if unknown := [step for step in steps if step not in STEPS]:
        parser.error(f"--steps: {unknown[0]} is none of {', '.join(STEPS)}")
    if options.pack:
        pack(os.path.abspath(options.pack))
        return 0
    targets = options.target.split(",")
    kinds = [target.split(":")[0] for target in targets]
    if unknown := [kind for kind in kinds if kind not in gpu_marks.KINDS]:
        parser.error(f"--target: {unknown[0]} is none of {', '.join(gpu_marks.KINDS)}")
    if not options.bin and not is_packed():
        build(kinds, steps)
    options.bin = options.bin or lib.BIN
    if "cuda" in kinds and not is_packed():
        lib.find_nvrtc()
    is_wrong = False
    with lib.Daemon(options.bin) as daemon:
        for target in targets:
            machine = Machine(daemon, options, target)
            machine.run(steps)
            is_wrong |= machine.is_wrong
    print(f"figures and records: {options.out}")
    return 1 if is_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
