"""Code for devices as tools that watch every access see it: Oclgrind, which executes OpenCL C, and Vulkan's validation layer."""

import json
import os
import re
import shutil
import subprocess
import unittest

import harness

MODELS = os.path.join(harness.SOURCE, "tests/fuzz/corpus/onnx")
LAYER = "/usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json"
SETTINGS = """khronos_validation.enables = VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT
khronos_validation.report_flags = {flags}
khronos_validation.debug_action = {action}
khronos_validation.log_filename = {log}
"""
IN_HONE = {"flags": "error,warn,info", "action": "VK_DBG_LAYER_ACTION_LOG_MSG", "log": "stdout"}
# Nobody reads what a device's process prints: it ends there, so that what it was at is not verified.
IN_DEVICE_PROCESS = {"flags": "error,warn", "action": "VK_DBG_LAYER_ACTION_LOG_MSG,VK_DBG_LAYER_ACTION_BREAK"}
COMPLAINTS = ("Validation Error", "Validation Warning", "SYNC-HAZARD")
# Two threads exchange elements of local memory without a barrier.
RACE = "kernel void race(global int *a) { local int s[2]; s[get_local_id(0)] = a[0]; a[get_local_id(0)] = s[1 - get_local_id(0)]; }\n"
# Oclgrind 21.10 takes the upper half of a vector for something that nobody wrote.
UPPER_HALF = "kernel void upper(global float *a, global float *b) { float16 v = vload16(0, a); vstore4(v.s9abc, 0, b); }\n"
# What PoCL says of a processor: blocks of one thread, whose tiles are rows of vectors, and threads that are loops.
PROCESSOR = "opencl block_bytes=2097152 block_threads=4096 exact_divide=1 f64=1 lanes=16 type=cpu units=2"
LARGER = ["matmul(M=37,N=41,K=33)", "depthwise_conv2d(C=3,H=19,W=21,R=3,S=3,stride=2,pad=1,const=1)",
          "conv2d(C=16,H=9,W=7,O=18,R=3,S=3,pad=1,const=1,accuracy=relaxed)+bias+relu"]


def samples():
    """What tests/support/operation_samples.h lists of operations."""
    with open(os.path.join(harness.SOURCE, "tests/support/operation_samples.h"), encoding="utf-8") as file:
        return re.findall(r'^\s+"(\w+\(.*)",?$', file.read(), re.MULTILINE)


def gpu_samples():
    """With what no operation has."""
    with open(os.path.join(harness.SOURCE, "tests/support/operation_samples.h"), encoding="utf-8") as file:
        texts = re.findall(r'push_back\(\s*((?:"[^"]*"\s*)+)\)', file.read())
    return samples() + ["".join(re.findall('"([^"]*)"', text)) for text in texts]


class Validators(harness.HoneTest):
    def simulate(self, name, text, sizes):
        """What Oclgrind says of a program by itself."""
        for file_name, content in ((f"{name}.cl", text), (f"{name}.sim", f"{name}.cl\n{name}\n{sizes}\n")):
            with open(os.path.join(self.directory.path, file_name), "w", encoding="utf-8") as file:
                file.write(content)
        done = subprocess.run(["oclgrind-kernel", "--data-races", "--uninitialized", f"{name}.sim"], cwd=self.directory.path,
                              capture_output=True, text=True, check=False, timeout=60)
        return done.stdout + done.stderr

    def watch(self, kernels, *checks, target=""):
        """Runs default code of kernels under Oclgrind, which must say nothing of it; those at which Oclgrind crashed."""
        crashed = []
        while kernels:
            command = ["oclgrind", *checks, os.path.join(harness.BIN, "gpu_lab"), *(["--target", target] if target else []), *kernels]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
            lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
            right = [line for line in lines if line.endswith("ok  on Oclgrind Simulator")]
            self.assertEqual(lines, right)
            if done.returncode >= 0:
                self.assertEqual((done.returncode, len(right)), (0, len(kernels)))
                break
            crashed.append(kernels[len(right)])
            kernels = kernels[len(right) + 1:]
        return crashed

    @unittest.skipIf(not shutil.which("oclgrind"), "[SKIP] there is no Oclgrind here (Debian: oclgrind)")
    def test_oclgrind_finds_nothing_in_any_operation(self):
        self.assertIn("data race", self.simulate("race", RACE, "2 1 1\n2 1 1\n\n<size=8 fill=1 int>"))
        kernels = samples() + LARGER
        self.assertGreater(len(kernels), 70)
        # Where it looks for what nobody wrote, Oclgrind 21.10 itself crashes at a sum of bytes.
        crashed = self.watch(kernels, "--data-races", "--uninitialized")
        self.assertLess(len(crashed), 3, crashed)
        self.assertEqual(self.watch(crashed, "--data-races"), [])

    @unittest.skipIf(not shutil.which("oclgrind"), "[SKIP] there is no Oclgrind here (Debian: oclgrind)")
    def test_oclgrind_finds_nothing_in_code_for_a_processor(self):
        seen = self.simulate("upper", UPPER_HALF, "1 1 1\n1 1 1\n\n<size=64 fill=1 float>\n<size=16 fill=0 float>")
        checks = ["--data-races"] + ["--uninitialized"] * ("Uninitialized" not in seen)
        self.assertEqual(self.watch(samples()[::3] + LARGER, *checks, target=PROCESSOR), [])

    def layer(self, name, **settings):
        """What has a program's Vulkan go through the validation layer."""
        path = os.path.join(self.directory.path, name)
        os.makedirs(path)
        with open(os.path.join(path, "vk_layer_settings.txt"), "w", encoding="utf-8") as file:
            file.write(SETTINGS.format(**settings))
        return {"VK_INSTANCE_LAYERS": "VK_LAYER_KHRONOS_validation",
                "VK_LAYER_SETTINGS_PATH": os.path.join(path, "vk_layer_settings.txt")}

    def need_layer(self):
        if not os.path.exists(LAYER) or not harness.drivers("vulkan"):
            self.skipTest("[SKIP] there is no validation layer or no lavapipe here (Debian: vulkan-validationlayers, mesa-vulkan-drivers)")

    def assert_silent(self, said):
        self.assertIn("Khronos Validation Layer Active", said)
        for word in COMPLAINTS:
            self.assertNotIn(word, said)

    def test_vulkans_validation_layer_says_nothing_of_networks(self):
        self.need_layer()
        self.start()
        watched = self.layer("hone", **IN_HONE)
        for name in ("attention", "movement", "residual_pools"):
            with self.subTest(name):
                model = os.path.join(MODELS, f"{name}.onnx")
                said = self.hone("run", model, "--repeat", "1", "--target", "vulkan:0", environment=watched)
                self.assertIn("verified", said)
                self.assert_silent(said)

    def test_vulkans_validation_layer_says_nothing_of_any_operation(self):
        """Where honed checks the code, and where `hone run` does."""
        self.need_layer()
        own = os.path.join(self.directory.path, "run", f"hone-device-{os.getuid()}")  # where a device's process may write
        self.directory.environment.update(self.layer("honed", **IN_DEVICE_PROCESS, log=os.path.join(own, "layer.txt")))
        self.start()
        kernels = gpu_samples()
        self.assertGreater(len(kernels), 70)
        path = os.path.join(self.directory.path, "samples.kernels")
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(f"1 {kernel}\n" for kernel in kernels)
        said = self.hone("--json", "run", path, "--repeat", "1", "--target", "vulkan:0", environment=self.layer("hone", **IN_HONE))
        self.assert_silent(said)
        rows = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        self.assertEqual([row["kernel"] for row in rows if row.get("verified")], [row["kernel"] for row in rows])
        self.assertEqual(len(rows), len(kernels))
        with open(os.path.join(own, "layer.txt"), encoding="utf-8") as file:  # made by the layer
            self.assertEqual(file.read(), "")


if __name__ == "__main__":
    harness.main()
