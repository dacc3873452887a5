"""What the commands promise: their output, their exit status, their effect on the daemon and its cache."""

import json
import os
import signal
import subprocess
import time

import harness
from harness import SMALL, small

GET_FIELDS = ["fingerprint", "class", "target", "hit", "pinned", "origin", "served_us", "expected_us"]


class Commands(harness.HoneTest):
    def test_get_then_hit_then_restart_then_hit(self):
        daemon = self.start()
        first = self.hone_json("get", SMALL)[0]
        self.assertEqual(list(first)[:8], GET_FIELDS)
        self.assertFalse(first["hit"])
        self.assertEqual((first["origin"], first["class"], first["pinned"]), ("default", "matmul", False))
        self.assertRegex(first["fingerprint"], "^[0-9a-f]{32}$")
        self.assertGreater(first["served_us"], 0)
        second = self.hone_json("get", SMALL)[0]
        self.assertTrue(second["hit"])
        time.sleep(1.2)  # a served miss is on disk within a second
        daemon.kill()
        self.start()
        third = self.hone_json("get", SMALL, "--no-compile")[0]
        self.assertTrue(third["hit"])
        self.assertEqual(third["fingerprint"], first["fingerprint"])

    def test_no_compile_misses_with_status_1(self):
        self.start()
        error = self.hone_json("get", SMALL, "--no-compile", status=1)[0]["error"]
        self.assertEqual(error["kind"], "not_found")
        self.assertEqual(len(self.last_error.splitlines()), 1)
        self.assertEqual(sorted(error), ["kind", "message", "where"])

    def test_get_writes_the_code(self):
        self.start()
        path = os.path.join(self.directory.path, "code.so")
        self.hone("get", SMALL, "--out", path)
        with open(path, "rb") as code:
            self.assertEqual(code.read(4), b"\x7fELF")

    def test_run_verifies_and_times(self):
        self.start()
        out = self.hone_json("run", SMALL)[0]
        for field in [*GET_FIELDS, "time_us", "gflops", "max_rel_err", "verified"]:
            self.assertIn(field, out)
        self.assertTrue(out["verified"])
        self.assertGreater(out["time_us"], 0)
        self.assertGreater(out["gflops"], 0)
        self.assertLess(out["max_rel_err"], 1e-5)
        one = self.hone_json("run", SMALL, "--threads", "1", "--repeat", "3")[0]
        self.assertTrue(one["verified"])

    def test_run_of_a_range_of_sizes(self):
        self.start()
        kernel = "dense(M=1..20,N=33,K=17,const=1)+bias"
        out = self.hone_json("run", kernel, "--repeat", "3", "--threads", "1")[0]
        self.assertTrue(out["verified"])
        self.assertLessEqual(out["schedules"], 8)
        sizes = [int(one["sizes"].removeprefix("M=")) for one in out["at"]]
        self.assertEqual((sizes[0], sizes[-1]), (1, 20))
        for one in out["at"]:
            self.assertTrue(one["verified"])
            self.assertGreater(one["time_us"], 0)
            self.assertGreater(one["fixed_us"], 0)
            self.assertEqual(one["fixed_origin"], "default")
        self.assertIsInstance(out["mean_loss"], float)
        table = self.hone("run", kernel, "--sizes", "M=2,9", "--repeat", "3")
        self.assertIn("M=9", table)
        self.assertIn("mean loss", table)
        # The size's own kernel is the one that a request for it gets.
        self.assertTrue(self.hone_json("get", "dense(M=9,N=33,K=17,const=1)+bias", "--threads", "1")[0]["hit"])
        self.hone("run", kernel, "--sizes", "M=21", status=2)
        self.assertIn("M from 1 to 20", self.last_error)
        # Its schedule, given back, is a list of cases that covers the range.
        self.assertIn("case s0=", self.hone("schedule", kernel))

    def test_tune_of_a_range_of_sizes(self):
        self.start()
        kernel = "dense(M=1..9,N=64,K=48,const=1)"
        end = self.hone_json("tune", kernel, "--trials", "24", "--threads", "1", "--seed", "1")[-1]
        self.assertGreaterEqual(end["trials"], 8)
        self.assertIn(end["origin"], ("default", "tuned"))
        out = self.hone_json("run", kernel, "--repeat", "3", "--threads", "1")[0]
        self.assertTrue(out["verified"])
        self.assertTrue(out["hit"])
        self.assertEqual(out["origin"], end["origin"])
        self.hone("explain", kernel)

    def test_tune_of_a_range_tries_nothing_that_is_of_its_neighbours(self):
        self.start()
        for kernel in ("matmul(M=63,N=2,K=256)+hardswish", "matmul(M=1..63,N=2,K=256)+hardswish"):
            self.hone_json("tune", kernel, "--trials", "24", "--threads", "1", "--seed", "1")
        self.assertEqual(self.hone_json("stats")[0]["trials_not_built"], 0)

    def test_ranges_that_cannot_be(self):
        self.start()
        for kernel in ("dense(M=9..1,N=8,K=8)", "dense(M=1..1000000000000,N=64,K=64)", "dense(M=4,N=1..80,K=8)"):
            error = self.hone_json("get", kernel, status=1)[0]["error"]
            self.assertIn(error["kind"], ("invalid", "limit", "unsupported"), kernel)

    def test_warm_and_run_a_list(self):
        self.start()
        path = os.path.join(self.directory.path, "net.kernels")
        with open(path, "w", encoding="utf-8") as file:
            file.write("# a comment\n3 add(M=2,N=3)\n\n1 softmax(M=4,N=5) # another\n")
        lines = self.hone_json("warm", path)
        self.assertEqual([line["kernel"] for line in lines[:2]], ["add(M=2,N=3)", "softmax(M=4,N=5)"])
        self.assertEqual([line["count"] for line in lines[:2]], [3, 1])
        self.assertEqual((lines[2]["kernels"], lines[2]["compiled"], lines[2]["failed"]), (2, 2, 0))
        again = self.hone_json("warm", path, "--no-compile")
        self.assertEqual((again[2]["hits"], again[2]["compiled"]), (2, 0))
        lines = self.hone_json("run", path, "--no-compile")
        self.assertTrue(all(line["verified"] and line["hit"] for line in lines))
        table = self.hone("run", path)
        self.assertIn("2 kernels, 2 verified", table)
        self.assertNotIn("\033", table)

    def test_a_list_goes_on_after_a_bad_kernel(self):
        self.start()
        path = os.path.join(self.directory.path, "net.kernels")
        with open(path, "w", encoding="utf-8") as file:
            file.write("1 add(M=2,N=3)\n1 frobnicate(M=1)\n1 mul(M=2,N=3)\n")
        lines = self.hone_json("warm", path, status=1)
        self.assertEqual(lines[1]["error"]["kind"], "invalid")
        self.assertIn("net.kernels:2", lines[1]["error"]["where"])
        self.assertEqual((lines[3]["compiled"], lines[3]["failed"]), (2, 1))
        self.assertIn("net.kernels:2", self.last_error)

    def test_kernel_language_from_a_file_with_places(self):
        self.start()
        good = os.path.join(self.directory.path, "scale.hone")
        with open(good, "w", encoding="utf-8") as file:
            file.write("kernel scale(x: f32[N]) -> y: f32[N] where N=33 {\n  y[i] = x[i] * 2.0\n}\n")
        self.assertTrue(self.hone_json("run", good)[0]["verified"])
        bad = os.path.join(self.directory.path, "bad.hone")
        with open(bad, "w", encoding="utf-8") as file:
            file.write("kernel bad(x: f32[N]) -> y: f32[N] where N=33 {\n  y[i] = x[i + 1]\n}\n")
        error = self.hone_json("get", bad, status=1)[0]["error"]
        self.assertRegex(error["where"], r"bad\.hone:2:\d+")

    def test_ls_show_explain_schedule_code(self):
        self.start()
        served = self.hone_json("get", SMALL)[0]
        self.hone("get", small(3))
        fingerprint = served["fingerprint"]
        rows = self.hone_json("ls")
        self.assertEqual(len(rows), 2)
        self.assertEqual([row["fingerprint"] for row in self.hone_json("ls", "matmul")], [fingerprint])
        self.assertIn("matmul", self.hone("ls"))
        shown = self.hone_json("show", fingerprint[:8])[0]
        self.assertEqual(shown["kernel"], SMALL)
        self.assertIn("kernel", shown["canonical"])
        self.assertIn("schedule", self.hone_json("explain", fingerprint[:8])[0]["reasons"])
        schedule = self.hone("schedule", fingerprint[:8])
        self.assertEqual(schedule, self.hone("schedule", SMALL))
        self.assertTrue(schedule.strip())
        code = self.hone("code", fingerprint[:8])
        self.assertIn("define", code)
        self.assertIn("hone_entry", code)
        # A kernel that was never asked for is fetched first.
        self.assertTrue(self.hone("schedule", "mul(M=3,N=4)").strip())
        self.hone("show", "zz", status=1)
        self.hone("show", "0123456789abcdef", status=1)

    def test_code_of_each_kind_of_device(self):
        self.start()
        kinds = {target.split(" ")[0] for target in self.hone_json("status")[0]["targets"]}
        for kind, target, word in [("opencl", "opencl:0", "__kernel"), ("vulkan", "vulkan:0", "#version 450"),
                                   ("cuda", "cuda:sm_90", "__global__")]:
            with self.subTest(kind):
                if kind not in kinds:
                    if kind != "cuda":
                        harness.check_want_of(kind, "honed serves none")
                    self.hone("code", SMALL, "--target", target, status=1)
                    print(f"[SKIP] nothing for {kind} is here")
                    continue
                code = self.hone("code", SMALL, "--target", target)
                self.assertIn("# schedule", code)
                self.assertIn(word, code)
                self.assertEqual(self.hone_json("ls"), [])  # printing keeps nothing
        if "cuda" in kinds:
            served = self.hone_json("get", SMALL, "--target", "cuda:sm_90")[0]
            self.assertIs(served["verified"], False)
            self.assertIn("unchecked=sm_90", served["target"])
            self.assertIs(self.hone_json("ls")[0]["verified"], False)
            self.assertIs(self.hone_json("show", served["fingerprint"])[0]["verified"], False)
            self.assertIn("unverified", self.hone("ls"))
            self.hone("run", SMALL, "--target", "cuda:sm_90", status=1)

    def test_pin_unpin_rm_are_durable(self):
        daemon = self.start()
        fingerprint = self.hone_json("get", SMALL)[0]["fingerprint"]
        other = self.hone_json("get", small(5))[0]["fingerprint"]
        self.hone("pin", fingerprint[:10])
        self.hone("rm", other)
        daemon.kill()
        self.start()
        self.assertTrue(self.hone_json("get", SMALL, "--no-compile")[0]["pinned"])
        self.hone("get", small(5), "--no-compile", status=1)
        self.hone("unpin", fingerprint)
        self.assertFalse(self.hone_json("show", fingerprint)[0]["pinned"])

    def test_verify_finds_nothing_wrong(self):
        self.start()
        for n in range(1, 4):
            self.hone("get", small(n))
        summary = self.hone_json("verify")[-1]
        self.assertEqual((summary["checked"], summary["bad"]), (3, 0))
        lines = self.hone_json("verify", "--run")
        self.assertTrue(all(line["ok"] and line["max_rel_err"] < 1e-5 for line in lines[:-1]))

    def test_status_and_stats(self):
        daemon = self.start()
        self.hone("get", SMALL)
        self.hone("get", SMALL)
        status = self.hone_json("status")[0]
        self.assertEqual((status["pid"], status["hits"], status["misses"]), (daemon.pid, 1, 1))
        self.assertEqual(status["cache"], self.directory.cache)
        stats = self.hone_json("stats")[0]
        self.assertEqual((stats["hits_memory"], stats["misses"], stats["builder_builds"]), (1, 1, 1))
        self.wait_until(lambda: len(self.hone_json("status")[0]["sandbox"]) == 3)
        status = self.hone_json("status")[0]
        self.assertEqual((status["losses"], status["quarantined"], status["cache_problem"]), (0, 0, ""))
        text = self.hone("status")
        for child in status["sandbox"]:
            self.assertIn(("" if child["complete"] else "incomplete: ") + child["holds"], text)
        self.assertIn("hits", self.hone("status"))

    def test_predictions_want_a_model(self):
        self.start()
        self.hone("predict", "matmul(M=8,N=8,K=8)", status=1)
        self.assertIn("no cost model yet", self.last_error)
        self.hone("predict", "matmul(M=8,N=8)", status=1)
        self.assertIn("K", self.last_error)
        self.hone("predict", "no.hone", status=1)

    def test_explain_of_what_is_not_there(self):
        self.start()
        self.hone("explain", "0123abcd", status=1)
        self.assertIn("no kernel's fingerprint begins with 0123abcd; see `hone ls`", self.last_error)
        self.assertEqual(len(self.last_error.splitlines()), 1)
        error = self.hone_json("explain", "0123abcd", status=1)[0]["error"]
        self.assertEqual(error["kind"], "not_found")
        self.hone("explain", "matmul(M=8,N=8)", status=1)
        self.assertIn("K", self.last_error)
        self.hone("explain", "no.hone", status=1)
        self.hone("explain", status=2)

    def test_explain_of_a_default_schedule(self):
        self.start()
        # A kernel that was never asked for is fetched first.
        text = self.hone("explain", SMALL)
        self.assertEqual(text, self.hone("explain", self.hone_json("get", SMALL, "--no-compile")[0]["fingerprint"][:10]))
        for words in ("derived from the machine", "of the bound", "no trials yet", "nothing: it is what the rules prefer",
                      "+ contraction took", "- winograd did not take"):
            self.assertIn(words, text)
        self.assertNotIn("\033", text)
        for columns, limit in ((None, 80), ("50", 50), ("160", 160), ("no number", 80)):
            text = self.hone("explain", SMALL, environment={"COLUMNS": columns} if columns else None)
            self.assertLessEqual(max(map(len, text.splitlines())), limit)
        reply = self.hone_json("explain", SMALL)[0]
        self.assertEqual((reply["origin"], reply["trials"], reply["history"]), ("default", 0, []))
        self.assertFalse(any(choice["changed"] for choice in reply["choices"]))
        self.assertEqual(reply["roofline"]["flops"], 2 * 8 * 8 * 8)

    def test_explain_of_a_search(self):
        daemon = self.start()
        kernel = "softmax(M=64,N=200,threads=1)"
        end = self.hone_json("tune", kernel, "--trials", "24", "--seed", "3")[-1]
        reply = self.hone_json("explain", kernel)[0]
        self.assertEqual(reply["trials"], end["trials"])
        self.assertEqual(sum(reply["verdicts"].values()), end["trials"])
        best = [point["best_us"] for point in reply["history"]]
        self.assertEqual(best, sorted(best, reverse=True))
        if best:  # a machine that is never quiet times nothing
            self.assertAlmostEqual(best[-1], end["best_us"], places=2)
        self.assertEqual(reply["origin"], end["origin"])
        if end["ratio"] > 0:
            self.assertAlmostEqual(reply["won_ratio"], end["ratio"], places=2)
            self.assertTrue(any(choice["changed"] for choice in reply["choices"]))
        stats = self.hone_json("stats")[0]
        self.assertEqual(stats["trials"], sum(stats[name] for name in stats if name.startswith("trials_") and
                                              name != "trials_failed"))
        daemon.stop()
        # Without a daemon, from the cache alone, the same is told.
        again = self.hone_json("--cache", self.directory.cache, "explain", reply["fingerprint"])[0]
        for field in ("trials", "verdicts", "history", "won_ratio", "space_size", "rules"):
            self.assertEqual(again[field], reply[field], field)

    def test_tune_serves_what_it_finds_from_then_on(self):
        daemon = self.start()
        kernel = "softmax(M=64,N=200,threads=1)"
        lines = self.hone_json("tune", kernel, "--trials", "40", "--seed", "3")
        rounds, end = lines[:-1], lines[-1]
        self.assertEqual([line["trials"] for line in rounds], sorted(line["trials"] for line in rounds))
        self.assertEqual(end["trials"], 40)
        self.assertLessEqual(end["valid"], end["trials"])  # a machine that is never quiet times nothing
        self.assertLessEqual(end["best_us"], end["start_us"] or end["best_us"])
        self.assertIn(end["origin"], ("default", "tuned"))
        for _ in range(2):  # and after a restart
            served = self.hone_json("run", kernel, "--no-compile")[0]
            self.assertTrue(served["verified"])
            self.assertEqual((served["origin"], served["fingerprint"]), (end["origin"], end["fingerprint"]))
            self.assertEqual(daemon.stop(), 0)
            daemon = self.start()
        self.assertEqual(self.hone_json("tune", "softmax(M=0)", status=1)[0]["error"]["kind"], "invalid")

    def interrupted(self, *words):
        """hone tune, interrupted after its first round: what it printed after that."""
        process = subprocess.Popen([os.path.join(harness.BIN, "hone"), "--no-start", "--json", "tune", *words],
                                   env=self.directory.environment, stdout=subprocess.PIPE, text=True)
        self.assertIn("best_us", process.stdout.readline())
        process.send_signal(signal.SIGINT)
        lines = [json.loads(line) for line in process.stdout]
        self.assertEqual(process.wait(20), -signal.SIGINT)
        process.stdout.close()
        return lines

    def test_an_interrupted_search_says_what_it_found(self):
        self.start()
        kernel = "matmul(M=64,N=64,K=64)"
        end = self.interrupted(kernel, "--trials", "100000")[-1]
        self.assertEqual((end["kernel"], end["stopped"]), (kernel, "interrupted"))
        self.assertGreater(end["trials"], 0)
        self.assertLess(end["trials"], 100000)
        self.assertEqual(self.hone_json("get", kernel)[0]["origin"], end["origin"])
        self.assertEqual(end["origin"] == "tuned", end["ratio"] > 0)
        self.assert_served()
        self.assertEqual(self.hone_json("tune", SMALL, "--trials", "2")[-1]["trials"], 2)

    def test_of_a_list_is_searched_what_takes_time(self):
        self.start()
        path = os.path.join(self.directory.path, "some.kernels")
        with open(path, "w", encoding="utf-8") as file:
            file.write("1 add(M=1,N=3)\n3 softmax(M=512,N=300)\n2 matmul(M=128,N=128,K=128)\n1 add(M=1,N=5)\n")
        lines = self.hone_json("tune", path, "--trials", "2")
        total = lines[-1]
        self.assertEqual((total["kernels"], total["searched"], total["trials"]), (4, 2, 4))
        self.assertGreater(total["before_us"], 0)
        self.assertLessEqual(total["after_us"], total["before_us"])
        searched = [line["kernel"] for line in lines if "kernel" in line]
        self.assertEqual(set(searched), {"softmax(M=512,N=300)", "matmul(M=128,N=128,K=128)"})
        self.assertIn("2 of 4 kernels take", self.hone("tune", path, "--trials", "1"))
        self.assertEqual(self.hone_json("tune", path, "--trials", "1", "--all")[-1]["searched"], 4)
        # An interrupt ends the whole list.
        lines = self.interrupted(path, "--trials", "100000")
        self.assertEqual((lines[-1]["searched"], lines[-1]["interrupted"]), (1, True))

    def test_no_daemon_is_one_clear_error(self):
        error = self.hone_json("status", status=1)[0]["error"]
        self.assertEqual(error["kind"], "unavailable")

    def test_hone_starts_honed_once_for_many(self):
        crowd = [subprocess.Popen([os.path.join(harness.BIN, "hone"), "--json", "get", SMALL],
                                  env=self.directory.environment, stdout=subprocess.PIPE) for _ in range(6)]
        for process in crowd:
            out, _ = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0)
            self.assertIn(b'"matmul"', out)
        status = self.hone_json("status")[0]
        self.assertEqual(status["misses"] + status["hits"], 6)
        self.assertEqual(status["misses"] >= 1, True)
        os.kill(status["pid"], signal.SIGTERM)

    def test_a_honed_that_cannot_start_says_why(self):
        os.makedirs(self.directory.cache, 0o700)
        with open(os.path.join(self.directory.cache, "FORMAT"), "w", encoding="utf-8") as file:
            file.write("hone cache\nformat 99\n")
        error = self.hone_json("get", SMALL, start=True, status=1)[0]["error"]
        self.assertIn("format 99", error["message"])
        self.assertIn(self.directory.cache, error["message"])

    def test_a_cache_that_cannot_be_written_is_served_from_memory_and_says_so(self):
        os.makedirs(os.path.dirname(self.directory.cache), 0o700)
        with open(self.directory.cache, "w", encoding="utf-8") as file:
            file.write("a file where the cache should be")
        daemon = self.start()
        self.hone("get", SMALL)
        self.assertTrue(self.hone_json("get", SMALL)[0]["hit"])
        self.assertIn(self.directory.cache, self.hone_json("status")[0]["cache_problem"])
        self.assertEqual(daemon.log().count("cache_not_persisting"), 1)

    def test_cache_is_inspected_without_and_beside_a_daemon(self):
        daemon = self.start()
        fingerprint = self.hone_json("get", SMALL)[0]["fingerprint"]
        time.sleep(1.2)
        for _ in range(2):
            rows = self.hone_json("--cache", self.directory.cache, "ls")
            self.assertEqual([row["fingerprint"] for row in rows], [fingerprint])
            self.assertEqual(self.hone_json("--cache", self.directory.cache, "show", fingerprint[:6])[0]["kernel"], SMALL)
            self.assertEqual(self.hone_json("--cache", self.directory.cache, "verify", "--run")[-1]["bad"], 0)
            self.assertIn("hone_entry", self.hone("--cache", self.directory.cache, "code", fingerprint[:6]))
            self.assertIn("cache_disk_bytes", self.hone_json("--cache", self.directory.cache, "stats")[0])
            error = self.hone_json("--cache", self.directory.cache, "rm", fingerprint, status=1)[0]["error"]
            self.assertEqual(error["kind"], "unsupported")
            self.assertEqual(daemon.stop(), 0)
        error = self.hone_json("--cache", "/nowhere", "ls", status=1)[0]["error"]
        self.assertEqual(error["where"], "/nowhere")

    def test_a_daemon_with_another_cache_is_not_taken_for_that_of_the_option(self):
        self.start()
        other = os.path.join(self.directory.path, "other")
        error = self.hone_json("--cache", other, "get", SMALL, status=1)[0]["error"]
        self.assertEqual((error["kind"], error["where"]), ("invalid", other))
        self.assertIn(self.directory.cache, error["message"])
        self.hone("--cache", self.directory.cache + "/../hone", "get", SMALL)

    def test_a_socket_that_is_a_file_is_left_alone(self):
        path = os.path.join(self.directory.path, "run", "file")
        with open(path, "w", encoding="utf-8") as file:
            file.write("precious")
        error = self.hone_json("--socket", path, "status", start=True, status=1)[0]["error"]
        self.assertEqual(error, {"kind": "invalid", "message": "there is a file that is no socket", "where": path})
        self.assertEqual(os.listdir(os.path.dirname(path)), ["file"])

    def test_interrupting_a_long_command_leaves_the_daemon_well(self):
        self.start()
        path = os.path.join(self.directory.path, "net.kernels")
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(f"1 matmul(M={n},N=64,K=32)\n" for n in range(1, 4000))
        process = subprocess.Popen([os.path.join(harness.BIN, "hone"), "--no-start", "warm", path],
                                   env=self.directory.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(10), -signal.SIGINT)
        self.assert_served()

    def test_interrupts_that_whoever_started_it_ignores_end_nothing(self):
        """As a shell's script starts what is to go on in the background."""
        self.start()
        path = os.path.join(self.directory.path, "some.kernels")
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(f"1 matmul(M={n},N=64,K=32)\n" for n in range(1, 40))
        for words in (["warm", path], ["tune", SMALL, "--time", "2s"], ["top", "--every", "100ms"]):
            with subprocess.Popen(["sh", "-c", "trap '' INT; exec \"$@\"", "sh", os.path.join(harness.BIN, "hone"), "--no-start",
                                   "--json", *words], env=self.directory.environment, stdout=subprocess.PIPE, text=True) as process:
                process.stdout.readline()
                process.send_signal(signal.SIGINT)
                if words[0] == "top":
                    for _ in range(5):
                        self.assertTrue(process.stdout.readline())
                    process.terminate()
                last = process.stdout.readlines()[-1:]
                self.assertEqual(process.wait(60), 0, words)
                self.assertNotIn("interrupted", "".join(last))


if __name__ == "__main__":
    harness.main()
