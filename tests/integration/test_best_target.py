"""`--target best`: of the devices that are here, the one where a call takes the least time, its copies included."""

import harness

KERNEL = "dense(M=64,N=96,K=128,const=1)+bias"
SMALL_ADD = "add(M=8,N=16)"


class BestTarget(harness.HoneTest):
    def setUp(self):
        super().setUp()
        self.start()
        self.devices = [target.split()[0] for target in self.hone_json("status")[0]["targets"][1:] if "unchecked=" not in target]

    def need_devices(self):
        for kind in {"opencl", "vulkan"} - set(self.devices):
            harness.check_want_of(kind, "honed serves none")
        if not self.devices:
            self.skipTest("[SKIP] no device but the CPU is served here (Debian: pocl-opencl-icd, mesa-vulkan-drivers)")

    def check(self, served):
        """Of an answer: every device has its line, and the least time is taken. The lines, by name."""
        candidates = {each["target"]: each for each in served["candidates"]}
        self.assertEqual(list(candidates)[0], "cpu")
        self.assertEqual(sorted(name.split(":")[0] for name in candidates), sorted(["cpu", *self.devices]))
        known = [each for each in candidates.values() if "error" not in each]
        for each in known:
            self.assertAlmostEqual(each["total_us"], each["expected_us"] + each["copies_us"], delta=1e-3 * each["total_us"])
            self.assertEqual(each["copies_us"] == 0, each["target"] == "cpu")
        taken = [each for each in candidates.values() if each["taken"]]
        self.assertEqual(len(taken), 1)
        self.assertEqual(taken[0]["total_us"], min(each["total_us"] for each in known))
        self.assertEqual(served["target"].split()[0], taken[0]["target"].split(":")[0])
        return candidates

    def test_where_there_is_only_the_cpu_it_is_taken(self):
        served, = self.hone_json("get", "dense(M=1..9,N=8,K=8,const=1)", "--target", "best")
        candidates = self.check(served)
        self.assertTrue(candidates["cpu"]["taken"])
        for name, each in candidates.items():  # those that refuse it say why
            if name != "cpu":
                self.assertIn("fixed sizes", each["error"]["message"])

    def test_the_least_time_is_taken_with_the_copies_in_it(self):
        self.need_devices()
        served, = self.hone_json("get", KERNEL, "--target", "best")
        candidates = self.check(served)
        self.assertFalse(served["hit"])  # it was compiled for this answer
        for name, each in candidates.items():
            self.assertEqual(each.get("constants_us", 1) > 0, name != "cpu" or "error" in each)
        # What is there is the same code, by name; copies were measured, and are known from now on.
        again, = self.hone_json("get", KERNEL, "--target", next(name for name in candidates if candidates[name]["taken"]))
        self.assertEqual((again["fingerprint"], again["target"], again["hit"]), (served["fingerprint"], served["target"], True))
        once_more, = self.hone_json("get", KERNEL, "--target", "best")
        self.assertEqual({name: each.get("copies_us") for name, each in self.check(once_more).items()},
                         {name: each.get("copies_us") for name, each in candidates.items()})
        self.assertTrue(once_more["hit"])

    def test_a_kernel_that_is_over_before_its_operands_are_there_stays_on_the_cpu(self):
        self.need_devices()
        served, = self.hone_json("get", SMALL_ADD, "--target", "best")
        candidates = self.check(served)
        self.assertTrue(candidates["cpu"]["taken"], candidates)
        text = self.hone("get", SMALL_ADD, "--target", "best")
        for name in candidates:
            self.assertRegex(text, rf"(?m)^{name} .*")
        self.assertRegex(text, r"(?m)^cpu .* none .*taken$")

    def test_devices_without_the_code_are_left_out_where_nothing_is_compiled(self):
        self.need_devices()
        self.hone("get", KERNEL, "--target", "best", "--no-compile", status=1)
        self.hone("get", KERNEL)
        served, = self.hone_json("get", KERNEL, "--target", "best", "--no-compile")
        for name, each in self.check(served).items():
            self.assertEqual("error" in each, name != "cpu")

    def test_run_runs_it_there(self):
        self.need_devices()
        ran, = self.hone_json("run", KERNEL, "--target", "best", "--repeat", "3")
        self.check(ran)
        self.assertTrue(ran["verified"])
        self.assertIn("taken", self.hone("run", KERNEL, "--target", "best", "--repeat", "3"))
        for words in ((KERNEL, SMALL_ADD), ("model.onnx",), ("dense(M=1..9,N=8,K=8)",)):
            self.hone("run", *words, "--target", "best", status=2)
            self.assertIn("best is for one kernel", self.last_error)

    def test_other_commands_want_a_device(self):
        for command in ("tune", "warm"):
            self.hone(command, KERNEL, "--target", "best", status=None)
            self.assertNotEqual(self.last_status, 0)
            self.assertIn("best", self.last_error)


if __name__ == "__main__":
    harness.main()
