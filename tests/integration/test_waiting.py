"""Who asks for little gets it soon, whatever others ask for: budgets, look-ups and misses beside who wants much."""

import os
import signal
import threading
import time

import harness
import hostile_texts
from actors import Actor, timed_get
from harness import GET_REPLY, SMALL, get_frame
from protocol_grammar import decode

# How long honest answers may take here; a hand that waits to see how long they do take sets it higher.
PATIENCE = float(os.environ.get("HONE_PATIENCE", "5"))

TIMEOUT = 8


class Waiting(harness.HoneTest):
    def setUp(self):
        super().setUp()
        with open(self.directory.config, "w", encoding="utf-8") as file:
            file.write("[build]\nbuilders = 2\nrunners = 2\n")
        self.daemon = self.start("--config", self.directory.config)
        self.assert_served()

    def receive(self, client):
        try:
            return client.receive()
        except TimeoutError:
            pass
        return self.fail(f"no answer in {PATIENCE} s")

    def answer(self, kernel, **options):
        """(milliseconds, type, body) of an honest request's answer."""
        with self.raw() as client:
            client.socket.settimeout(PATIENCE)
            begun = time.monotonic()
            client.send(get_frame(kernel, **options))
            kind, _, body, descriptors = self.receive(client)
        for descriptor in descriptors:
            os.close(descriptor)
        return (time.monotonic() - begun) * 1000, kind, body

    def test_a_budget_counts_from_arrival(self):
        Actor(self, "long_texts")
        Actor(self, "long_builds", requests=4)
        time.sleep(0.5)
        for number in range(5):
            ms, kind, body = self.answer(f"add(M=9,N={number + 1})", budget_us=50_000)
            print(f"a budget of 50 ms: answered after {ms:.0f} ms", flush=True)
            self.assertLess(ms, 50 + 250)
            if kind != GET_REPLY:
                self.assertEqual(body[0], TIMEOUT, body)
                self.assertGreater(decode("ErrorReply", body)["retry_after_ms"], 0)

    def test_texts_that_take_long_to_read_do_not_keep_others_waiting(self):
        others = [Actor(self, "long_texts") for _ in range(2)]
        time.sleep(0.5)
        for number in range(3):
            ms, kind, body = self.answer(f"add(M=9,N={number + 1})")
            print(f"a miss beside long texts: {ms:.0f} ms", flush=True)
            self.assertEqual(kind, GET_REPLY, body)
            self.assertLess(ms, 1000)
        for each in others:
            self.assertGreater(each.finish()["answers"], 0)

    def test_builds_that_nobody_waits_for_are_given_up(self):
        crowd = Actor(self, "abandoned_budgets", rounds=1)
        time.sleep(0.5)
        crowd.close()
        for number in range(2):
            ms, kind, body = self.answer(f"add(M=9,N={number + 1})")
            print(f"a miss after 12 abandoned builds: {ms:.0f} ms", flush=True)
            self.assertEqual(kind, GET_REPLY, body)
        self.assertLess(ms, 2000)
        self.wait_until(lambda: self.hone_json("status")[0]["queued"] == 0, 30)

    def misses_beside_long_builds(self, seconds):
        for seed in (0, 1):
            Actor(self, "long_builds", requests=8, seed=seed)
        time.sleep(1)
        honest = Actor(self, "misses")
        time.sleep(seconds)  # builds that make room begin anew and want more: nobody may wait for that
        report = honest.finish()
        taken = report["misses"]
        slowest = max(taken, default=seconds * 1000)
        print(f"{len(taken)} misses beside 16 long builds: {slowest:.0f} ms at most", flush=True)
        self.assertEqual(report["problems"], [])
        self.assertGreater(len(taken), seconds / 2)
        self.assertLess(slowest, 1500)

    def test_a_miss_waits_for_no_more_than_a_slice_of_others_long_builds(self):
        self.misses_beside_long_builds(12)

    def test_a_miss_waits_as_little_where_other_kernels_schedules_are_tried(self):
        self.tune_one_of_several()
        self.misses_beside_long_builds(6)

    def test_a_look_up_ends_though_records_change_meanwhile(self):
        fingerprint = self.hone_json("get", SMALL)[0]["fingerprint"]
        changes = Actor(self, "pins", fingerprint=fingerprint)
        taken = []
        for number in range(20):
            ms, kind, body = self.answer(hostile_texts.long_to_read(number), no_compile=True)
            self.assertEqual(kind, harness.ERROR)
            self.assertEqual(body[0], 2, body)  # not found
            taken.append(ms)
        report = changes.finish()
        print(f"20 look-ups beside {report['edits']} edits: {max(taken):.0f} ms at most", flush=True)
        self.assertEqual(report["problems"], [])
        self.assertGreater(report["edits"], 20)

    def test_a_flood_of_new_kernels_costs_an_honest_miss_little(self):
        floods = [Actor(self, "flood", seed=seed) for seed in (2, 3)]
        time.sleep(0.5)
        with self.raw() as client:
            taken = []
            for number in range(8):
                ms, problem = timed_get(client, f"add(M=9,N={number + 1})", number + 1)
                self.assertEqual(problem, "")
                taken.append(ms)
        print(f"misses beside two floods: {sorted(round(ms) for ms in taken)} ms", flush=True)
        self.assertLess(sorted(taken)[4], 2000)
        for each in floods:
            self.assertEqual(each.finish()["problems"], [])


class KilledChildren(harness.HoneTest):
    """kill -9 of a child costs a request some time, and nothing else."""

    def test_a_child_killed_during_a_miss_is_no_error(self):
        daemon = self.start()
        self.assert_served()
        kernel = "conv2d(C=16,H=28,W=28,O={},R=3,S=3,pad=1,const=1)+bias+relu"
        for number, name in enumerate(("hone-builder", "hone-runner") * 3):
            with self.raw() as client:
                client.send(get_frame(kernel.format(number + 8)))
                time.sleep(0.01 * (number // 2 + 1))
                for pid in harness.children(daemon.pid, name):
                    os.kill(pid, signal.SIGKILL)
                kind, _, body, descriptors = client.receive()
                self.assertEqual(kind, GET_REPLY, f"{name} killed after {10 * (number // 2 + 1)} ms: {body}")
                os.close(descriptors[0])
            time.sleep(0.1)  # those that were killed while they were idle are found and replaced

    def test_children_killed_all_the_time(self):
        daemon = self.start()
        self.assert_served()
        killer = Actor(self, "child_killer", pid=daemon.pid, pause=0.4)
        honest = Actor(self, "misses", pause=0.02)
        threading.Event().wait(4)
        report = honest.finish()
        kills = killer.finish()["kills"]
        print(f"{len(report['misses'])} misses, {kills} kills", flush=True)
        self.assertEqual(report["problems"], [])
        self.assertGreater(len(report["misses"]), 5)
        self.assertGreater(kills, 3)


if __name__ == "__main__":
    harness.main()
