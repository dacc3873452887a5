"""Code for devices as tools that watch every access see it: Oclgrind, which executes OpenCL C, and Vulkan's validation layer."""

import os
import re
import shutil
import subprocess

import harness

MODELS = os.path.join(harness.SOURCE, "tests/fuzz/corpus/onnx")
LAYER = "/usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json"
SETTINGS = """khronos_validation.enables = VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT
khronos_validation.report_flags = error,warn,info
khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG
khronos_validation.log_filename = stdout
"""
# Two threads exchange elements of local memory without a barrier.
RACE = "kernel void race(global int *a) { local int s[2]; s[get_local_id(0)] = a[0]; a[get_local_id(0)] = s[1 - get_local_id(0)]; }\n"
LARGER = ["matmul(M=37,N=41,K=33)", "depthwise_conv2d(C=3,H=19,W=21,R=3,S=3,stride=2,pad=1,const=1)",
          "conv2d(C=16,H=9,W=7,O=18,R=3,S=3,pad=1,const=1,accuracy=relaxed)+bias+relu"]


def samples():
    """What tests/support/operation_samples.h lists."""
    with open(os.path.join(harness.SOURCE, "tests/support/operation_samples.h"), encoding="utf-8") as file:
        return re.findall(r'^\s+"(\w+\(.*)",?$', file.read(), re.MULTILINE)


class Validators(harness.HoneTest):
    def test_oclgrind_finds_nothing_in_any_operation(self):
        if not shutil.which("oclgrind"):
            self.skipTest("[SKIP] there is no Oclgrind here (Debian: oclgrind)")
        checks = ["--data-races", "--uninitialized"]
        folder = self.directory.path
        for name, content in (("race.cl", RACE), ("race.sim", "race.cl\nrace\n2 1 1\n2 1 1\n\n<size=8 fill=1 int>\n")):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(content)
        seen = subprocess.run(["oclgrind-kernel", *checks, "race.sim"], cwd=folder, capture_output=True, text=True, check=False,
                              timeout=60)
        self.assertIn("data race", seen.stdout + seen.stderr)
        kernels = samples() + LARGER
        self.assertGreater(len(kernels), 70)
        done = subprocess.run(["oclgrind", *checks, os.path.join(harness.BIN, "gpu_lab"), *kernels], capture_output=True, text=True,
                              check=False, timeout=300)
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip() and not line.endswith("ok  on Oclgrind Simulator")]
        self.assertEqual(said, [])

    def test_vulkans_validation_layer_says_nothing(self):
        if not os.path.exists(LAYER) or not harness.drivers("vulkan"):
            self.skipTest("[SKIP] there is no validation layer or no lavapipe here (Debian: vulkan-validationlayers, mesa-vulkan-drivers)")
        self.start()
        settings = os.path.join(self.directory.path, "vk_layer_settings.txt")
        with open(settings, "w", encoding="utf-8") as file:
            file.write(SETTINGS)
        watched = {"VK_INSTANCE_LAYERS": "VK_LAYER_KHRONOS_validation", "VK_LAYER_SETTINGS_PATH": settings}
        for name in ("attention", "movement", "residual_pools"):
            with self.subTest(name):
                model = os.path.join(MODELS, f"{name}.onnx")
                said = self.hone("run", model, "--repeat", "1", "--target", "vulkan:0", environment=watched)
                self.assertIn("Khronos Validation Layer Active", said)
                self.assertIn("verified", said)
                for word in ("Validation Error", "Validation Warning", "SYNC-HAZARD"):
                    self.assertNotIn(word, said)


if __name__ == "__main__":
    harness.main()
