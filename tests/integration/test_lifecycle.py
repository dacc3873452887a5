"""How honed starts, reloads, uses idle time and ends."""

import os
import resource
import signal
import subprocess
import time

import harness
from harness import SMALL


class Lifecycle(harness.HoneTest):
    def test_sigterm_answers_flushes_and_ends_with_0(self):
        daemon = self.start()
        with self.raw() as client:
            client.send(harness.get_frame("matmul(M=64,N=64,K=64)"))
            time.sleep(0.01)
            self.assertEqual(daemon.stop(), 0)
            self.assertIn(client.receive()[0], (harness.GET_REPLY, harness.ERROR))
        self.assertFalse(os.path.exists(self.directory.socket))
        self.start()
        rows = self.hone_json("ls")
        self.assertLessEqual(len(rows), 1)

    def test_what_was_served_just_before_sigterm_is_there_after(self):
        daemon = self.start()
        self.hone("get", SMALL)
        self.assertEqual(daemon.stop(), 0)
        self.start()
        self.assertTrue(self.hone_json("get", SMALL, "--no-compile")[0]["hit"])

    def test_a_second_daemon_on_the_same_socket_or_cache_says_so(self):
        first = self.start()
        second = self.start(wait=False)
        self.assertEqual(second.process.wait(20), 1)
        self.assertIn(str(first.pid), second.log())
        third = self.start("--socket", os.path.join(self.directory.path, "run", "other.sock"), wait=False)
        self.assertEqual(third.process.wait(20), 1)
        self.assertIn(self.directory.cache, third.log())
        self.assert_served()

    def test_sighup_reloads_and_a_bad_file_changes_nothing(self):
        with open(self.directory.config, "w", encoding="utf-8") as file:
            file.write('log = "error"\n')
        daemon = self.start("--config", self.directory.config)
        with open(self.directory.config, "w", encoding="utf-8") as file:
            file.write('log = "debug"\n[cache]\nsize = "1GiB"\n')
        os.kill(daemon.pid, signal.SIGHUP)
        daemon.wait_for_log("reloaded")
        self.assertIn("cache.size", daemon.log())
        with open(self.directory.config, "w", encoding="utf-8") as file:
            file.write('log = "error"\n[server]\nquue = 3\n')
        os.kill(daemon.pid, signal.SIGHUP)
        daemon.wait_for_log("reload_failed")
        self.assertIn("honed.toml:3:1", daemon.log())
        os.kill(daemon.pid, signal.SIGHUP)  # still answers at debug level
        self.assert_served()
        self.assertEqual(self.hone_json("stats")[0]["reloads"], 1)

    def test_idle_time_is_used_and_ends_at_once(self):
        with open(self.directory.config, "w", encoding="utf-8") as file:
            file.write('[idle]\nbusy = 1000\nquiet = "100ms"\non_battery = true\n')
        daemon = self.start("--config", self.directory.config, idle=True)
        self.hone("get", "softmax(M=64,N=200,threads=1)")
        seen, end = set(), time.monotonic() + 60
        while time.monotonic() < end and self.hone_json("stats")[0]["trials"] < 20:
            seen.add(self.hone_json("status")[0]["tuning"])
            time.sleep(0.02)
        self.assertGreaterEqual(self.hone_json("stats")[0]["trials"], 20)
        self.assertIn("softmax(M=64,N=200,threads=1)", seen)
        self.assertTrue(self.hone_json("run", "softmax(M=64,N=200,threads=1)")[0]["verified"])
        top = self.hone_json("top")[0]
        self.assertEqual((top["refinable"], [task["kernel"] for task in top["tasks"]]),
                         (1, ["softmax(M=64,N=200,threads=1)"]))
        self.assertGreaterEqual(top["all_trials"], 20)
        text = self.hone("top")
        self.assertIn("softmax(M=64,N=200,threads=1)", text)
        self.assertLessEqual(max(map(len, text.splitlines())), 80)
        # Somebody who waits ends it, and gets the answer as if nothing had run.
        self.wait_until(lambda: self.hone_json("status")[0]["tuning"])
        self.assert_served("add(M=4,N=64)")
        self.assertGreaterEqual(self.hone_json("stats")[0]["idle_interrupts"], 1)
        begun = time.monotonic()
        self.assertEqual(daemon.stop(), 0)
        self.assertLess(time.monotonic() - begun, 5)

    def test_a_bad_configuration_at_the_start_is_one_error(self):
        with open(self.directory.config, "w", encoding="utf-8") as file:
            file.write("[server]\nqueue = true\n")
        daemon = self.start("--config", self.directory.config, wait=False)
        self.assertEqual(daemon.process.wait(20), 1)
        self.assertIn("honed.toml:2:9", daemon.log())
        self.assertEqual(len(daemon.log().splitlines()), 1)
        done = subprocess.run([os.path.join(harness.BIN, "honed"), "--describe-config"], capture_output=True, text=True,
                              check=True)
        self.assertIn("[server]", done.stdout)
        for words in (["--frob"], ["surplus"], ["--log", "loud"]):
            self.assertEqual(subprocess.run([os.path.join(harness.BIN, "honed"), *words], capture_output=True,
                                            check=False).returncode, 2)

    def test_the_document_holds_every_key(self):
        described = subprocess.run([os.path.join(harness.BIN, "honed"), "--describe-config"], capture_output=True, text=True,
                                   check=True).stdout
        with open(os.path.join(harness.SOURCE, "docs/configuration.md"), encoding="utf-8") as file:
            self.assertIn("```toml\n" + described + "```", file.read())

    def test_a_small_stack_is_no_reason_to_die_of_a_deep_kernel(self):
        hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
        daemon = self.start(prepare=lambda: resource.setrlimit(resource.RLIMIT_STACK, (256 << 10, hard)))
        for depth in (60, 190):
            self.assert_served("kernel k(x: f32[64]) -> y: f32[64] { y[i] = "
                               f"{'(' * depth}x[i]{'+1.0)' * depth} }}")
            self.assert_served("kernel k(x: f32[64]) -> y: f32[64] { y[i] = "
                               f"{'max(' * depth}x[i]{', 1.0)' * depth} }}")
        self.assertIsNone(daemon.process.poll(), daemon.log())

    def test_inherits_the_socket_of_systemd(self):
        if not any(os.access(os.path.join(folder, "systemd-socket-activate"), os.X_OK)
                   for folder in os.environ["PATH"].split(":")):
            self.skipTest("[SKIP] no systemd-socket-activate")
        os.mkdir(os.path.dirname(self.directory.socket), 0o700)
        environment = [word for name, value in self.directory.environment.items() for word in ("-E", f"{name}={value}")]
        process = subprocess.Popen(["systemd-socket-activate", "-l", self.directory.socket, *environment,
                                    os.path.join(harness.BIN, "honed")], stderr=subprocess.DEVNULL)
        try:
            for _ in range(500):
                if os.path.exists(self.directory.socket):
                    break
                time.sleep(0.01)
            self.hone("get", SMALL)
            process.terminate()
            self.assertEqual(process.wait(20), 0)
            self.assertTrue(os.path.exists(self.directory.socket), "the socket is systemd's to remove")
        finally:
            process.kill()

    def test_the_daemon_links_no_llvm_and_the_library_libc_alone(self):
        done = subprocess.run(["ldd", os.path.join(harness.BIN, "honed")], capture_output=True, text=True, check=True)
        self.assertNotIn("LLVM", done.stdout)


if __name__ == "__main__":
    harness.main()
