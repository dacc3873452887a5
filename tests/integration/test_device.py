"""--on COMMAND of hone tune and hone warm: code is built here, and checked and timed on a device. The device is this machine,
as one with less."""

import os
import shutil
import signal
import subprocess
import sys

import harness

RUNNER = os.path.join(harness.BIN, "hone-runner")
DEVICE = f"{RUNNER} --stdio --target x86-64-v3"
KERNEL = "depthwise_conv2d(C=32,H=28,W=28,R=3,S=3,stride=2,pad=1,const=1)"
OTHER = "softmax(M=16,N=33)"
FOREIGN = os.path.join(harness.SOURCE, "build/edge-arm64/bin/hone-runner")
EMULATOR = shutil.which("qemu-aarch64")


class Device(harness.HoneTest):
    def faulty(self, fault, after=3):
        return f"exec {sys.executable} {os.path.dirname(os.path.abspath(__file__))}/faulty_device.py {fault} {after} {DEVICE}"

    def tune(self, command, *arguments, kernel=KERNEL, **options):
        return self.hone_json("tune", kernel, "--threads", "1", "--on", command, *arguments, **options)

    def test_a_kernel_becomes_faster_on_the_device_and_is_shipped_to_it(self):
        daemon = self.start()
        for seed in range(1, 4):  # a search may find nothing, on a machine with other things to do
            last = self.tune(DEVICE, "--trials", "32", "--seed", str(seed))[-1]
            self.assertGreater(last["valid"], 0, last)
            if last["ratio"] > 0:
                break
        self.assertGreater(last["ratio"], 1)
        self.assertEqual(last["origin"], "tuned")
        row, = self.hone_json("ls")
        self.assertIn("cpu avx2 cpu=x86-64-v3 ", row["target"])
        self.assertEqual(row["origin"], "tuned")
        self.assertGreater(row["expected_us"], 0)
        # It is that target's: a program of this machine gets its own.
        self.assertFalse(self.hone_json("get", KERNEL, "--threads", "1")[0]["hit"])
        self.assertEqual(len({row["target"] for row in self.hone_json("ls")}), 2)
        self.assertIn("device_known", daemon.log())
        # A list: the kernels in the order of the time that they take there; its target's record is found again.
        path = os.path.join(self.directory.path, "two.kernels")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"1 {OTHER}\n9 {KERNEL}\n")
        *rows, total = self.tune(DEVICE, "--trials", "2", "--all", kernel=path)
        ends = [row for row in rows if "fingerprint" in row]
        self.assertEqual([row["kernel"] for row in ends], [KERNEL, OTHER])
        self.assertEqual((total["searched"], total["interrupted"]), (2, False))
        self.ship(row["target"])

    def test_a_list_is_warmed_for_the_device_and_by_it(self):
        self.start()
        path = os.path.join(self.directory.path, "two.kernels")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"1 {OTHER}\n9 {KERNEL}\n")
        *rows, total = self.hone_json("warm", path, "--threads", "1", "--on", DEVICE)
        self.assertEqual((total["compiled"], total["failed"]), (2, 0), rows)
        records = self.hone_json("ls")
        self.assertEqual({record["target"].startswith("cpu avx2 cpu=x86-64-v3 ") for record in records}, {True}, records)
        self.assertEqual({row["kernel"] for row in rows}, {record["kernel"] for record in records})
        total = self.hone_json("warm", path, "--threads", "1", "--on", DEVICE)[-1]
        self.assertEqual((total["hits"], total["compiled"]), (2, 0))
        # The device is what checks: code that it calls wrong is not kept; one that is lost ends the command.
        self.hone("rm", *(record["fingerprint"] for record in records))
        total = self.hone_json("warm", path, "--threads", "1", "--on", self.faulty("wrong"), status=1)[-1]
        self.assertEqual((total["compiled"], total["failed"]), (0, 2))
        with open(path, "w", encoding="utf-8") as file:
            file.write("1 softmax(M=16,N=34)\n9 softmax(M=16,N=35)\n")
        self.hone("warm", path, "--threads", "1", "--on", self.faulty("die"), status=1)
        self.assertIn("has hung up; the command ended with exit status 3; 0 of 2 kernels are in the cache", self.last_error)
        self.assert_served()

    def ship(self, target):
        folder = os.path.join(self.directory.path, "bundles.d")
        os.mkdir(folder, 0o700)
        self.hone("keygen", "fleet", "--dir", self.directory.path)
        out = self.hone_json("export", "-o", os.path.join(folder, "board.bundle"), "--artifacts", "--target", target, "--key",
                             os.path.join(self.directory.path, "fleet.key"))[0]
        self.assertEqual((out["records"], out["artifacts"]), (2, 2))
        self.daemons[0].stop()
        edge = subprocess.Popen([os.path.join(harness.BIN, "honed-edge"), "--bundles", folder, "--keys", self.directory.path],
                                env=self.directory.environment, stderr=subprocess.DEVNULL)
        self.addCleanup(lambda: (edge.kill(), edge.wait()))
        self.wait_until(lambda: os.path.exists(self.directory.socket))
        served = self.hone_json("get", KERNEL, "--threads", "1", "--no-compile")[0]
        self.assertEqual((served["hit"], served["origin"]), (True, "imported"))

    def test_one_that_goes_wrong_costs_one_error_and_keeps_what_was_measured(self):
        daemon = self.start()
        pid = daemon.pid
        for fault, words in (("times", "is not believed: what it says cannot be: "), ("garbage", "sent garbage: not a frame"),
                             ("hang", "was silent for 0.7 s"), ("hang-up", "has hung up; the command ended with exit status 3")):
            with self.subTest(fault):
                self.tune(self.faulty(fault), "--trials", "16", "--silence", "700ms", status=1)
                self.assertIn("the device " + words, self.last_error)
                self.assertIn("what was measured until then is kept", self.last_error)
                self.assertEqual(self.last_error.count("hone:"), 1, self.last_error)
                self.assert_served()
        row, = [row for row in self.hone_json("ls") if "x86-64-v3" in row["target"]]
        self.assertEqual(row["origin"], "default")
        self.assertGreater(self.hone_json("stats")[0]["trials"], 0)
        self.assertGreater(len(self.hone_json("explain", row["fingerprint"])[0]["history"]), 0)
        # What is no hone-runner of this version is refused before anything is asked of it.
        for command, words in ((self.faulty("version"), "speaks version 99 of the channel, this honed version 1; install the same hone"),
                               (self.faulty("banner"), "does not speak as hone-runner --stdio does: not a frame: it begins \"Welcome to"),
                               ("exit 7", "hung up before it said what it is; the command ended with exit status 7"),
                               (f"{RUNNER} --stdio", "says that it is what this machine is")):
            with self.subTest(command):
                self.tune(command, "--trials", "4", status=1)
                self.assertIn(words, self.last_error)
                self.assertEqual(self.last_error.count("hone:"), 1, self.last_error)
        # Code that it calls wrong is not kept, whether it is or not.
        self.tune(self.faulty("wrong"), "--trials", "4", kernel=OTHER, status=1)
        self.assertIn("failed its check: y[3] is 17.", self.last_error)
        self.assertFalse([row for row in self.hone_json("ls") if row["kernel"] == OTHER])
        self.assertEqual((daemon.pid, daemon.process.poll()), (pid, None))
        self.assertEqual(daemon.stop(), 0)

    def test_an_interrupt_keeps_what_was_found_and_ends_the_command(self):
        self.start()
        mark = os.path.join(self.directory.path, "ended")
        words = [os.path.join(harness.BIN, "hone"), "--no-start", "--json", "tune", KERNEL, "--threads", "1", "--trials", "5000", "--on",
                 f"{DEVICE}; touch {mark}"]
        hone = subprocess.Popen(words, env=self.directory.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                start_new_session=True)
        self.assertIn("trials", hone.stdout.readline())
        os.killpg(hone.pid, signal.SIGINT)  # as a terminal does: to the command, too
        out, err = hone.communicate(timeout=60)
        self.assertIn('"stopped": "interrupted', out.replace('":"', '": "') + err)
        self.wait_until(lambda: os.path.exists(mark))
        self.assert_served()

    def test_only_who_lent_a_device_may_name_it(self):
        self.start()
        self.hone("tune", OTHER, "--target", "on:1", status=1)
        self.assertIn("no device \"on:1\" is attached, or no longer", self.last_error)
        self.hone("tune", OTHER, "--on", DEVICE, "--target", "cpu:x86-64-v3", status=2)
        self.assertIn("the device of --on says itself what it is", self.last_error)

    def test_an_emulated_board_stands_for_the_mechanics(self):
        if EMULATOR is None or not os.path.exists(FOREIGN):
            print("[SKIP] no qemu-aarch64 or build/edge-arm64: scripts/install_dependencies.sh --edge-arm64 and the preset make them")
            self.skipTest("no arm64 board")
        runner = os.path.join(self.directory.path, "runner")
        with open(runner, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\nexec {EMULATOR} {FOREIGN} --emulated\n")
        os.chmod(runner, 0o700)
        self.start()
        last = self.tune(f"{EMULATOR} {FOREIGN} --stdio --emulated --runner {runner}", "--trials", "2", kernel=OTHER)[-1]
        self.assertEqual(last["trials"], 2)
        row, = self.hone_json("ls")
        self.assertTrue(row["target"].startswith("cpu neon "), row)
        self.assertEqual({row["ok"] for row in self.hone_json("verify", "--run")[:-1]}, {True})


if __name__ == "__main__":
    harness.main()
