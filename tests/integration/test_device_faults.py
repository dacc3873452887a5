"""Drivers that are absent, or of no use: what there is besides is served, and who asks is told what is wrong."""

import os
import shutil
import subprocess

import harness

HERE = os.path.dirname(os.path.abspath(__file__))
KERNEL = "add(M=3,N=50)"
TILED = "matmul(M=48,N=64,K=32)"  # of which there are many schedules


class DeviceFaults(harness.HoneTest):
    def vendors(self, *broken, whole=()):
        """A directory for OpenCL's loader, of drivers that go wrong as their names say and of some that are installed."""
        directory = os.path.join(self.directory.path, "vendors")
        os.mkdir(directory)
        for how in broken:
            library = os.path.join(self.directory.path, f"lib{how}.so")
            subprocess.run([os.environ.get("CC", "cc"), "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", f"-D{how.upper()}",
                            os.path.join(HERE, "broken_driver.c"), "-o", library], check=True)
            with open(os.path.join(directory, how + ".icd"), "w", encoding="utf-8") as file:
                file.write(library + "\n")
        for path in whole:
            shutil.copy(path, directory)
        return directory

    def flawed(self):
        """A directory for OpenCL's loader with PoCL, but for a function that refuses most code."""
        installed = harness.drivers("opencl")
        if not installed:
            self.skipTest("[SKIP] no PoCL is installed (Debian: pocl-opencl-icd)")
        if not os.path.exists("/usr/include/CL/cl_icd.h"):
            self.skipTest("[SKIP] no CL/cl_icd.h is installed (Debian: opencl-headers)")
        with open(installed[0], encoding="utf-8") as file:
            library = file.read().strip()
        directory = os.path.join(self.directory.path, "vendors")
        os.mkdir(directory)
        driver = os.path.join(self.directory.path, "libflawed.so")
        subprocess.run([os.environ.get("CC", "cc"), "-DCL_TARGET_OPENCL_VERSION=120", "-Wall", "-Wextra", "-Werror", "-fPIC",
                        "-shared", f'-DPOCL="{library}"', os.path.join(HERE, "flawed_driver.c"), "-o", driver], check=True)
        with open(os.path.join(directory, "flawed.icd"), "w", encoding="utf-8") as file:
            file.write(driver + "\n")
        return directory

    def start_with(self, **environment):
        self.directory.environment.update(environment)
        daemon = self.start()
        self.assert_served()  # by the CPU, whatever the others are doing
        return daemon

    def refusal(self, target):
        self.hone("get", KERNEL, "--target", target, status=1)
        return self.last_error

    def test_no_driver(self):
        self.start_with(OCL_ICD_VENDORS="/nonexistent", VK_DRIVER_FILES="/nonexistent", VK_ICD_FILENAMES="/nonexistent")
        for target, kind, package in (("opencl:0", "OpenCL", "pocl-opencl-icd"), ("vulkan:0", "Vulkan", "mesa-vulkan-drivers")):
            self.assertRegex(self.refusal(target), f'no device "{target}" is served here; there is: cpu.* '
                             fr"\(no driver for {kind} is installed \(Debian: {package} makes processors such devices\)\)")
        self.assert_served()

    def test_a_driver_that_aborts(self):
        daemon = self.start_with(OCL_ICD_VENDORS=self.vendors("aborts"))
        self.assertRegex(self.refusal("opencl:0"), r'no device "opencl:0" is served here; there is: cpu.* \(/.*/aborts\.icd: the driver '
                         r"did not say which devices there are: killed by signal 6 \(Aborted\); broken_driver: assertion failed\)")
        self.assert_served()
        self.assertIsNone(daemon.process.poll())

    def test_one_that_hangs_and_one_that_aborts_beside_one_that_works(self):
        installed = harness.drivers("opencl")
        daemon = self.start_with(OCL_ICD_VENDORS=self.vendors("hangs", "aborts", whole=installed))
        if not installed:
            self.assertRegex(self.refusal("opencl:0"), r"/aborts\.icd: .*; .*/hangs\.icd: the driver did not say .*: it hangs\)")
            return
        served = self.hone_json("get", KERNEL, "--target", "opencl:0")[0]  # built, and checked on the device
        self.assertEqual((served["origin"], served["target"].split()[0]), ("default", "opencl"))
        for how, why in (("hangs", "it hangs"), ("aborts", r"killed by signal 6")):
            self.assertRegex(daemon.log(), rf"driver_left_out file=\S*/{how}\.icd why=.*{why}")

    def test_a_compilers_words_are_kept_as_the_trials_reason(self):
        daemon = self.start_with(OCL_ICD_VENDORS=self.flawed())
        end = self.hone_json("tune", TILED, "--target", "opencl:0", "--trials", "6")[-1]
        self.assertEqual(end["origin"], "default")
        words = "the device's compiler refuses the code: flawed_driver: line 7: internal error, selection of an instruction failed"
        self.assertIn(words, next(line for line in daemon.log().splitlines() if " trial_failed " in line))
        self.assertEqual(daemon.stop(), 0)
        trials = subprocess.run([os.path.join(harness.BIN, "store_tool"), "trials", self.directory.cache], capture_output=True,
                                text=True, check=True).stdout.splitlines()
        reasons = [row[4] for row in (line.split("\t") for line in trials) if row[1] not in ("timed", "disturbed")]
        self.assertTrue(reasons, trials)
        for reason in reasons:
            self.assertIn(words, reason)

    def test_the_daemon_has_no_driver(self):
        daemon = self.start()
        for kind in ("opencl", "vulkan"):
            with self.subTest(kind):
                self.hone("tune", KERNEL, "--target", f"{kind}:0", "--trials", "2", status=None)
                if self.last_status != 0:
                    harness.skip_for_want_of(kind, self.last_error)
        with open(f"/proc/{daemon.pid}/maps", encoding="utf-8") as maps:
            libraries = {os.path.basename(line.split()[-1]) for line in maps if ".so" in line}
        self.assertIn("libc.so.6", libraries)
        drivers = [name for name in libraries if any(part in name.lower() for part in
                   ("opencl", "pocl", "vulkan", "lvp", "cuda", "nvrtc", "libllvm", "libclang"))]
        self.assertEqual(drivers, [])


if __name__ == "__main__":
    harness.main()
