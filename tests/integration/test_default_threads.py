"""What idle time wins reaches those who ask without a number of threads: the command line, C and Python, each with its
defaults, in programs that run and in those that come later."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

import harness

HERE = os.path.dirname(os.path.abspath(__file__))
# Its default leaves a third to be won on every machine that was tried: rows of 300 are no multiple of any vector.
KERNEL = "layer_norm(M=128,N=300)"
SANITIZED = os.environ.get("HONE_SANITIZE", "") != ""

# A program that holds a kernel and calls it; says for each line that it reads which code that was.
PYTHON_USER = """
import sys, hone, numpy
kernel = hone.kernel(sys.argv[1])
inputs = [numpy.ones(operand.shape, operand.dtype) for operand in kernel.operands if not operand.is_output]
wanted = kernel(*inputs)
print("ready", kernel.info["fingerprint"], flush=True)
for line in sys.stdin:
    numpy.testing.assert_allclose(kernel(*inputs), wanted, rtol=1e-4, atol=1e-4)
    print(kernel.info["updates"], kernel.info["origin"], flush=True)
"""


def python_with_numpy():
    """None if there is none."""
    for python in (sys.executable, "/usr/bin/python3"):
        if subprocess.run([python, "-c", "import numpy"], capture_output=True, check=False).returncode == 0:
            return python
    return None


class Program:
    """One that answers each line with a line."""

    def __init__(self, test, words, environment):
        self.process = subprocess.Popen(words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        test.addCleanup(self.close)
        ready = self.process.stdout.readline().split()
        test.assertEqual(ready[:1], ["ready"], words)
        self.fingerprint = ready[1]

    def words(self):
        self.process.stdin.write("info\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().split()

    def close(self):
        if not self.process.stdin.closed:
            self.process.stdin.close()
            self.process.wait(30)
            self.process.stdout.close()
        return self.process.returncode


class DefaultThreads(harness.HoneTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="hone-threads-")
        cls.program = os.path.join(cls.folder.name, "swap_user")
        library = os.path.join(harness.BUILD, "lib")
        sanitize = [f"-fsanitize={os.environ['HONE_SANITIZE']}"] if SANITIZED else []
        subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-D_GNU_SOURCE", "-O2", *sanitize, "-I",
                        os.path.join(harness.SOURCE, "client"), os.path.join(HERE, "swap_user.c"), "-o", cls.program,
                        os.path.join(library, "libhone.so"), "-lm", "-pthread", "-Wl,-rpath," + library], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def stat(self, name):
        return self.hone_json("stats")[0][name]

    def start_idle(self):
        with open(self.directory.config, "w", encoding="utf-8") as file:
            file.write('[idle]\nbusy = 1000\nstalled = 2\nquiet = "100ms"\non_battery = true\n')
        return self.start("--config", self.directory.config, idle=True)

    def python_program(self):
        """None without NumPy, and where Python would have to be built with the sanitizer, too."""
        python = None if SANITIZED else python_with_numpy()
        if python is None:
            print("[SKIP] Python: no NumPy, or a sanitizer", flush=True)
            return None
        environment = {**self.directory.environment, "PYTHONDONTWRITEBYTECODE": "1",
                       "PYTHONPATH": os.path.join(harness.SOURCE, "python"),
                       "HONE_LIBRARY": os.path.join(harness.BUILD, "lib", "libhone.so"),
                       "HONE_COMMAND": os.path.join(harness.BIN, "hone")}
        return Program(self, [python, "-c", PYTHON_USER, KERNEL], environment)

    def test_what_idle_time_wins_is_served(self):
        daemon = self.start_idle()
        first = self.hone_json("get", KERNEL)[0]
        self.assertEqual(first["origin"], "default")
        # updates, updates of the frozen one, calls, wrong, mappings, rate, origin
        c_program = Program(self, [self.program, KERNEL, "1", "20000"], self.directory.environment)
        python = self.python_program()
        programs = [program for program in (c_program, python) if program]
        self.assertEqual({program.fingerprint for program in programs}, {first["fingerprint"]})
        try:
            self.wait_until(lambda: self.stat("refined") > 0, limit=120)
        except AssertionError:
            self.skipTest("[SKIP] the machine was never quiet enough to find better code")

        self.wait_until(lambda: c_program.words()[0] != "0")
        updates, frozen_updates, _, wrong, _, _, origin = c_program.words()
        self.assertEqual((frozen_updates, wrong, origin), ("0", "0", "tuned"))
        self.assertNotEqual(updates, "0")
        if python:
            self.wait_until(lambda: python.words()[0] != "0")
            self.assertEqual(python.words()[1], "tuned")
        second = self.hone_json("get", KERNEL)[0]
        self.assertEqual((second["origin"], second["fingerprint"]), ("tuned", first["fingerprint"]))
        for program in programs:
            self.assertEqual(program.close(), 0)

        # With the number said it is the same kernel, in whichever words; and there is no other.
        cores = re.search(r"cores=(\d+)", first["target"])[1]
        for words in ((KERNEL, "--threads", cores), (KERNEL[:-1] + f",threads={cores})",)):
            said = self.hone_json("get", *words)[0]
            self.assertEqual((said["fingerprint"], said["origin"], said["hit"]), (first["fingerprint"], "tuned", True))
        rows = self.hone_json("ls")
        self.assertEqual([(row["fingerprint"], row["origin"]) for row in rows], [(first["fingerprint"], "tuned")])
        self.assertIn("tuned", self.hone("ls"))
        explained = self.hone_json("explain", KERNEL)[0]
        self.assertGreater(explained["idle_ratio"], 1)
        self.assertNotIn("changed since", self.hone("explain", KERNEL))
        self.assertTrue(self.hone_json("run", KERNEL, "--no-compile")[0]["verified"])

        # After a restart, too.
        self.assertEqual(daemon.stop(), 0)
        self.start()
        third = self.hone_json("get", KERNEL)[0]
        self.assertEqual((third["origin"], third["fingerprint"], third["hit"]), ("tuned", first["fingerprint"], True))

    def test_only_those_who_ask_are_counted(self):
        """A search's own looks at a kernel are nobody's requests."""
        daemon = self.start_idle()
        fingerprint = self.hone_json("get", KERNEL)[0]["fingerprint"]
        self.wait_until(lambda: self.stat("trials") > 5, limit=120)
        self.hone("tune", KERNEL, "--trials", "4")
        self.hone("explain", KERNEL)
        self.assertEqual(daemon.stop(), 0)
        self.start()
        self.assertEqual(self.hone_json("show", fingerprint)[0]["requests"], 1)


if __name__ == "__main__":
    harness.main()
