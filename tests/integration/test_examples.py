"""Every example that documents, headers and --help show is run as it stands there, by somebody who has read no more.

What examples name (files, a fingerprint, another cache) is put in its place first. Commands that go on until they are
interrupted are interrupted after a moment."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import unittest

import harness

KERNELS = "2 softmax(M=3,N=10)\n1 matmul(M=5,N=6,K=7,const=1)+bias\n"
ENDLESS = ("top", "tune")  # without a number of trials
MOMENT_S = 2


def field(number, value):
    """A protocol buffer's: a number, or bytes with their length."""
    def varint(n):
        return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + varint(n >> 7)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def onnx(op, inputs, dims, element):
    """A model of one operator; names stand for dimensions that are open."""
    def value(name):
        dims_of_it = b"".join(field(1, field(2 if isinstance(dim, str) else 1, dim)) for dim in dims)
        return field(1, name) + field(2, field(1, field(1, element) + field(2, dims_of_it)))
    node = b"".join(field(1, name) for name in inputs) + field(2, "y") + field(4, op)
    graph = field(1, node) + field(2, "g") + b"".join(field(11, value(name)) for name in inputs) + field(12, value("y"))
    return field(1, 8) + field(7, graph) + field(8, field(2, 17))


def blocks(path, language):
    with open(os.path.join(harness.SOURCE, path), encoding="utf-8") as file:
        return re.findall(rf"```{language}\n(.*?)```", file.read(), re.DOTALL)


class Examples(harness.HoneTest):
    maxDiff = None

    def setUp(self):
        super().setUp()
        self.folder = os.path.join(self.directory.path, "work")
        for part in ("models", "zoo", "examples", "pool", "bin"):
            os.makedirs(os.path.join(self.folder, part))
        for name in ("resnet18", "bert_128"):
            self.write(f"models/{name}.kernels", KERNELS)
        shutil.copytree(os.path.join(harness.SOURCE, "examples"), os.path.join(self.folder, "examples"), dirs_exist_ok=True)
        self.write("missing.kernels", KERNELS)  # as honed-edge would say; test_edge.py asks it
        for name in ("attention", "scores"):
            shutil.copy(os.path.join(harness.SOURCE, "examples/attention_scores.hone"), os.path.join(self.folder, name + ".hone"))
        shutil.copy(os.path.join(harness.SOURCE, "examples/jacobi.hone"), self.folder)
        # A board is this machine, as one of other facts.
        self.write("bin/ssh", '#!/bin/sh\n[ "$1" = board ] && shift && exec "$@" --target x86-64-v3\n')
        os.chmod(os.path.join(self.folder, "bin/ssh"), 0o755)
        for name in ("resnet50.onnx", "zoo/one.onnx", "model.onnx", "secret.onnx"):
            self.write(name, onnx("Relu", ["input"], (1, 3, 224, 224), 1))
        self.write("bert.onnx", onnx("Add", ["input_ids", "attention_mask"], ("batch", "length"), 7))

    def write(self, name, content):
        with open(os.path.join(self.folder, name), "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)

    def run_example(self, line):
        """As in a shell; what is wrong with it, or ""."""
        command = line
        for name, here in (("3f9c", self.fingerprint[:12]), ("/var/lib/hone", self.directory.cache),
                           ("~/.cache/hone", self.directory.cache),
                           ("MODEL.onnx", "model.onnx"), ("F32.onnx", "model.onnx"), ("KERNEL", "'softmax(M=3,N=10)'")):
            command = command.replace(name, here)
        words = shlex.split(command)
        endless = len(words) > 1 and words[1] in ENDLESS and "--trials" not in words
        process = subprocess.Popen(["bash", "-c", ("exec " if endless else "set -o pipefail; ") + command],
                                   cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        try:
            output, errors = process.communicate(timeout=MOMENT_S if endless else 120)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=60)
        if process.returncode == 0 or (endless and process.returncode == -signal.SIGINT):
            return "" if output or "-o" in words or "import" in words else "it printed nothing"
        absent = ("is served here; there is:", "there is no such device", "NVRTC", "qemu", "hone-runner for")
        if "--target" in words and any(word in errors for word in absent):
            kind = words[words.index("--target") + 1].split(":")[0]
            if kind in ("opencl", "vulkan"):
                harness.check_want_of(kind, errors)
            print(f"[SKIP] {line}: {errors.strip()}", flush=True)
            return ""
        too_early = {"predict": "the cost model has seen too few searches", "contribute": "nothing to give"}
        if len(words) > 1 and too_early.get(words[1], "?") in errors:
            return ""  # it says what to do
        return f"status {process.returncode}: {errors.strip()}"

    def prepare(self):
        """A daemon that has served something, and what examples take as made."""
        self.environment = dict(self.directory.environment)
        self.environment["PATH"] = ":".join((os.path.join(self.folder, "bin"), harness.BIN, self.environment["PATH"]))
        self.environment.pop("XDG_CONFIG_HOME", None)
        self.start()
        self.fingerprint = self.hone_json("get", "softmax(M=1024,N=256)")[0]["fingerprint"]
        for name in ("attention.hone", "jacobi.hone"):
            self.hone("get", os.path.join(self.folder, name))
        for kernel in ("conv2d(C=2,H=5,W=5,O=2,R=3,S=3)", "depthwise_conv2d(C=2,H=5,W=5,R=3,S=3)"):
            self.hone("get", kernel)
        self.hone("get", "softmax(M=1024,N=256)", "--target", "opencl:0", status=None)
        self.hone("export", "-o", os.path.join(self.folder, "pool/one.bundle"))

    def assert_all_run(self, lines):
        wrong = {line: why for line in lines if (why := self.run_example(line))}
        self.assertEqual(wrong, {})

    def test_of_help(self):
        self.prepare()
        top = self.hone("--help")
        commands = re.findall(r"^  (\w+)", top.split("\nCommands:")[1], re.MULTILINE)
        lines = []
        # Keys before what is signed with them, bundles before what reads them.
        first = ["keygen", "export"]
        for command in first + [each for each in commands if each not in first]:
            text = self.hone(command, "--help")
            lines += [line for line in re.findall(r"^  (hone .*)$", text, re.MULTILINE) if " missing >" not in line]
        self.assertGreaterEqual(len(lines), 40)
        for name in ("old.bundle", "new.bundle"):
            lines.insert(lines.index(next(line for line in lines if "bundle diff" in line)), f"cp all.bundle {name} && echo copied")
        self.assert_all_run(lines)

    def test_of_the_readme(self):
        self.prepare()
        with open(os.path.join(harness.SOURCE, "README.md"), encoding="utf-8") as file:
            text = file.read()
        lines = re.findall(r"^\$ (hone .*)$", text, re.MULTILINE)
        self.assertGreaterEqual(len(lines), 8)
        inside = [line for line in re.findall(r"`(hone [^`]+)`", text) if len(line.split()) > 2]
        keys = ["hone keygen fleet"] + [line for line in inside if " export " in line]
        self.assert_all_run([*lines, *keys, *(line for line in inside if line not in keys)])

    @unittest.skipIf(os.environ.get("HONE_SANITIZE"), "[SKIP] a sanitized library wants a sanitized program")
    def test_of_the_c_interface_without_a_daemon(self):
        programs = blocks("README.md", "c")
        with open(os.path.join(harness.SOURCE, "client/hone.h"), encoding="utf-8") as file:
            programs.append("".join(re.findall(r"^ \*   (.*\n)", file.read().split("*/")[0], re.MULTILINE)))
        with open(os.path.join(harness.SOURCE, "docs/man/libhone.3"), encoding="utf-8") as file:
            programs.append(file.read().split(".SH EXAMPLES\n.nf\n")[1].split(".fi")[0])
        self.assertEqual(len(programs), 3)
        prefix = os.path.join(self.directory.path, "prefix")
        subprocess.run(["cmake", "--install", harness.BUILD, "--prefix", prefix], check=True, capture_output=True)
        library = next(folder for folder, _, files in os.walk(prefix) if "libhone.so" in files)
        for number, program in enumerate(programs):
            directory = harness.Directory()
            self.addCleanup(directory.remove)
            source = os.path.join(self.folder, f"example{number}.c")
            self.write(source, "#include <hone/hone.h>\n#include <stdio.h>\n"
                       "static float x[512], weights[1000 * 512], bias[1000], y[1000];\n"
                       "int main(void) {\nfor (int i = 0; i < 1000; ++i) bias[i] = (float)i;\n" + program +
                       "\nprintf(\"%g %s\\n\", y[999], error.message);\nhone_release(kernel);\nhone_close(client);\nreturn 0;\n}\n")
            subprocess.run([os.environ.get("CC", "cc"), "-std=c99", "-Wall", "-Wextra", "-Werror", source, "-o", source[:-2],
                            "-I" + os.path.join(prefix, "include"), "-L" + library, "-lhone", "-Wl,-rpath," + library], check=True)
            done = subprocess.run([source[:-2]], env=directory.environment, capture_output=True, text=True, check=False, timeout=60)
            with open(directory.socket + ".lock", encoding="utf-8") as lock:
                os.kill(int(lock.read()), signal.SIGTERM)
            self.assertEqual((done.returncode, done.stdout.strip()), (0, "999"), done.stderr)


if __name__ == "__main__":
    harness.main()
