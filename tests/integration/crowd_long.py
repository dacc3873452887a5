"""Honest clients of two users beside a crowd of hostile ones of another: `crowd.py --clients 1000 --seconds 1800` by
hand (bench/crowd.py makes marks of it). Wants root, to be several users.

As in mixed_attack.py, the honest hits' slowest hundredth is stated beyond that of a bare exchange at the same moments.
"""

import argparse
import json
import os
import sys
import threading
import unittest

import harness
from actors import Actor, quantile

HIT_MS = 5
MISS_MS = 500
MEMORY_MIB = 64
DESCRIPTORS = 16
THREADS = 2
HOSTILE, HONEST = 61_001, 61_002  # users that need no name


class Crowd(harness.HoneTest):
    seconds = 30
    clients = 1000
    samples = 30  # lines of the curve
    json = None  # a file for what was seen

    def connect_anybody(self):
        os.mkdir(os.path.dirname(self.directory.socket), 0o755)
        for path in (self.directory.path, os.path.join(self.directory.path, "run")):
            os.chmod(path, 0o755)
        with open(self.directory.config, "w", encoding="utf-8") as file:
            file.write(f'[server]\nusers = [{HOSTILE}, {HONEST}]\nstall_time = "5s"\n[memory]\ncode = "8MiB"\n'
                       'descriptors = 64\nrequests = 1024\n')
        self.daemon = self.start("--config", self.directory.config)
        self.assert_served()

    def hold(self):
        """(MiB, descriptors, threads) of the daemon."""
        return (self.daemon.resident_mib(), self.daemon.open_descriptors(),
                len(os.listdir(f"/proc/{self.daemon.pid}/task")))

    def attackers(self):
        part = self.clients // 5
        crowd = [Actor(self, "slow_reader", connections=2 * part, user=HOSTILE)]
        crowd += [Actor(self, "held", what=what, connections=part - 12, user=HOSTILE)
                  for what in ("silent", "endless", "garbage")]
        crowd += [Actor(self, role, user=HOSTILE) for role in ("churn", "slow_lister", "deep_texts", "long_builds",
                                                               "abandoned_budgets", "searches")]
        # One user's many processes are one user.
        return crowd + [Actor(self, "flood", seed=number, user=HOSTILE) for number in range(2, 6)]

    def test_honest_users_beside_a_crowd_of_another(self):
        if os.geteuid() != 0:
            self.skipTest("[SKIP] only root can be several users")
        self.connect_anybody()
        calm = [Actor(self, "hits", echoes=True, user=HONEST), Actor(self, "misses", user=HONEST)]
        threading.Event().wait(2)
        calm_hits, calm_misses = (actor.finish() for actor in calm)
        before = self.hold()

        honest = {"its owner": (Actor(self, "hits", echoes=True), Actor(self, "misses", first=10_000)),
                  "another user": (Actor(self, "hits", echoes=True, user=HONEST),
                                   Actor(self, "misses", first=20_000, user=HONEST))}
        crowd = self.attackers()
        for sample in range(self.samples):
            threading.Event().wait(self.seconds / self.samples)
            self.assertIsNone(self.daemon.process.poll(), self.daemon.log()[-2000:])
            memory, descriptors, threads = self.hold()
            print(f"  {(sample + 1) * self.seconds / self.samples:.0f} s: {memory:.0f} MiB, {descriptors} descriptors, "
                  f"{threads} threads", flush=True)
        seen = {who: tuple(actor.finish() for actor in actors) for who, actors in honest.items()}
        for actor in crowd:
            report = actor.finish()
            print(f"  {actor.role}: { {key: value for key, value in report.items() if key != 'problems'} }", flush=True)

        print(f"calm: hits' p99 {quantile(calm_hits['hits'], 0.99):.2f} ms, a bare exchange's "
              f"{quantile(calm_hits['echoes'], 0.99):.2f} ms; misses' p95 {quantile(calm_misses['misses'], 0.95):.0f} ms")
        told = []
        for who, (hits, misses) in seen.items():
            hit, bare = quantile(hits["hits"], 0.99), quantile(hits["echoes"], 0.99)
            miss = quantile(misses["misses"], 0.95)
            print(f"{who}: hits' p99 {hit:.2f} ms of {len(hits['hits'])}, a bare exchange's {bare:.2f} ms; misses' p95 "
                  f"{miss:.0f} ms of {len(misses['misses'])}", flush=True)
            told.append({"who": who, "hit_p99_ms": hit, "bare_p99_ms": bare, "miss_p95_ms": miss,
                         "hits": len(hits["hits"]), "misses": len(misses["misses"]),
                         "problems": len(hits["problems"]) + len(misses["problems"])})
        self.wait_until(lambda: self.daemon.open_descriptors() <= before[1] + 64 + DESCRIPTORS, 20)  # its code in memory
        after = self.hold()
        print(f"after: {after[0] - before[0]:+.0f} MiB, {after[1] - before[1]:+d} descriptors, "
              f"{after[2] - before[2]:+d} threads", flush=True)
        if self.json:
            with open(self.json, "w", encoding="utf-8") as file:
                json.dump({"honest": told, "calm_hit_p99_ms": quantile(calm_hits["hits"], 0.99),
                           "more_mib": after[0] - before[0], "more_descriptors": after[1] - before[1],
                           "more_threads": after[2] - before[2]}, file)
        for (hits, misses), figures in zip(seen.values(), told):
            self.assertEqual(hits["problems"][:3] + misses["problems"][:3], [])
            self.assertGreater(figures["hits"], 20 * self.seconds)
            self.assertGreater(figures["misses"], self.seconds / 2)
            self.assertLess(figures["hit_p99_ms"], figures["bare_p99_ms"] + HIT_MS)
            self.assertLess(figures["miss_p95_ms"], MISS_MS)
        self.assertLess(after[0] - before[0], MEMORY_MIB)
        self.assertLessEqual(after[2] - before[2], THREADS)
        self.assert_served()
        self.assertEqual(self.daemon.stop(), 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=Crowd.seconds)
    parser.add_argument("--clients", type=int, default=Crowd.clients)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    Crowd.seconds, Crowd.clients, Crowd.json = options.seconds, options.clients, options.json
    unittest.main(argv=[sys.argv[0], "-v"])


if __name__ == "__main__":
    main()
