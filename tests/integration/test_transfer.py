"""Transfer as a user meets it: what was tuned serves what was not, and says so."""

import os
import subprocess
import tempfile

import harness

DONOR = "dense(M=64,N=96,K=128,const=1,threads=1)"
WANTED = "dense(M=48,N=160,K=96,const=1,threads=1)"
ACROSS = "matmul(M=48,N=160,K=96,const=1,threads=1)"
ELSEWHERE = "softmax(M=33,N=65,threads=1)"


class Transfer(harness.HoneTest):
    def tuned(self):
        """A daemon whose only tuned kernel is the donor; skips where tuning found nothing better than the default."""
        self.start()
        for seed in range(1, 5):
            last = self.hone_json("tune", DONOR, "--trials", "48", "--seed", str(seed))[-1]
            if last.get("origin") == "tuned":
                return last["fingerprint"]
        self.skipTest("tuning found nothing better than the default schedule")
        return ""

    def guesses(self, kernel):
        return self.hone_json("explain", kernel)[0]["transfer"]

    def test_a_shape_never_seen_is_served_from_one_that_was_tuned(self):
        donor = self.tuned()
        reply = self.hone_json("get", WANTED)[0]
        self.assertFalse(reply["hit"])
        self.assertIn(reply["origin"], ("transferred", "default"))
        story = self.guesses(WANTED)
        chosen = [guess for guess in story["guesses"] if guess["chosen"]]
        self.assertEqual(len(chosen), 1)
        self.assertEqual(chosen[0]["donor"], donor if reply["origin"] == "transferred" else "")
        self.assertTrue(any(guess["donor"] == donor for guess in story["guesses"]))
        self.assertEqual(reply["confidence"] > 0, True)
        # A second daemon finds it on disk, with the same words.
        self.daemons[-1].stop()
        self.start()
        again = self.hone_json("get", WANTED)[0]
        self.assertTrue(again["hit"])
        self.assertEqual(again["origin"], reply["origin"])
        self.assertAlmostEqual(again["confidence"], reply["confidence"], places=3)
        run = self.hone_json("run", WANTED)[0]
        self.assertTrue(run["verified"])

    def test_other_classes_of_the_same_kind_are_asked_and_no_others(self):
        donor = self.tuned()
        self.hone_json("get", ACROSS)
        self.assertTrue(any(guess["donor"] == donor and not guess["same_class"] for guess in self.guesses(ACROSS)["guesses"]))
        self.hone_json("get", ELSEWHERE)
        self.assertFalse(any(guess["donor"] for guess in self.guesses(ELSEWHERE)["guesses"]))

    def test_with_time_to_wait_guesses_are_measured(self):
        self.tuned()
        reply = self.hone_json("get", WANTED, "--budget", "1s")[0]
        self.assertIn("measure", reply["steps_us"])
        self.assertTrue(any(guess["measured_us"] > 0 for guess in self.guesses(WANTED)["guesses"]))

    def test_with_more_time_there_is_a_search(self):
        self.start()
        reply = self.hone_json("get", WANTED, "--budget", "4s")[0]
        self.assertFalse(reply["hit"])
        self.assertGreater(self.hone_json("explain", WANTED)[0]["trials"], 1)

    def test_the_schedule_that_is_shown_makes_the_same_bytes(self):
        lab = os.path.join(harness.BIN, "kernel_lab")
        if not os.path.exists(lab):
            self.skipTest("kernel_lab is not built here")
        self.tuned()
        with tempfile.TemporaryDirectory() as folder:
            paths = {name: os.path.join(folder, name) for name in ("served", "schedule", "made")}
            reply = self.hone_json("get", WANTED, "--out", paths["served"])[0]
            shown = self.hone_json("show", reply["fingerprint"])[0]
            with open(paths["schedule"], "w", encoding="utf-8") as file:
                file.write(self.hone_json("schedule", reply["fingerprint"])[0]["schedule"])
            subprocess.run([lab, "--schedule", paths["schedule"], "--target", reply["target"], "--out", paths["made"],
                            shown["canonical"]], check=True, capture_output=True)
            with open(paths["served"], "rb") as served, open(paths["made"], "rb") as made:
                self.assertEqual(served.read(), made.read())


if __name__ == "__main__":
    harness.main()
