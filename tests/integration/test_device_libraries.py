"""libhone_opencl and its like as applications meet them: C programs with contexts, queues and buffers of their own."""

import os
import subprocess
import tempfile
import time
import unittest

import harness

HERE = os.path.dirname(os.path.abspath(__file__))
KERNEL = "dense(M=48,N=80,K=64,const=1)+bias+relu"
LIBRARY = os.path.join(harness.BUILD, "lib")


class User:
    """A program, running."""

    def __init__(self, test, program, environment):
        self.process = subprocess.Popen([program], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        test.addCleanup(self.close)

    def say(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def ask(self, command):
        self.say(command)
        answer = self.process.stdout.readline()
        if not answer:
            raise AssertionError("the program ended: " + self.process.stderr.read())
        return answer.strip()

    def info(self):
        updates, calls, wrong, origin, fingerprint = self.ask("info").split()
        return {"updates": int(updates), "calls": int(calls), "wrong": int(wrong), "origin": origin,
                "fingerprint": fingerprint}

    def errors(self):
        """What the library says of each wrong use."""
        self.say("errors")
        said = {}
        while (line := self.process.stdout.readline().strip()) != "end":
            if not line:
                raise AssertionError("the program ended: " + self.process.stderr.read())
            use, what = line.split(": ", 1)
            said[use] = what
        return said

    def close(self):
        if self.process.stdin.closed:
            return self.process.returncode
        self.process.stdin.close()
        try:
            status = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        self.said = self.process.stderr.read()
        self.process.stdout.close()
        self.process.stderr.close()
        return status


class DeviceLibraries(harness.HoneTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="hone-device-")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def build(self, kind, *libraries):
        """The program of a kind of devices, or a skipped test."""
        library = os.path.join(LIBRARY, f"libhone_{kind}.so")
        if not os.path.exists(library):
            self.skipTest(f"[SKIP] {library} was not built")
        program = os.path.join(self.folder.name, f"{kind}_user")
        sanitizer = os.environ.get("HONE_SANITIZE", "")
        subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O2",
                        *([f"-fsanitize={sanitizer}"] if sanitizer else []), "-I", os.path.join(harness.SOURCE, "client"),
                        "-I", harness.SOURCE, os.path.join(HERE, f"{kind}_user.c"), "-o", program, library, *libraries, "-lm",
                        "-pthread", "-Wl,-rpath," + LIBRARY], check=True)
        return program

    def stat(self, name):
        return self.hone_json("stats")[0][name]

    def user(self, kind, *libraries):
        """A program on a device of a honed that has it."""
        self.start()
        device = next((row for row in self.hone_json("status")[0]["targets"] if row.startswith(kind)), None)
        if device is None:
            self.skipTest(f"[SKIP] no device of kind {kind} is here")
        return User(self, self.build(kind, *libraries), self.directory.environment)

    def test_opencl_calls_on_queues_of_the_application(self):
        user = self.user("opencl", "-l:libOpenCL.so.1")
        self.assertEqual(user.ask("calls 40"), "ok")
        self.assertEqual(user.ask("host"), "ok")
        self.assertEqual(user.info()["origin"], "default")
        errors = user.errors()
        self.assertEqual(user.ask("calls 8"), "ok")
        self.assertEqual(user.close(), 0, user.said)
        print(errors)


if __name__ == "__main__":
    harness.main()
