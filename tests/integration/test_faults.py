"""System calls of honed that fail, each for a while: what needs them gets one clear error, everything else goes on, and
once they work again nothing is left of it. Disks that are full or break are tests/cache/refusal_test.cc's."""

import errno
import mmap
import os
import resource
import struct
import subprocess
import time

import harness
import protocol_grammar
from harness import ERROR, GET_REPLY, SMALL

HERE = os.path.dirname(os.path.abspath(__file__))
CALLS = ("memfd_create", "fork", "accept", "socketpair", "pipe2", "statfs")


class Preloaded(harness.HoneTest):
    def setUp(self):
        super().setUp()
        if os.environ.get("HONE_SANITIZE"):
            self.skipTest("[SKIP] a sanitizer wants to be loaded first: no call fails here")
        shim = os.path.join(self.directory.path, "faulty_system.so")
        subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror",
                        os.path.join(HERE, "faulty_system.c"), "-o", shim], check=True)
        path = os.path.join(self.directory.path, "faults")
        with open(path, "wb") as file:
            file.write(bytes(4096))
        with open(path, "r+b") as file:
            self.faults = mmap.mmap(file.fileno(), 4096)
        self.addCleanup(self.faults.close)
        self.directory.environment.update(LD_PRELOAD=shim, FAULTS=path)

    def let(self, call, code):
        """From now on the call fails with that error number; 0: it works."""
        struct.pack_into("<i", self.faults, 4 * CALLS.index(call), code)


class Faults(Preloaded):
    def setUp(self):
        super().setUp()
        with open(self.directory.config, "w", encoding="utf-8") as file:
            # One kernel's code in memory: hits on others read the disk, and make a descriptor anew.
            file.write('[build]\nbuilders = 1\nrunners = 1\n[memory]\ndescriptors = 1\n')
        self.daemon = self.start("--config", self.directory.config)
        del self.directory.environment["LD_PRELOAD"], self.directory.environment["FAULTS"]  # not of what else is started
        for kernel in (SMALL, harness.small(1), harness.small(2)):
            self.assert_served(kernel)
        self.descriptors = self.daemon.open_descriptors()

    def answer(self, client, kernel):
        """("", "") for code, or the error's message and where."""
        client.send(harness.get_frame(kernel))
        kind, _, body, descriptors = client.receive()
        for descriptor in descriptors:
            os.close(descriptor)
        if kind == GET_REPLY:
            return ""
        self.assertEqual(kind, ERROR)
        message = protocol_grammar.decode("ErrorReply", body)["message"]
        self.assertNotIn("\n", message)
        return message

    def assert_well(self, kernel):
        self.assertIsNone(self.daemon.process.poll(), self.daemon.log()[-2000:])
        self.assert_served(kernel)
        self.wait_until(lambda: self.daemon.open_descriptors() <= self.descriptors + 4)
        self.assertEqual(self.hone_json("verify")[-1]["bad"], 0)

    def test_no_file_in_memory_can_be_made(self):
        for code in (errno.EMFILE, errno.ENOMEM):
            with self.raw() as client:
                self.assert_served(harness.small(2))
                self.let("memfd_create", code)
                self.assertEqual(self.answer(client, harness.small(2)), "")
                for kernel in (SMALL, harness.small(1)):
                    self.assertIn(os.strerror(code), self.answer(client, kernel))
                self.assertEqual(self.hone_json("status")[0]["version"], self.hone("--version").split()[-1])
                self.let("memfd_create", 0)
                for kernel in (SMALL, harness.small(1), harness.small(2)):
                    self.assertEqual(self.answer(client, kernel), "")
            self.assert_well(harness.small(200 + code))

    def test_no_process_can_be_started(self):
        for call, code in (("fork", errno.EAGAIN), ("fork", errno.ENOMEM), ("pipe2", errno.EMFILE),
                           ("socketpair", errno.EMFILE)):
            with self.subTest(call=call, code=errno.errorcode[code]), self.raw() as client:
                self.let(call, code)
                for name in ("hone-builder", "hone-runner"):
                    for pid in self.daemon.children(name):
                        os.kill(pid, 9)
                self.assertIn(os.strerror(code), self.answer(client, harness.small(300 + CALLS.index(call) * 50 + code)))
                self.assertEqual(self.answer(client, SMALL), "")  # a hit needs no process
                self.let(call, 0)
                self.assert_well(harness.small(700 + CALLS.index(call) * 50 + code))

    def test_nobody_can_be_let_in(self):
        with self.raw() as client:
            self.assertEqual(self.answer(client, SMALL), "")
            self.let("accept", errno.EMFILE)
            with self.raw() as waits:
                waits.send(harness.get_frame(SMALL))
                time.sleep(0.5)
                self.assertTrue(client.is_closed())  # who is idle makes room
                self.let("accept", 0)
                self.assertEqual(waits.receive()[0], GET_REPLY)
        self.daemon.wait_for_log("accept_failed")
        self.assertLess(self.daemon.log().count("accept_failed"), 50)
        self.assert_well(harness.small(900))

    def test_children_without_descriptors(self):
        for name in ("hone-builder", "hone-runner"):
            with self.subTest(name), self.raw() as client:
                for pid in self.daemon.children(name):
                    resource.prlimit(pid, resource.RLIMIT_NOFILE, (5, 5))
                message = self.answer(client, harness.small(1000 + len(name)))
                for pid in self.daemon.children(name):
                    os.kill(pid, 9)
                if name == "hone-builder":  # a runner has what it needs already
                    self.assertIn(os.strerror(errno.EMFILE), message)
                else:
                    self.assertEqual(message, "")
                self.assert_well(harness.small(1100 + len(name)))


class Disks(Preloaded):
    def test_a_cache_on_another_machines_disk_is_used_and_said(self):
        self.let("statfs", 0x6969)
        self.start()
        self.assert_served()
        self.assertIn("another machine's disk (nfs)", self.hone_json("status")[0]["cache_problem"])
        self.assertIn("--cache", self.hone("status"))


if __name__ == "__main__":
    harness.main()
