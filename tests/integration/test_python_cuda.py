"""The Python package on CUDA's arrays, with tests/support/fake_cuda in the place of NVIDIA's driver: what a device would do is not
shown by this."""

import ctypes
import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

import harness
from python_case import SOURCE, PythonCase

HERE = os.path.dirname(os.path.abspath(__file__))
FAKE_CUDA = os.path.join(harness.BUILD, "tests", "fake_cuda", "libcuda.so.1")


@unittest.skipIf(not os.path.exists(FAKE_CUDA), f"[SKIP] {FAKE_CUDA} was not built")
class OnCuda(PythonCase):
    """Most programs have a libhone_cuda that computes by itself (cuda_stub.c), since the driver cannot run served code."""

    def run_program(self, body, *, library=None, directory=None):
        """Python, in a process of its own, where the driver is loaded already; what it prints."""
        program = textwrap.dedent("""
            import ctypes, os, sys
            fake = ctypes.CDLL(FAKE)
            import hone
            from dlpack_producer import CUDA, Producer
            client = hone.Client(disk_cache=False)
            def enter(device):
                context = ctypes.c_void_p()
                assert fake.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
                assert fake.cuCtxPushCurrent_v2(context) == 0
                return context
            def array(values, device=0, **facts):
                address = ctypes.c_ulonglong()
                assert fake.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(4 * len(values))) == 0
                (ctypes.c_float * len(values)).from_address(address.value)[:] = values
                return Producer(address.value, (CUDA, device), facts.pop("shape", (len(values),)), **facts)
            def read(array):
                return list((ctypes.c_float * array.facts[1][0]).from_address(array.facts[0]))
            def refused(function, *arguments, **options):
                try:
                    function(*arguments, **options)
                except hone.Error as error:
                    return f"{error.kind}: {error}"
                raise AssertionError("it was not refused")
            """).replace("FAKE", repr(FAKE_CUDA)) + textwrap.dedent(body)
        environment = {**os.environ, "PYTHONPATH": os.path.join(SOURCE, "python") + os.pathsep + HERE}
        if library:
            environment["HONE_CUDA_LIBRARY"] = library
        if directory:
            environment.update(directory.environment)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120,
                              env=environment)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout.splitlines()

    def stub(self):
        folder = tempfile.TemporaryDirectory(prefix="hone-cuda-")
        self.addCleanup(folder.cleanup)
        library = os.path.join(folder.name, "libhone_cuda.so")
        subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC",
                        "-I", os.path.join(SOURCE, "client"), "-I", SOURCE, os.path.join(HERE, "cuda_stub.c"), "-o", library],
                       check=True)
        return library

    def test_calls_go_to_streams_that_producers_are_told_of(self):
        said = self.run_program("""
            stub = ctypes.CDLL(os.environ["HONE_CUDA_LIBRARY"])
            stub.stub_stream.restype = stub.stub_context.restype = ctypes.c_void_p
            context = enter(0)
            x, w, y = array([1, 2, 3, 4]), array([5, 6, 7, 8], version=0), array([0, 0, 0, 0])
            kernel = client.kernel("scale", device=x)
            print(stub.stub_context() == context.value, kernel.bind(w=w)(x, out=y) is y, read(y), stub.stub_stream())
            print(x.streams, w.streams, y.streams)  # 1: the default one
            stream = ctypes.c_void_p()
            fake.cuStreamCreate(ctypes.byref(stream), 1)
            class Torch: cuda_stream = stream.value
            class CuPy: ptr = stream.value
            class Protocol:
                def __cuda_stream__(self): return (0, stream.value)
            for given in (stream.value, Torch(), CuPy(), Protocol()):
                kernel(x, out=y, stream=given)
                assert stub.stub_stream() == stream.value and x.streams[-1] == y.streams[-1] == stream.value
            part = array([9, 9, 9, 9, 1, 1, 1, 2], offset=16, shape=(4,))
            print(read(kernel(part, out=y, stream=1)))
            print(stub.stub_stream(), part.streams[-1])
            """, library=self.stub())
        self.assertEqual(said, ["True True [5.0, 12.0, 21.0, 32.0] None", "[1, 1] [1] [1]", "[5.0, 6.0, 7.0, 16.0]", "None 1"])

    def test_arrays_are_kept_until_their_event_comes(self):
        said = self.run_program("""
            stub = ctypes.CDLL(os.environ["HONE_CUDA_LIBRARY"])
            enter(0)
            kernel = client.kernel("scale", device="cuda:0")
            kernel.bind(array([5, 6, 7, 8]))
            y = array([0, 0, 0, 0])
            fake.FakeCudaHold(True)
            for _ in range(3):
                kernel(array([1, 2, 3, 4]), out=y)
            print(len(Producer.held))
            fake.FakeCudaHold(False)
            kernel(array([1, 2, 3, 4]), out=y)
            print(len(Producer.held))
            held = fake.FakeCudaHeld()
            client.close()
            kernel.release()
            del kernel
            print(len(Producer.held), stub.stub_released(), stub.stub_closed(), held - fake.FakeCudaHeld())
            """, library=self.stub())
        # Held: w, three times x and y; then w alone. Four events and the primary context go at the end.
        self.assertEqual(said, ["7", "1", "0 1 1 5"])

    def test_contexts_and_wrong_arrays(self):
        said = self.run_program("""
            stub = ctypes.CDLL(os.environ["HONE_CUDA_LIBRARY"])
            stub.stub_context.restype = ctypes.c_void_p
            first = enter(0)
            x, y = array([1, 2, 3, 4]), array([0, 0, 0, 0])
            second = enter(1)
            elsewhere = array([1, 2, 3, 4], device=1)
            kernel = client.kernel("scale", device=elsewhere)
            print(stub.stub_context() == second.value)
            client.kernel("scale", device="cuda")
            print(stub.stub_context() == second.value)
            kernel = client.kernel("scale", device="cuda:0").bind(x)
            print(stub.stub_context() == first.value)
            print(refused(kernel, elsewhere, out=y))
            print(refused(kernel, x, out=elsewhere))
            print(refused(kernel, x))
            print(refused(client.kernel, "unknown", device="cuda:0"))
            held = fake.FakeCudaHeld()
            os.environ["STUB_REFUSES"] = "1"
            print(refused(hone.Client(disk_cache=False).kernel, "scale", device="cuda:0"))
            print(fake.FakeCudaHeld() - held)  # no context either
            current = ctypes.c_void_p()
            fake.cuCtxGetCurrent(ctypes.byref(current))
            print(current.value == second.value)
            """, library=self.stub())
        self.assertEqual(said, ["True", "True", "True", "invalid: x: the array is on cuda:1, the kernel on cuda:0",
                                "invalid: y: the array is on cuda:1, the kernel on cuda:0",
                                "invalid: scale: no array to write: give out=, an array of the device for each output",
                                "unsupported: the stub has no such kernel", "run failed: the stub opens nothing", "0", "True"])

    def test_the_library_itself_opens_contexts(self):
        if not os.path.exists(os.environ["HONE_CUDA_LIBRARY"]):
            self.skipTest(f"[SKIP] {os.environ['HONE_CUDA_LIBRARY']} was not built")
        said = self.run_program("""
            enter(0)
            print(refused(client.kernel, "add(M=8,N=16)", device="cuda:0", deadline=60))
            """)
        self.assertRegex(said[0], "^(unsupported|invalid|not found): .*(cuda|CUDA)")
        said = self.run_program("""
            print(refused(client.kernel, "add(M=8,N=16)", device="cuda:0"))
            """, library="/nowhere/libhone_cuda.so")
        self.assertRegex(said[0], "^not found: libhone_cuda is not there; build or install hone, or set HONE_CUDA_LIBRARY")

    def test_code_that_honed_serves_runs_in_the_programs_context(self):
        """All of the way but the device: honed, NVRTC and libhone_cuda are themselves, and the driver takes any code for one that
        doubles."""
        directory = harness.Directory()
        self.addCleanup(directory.remove)
        directory.environment.update(LD_LIBRARY_PATH=os.path.dirname(FAKE_CUDA), CUDA_VISIBLE_DEVICES="0")
        daemon = harness.Daemon(directory, "--no-idle")
        self.addCleanup(daemon.stop)
        status = subprocess.run([os.path.join(harness.BIN, "hone"), "--no-start", "--json", "status"], check=True, capture_output=True,
                                text=True, env=directory.environment).stdout
        if "device=Fake_GPU" not in status:
            self.skipTest("[SKIP] honed has no NVRTC here, so no device of CUDA's")
        said = self.run_program("""
            enter(1)  # another one is current
            enter(0)
            x, y = array(range(2048)), array([0] * 2048)
            text = "kernel twice(x: f32[2048]) -> y: f32[2048] { y[i] = x[i] + x[i] }"
            kernel = client.kernel(text, device=x, deadline=60)
            kernel(x, out=y)
            print(kernel.info["origin"], read(y) == [2 * i for i in range(2048)])
            fake.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
            kernel(y, out=x)
            print(read(x)[2047], kernel.info["target"].split()[0])
            print(refused(kernel, x, out=x))
            kernel.release()
            """, directory=directory)
        self.assertEqual(said, ["default True", "8188.0 cuda", said[2]])
        self.assertRegex(said[2], "overlaps x$")

    def test_without_a_driver_it_says_so(self):
        try:
            ctypes.CDLL("libcuda.so.1")
        except OSError:
            with self.assertRaisesRegex(self.hone.Error, "there is no libcuda.so.1 here"):
                self.client.kernel("add(M=8,N=16)", device="cuda:0")
        else:
            self.skipTest("[SKIP] there is a driver of NVIDIA's here")


if __name__ == "__main__":
    harness.main()
