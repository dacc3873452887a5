"""An arm64 board without a compiler, emulated by qemu-user: honed-edge and libhone built for it, code that was compiled here.

Wants build/edge-arm64 (scripts/install_dependencies.sh --edge-arm64; cmake --preset edge-arm64; cmake --build --preset
edge-arm64), and skips without it. qemu stands in for the mechanics, never for speed."""

import os
import shutil
import subprocess

import harness
from harness import small

FOREIGN = os.path.join(harness.SOURCE, "build/edge-arm64")
EMULATOR = shutil.which("qemu-aarch64")
COMPILER = shutil.which("aarch64-linux-gnu-gcc")
KERNEL = "dense(M=3,N=40,K=24,const=1)+bias+relu"  # what libhone_user.c computes, and compares with its own loops
OTHERS = ["matmul(M=8,N=8,K=8)", "softmax(M=16,N=33)", "layer_norm(M=5,N=70)+relu", "conv2d(C=8,H=12,W=12,O=8,R=3,S=3,pad=1)",
          "matmul(M=1..24,N=16,K=16)", "matmul(M=8,N=16,K=32,dtype=i8)", "dense(M=4,N=16,K=16,dtype=f16)"]
MISSING = small(4321)


def why_not():
    for what, path in (("qemu-aarch64", EMULATOR), ("aarch64-linux-gnu-gcc", COMPILER), ("build/edge-arm64", FOREIGN)):
        if path is None or not os.path.exists(path):
            return f"no {what}"
    return ""


class EdgeArm64(harness.HoneTest):
    def setUp(self):
        super().setUp()
        if why_not():
            print(f"[SKIP] {why_not()}: scripts/install_dependencies.sh --edge-arm64 and the preset edge-arm64 make it")
            self.skipTest(why_not())
        self.bundles = os.path.join(self.directory.path, "bundles.d")
        os.mkdir(self.bundles, 0o700)
        self.hone("keygen", "fleet", "--dir", self.directory.path)
        # Without a kernel that runs foreign programs by itself, the emulator is called by name.
        self.runner = self.script("runner", f"exec {EMULATOR} {FOREIGN}/bin/hone-runner --emulated")

    def script(self, name, line):
        path = os.path.join(self.directory.path, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\n{line}\n")
        os.chmod(path, 0o700)
        return path

    def emulated(self, program, *arguments):
        return [EMULATOR, program, *arguments]

    def edge(self, *arguments):
        return self.emulated(os.path.join(FOREIGN, "bin/honed-edge"), *arguments)

    def start_with_foreign_runners(self):
        """honed, which finds the board's runner and emulates it."""
        folder = os.path.join(self.directory.path, "runners")
        os.makedirs(os.path.join(folder, "aarch64"), 0o700, exist_ok=True)
        shutil.copy(f"{FOREIGN}/bin/hone-runner", os.path.join(folder, "aarch64"))
        with open(self.directory.config, "w", encoding="utf-8") as config:
            config.write(f'[build]\nforeign_runners = "{folder}"\n')
        return self.start("--config", self.directory.config)

    def ship(self, target, *kernels):
        """Compiled, checked and exported on this machine, which then knows nothing of them any more."""
        daemon = self.start_with_foreign_runners()
        path = os.path.join(self.directory.path, "net.kernels")
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(f"1 {kernel}\n" for kernel in kernels)
        rows = self.hone_json("warm", path, "--target", target)
        self.assertEqual((rows[-1]["compiled"], rows[-1]["failed"]), (len(kernels), 0), rows)
        self.hone("export", "-o", os.path.join(self.bundles, "net.bundle"), "--artifacts", "--target", target, "--name", "net",
                  "--key", os.path.join(self.directory.path, "fleet.key"))
        self.assertEqual(daemon.stop(), 0)
        shutil.rmtree(os.path.join(self.directory.path, "cache"))

    def start_edge(self):
        log = open(os.path.join(self.directory.path, "edge.log"), "w+b")
        self.addCleanup(log.close)
        daemon = subprocess.Popen(self.edge("--bundles", self.bundles, "--keys", self.directory.path, "--runner", self.runner),
                                  env=self.directory.environment, stderr=log)
        self.addCleanup(lambda: (daemon.kill(), daemon.wait()))
        self.wait_until(lambda: daemon.poll() is not None or b" ready " in self.log())
        self.assertIsNone(daemon.poll(), self.log())
        return daemon

    def log(self):
        with open(os.path.join(self.directory.path, "edge.log"), "rb") as log:
            return log.read()

    def test_code_that_was_compiled_here_serves_a_program_there(self):
        described = subprocess.run(self.edge("--describe-target"), capture_output=True, text=True, check=True).stdout.strip()
        self.assertTrue(described.startswith("cpu neon "), described)
        self.ship(described, KERNEL, *OTHERS)
        daemon = self.start_edge()
        for kernel in OTHERS:
            with self.raw() as client:
                self.assertEqual(client.get(kernel, no_compile=True), harness.GET_REPLY, kernel)
        self.assertEqual({(row["origin"], row["target"]) for row in self.hone_json("ls")}, {("imported", described)})
        self.assertEqual(self.hone_json("stats")[0]["imported_checked"], len(OTHERS), self.log())
        self.assertIn(b"not filtered, since it is emulated", self.log())
        self.hone("get", MISSING, status=1)
        self.assertEqual(self.hone("missing"), f"# not on this device: {described}\n1 {MISSING}\n")

        program = os.path.join(self.directory.path, "user")
        subprocess.run([COMPILER, "-std=c99", "-D_GNU_SOURCE", "-O2", "-I", os.path.join(harness.SOURCE, "client"), "-o", program,
                        os.path.join(harness.SOURCE, "tests/integration/libhone_user.c"), "-L", f"{FOREIGN}/lib", "-lhone", "-lm",
                        f"-Wl,-rpath,{FOREIGN}/lib"], check=True)
        user = subprocess.run(self.emulated(program), input="hold\ncompute\n", env=self.directory.environment,
                              capture_output=True, text=True, timeout=120, check=False)
        words = [line.split() for line in user.stdout.splitlines()]
        self.assertEqual([word[0] for word in words], ["ok", "ok"], user.stdout + user.stderr)
        self.assertEqual(words[0][1:3], ["daemon", "1"])
        daemon.terminate()
        self.assertEqual(daemon.wait(30), 0)

    def test_a_named_processor_is_compiled_for_and_its_code_checked_here(self):
        daemon = self.start_with_foreign_runners()
        for name, words in (("cpu:neoverse-n1", "cpu=neoverse-n1 features=dotprod,fullfp16"), ("cpu:cortex-a72", "cpu=cortex-a72 "),
                            ("cpu:armv8.2-a+dotprod", "cpu=generic features=dotprod ")):
            served = self.hone_json("get", KERNEL, "--target", name)[0]
            self.assertTrue(served["target"].startswith("cpu neon ") and words in served["target"], served)
            self.assertFalse(served["hit"])
            # Checked once, kept, and handed out as it is; how fast it is, an emulator does not tell.
            again = self.hone_json("get", KERNEL, "--target", name, "--no-compile")[0]
            self.assertEqual((again["hit"], again["expected_us"]), (True, 0), again)
        self.assertEqual({row["expected_us"] for row in self.hone_json("ls")}, {0})
        self.assertEqual({row["ok"] for row in self.hone_json("verify", "--run")[:-1]}, {True})
        self.assertIn("not filtered, since it is emulated", daemon.log())
        self.hone("tune", KERNEL, "--target", "cpu:neoverse-n1", "--trials", "4", status=1)
        self.assertIn("and not timed", self.last_error)
        self.hone("get", KERNEL, "--target", "cpu:vax", status=1)
        self.assertIn("no CPU is called \"vax\"; there are: ", self.last_error)
        # From disk, too, after a start.
        daemon.stop()
        daemon = self.start_with_foreign_runners()
        self.assertTrue(self.hone_json("get", KERNEL, "--target", "cpu:neoverse-n1", "--no-compile")[0]["hit"])
        self.assertNotIn("artifact_refused", daemon.log())
        bundle = os.path.join(self.directory.path, "n1.bundle")
        self.hone("export", "-o", bundle, "--artifacts", "--target", "cpu:neoverse-n1", "--key",
                  os.path.join(self.directory.path, "fleet.key"))
        shown = self.hone_json("bundle", "show", bundle)[0]
        self.assertEqual((shown["records"], shown["name"]), (1, "kernels-cpu-neoverse-n1"))

    def test_code_for_a_processor_with_more_is_not_served(self):
        self.ship("cpu:neoverse-n1", KERNEL)
        # The emulated processor has all of that; one of this machine's kind has none of it.
        native = subprocess.Popen([os.path.join(harness.BIN, "honed-edge"), "--bundles", self.bundles, "--keys",
                                   self.directory.path], env=self.directory.environment, stderr=subprocess.DEVNULL)
        self.addCleanup(lambda: (native.kill(), native.wait()))
        self.wait_until(lambda: os.path.exists(self.directory.socket))
        self.hone("get", KERNEL, status=1)
        self.assertIn("not here", self.last_error)


if __name__ == "__main__":
    harness.main()
