"""libhone_opencl and its like as applications meet them: C programs with contexts, queues and buffers of their own."""

import os
import re
import subprocess
import tempfile
import unittest

import harness

HERE = os.path.dirname(os.path.abspath(__file__))
KERNEL = "dense(M=48,N=80,K=64,const=1)+bias+relu"
# Of its canonical text. A thread a block, with a row each, and weights that are packed: any search finds better code.
SLOW = "cache_read t1 -> t1_panels for t4 const [i1/16, i2, i1%16]\nbind t3.i0 block.x\ncompute_at t4 t3.i0\n"
LIBRARY = os.path.join(harness.BUILD, "lib")
SANITIZED = os.environ.get("HONE_SANITIZE", "") != ""


class User:
    """A program, running."""

    def __init__(self, test, program, environment, *arguments):
        self.process = subprocess.Popen([program, *arguments], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
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


class DeviceLibraryTest(harness.HoneTest):
    """What tests of each of the libraries have in common."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="hone-device-")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def compile(self, kind, source, program, *libraries):
        library = os.path.join(LIBRARY, f"libhone_{kind}.so")
        if not os.path.exists(library):
            self.skipTest(f"[SKIP] {library} was not built")
        sanitize = [f"-fsanitize={os.environ['HONE_SANITIZE']}"] if SANITIZED else []
        subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O2", *sanitize,
                        "-I", os.path.join(harness.SOURCE, "client"), "-I", harness.SOURCE, source, "-o", program, library,
                        *libraries, "-lm", "-pthread", "-Wl,-rpath," + LIBRARY], check=True)

    def stat(self, name):
        return self.hone_json("stats")[0][name]

    def user(self, kind, *libraries):
        """A program on a device of a honed that has it, with code there that leaves much to be desired."""
        if os.environ.get("HONE_SANITIZE") == "thread":
            self.skipTest("[SKIP] of drivers' threads the sanitizer sees half")
        daemon = self.start()
        served = self.hone_json("get", KERNEL, "--target", f"{kind}:0", status=None)[0]
        if "error" in served:
            self.assertIn(f'no device "{kind}:0" is served here', served["error"]["message"])
            harness.skip_for_want_of(kind, served["error"]["message"])
        self.assertEqual(daemon.stop(), 0)
        subprocess.run([os.path.join(harness.BIN, "store_tool"), "schedule", self.directory.cache, served["fingerprint"], SLOW],
                       check=True)
        self.start()
        self.assertEqual(self.hone("schedule", KERNEL, "--target", f"{kind}:0"), SLOW)
        program = os.path.join(self.folder.name, f"{kind}_user")
        self.compile(kind, os.path.join(HERE, f"{kind}_user.c"), program, *libraries)
        leaks = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"  # drivers keep what they have until the end
        return User(self, program, {**self.directory.environment, **({"ASAN_OPTIONS": leaks} if SANITIZED else {})})

    def follow_a_search(self, user, kind, kernel=KERNEL):
        """A program that goes on calling gets better code, goes on when honed dies, and follows the next one."""
        before = user.info()
        self.assertEqual((before["updates"], before["origin"]), (0, "default"))
        self.assertEqual(user.ask("loop"), "ok")
        self.wait_until(lambda: self.stat("watches") == 1)
        for seed in range(1, 9):  # a machine with other things to do may disturb all trials of one
            if self.hone_json("tune", kernel, "--target", f"{kind}:0", "--trials", "3", "--seed", str(seed))[-1]["ratio"] > 0:
                break
        self.wait_until(lambda: user.info()["updates"] > 0)
        after = user.info()
        self.assertEqual((after["origin"], after["wrong"]), ("tuned", 0))
        self.assertGreater(after["calls"], before["calls"])
        self.daemons[-1].kill()
        dead = user.info()
        self.wait_until(lambda: user.info()["calls"] > dead["calls"])
        self.start()
        self.wait_until(lambda: self.stat("watches") == 1)
        self.assertEqual(user.info()["wrong"], 0)

    def assert_refused(self, said, wanted):
        for use, words in wanted.items():
            with self.subTest(use):
                self.assertRegex(said.pop(use), words)
        self.assertEqual(said, {})


class DeviceLibraries(DeviceLibraryTest):
    def test_opencl_on_queues_of_the_application(self):
        user = self.user("opencl", "-l:libOpenCL.so.1")
        self.assertEqual(user.ask("calls 20"), "ok")
        self.assertEqual(user.ask("host"), "ok")
        self.assert_refused(user.errors(), {
            "foreign queue": "^1 queue: the queue is another context's$",
            "foreign buffer": r"^1 operand 3 \(y\): the buffer is another context's$",
            "small buffer": r"^1 operand 0 \(x\): the buffer has 64 bytes, the operand 12288$",
            "missing buffer": r"^1 operand 0 \(x\): no buffer$",
            "input as output": r"^1 operand 3 \(y\): the buffer is one that kernels only read$",
            "overlap": r"^1 operand 3 \(y\): it overlaps x$",
            "no constant": r"^1 operand 0 \(x\): it is not constant; ask for the kernel with const=1 to bind it$",
            "no operand": "^1 operand 7: there is no such operand; the kernel has 4$",
            "no memory": r"^1 operand 0 \(x\): no memory$",
            "not bound": r"^1 operand 1 \(w\): ",
            "released": "^1 hone_opencl_kernel: it was given back, or never was one$",
            "closed": "^1 hone_opencl: it was given back, or never was one$",
            "no context": "^1 context: no context$",
            "dynamic": "^3 .*of fixed sizes; ask for each size by itself$"})
        self.assertEqual(user.ask("calls 8"), "ok")
        self.follow_a_search(user, "opencl")
        self.assertEqual(user.close(), 0, user.said)

    def test_vulkan_in_command_buffers_of_the_application(self):
        user = self.user("vulkan", "-lvulkan")
        self.assertEqual(user.ask("calls 20"), "ok")
        self.assertEqual(user.ask("host"), "ok")
        self.assert_refused(user.errors(), {
            "no commands": "^1 commands: no command buffer$",
            "no timeline": "^1 timeline: no timeline semaphore to say when the commands have ended$",
            "small buffer": r"^1 operand 0 \(x\): the buffer has 12284 bytes, the operand 12288$",
            "misaligned": r"^1 operand 0 \(x\): its address is no multiple of 4 bytes",
            "missing buffer": r"^1 operand 0 \(x\): no buffer$",
            "overlap": r"^1 operand 3 \(y\): it overlaps x$",
            "no constant": r"^1 operand 0 \(x\): it is not constant",
            "no memory": r"^1 operand 0 \(x\): no memory$",
            "not bound": r"^1 operand 1 \(w\): ",
            "released": "^1 hone_vulkan_kernel: it was given back, or never was one$",
            "no family": "^1 device: it has no queue family 99, but 0 …",
            "no queue": "^1 device: no queue, where constants are packed$",
            "closed": "^1 hone_vulkan: it was given back, or never was one$"})
        self.assertEqual(user.ask("calls 8"), "ok")
        self.follow_a_search(user, "vulkan")
        self.assertEqual(user.close(), 0, user.said)

    def test_cuda_without_a_device_says_so(self):
        program = os.path.join(self.folder.name, "cuda_user")
        with open(program + ".c", "w", encoding="utf-8") as file:
            file.write("""#include <hone_cuda.h>
#include <stdio.h>
int main(void) {
  hone_error error = HONE_ERROR_INIT;
  hone_cuda* cuda = hone_cuda_open(NULL, NULL, &error);
  printf("%d %s\\n", error.kind, error.message);
  return cuda == NULL ? hone_cuda_enqueue(NULL, NULL, NULL, NULL) : 0;
}
""")
        self.compile("cuda", program + ".c", program)
        done = subprocess.run([program], env=self.directory.environment, capture_output=True, text=True, check=False)
        if "2 " not in done.stdout:
            self.skipTest("[SKIP] there is a driver of NVIDIA's here: " + done.stdout)
        self.assertRegex(done.stdout, "^2 (there is no libcuda.so.1 here|CUDA's driver finds no device)")
        self.assertEqual(done.returncode, 1)  # HONE_INVALID: no kernel

    @unittest.skipIf(SANITIZED, "[SKIP] sanitizers bring libraries of their own")
    def test_they_link_no_driver_and_show_their_functions_alone(self):
        for kind, call in (("opencl", "enqueue"), ("cuda", "enqueue"), ("vulkan", "record")):
            library = os.path.join(LIBRARY, f"libhone_{kind}.so")
            if not os.path.exists(library):
                print(f"[SKIP] {library} was not built")
                continue
            with self.subTest(kind):
                dynamic = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
                needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
                self.assertLessEqual(needed, {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"})
                names = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
                shown = {line.split()[2].split("@")[0] for line in names.splitlines() if line.split()[1] != "A"}
                functions = ("open", "get", "bind", call, "call", "info", "release", "close")
                self.assertEqual(shown, {f"hone_{kind}_{function}" for function in functions})


if __name__ == "__main__":
    harness.main()
