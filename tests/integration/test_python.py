"""The Python package as a program meets it: from the tree, against a real daemon."""

import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import harness
import test_examples
from python_case import SOURCE, PythonCase, numpy


class Python(PythonCase):
    def test_a_kernel_is_called_with_arrays(self):
        a, b = self.arrays((33, 17), (17, 9))
        matmul = self.client.kernel("matmul(M=33,N=9,K=17)")
        numpy.testing.assert_allclose(matmul(a, b), a @ b, rtol=1e-5)
        out = numpy.zeros((33, 9), numpy.float32)
        self.assertIs(matmul(a, b, out=out), out)
        numpy.testing.assert_allclose(out, a @ b, rtol=1e-5)
        self.assertEqual(matmul.info["class"], "matmul")
        self.assertIn(matmul.info["origin"], ("default", "transferred"))
        # Not dense: copied.
        numpy.testing.assert_allclose(matmul(a, b.T.copy().T), a @ b, rtol=1e-5)

    def test_constants_are_bound_once_by_name_or_by_the_first_call(self):
        x, w, bias = self.arrays((4, 24), (40, 24), (40,))
        wanted = numpy.maximum(x @ w.T + bias, 0)
        dense = self.client.kernel("dense(M=4,N=40,K=24,const=1)+bias+relu")
        self.assertEqual([operand.name for operand in dense.operands], ["x", "w", "bias", "y"])
        numpy.testing.assert_allclose(dense.bind(w=w, bias=bias)(x), wanted, rtol=1e-5)
        again = self.client.kernel("dense(M=4,N=40,K=24,const=1)+bias+relu")
        numpy.testing.assert_allclose(again(x, w, bias), wanted, rtol=1e-5)
        numpy.testing.assert_allclose(again(x), wanted, rtol=1e-5)
        numpy.testing.assert_allclose(again(x, 2 * w, bias), numpy.maximum(x @ (2 * w).T + bias, 0), rtol=1e-5)

    def test_calls_of_threads_that_bring_constants_get_their_own(self):
        class Slow:
            """The library, where calls and binds take a while, and are seen to meet."""

            def __init__(self, library):
                self.library = library
                self.lock = threading.Lock()
                self.running = {"call": 0, "bind": 0}
                self.have_met = False

            def __getattr__(self, name):
                return getattr(self.library, name)

            def run(self, kind, function, arguments):
                with self.lock:
                    self.running[kind] += 1
                    self.have_met |= self.running["bind"] > 0 and sum(self.running.values()) > 1
                time.sleep(0.005)
                try:
                    return function(*arguments)
                finally:
                    with self.lock:
                        self.running[kind] -= 1

            def hone_call(self, *arguments):
                return self.run("call", self.library.hone_call, arguments)

            def hone_bind(self, *arguments):
                return self.run("bind", self.library.hone_bind, arguments)

        x, w = self.arrays((4, 24), (40, 24))
        kernel = self.client.kernel("dense(M=4,N=40,K=24,const=1)")
        slow = kernel._library = Slow(kernel._library)  # pylint: disable=protected-access
        gate = threading.Barrier(4)
        wrong = []

        def call(number):
            own = w * (1 + number // 2)  # two threads bring the same elements, in arrays of their own
            gate.wait()
            for _ in range(5):
                got = kernel(x, own)
                if not numpy.allclose(got, x @ own.T, rtol=1e-4):
                    wrong.append(number)
            kernel.bind(w=own)

        threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertFalse(slow.have_met, "the library was given a constant while it was at work")
        self.assertEqual(wrong, [])

    def test_texts_that_share_code_have_names_of_their_own(self):
        text = "kernel {0}({1}: f32[7]) -> {2}: f32[7] {{ {2}[i] = 2.0 * {1}[i] }}"
        for names in (("double", "x", "y"), ("twice", "left", "right")):
            kernel = self.client.kernel(text.format(*names))
            self.assertEqual([operand.name for operand in kernel.operands], list(names[1:]))
            with self.assertRaisesRegex(self.hone.Error, names[1]):
                kernel()

    def test_anything_with_dlpack_goes_in_and_out(self):
        class Tensor:  # what PyTorch's tensors are to us
            def __init__(self, array):
                self.array = array

            def __dlpack__(self, **options):
                return self.array.__dlpack__(**options)

            def __dlpack_device__(self):
                return self.array.__dlpack_device__()

        a, b = self.arrays((8, 16), (8, 16))
        out = Tensor(numpy.zeros((8, 16), numpy.float32))
        add = self.client.kernel("add(M=8,N=16)")
        self.assertIs(add(Tensor(a), Tensor(b), out=out), out)
        numpy.testing.assert_array_equal(out.array, a + b)
        numpy.testing.assert_array_equal(numpy.from_dlpack(add(a, b)), a + b)

    def test_what_says_by_dlpack_that_it_is_read_only_is_not_written(self):
        array = numpy.zeros((8, 16), numpy.float32)
        tensor = (ctypes.c_uint64 * 16)(1, 0, 0, 1)  # DLManagedTensorVersioned: its version, two pointers, its flags

        class Immutable:  # what JAX's arrays are
            def __dlpack__(self, **options):
                if tuple(map(int, numpy.__version__.split(".")[:2])) < (2, 1):  # knows no such thing
                    if "max_version" not in options:
                        return array.__dlpack__()
                    new = ctypes.pythonapi.PyCapsule_New
                    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
                    return new(ctypes.addressof(tensor), b"dltensor_versioned", None)
                view = array.view()
                view.flags.writeable = False
                return view.__dlpack__(**options)

            def __dlpack_device__(self):
                return array.__dlpack_device__()

        a, = self.arrays((8, 16))
        add = self.client.kernel("add(M=8,N=16)")
        with self.assertRaisesRegex(self.hone.Error, "y: the array to write is read-only"):
            add(a, a, out=Immutable())
        self.assertFalse(array.any())
        numpy.testing.assert_array_equal(add(a, Immutable()), a)

    def test_a_daemon_that_starts_too_late_leaves_no_dead_process_for_long(self):
        directory = harness.Directory()
        self.addCleanup(directory.remove)
        program = """
import os, time, hone
client = hone.Client(start=True, disk_cache=False)
try:
    client.kernel("add(M=8,N=16)", deadline=0.002)
except hone.Error as error:
    print(error.kind)
def has_children():
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="utf-8") as file:
        return file.read() != ""
end = time.monotonic() + 20
while True:  # later calls take it back, once it has ended
    client.kernel("add(M=8,N=16)", deadline=30).release()
    if not has_children() or time.monotonic() > end:
        break
    time.sleep(0.01)
print("left behind" if has_children() else "nobody")
"""
        environment = {**os.environ, **directory.environment, "PYTHONPATH": os.path.join(SOURCE, "python")}
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60,
                              env=environment)
        status = subprocess.run([os.path.join(harness.BIN, "hone"), "--json", "status"], capture_output=True, check=True,
                                env=environment)
        os.kill(json.loads(status.stdout)["pid"], signal.SIGTERM)
        self.assertEqual(done.stdout.split(), ["timeout", "nobody"], done.stderr)

    def test_what_a_daemon_said_last_is_told_where_it_ends_at_once(self):
        directory = harness.Directory()
        self.addCleanup(directory.remove)
        for folder in ("lib", "bin"):
            os.mkdir(os.path.join(directory.path, folder))
        library = shutil.copy(os.environ["HONE_LIBRARY"], os.path.join(directory.path, "lib", "libhone.so"))
        daemon = os.path.join(directory.path, "bin", "honed")
        with open(daemon, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\nfor i in $(seq 1000); do echo line $i; done\necho the disk is full\nexit 1\n")
        os.chmod(daemon, 0o700)
        program = "import hone; hone.Client(start=True, disk_cache=False).kernel('add(M=8,N=16)')"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60,
                              env={**os.environ, **directory.environment, "HONE_LIBRARY": library,
                                   "PYTHONPATH": os.path.join(SOURCE, "python")})
        self.assertIn("honed ended at once: the disk is full", done.stderr)

    def test_narrow_types_are_numpys(self):
        a, b = (array.astype(numpy.float16) for array in self.arrays((5, 40), (9, 40)))
        dense = self.client.kernel("dense(M=5,N=9,K=40,dtype=f16)")
        out = dense(a, b)
        self.assertEqual(out.dtype, numpy.float16)
        wanted = a.astype(numpy.float64) @ b.astype(numpy.float64).T
        numpy.testing.assert_allclose(out.astype(numpy.float64), wanted, rtol=2**-11 + 1e-6)
        numpy.testing.assert_array_equal(numpy.from_dlpack(out), out)

        x, w = (numpy.random.default_rng(3).integers(0, 256, shape, numpy.uint8) for shape in ((5, 40), (9, 40)))
        out = self.client.kernel("dense(M=5,N=9,K=40,dtype=u8)")(x, w)
        self.assertEqual(out.dtype, numpy.int32)
        numpy.testing.assert_array_equal(out, x.astype(numpy.int32) @ w.astype(numpy.int32).T)
        with self.assertRaisesRegex(self.hone.Error, "int8 elements, wanted uint8"):
            self.client.kernel("dense(M=5,N=9,K=40,dtype=u8)")(x.view(numpy.int8), w)

        add = self.client.kernel("add(M=5,N=40,dtype=bf16)")
        try:
            import ml_dtypes
        except ImportError:
            print("[SKIP] ml_dtypes is not installed: arrays of bfloat16 were not tried")
            with self.assertRaisesRegex(self.hone.Error, "install ml_dtypes"):
                add(a, a)
            return
        x = self.arrays((5, 40))[0].astype(ml_dtypes.bfloat16)
        numpy.testing.assert_array_equal(add(x, x), x + x)

    def test_errors_say_what_and_where(self):
        with self.assertRaises(self.hone.Error) as caught:
            self.client.kernel("matmul(M=3,N=4")
        self.assertEqual(caught.exception.kind, "invalid")
        self.assertTrue(caught.exception.message)
        add = self.client.kernel("add(M=8,N=16)")
        a, b = self.arrays((8, 16), (8, 17))
        for arguments, words in (((a,), "1 arrays, wanted 2"), ((a, b), r"shape \(8, 17\), wanted \(8, 16\)"),
                                 ((a, a.astype(numpy.float64)), "float64 elements, wanted float32")):
            with self.assertRaisesRegex(self.hone.Error, words):
                add(*arguments)
        with self.assertRaisesRegex(self.hone.Error, "no constant operand"):
            add.bind(x=a)
        with self.assertRaisesRegex(self.hone.Error, "overlaps"):
            add(a, a, out=a)
        with self.assertRaises(self.hone.Error) as caught:
            self.client.kernel("matmul(M=301,N=4,K=5)", compile=False)
        self.assertEqual(caught.exception.kind, "not found")

    def test_arrays_of_a_range_of_sizes_have_the_shapes_of_the_call(self):
        dense = self.client.kernel("dense(M=1..512,N=33,K=17,const=1)")
        x, w = self.arrays((500, 17), (33, 17))
        with self.assertRaisesRegex(self.hone.Error, r"w: shape \(33, 16\), wanted \(33, 17\)"):
            dense.bind(w[:, :16])
        dense.bind(w)
        y = dense(x, sizes=(500,))
        numpy.testing.assert_allclose(y, x @ w.T, rtol=1e-5)
        self.assertEqual(dense(x[:4], sizes=(4,)).shape, (4, 33))
        for arrays, out, words in (((x[:4],), None, r"x: shape \(4, 17\), wanted \(500, 17\)"),
                                   ((x[:, :3],), None, r"x: shape \(500, 3\), wanted \(500, 17\)"),
                                   ((x,), y[:4], r"shape \(4, 33\), wanted \(500, 33\)")):
            with self.assertRaisesRegex(self.hone.Error, words):
                dense(*arrays, out=out, sizes=(500,))
        for size in (0, -1, 513):
            with self.assertRaisesRegex(self.hone.Error, "out of range"):
                dense(x, sizes=(size,))

    def test_what_c_would_cut_short_is_refused(self):
        for words, options in (("zero byte", {"text": "add(M=8,N=16)\0)"}), ("out of range", {"threads": 2**32}),
                               ("wanted seconds", {"deadline": float("nan")}), ("wanted seconds", {"budget": -1})):
            with self.assertRaisesRegex(self.hone.Error, words):
                self.client.kernel(**{"text": "add(M=8,N=16)", **options})
        self.client.kernel("add(M=8,N=16)", deadline=float("inf")).release()
        with self.assertRaisesRegex(self.hone.Error, "out of range"):
            self.session("nowhere.onnx", shapes={"x": (2**64 + 1,)})

    def test_a_kernel_that_was_released_says_so(self):
        add = self.client.kernel("add(M=8,N=16)")
        a, = self.arrays((8, 16))
        add.release()
        for use in (lambda: add(a, a), lambda: add.info, lambda: add.bind()):
            with self.assertRaisesRegex(self.hone.Error, "released"):
                use()

    def test_what_is_given_back_while_it_is_used_goes_with_the_last_use(self):
        a, = self.arrays((256, 256))
        client = self.hone.Client(socket=self.directory.socket, disk_cache=False)
        path = os.path.join(self.directory.path, "relu.onnx")
        with open(path, "wb") as file:
            file.write(test_examples.onnx("Relu", ["x"], (64, 1024), 1))
        matmul, session = client.kernel("matmul(M=256,N=256,K=256)", threads=1), self.session(path, threads=1)
        x = numpy.zeros((64, 1024), numpy.float32)
        uses = [(lambda: matmul(a, a), matmul.release, "the kernel was released"),
                (lambda: session.run(x), session.close, "the session is closed"),
                (lambda: client.kernel("matmul(M=256,N=256,K=256)", threads=1), client.close, "the client is closed")]
        for use, give_back, words in uses:
            said = []

            def until_it_is_gone(use=use, said=said):
                try:
                    while True:
                        use()
                except self.hone.Error as error:
                    said.append(error.message)

            threads = [threading.Thread(target=until_it_is_gone) for _ in range(3)]
            for thread in threads:
                thread.start()
            time.sleep(0.1)
            give_back()
            for thread in threads:
                thread.join()
            self.assertEqual(said, [words] * 3)

    def test_arrays_may_lie_anywhere(self):
        add = self.client.kernel("add(M=8,N=16)")
        raw = numpy.zeros(8 * 16 * 4 + 1, numpy.uint8)
        odd = raw[1:].view(numpy.float32).reshape(8, 16)
        odd[...] = 1
        numpy.testing.assert_array_equal(add(odd, odd), odd + odd)
        with self.assertRaisesRegex(self.hone.Error, "the array to write is not dense, or not aligned"):
            add(odd, odd, out=odd)

    def test_threads_call_one_kernel_at_once(self):
        a, b = self.arrays((64, 64), (64, 64))
        matmul = self.client.kernel("matmul(M=64,N=64,K=64)", threads=1)
        wrong = []

        def work():
            for _ in range(50):
                if not numpy.allclose(matmul(a, b), a @ b, rtol=1e-5):
                    wrong.append(1)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def check_results(self, relu):
        """Of a function of one array of 64 by 1024: those that are kept stay as they are, the memory of others is taken again,
        and inputs are taken as they lie."""
        given = [numpy.random.default_rng(i).standard_normal((64, 1024)).astype(numpy.float32) for i in range(8)]
        kept = [relu(each) for each in given]
        part = relu(given[0])[3:5]  # a view holds the memory, too
        bytes_of = memoryview(relu(given[1]))
        relu(given[2]).shape = (1024, 64)  # of the caller's array alone
        for each in given[2:]:
            self.assertEqual(relu(each).shape, (64, 1024))
        for each, result in zip(given, kept):
            numpy.testing.assert_array_equal(result, numpy.maximum(each, 0))
        numpy.testing.assert_array_equal(part, numpy.maximum(given[0][3:5], 0))
        numpy.testing.assert_array_equal(bytes_of, numpy.maximum(given[1], 0))
        places = {relu(given[0]).ctypes.data for _ in range(5)}
        self.assertEqual(len(places), 1)
        # Not aligned, not dense, read-only, and the result's own memory.
        raw = numpy.zeros(64 * 1024 * 4 + 4, numpy.uint8)
        odd = raw[4:].view(numpy.float32).reshape(64, 1024)
        odd[...] = given[1]
        numpy.testing.assert_array_equal(relu(odd), numpy.maximum(given[1], 0))
        wide = numpy.zeros((64, 2048), numpy.float32)
        wide[:, ::2] = given[2]
        numpy.testing.assert_array_equal(relu(wide[:, ::2]), numpy.maximum(given[2], 0))
        given[3].flags.writeable = False
        again = relu(given[3])
        numpy.testing.assert_array_equal(again, numpy.maximum(given[3], 0))
        again -= 1
        numpy.testing.assert_array_equal(relu(again), numpy.maximum(numpy.maximum(given[3], 0) - 1, 0))

    def test_results_of_sessions_stay_as_they_are(self):
        path = os.path.join(self.directory.path, "relu.onnx")
        with open(path, "wb") as file:
            file.write(test_examples.onnx("Relu", ["x"], (64, 1024), 1))
        with self.hone.Session(path, threads=1) as session:
            self.check_results(lambda x: session.run(x)[0])

    def test_results_of_kernels_stay_as_they_are(self):
        text = "kernel \"relu\"(x: f32[64, 1024]) -> y: f32[64, 1024] { y[i, j] = max(x[i, j], 0.0) }"
        with self.client.kernel(text, threads=1) as kernel:
            self.check_results(kernel)

    def test_a_list_is_warmed(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "two.kernels")
            with open(path, "w", encoding="utf-8") as file:
                file.write("2 softmax(M=3,N=10)\n1 matmul(M=5,N=6,K=7)\n")
            answers = self.hone.warm(path)
            self.assertEqual([answer["count"] for answer in answers[:2]], [2, 1])
            with self.assertRaises(self.hone.Error):
                self.hone.warm(os.path.join(folder, "nothing.kernels"))

    def test_the_readmes_examples_run(self):
        for name in ("README.md", "python/README.md"):
            with open(os.path.join(SOURCE, name), encoding="utf-8") as file:
                blocks = re.findall(r"```python\n(.*?)```", file.read(), re.DOTALL)
            self.assertTrue(blocks, name)
            shutil.copy(os.path.join(SOURCE, "tests/fuzz/corpus/onnx/attention.onnx"),
                        os.path.join(self.directory.path, "model.onnx"))
            for block in blocks:
                subprocess.run([sys.executable, "-c", block], check=True, timeout=120, cwd=self.directory.path, env={
                    **os.environ, "PYTHONPATH": os.path.join(SOURCE, "python")})

    def test_pip_installs_it_with_the_library(self):
        try:
            import setuptools  # noqa: F401  pylint: disable=import-outside-toplevel,unused-import
        except ImportError:
            self.skipTest("setuptools is not installed")
        with tempfile.TemporaryDirectory() as folder:
            copy = os.path.join(folder, "python")
            subprocess.run(["cp", "-r", os.path.join(SOURCE, "python"), copy], check=True)
            done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation",
                                   "--no-index", "--target", os.path.join(folder, "site"), copy],
                                  capture_output=True, text=True, check=False,
                                  env={**os.environ, "HONE_BUILD_DIR": harness.BUILD})
            if done.returncode != 0 and "No module named pip" in done.stderr:
                self.skipTest("pip is not installed")
            self.assertEqual(done.returncode, 0, done.stderr)
            for library in ("libhone.so", "libhone_network.so", "libhone_opencl.so", "libhone_cuda.so"):
                if not os.path.exists(os.path.join(harness.BUILD, "lib", library)):
                    print(f"[SKIP] {library} was not built")
                    continue
                self.assertTrue(os.path.exists(os.path.join(folder, "site", "hone", library)))
            environment = {key: value for key, value in os.environ.items() if not key.endswith("LIBRARY")}
            subprocess.run([sys.executable, "-c", "import hone; hone.kernel('add(M=2,N=3)')"], check=True, timeout=120,
                           cwd=folder, env={**environment, "PYTHONPATH": os.path.join(folder, "site")})


if __name__ == "__main__":
    harness.main()
