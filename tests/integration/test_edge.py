"""honed-edge: a device without a compiler that serves what signed bundles hold."""

import json
import os
import shutil
import signal
import subprocess

import harness
from harness import SMALL, small

OTHER = small(77)
MISSING = small(4321)
UNSUPPORTED, CORRUPT = 3, 6
# What it answers (docs/protocol.md), and what only a honed with a compiler does.
ANSWERED = {2, 4, 6, 8, 10, 12, 22, 24, 34, 46}
REFUSED = {14, 16, 18, 20, 28, 30, 32, 36, 38, 40, 42, 44, 48, 50}


class EdgeDaemon:
    """honed-edge as a child of the test, at the socket that clients use by themselves."""

    def __init__(self, test, *arguments):
        self.directory = test.directory
        self.log_path = os.path.join(self.directory.path, "edge.log")
        self.log_begins = os.path.getsize(self.log_path) if os.path.exists(self.log_path) else 0
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [os.path.join(harness.BIN, "honed-edge"), "--bundles", test.bundles, *arguments],
                env=self.directory.environment, stderr=log, stdin=subprocess.DEVNULL)
        test.daemons.append(self)
        test.wait_until(lambda: self.process.poll() is not None or " ready " in self.log())
        assert self.process.poll() is None, self.log()

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as log:
            log.seek(self.log_begins)
            return log.read()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)

    def resident_mib(self):
        with open(f"/proc/{self.process.pid}/statm", encoding="utf-8") as statm:
            return int(statm.read().split()[1]) * 4096 / 2**20


class Edge(harness.HoneTest):
    def setUp(self):
        super().setUp()
        self.bundles = os.path.join(self.directory.path, "bundles.d")
        self.keys = os.path.join(self.directory.path, "config", "hone", "keys")
        for folder in (self.bundles, self.keys):
            os.makedirs(folder, 0o700)
        self.hone("keygen", "fleet", "--dir", self.directory.path)
        self.secret = os.path.join(self.directory.path, "fleet.key")
        shutil.copy(os.path.join(self.directory.path, "fleet.pub"), self.keys)

    def bundle(self, name="kernels.bundle"):
        return os.path.join(self.bundles, name)

    def tune_and_ship(self, *kernels, arguments=("--artifacts",), key=True):
        """Another machine's work: a bundle is all that is left of it."""
        daemon = self.start()
        for kernel in kernels:
            self.hone("get", kernel)
        self.hone("export", "-o", self.bundle(), *(["--key", self.secret] if key else []), *arguments)
        self.assertEqual(daemon.stop(), 0)
        shutil.rmtree(os.path.join(self.directory.path, "cache"))

    def edge(self, *arguments):
        return EdgeDaemon(self, *arguments)

    def stat(self, name):
        return self.hone_json("stats")[0][name]

    def test_a_bundle_is_served_and_its_code_run_once_before(self):
        self.tune_and_ship(SMALL, OTHER)
        edge = self.edge()
        self.assertEqual(self.stat("imported_checked"), 0)
        for count, kernel in enumerate((SMALL, OTHER), 1):
            served = self.hone_json("get", kernel, "--no-compile")[0]
            self.assertEqual((served["hit"], served["origin"]), (True, "imported"))
            self.assertEqual(self.stat("imported_checked"), count)
        self.assertTrue(self.hone_json("run", SMALL)[0]["verified"])
        self.assertEqual((self.stat("imported_checked"), self.stat("misses")), (2, 0))
        listed = self.hone_json("ls")
        self.assertEqual({row["kernel"] for row in listed}, {SMALL, OTHER})
        self.assertIn("bundle kernels version", self.hone("show", listed[0]["fingerprint"]))
        status = self.hone_json("status")[0]
        self.assertIn(self.bundles, json.dumps(status))
        self.assertFalse(os.path.exists(self.directory.cache))
        self.assertEqual(edge.stop(), 0)
        self.assertFalse(os.path.exists(self.directory.socket))
        # Nothing is remembered that could be planted: after a start it is run again.
        self.edge()
        self.hone("get", SMALL, "--no-compile")
        self.assertEqual(self.stat("imported_checked"), 1)

    def test_what_is_missing_is_said_once_and_listed_for_the_machine_that_compiles(self):
        self.tune_and_ship(SMALL)
        edge = self.edge()
        for _ in range(3):
            self.hone("get", MISSING, status=1)
            self.assertIn("not here: no bundle on this device has code for it", self.last_error)
            self.assertEqual(len(self.last_error.splitlines()), 1)
        self.hone("get", MISSING, "--no-compile", status=1)
        self.assertIn("not here", self.last_error)
        # In the kernel language, over lines, and for a number of threads that only the request says.
        written = "kernel k(a: f32[N]) -> b: f32[N] where N=33 {\n  b[i] = a[i] * 3.0\n}\n"
        self.hone("get", written, status=1)
        self.hone("get", OTHER, "--threads", "7", status=1)
        self.assertEqual(edge.log().count("not_here"), 3)
        self.hone("get", SMALL)
        missing = self.hone("missing")
        lines = missing.splitlines()
        target = lines[0].removeprefix("# not on this device: ")
        self.assertEqual(lines[1], f"4 {MISSING}")
        self.assertEqual(len(lines), 4)
        program = os.path.join(harness.BIN, "honed-edge")
        printed = subprocess.run([program, "--missing"], env=self.directory.environment, capture_output=True, text=True,
                                 check=True).stdout
        self.assertEqual(printed, missing)
        described = subprocess.run([program, "--describe-target"], env=self.directory.environment, capture_output=True,
                                   text=True, check=True).stdout
        self.assertEqual(described, target + "\n")
        as_json = self.hone_json("missing")[0]
        self.assertEqual((as_json["target"], len(as_json["kernels"]), as_json["forgotten"]), (target, 3, 0))
        self.assertEqual(edge.stop(), 0)
        # The way back: warmed and exported, it is there.
        wanted = os.path.join(self.directory.path, "missing.kernels")
        with open(wanted, "w", encoding="utf-8") as file:
            file.write(missing)
        daemon = self.start()
        self.hone("missing", status=1)
        self.assertIn("this honed compiles what it is asked for", self.last_error)
        self.hone("warm", wanted, "--target", target)
        self.hone("export", "-o", self.bundle("more.bundle"), "--name", "more", "--artifacts", "--key", self.secret)
        daemon.stop()
        self.edge()
        for kernel in (["--threads", "7", OTHER], [MISSING], [written]):
            self.assertTrue(self.hone_json("get", "--no-compile", *kernel)[0]["hit"])
        self.assertEqual(len(self.hone("missing").splitlines()), 1)

    def test_a_kernel_within_a_range_of_sizes_is_served_by_the_ranges_code(self):
        self.tune_and_ship("matmul(M=1..64,N=16,K=16)", "matmul(M=1..24,N=16,K=16)", SMALL)
        edge = self.edge()
        narrow = next(row["fingerprint"] for row in self.hone_json("ls") if row["kernel"] == "matmul(M=1..24,N=16,K=16)")
        served = self.hone_json("get", "matmul(M=7,N=16,K=16)", "--no-compile")[0]
        self.assertEqual((served["fingerprint"], served["hit"], served["origin"]), (narrow, True, "imported"))
        # Called as any kernel of those sizes, and right.
        run = self.hone_json("run", "matmul(M=7,N=16,K=16)", "--threads", "1")[0]
        self.assertTrue(run["verified"], run)
        self.assertNotEqual(self.hone_json("get", "matmul(M=64,N=16,K=16)")[0]["fingerprint"], narrow)
        self.assertEqual(self.stat("imported_checked"), 2)
        for kernel in ("matmul(M=65,N=16,K=16)", "matmul(M=7,N=17,K=16)"):
            self.hone("get", kernel, status=1)
            self.assertIn("not here", self.last_error)
        missing = self.hone("missing")
        self.assertIn("matmul(M=65,N=16,K=16)", missing)
        self.assertNotIn("matmul(M=7,N=16,K=16)", missing)
        self.assertEqual(edge.stop(), 0)

    def test_what_nobody_vouches_for_is_left_out_and_said(self):
        self.tune_and_ship(SMALL, key=False)
        edge = self.edge()
        self.assertIn("bundle_left_out", edge.log())
        self.hone("get", SMALL, status=1)
        self.assertIn("is not signed", self.hone("status"))
        edge.stop()
        os.remove(self.bundle())
        self.tune_and_ship(SMALL)
        os.remove(os.path.join(self.keys, "fleet.pub"))
        edge = self.edge()
        self.hone("get", SMALL, status=1)
        self.assertIn("no trusted key signed it", self.hone("status"))
        edge.stop()
        self.edge("--keys", self.directory.path)
        self.assertNotIn("left out", self.hone("status"))
        self.hone("get", SMALL)

    def test_a_changed_bundle_is_left_out_and_the_others_are_served(self):
        self.tune_and_ship(SMALL)
        with open(self.bundle(), "rb") as file:
            content = bytearray(file.read())
        content[len(content) // 2] ^= 1
        with open(self.bundle("broken.bundle"), "wb") as file:
            file.write(content)
        edge = self.edge()
        self.assertIn("broken.bundle", edge.log())
        self.assertIn("damaged or changed after it was signed", self.hone("status"))
        self.hone("get", SMALL)

    def test_schedules_alone_serve_nothing(self):
        self.tune_and_ship(SMALL, arguments=())
        self.edge()
        self.hone("get", SMALL, status=1)
        self.assertIn("not here", self.last_error)

    def test_every_other_request_is_refused_in_one_line(self):
        self.tune_and_ship(SMALL)
        self.edge()
        for words in (("tune", SMALL, "--trials", "1"), ("pin", "ab"), ("rm", "ab"), ("verify",), ("top",),
                      ("explain", SMALL), ("schedule", SMALL), ("code", SMALL), ("predict", SMALL),
                      ("export", "-o", os.path.join(self.directory.path, "x")), ("import", self.bundle())):
            self.hone(*words, status=1)
            self.assertIn("which has no compiler: it serves what bundles hold", self.last_error, words)
            self.assertEqual(len(self.last_error.splitlines()), 1, words)
        for kind in sorted(ANSWERED | REFUSED):
            with self.raw() as client:
                client.send(harness.frame(kind, b"\xff"))
                answer, _, body, _ = client.receive()
                wanted = CORRUPT if kind in ANSWERED else UNSUPPORTED
                self.assertEqual((answer, body[0]), (harness.ERROR, wanted), kind)
        self.hone("get", SMALL)

    def test_what_it_cannot_say_of_a_models_kernels_refuses_none_of_them(self):
        self.tune_and_ship(SMALL)
        self.edge()
        model = os.path.join(harness.SOURCE, "tests/fuzz/corpus/onnx/attention.onnx")
        checked = self.hone_json("check", model)[0]
        self.assertEqual((checked["runs"], checked["missing"], checked["host_calls"]), (True, [], 0))
        self.assertGreater(checked["kernels"], 0)
        self.assertNotIn("expected_us", checked)
        self.assertRegex(self.hone("check", model), r"expected +not known: honed-edge: ")

    def test_two_cannot_have_one_socket_and_a_wrong_option_is_said(self):
        self.edge()
        second = subprocess.run([os.path.join(harness.BIN, "honed-edge")], env=self.directory.environment,
                                capture_output=True, text=True, check=False)
        self.assertEqual((second.returncode, len(second.stderr.strip().splitlines())), (1, 1), second.stderr)
        wrong = subprocess.run([os.path.join(harness.BIN, "honed-edge"), "--cache", "x"], capture_output=True, text=True,
                               check=False)
        self.assertEqual(wrong.returncode, 2)
        wrong = subprocess.run([os.path.join(harness.BIN, "honed-edge"), "--runner", "/nowhere"], capture_output=True, text=True,
                               check=False)
        self.assertEqual(wrong.returncode, 1)
        self.assertIn("/nowhere", wrong.stderr)


if __name__ == "__main__":
    harness.main()
