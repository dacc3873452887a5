"""Searches that others asked for: they share with each other, keep no miss waiting, and end with who asked."""

import time

import harness
from actors import Actor, timed_get
from test_search_faults import Search
from test_waiting import PATIENCE

KERNEL = "softmax(M=64,N=200,threads=1)"
OTHER = "layer_norm(M=128,N=300,threads=1)"


class Searches(harness.HoneTest):
    def setUp(self):
        super().setUp()
        with open(self.directory.config, "w", encoding="utf-8") as file:
            file.write("[build]\nbuilders = 2\nrunners = 2\n")
        self.daemon = self.start("--config", self.directory.config)
        self.assert_served()

    def stat(self, name):
        return self.hone_json("stats")[0][name]

    def miss(self, kernel):
        """Milliseconds of an honest miss."""
        with self.raw() as client:
            client.socket.settimeout(PATIENCE)
            try:
                ms, problem = timed_get(client, kernel)
            except TimeoutError:
                ms, problem = PATIENCE * 1000, f"no answer in {PATIENCE} s"
        self.assertEqual(problem, "")
        return ms

    def test_misses_go_on_beside_searches_of_an_hour(self):
        Actor(self, "tunes", kernels=(KERNEL,))
        Actor(self, "searches")
        self.wait_until(lambda: self.stat("trials") > 3)
        time.sleep(1)
        for number in range(3):
            ms = self.miss(f"add(M=9,N={number + 1})")
            print(f"a miss beside three searches of an hour: {ms:.0f} ms", flush=True)
        self.assertEqual(self.hone_json("status")[0]["queued"], 0)

    def search_is_over(self):
        """Nothing is searched, and no trial is made for half a second."""
        before = self.stat("trials")
        if self.hone_json("top")[0]["kernel"]:
            return False
        time.sleep(0.5)
        return self.stat("trials") == before and not self.hone_json("top")[0]["kernel"]

    def test_a_search_ends_with_who_asked(self):
        for role, options in (("tunes", {"kernels": (KERNEL,)}), ("searches", {"kernels": (OTHER,)})):
            before = self.stat("trials")
            client = Actor(self, role, **options)
            self.wait_until(lambda: self.stat("trials") > before + 3)
            client.kill()
            begun = time.monotonic()
            self.wait_until(self.search_is_over, PATIENCE)
            print(f"{role}: over {time.monotonic() - begun - 0.5:.1f} s after its client's death", flush=True)

    def test_many_searches_end_with_who_asked(self):
        client = Actor(self, "tunes", kernels=[f"softmax(M=64,N={n},threads=1)" for n in range(100, 120)])
        self.wait_until(lambda: self.stat("trials") > 3)
        client.kill()
        self.wait_until(self.search_is_over, PATIENCE)

    def test_a_short_search_ends_beside_a_long_one(self):
        long = Actor(self, "tunes", kernels=(KERNEL, "softmax(M=32,N=300,threads=1)", "softmax(M=16,N=300,threads=1)"))
        self.wait_until(lambda: self.stat("trials") > 3)
        begun = time.monotonic()
        short = Search(self, OTHER, "--trials", "8")
        end = short.wait(self, max(30, PATIENCE))
        print(f"8 trials beside 100,000: {time.monotonic() - begun:.1f} s", flush=True)
        self.assertEqual(end["trials"], 8)
        before = self.stat("trials")
        self.wait_until(lambda: self.stat("trials") > before + 3)  # the other goes on
        self.assertEqual(long.finish()["problems"], [])

    def test_searches_for_budgets_share_with_tunes(self):
        Actor(self, "tunes", kernels=(KERNEL,))
        self.wait_until(lambda: self.stat("trials") > 3)
        with self.raw() as client:
            client.socket.settimeout(max(30, PATIENCE))
            ms, problem = timed_get(client, OTHER, budget_us=4_000_000)
        print(f"a budget of 4 s beside a long search: {ms:.0f} ms", flush=True)
        self.assertEqual(problem, "")
        self.assertLess(ms, 6000)


if __name__ == "__main__":
    harness.main()
