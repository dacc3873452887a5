"""What a request may cost the daemon: little memory, little of one thread's time, whatever its text says."""

import os
import time

import harness
import hostile_texts
from protocol_grammar import request

MOST_MIB = 64
# Of one thread, and as much again for machines that share their cores' caches with others. What a neighbour adds to a
# single measurement is more than that: the least of a few texts of a kind counts.
MOST_MS = 2 * 100
TRIES = 3


class Cost:
    """What a daemon spends from now on."""

    def __init__(self, daemon):
        self.pid = daemon.pid
        with open(f"/proc/{self.pid}/clear_refs", "w", encoding="utf-8") as file:
            file.write("5")  # the peak begins here
        self.before = self._status("VmRSS")
        self.times = self._times()

    def _status(self, key):
        with open(f"/proc/{self.pid}/status", encoding="utf-8") as status:
            return next(int(line.split()[1]) for line in status if line.startswith(key)) / 1024

    def _times(self):
        times = {}
        for task in os.listdir(f"/proc/{self.pid}/task"):
            try:
                with open(f"/proc/{self.pid}/task/{task}/schedstat", encoding="utf-8") as stat:
                    times[task] = int(stat.read().split()[0]) / 1e6
            except OSError:
                pass  # it ended
        return times

    def mib(self):
        """How far memory went up, at its highest."""
        return self._status("VmHWM") - self.before

    def thread_ms(self):
        """What the busiest thread took of a processor."""
        return max(time - self.times.get(task, 0) for task, time in self._times().items())


class Memory(harness.HoneTest):
    def test_texts_that_want_much_are_refused_cheaply(self):
        daemon = self.start()
        self.assert_served()
        worst_ms, worst_mib = 0, 0
        for name, text in hostile_texts.refused():
            for message in (request("GetRequest", kernel=text, no_compile=True), request("PredictRequest", kernel=text),
                            request("TuneRequest", kernel=text, trials=1),
                            request("TextRequest", what=1, name={"kernel": text}),
                            request("ExplainRequest", name={"kernel": text})):
                cost = Cost(daemon)
                with self.raw() as client:
                    client.send(message)
                    kind, _, body, _ = client.receive()
                self.assertEqual(kind, harness.ERROR, name)
                self.assertIn(body[0], (1, 4), body)  # invalid, limit
                self.assertLess(len(body), 4096)
                self.assertLess(cost.thread_ms(), MOST_MS, name)
                self.assertLess(cost.mib(), MOST_MIB, name)
                worst_ms, worst_mib = max(worst_ms, cost.thread_ms()), max(worst_mib, cost.mib())
        print(f"at most {worst_ms:.0f} ms of a thread and {worst_mib:.0f} MiB", flush=True)
        self.assertIsNone(daemon.process.poll())

    def test_texts_that_are_read_cost_little(self):
        daemon = self.start()
        self.assert_served()
        for make in (hostile_texts.long_to_read, lambda number: hostile_texts.chain(200, number),
                     lambda number: hostile_texts.wordy(number, 700_000)):
            costs = []
            for number in range(TRIES):
                text = make(number)
                cost = Cost(daemon)
                with self.raw() as client:
                    client.send(request("GetRequest", kernel=text, no_compile=True))
                    client.receive()
                costs.append(cost.thread_ms())
                self.assertLess(cost.mib(), MOST_MIB)
                if costs[-1] < MOST_MS:
                    break
            print(f"{len(text)} bytes: {min(costs):.0f} ms of a thread", flush=True)
            self.assertLess(min(costs), MOST_MS)

    def test_schedules_of_other_kernels_that_are_tried(self):
        """A long kernel beside one that was refined: what is known of that is tried, within bounds."""
        daemon = self.start()
        self.tune_one_of_several()
        time.sleep(1)  # what was measured has been learnt
        cost = Cost(daemon)
        with self.raw() as client:
            client.send(request("GetRequest", kernel=hostile_texts.chain(60, 0)))
            end = time.monotonic() + 8
            while time.monotonic() < end and cost.mib() < MOST_MIB:
                time.sleep(0.1)
            print(f"a long kernel beside a refined one: {cost.thread_ms():.0f} ms of a thread and {cost.mib():.0f} MiB",
                  flush=True)
        self.assertLess(cost.mib(), MOST_MIB)
        self.assertLess(cost.thread_ms(), 1000)


if __name__ == "__main__":
    harness.main()
