"""libhone_cuda as an application meets it: a C program with a context, streams and memory of its own, on tests/support/fake_cuda in
the place of NVIDIA's driver, and on a GPU where there is one."""

import os
import unittest

import harness
from test_device_libraries import HERE, KERNEL, SANITIZED, DeviceLibraryTest, User

FAKE_CUDA = os.path.join(harness.BUILD, "tests", "fake_cuda")
# Which tests/integration/device_user.h has too.
TWICE = "kernel twice(x: f32[3072]) -> y: f32[3072] { y[i] = x[i] + x[i] }"
PROGRAM = os.environ.get("HONE_CUDA_USER", "")  # for a machine without a compiler, where it has been built elsewhere


class CudaLibrary(DeviceLibraryTest):
    def user_of(self, kernel, lacking, *arguments):
        """The program, running; a skip where honed has no such device and says that `lacking` is why."""
        if os.environ.get("HONE_SANITIZE") == "thread":
            self.skipTest("[SKIP] of drivers' threads the sanitizer sees half")
        self.start()
        self.hone("get", kernel, "--target", "cuda:0", status=None, limit=120)
        if self.last_status != 0:
            self.assertRegex(self.last_error, lacking)
            self.skipTest("[SKIP] " + self.last_error.strip())
        program = PROGRAM
        if not program:
            program = os.path.join(self.folder.name, "cuda_user")
            # The driver's functions are in every libcuda.so.1; which one it gets, the loader decides where it runs.
            self.compile("cuda", os.path.join(HERE, "cuda_user.c"), program, os.path.join(FAKE_CUDA, "libcuda.so.1"))
        leaks = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"  # drivers keep what they have until the end
        environment = {**self.directory.environment, **({"ASAN_OPTIONS": leaks} if SANITIZED else {})}
        return User(self, program, environment, *arguments)

    def use(self, user, kernel, **also_refused):
        self.assertEqual(user.ask("calls 20"), "ok")
        self.assertEqual(user.ask("host"), "ok")
        self.assert_refused(user.errors(), {
            "foreign stream": "^1 stream: the stream is another context's$",
            "foreign buffer": r"^1 operand \d \(y\): the buffer is another context's$",
            "no memory of CUDA's": r"^1 operand \d \(y\): it is no memory that CUDA knows$",
            "small buffer": r"^1 operand 0 \(x\): the buffer has 12284 bytes, the operand 12288$",
            "misaligned": r"^1 operand 0 \(x\): its address is no multiple of 16 bytes$",
            "missing buffer": r"^1 operand 0 \(x\): no buffer$",
            "overlap": r"^1 operand \d \(y\): it overlaps x$",
            "no constant": r"^1 operand 0 \(x\): it is not constant; ask for the kernel with const=1 to bind it$",
            "no operand": r"^1 operand 7: there is no such operand; the kernel has \d$",
            "no memory": r"^1 operand 0 \(x\): no memory$",
            "released": "^1 hone_cuda_kernel: it was given back, or never was one$",
            "closed": "^1 hone_cuda: it was given back, or never was one$",
            "no context": "^1 context: no context was given, and none is current in this thread$",
            "dynamic": "^3 .*of fixed sizes; ask for each size by itself$", **also_refused})
        self.assertEqual(user.ask("calls 8"), "ok")
        self.follow_a_search(user, "cuda", kernel)
        self.assertEqual(user.close(), 0, user.said)

    @unittest.skipIf(not os.path.exists(FAKE_CUDA), f"[SKIP] {FAKE_CUDA} was not built")
    def test_on_streams_of_the_application(self):
        """All but the device: it takes any code of one stage for one that doubles."""
        self.directory.environment.update(LD_LIBRARY_PATH=FAKE_CUDA, CUDA_VISIBLE_DEVICES="0")
        self.use(self.user_of(TWICE, "(?i)nvrtc", "twice"), TWICE)

    def test_on_a_gpu(self):
        self.directory.environment.update({name: os.environ[name] for name in ("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")
                                           if name in os.environ})  # where a driver is found
        self.use(self.user_of(KERNEL, 'no device "cuda:0" is served here'), KERNEL, **{"not bound": r"^1 operand 1 \(w\): "})


if __name__ == "__main__":
    harness.main()
