"""The Python package as a program meets it: from the tree, against a real daemon. Needs NumPy."""

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
import unittest

import harness
import test_examples

SOURCE = os.environ["HONE_SOURCE_DIR"]
SANITIZED = os.environ.get("HONE_SANITIZE", "") != ""

DEBIAN = "/usr/bin/python3"  # whose NumPy the package python3-numpy is

try:
    import numpy
except ImportError:
    if os.path.realpath(sys.executable) != os.path.realpath(DEBIAN) and os.path.exists(DEBIAN):
        os.execv(DEBIAN, [DEBIAN, *sys.argv])
    numpy = None


@unittest.skipIf(numpy is None, "NumPy is not installed")
@unittest.skipIf(SANITIZED, "Python would have to be built with the sanitizer, too")
def open_model():
    """An ONNX file: a + b of [rows, 4], and where that is not zero."""
    def field(number, value):
        if isinstance(value, int):
            return bytes([number << 3, value])
        value = value.encode() if isinstance(value, str) else value
        length = [len(value)] if len(value) < 128 else [len(value) & 127 | 128, len(value) >> 7]
        return bytes([number << 3 | 2, *length]) + value

    def value(name, dtype, *dimensions):
        shape = b"".join(field(1, field(2, each) if isinstance(each, str) else field(1, each)) for each in dimensions)
        return field(1, name) + field(2, field(1, field(1, dtype) + field(2, shape)))

    def node(op, inputs, output):
        return b"".join(field(1, each) for each in inputs) + field(2, output) + field(4, op)

    graph = (field(1, node("Add", "ab", "total")) + field(1, node("NonZero", ["total"], "where")) + field(2, "open") +
             field(11, value("a", 1, "rows", 4)) + field(11, value("b", 1, "rows", 4)) +
             field(12, value("total", 1, "rows", 4)) + field(12, value("where", 7, 2, "found")))
    return field(1, 8) + field(7, graph) + field(8, field(2, 18))


def product_model(w):
    """An ONNX file: x · w, x of eight rows."""
    field = test_examples.field

    def value(name, *dimensions):
        shape = b"".join(field(1, field(1, each)) for each in dimensions)
        return field(1, name) + field(2, field(1, field(1, 1) + field(2, shape)))

    tensor = b"".join(field(1, each) for each in w.shape) + field(2, 1) + field(8, "w") + field(9, w.tobytes())
    graph = (field(1, field(1, "x") + field(1, "w") + field(2, "y") + field(4, "MatMul")) + field(2, "product") +
             field(5, tensor) + field(11, value("x", 8, w.shape[0])) + field(12, value("y", 8, w.shape[1])))
    return field(1, 8) + field(7, graph) + field(8, field(2, 18))


class Python(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        os.environ["HONE_LIBRARY"] = os.path.join(harness.BUILD, "lib", "libhone.so")
        os.environ["HONE_NETWORK_LIBRARY"] = os.path.join(harness.BUILD, "lib", "libhone_network.so")
        os.environ["HONE_COMMAND"] = os.path.join(harness.BIN, "hone")
        sys.path.insert(0, os.path.join(SOURCE, "python"))
        cls.directory = harness.Directory()
        os.environ.update(cls.directory.environment)
        cls.daemon = harness.Daemon(cls.directory, "--no-idle")
        import hone  # pylint: disable=import-outside-toplevel
        cls.hone = hone
        cls.client = hone.Client(socket=cls.directory.socket, disk_cache=False)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.daemon.stop()
        cls.directory.remove()

    def arrays(self, *shapes):
        random = numpy.random.default_rng(7)
        return [random.random(shape, dtype=numpy.float32) for shape in shapes]

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

    def exported(self, model):
        """A network with its weights inside, as the command line ran it: its path, inputs and outputs by name."""
        directory = os.path.join(self.directory.path, "exported-" + os.path.basename(model))
        subprocess.run([os.path.join(harness.BIN, "hone"), "run", model, "--export", directory, "--repeat", "1"],
                       check=True, stdout=subprocess.DEVNULL)
        with open(os.path.join(directory, "tensors.json"), encoding="utf-8") as file:
            tensors = json.load(file)["tensors"]
        arrays = {"input": {}, "output": {}}
        for tensor in tensors:
            array = numpy.fromfile(os.path.join(directory, tensor["file"]), tensor["dtype"]).reshape(tensor["shape"])
            arrays[tensor["role"]][tensor["name"]] = array
        return os.path.join(directory, "model.onnx"), arrays["input"], arrays["output"]

    def session(self, path, **options):
        return self.hone.Session(path, socket=self.directory.socket, start=False, **options)

    def test_networks_run_as_the_command_line_runs_them(self):
        for name in ("attention", "squeeze_excite", "shape_arithmetic", "movement"):
            with self.subTest(name):
                path, inputs, outputs = self.exported(os.path.join(SOURCE, f"tests/fuzz/corpus/onnx/{name}.onnx"))
                with self.session(path) as session:
                    self.assertEqual([value.name for value in session.get_inputs()], list(inputs))
                    self.assertEqual([value.shape for value in session.get_outputs()],
                                     [list(array.shape) for array in outputs.values()])
                    for results in (session.run(inputs), session.run(None, inputs), session.run(list(inputs.values()))):
                        for result, wanted in zip(results, outputs.values()):
                            self.assertEqual(result.dtype, wanted.dtype)
                            numpy.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)
                    last = list(outputs)[-1]
                    numpy.testing.assert_allclose(session.run([last], inputs)[0], outputs[last], rtol=1e-5, atol=1e-6)

    def test_inputs_of_a_network_may_be_constants(self):
        path = os.path.join(SOURCE, "tests/fuzz/corpus/onnx/broadcast_matmul.onnx")
        random = numpy.random.default_rng(5)
        with self.session(path) as session:
            values = session.get_inputs()
            self.assertGreater(len(values), 1)
            arrays = {value.name: random.standard_normal(value.shape).astype(value.dtype) / 8 for value in values}
            wanted = session.run(arrays)
        first = values[0].name
        constants = {name: array for name, array in arrays.items() if name != first}
        with self.session(path, constants=constants) as session:
            self.assertEqual([value.name for value in session.get_inputs()], [first])
            for result, array in zip(session.run(arrays[first]), wanted):
                numpy.testing.assert_allclose(result, array, rtol=1e-4, atol=1e-5)
        for wrong, words in (({"nobody": arrays[first]}, "has no input nobody"),
                             ({values[1].name: numpy.zeros((1, 2), numpy.float32)}, "a constant of shape 1x2"),
                             ({values[1].name: numpy.zeros(values[1].shape)}, "a constant of f64")):
            with self.assertRaisesRegex(self.hone.Error, words):
                self.session(path, constants=wrong)

    def test_one_session_runs_for_every_shape_that_the_file_allows(self):
        path = os.path.join(self.directory.path, "open.onnx")
        with open(path, "wb") as file:
            file.write(open_model())
        random = numpy.random.default_rng(6)
        with self.session(path) as session:
            self.assertEqual([value.shape for value in session.get_inputs()], [[None, 4], [None, 4]])
            for rows in (3, 1, 0, 3):
                a, b = random.standard_normal((2, rows, 4)).astype(numpy.float32)
                total, where = session.run({"a": a, "b": b})
                numpy.testing.assert_allclose(total, a + b, rtol=1e-6)
                numpy.testing.assert_array_equal(where, numpy.nonzero(a + b))
            for shapes, words in (([(2, 4), (3, 4)], 'it has 3 of "rows", input a has 2'), ([(2, 5), (2, 5)], "shape .* wanted")):
                with self.assertRaisesRegex(self.hone.Error, words):
                    session.run([numpy.zeros(shape, numpy.float32) for shape in shapes])
        with self.session(path, shapes={"a": (2, 4)}) as session:  # a name has one size
            self.assertEqual([value.shape for value in session.get_inputs()], [[2, 4], [2, 4]])

    def test_a_session_says_where_its_time_goes(self):
        path = os.path.join(self.directory.path, "open.onnx")
        with open(path, "wb") as file:
            file.write(open_model())
        a = numpy.ones((3, 4), numpy.float32)
        with self.session(path) as session:
            session.run({"a": a, "b": a})
            shares = session.shares({"a": a, "b": a})
            self.assertEqual(shares, sorted(shares, key=lambda share: -share["time_us"]))
            by_label = {share["label"]: share for share in shares}
            self.assertEqual(by_label["NonZero"]["kernel"], "")
            self.assertIn("has run", by_label["NonZero"]["why_host"])
            self.assertTrue(any(share["kernel"] and not share["why_host"] and share["calls"] == 1 for share in shares), shares)
            self.assertEqual({share["calls"] for share in session.shares({"a": a, "b": a})}, {1})  # not those before

    def test_a_session_runs_on_when_its_file_changes(self):
        path = os.path.join(self.directory.path, "product.onnx")
        random = numpy.random.default_rng(8)
        w, x = random.standard_normal((256, 320)).astype(numpy.float32), random.standard_normal((8, 256)).astype(numpy.float32)
        for mode, words in (("wb", b"cut short"), ("r+b", bytes(200_000))):
            with open(path, "wb") as file:
                file.write(product_model(w))
            with self.session(path) as session:
                with open(path, mode) as file:
                    file.write(words)
                for _ in range(2):
                    numpy.testing.assert_allclose(session.run(x)[0], x @ w, rtol=1e-4, atol=1e-4)

    def test_an_output_that_is_not_as_the_file_says_is_an_error(self):
        path = os.path.join(self.directory.path, "lie.onnx")
        with open(path, "wb") as file:
            file.write(test_examples.onnx("NonZero", ["x"], (2, 3), 1))
        with self.session(path) as session:
            with self.assertRaisesRegex(self.hone.Error, "output y: it is i64 2x6, and the file says f32 2x3"):
                session.run(numpy.ones((2, 3), numpy.float32))

    def test_errors_of_networks_say_what_and_where(self):
        path, inputs, outputs = self.exported(os.path.join(SOURCE, "tests/fuzz/corpus/onnx/attention.onnx"))
        name = next(iter(inputs))
        with self.session(path) as session:
            for arguments, words in ((({},), f"input {name} is missing"), (({**inputs, "y7": 1},), "no input y7"),
                                     ((["y7"], inputs), "no output y7"), (([],), "0 inputs, wanted"),
                                     (({**inputs, name: inputs[name][..., :1]},), "shape .* wanted"),
                                     (({**inputs, name: inputs[name].astype(numpy.float64)},), "float64 elements")):
                with self.assertRaisesRegex(self.hone.Error, words):
                    session.run(*arguments)
            self.assertEqual(len(session.run(inputs)), len(outputs))
        for use in (session.run, session.shares):
            with self.assertRaisesRegex(self.hone.Error, "the session is closed"):
                use(inputs)
        session.close()
        broken = os.path.join(self.directory.path, "broken.onnx")
        with open(path, "rb") as whole, open(broken, "wb") as cut:
            cut.write(whole.read()[:100])
        with self.assertRaises(self.hone.Error) as caught:
            self.session(broken)
        self.assertEqual(caught.exception.kind, "corrupt")
        self.assertIn("broken.onnx", caught.exception.where)
        with self.assertRaises(self.hone.Error) as caught:
            self.session(os.path.join(self.directory.path, "nowhere.onnx"))
        self.assertEqual(caught.exception.kind, "not found")

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

    def test_results_that_are_kept_stay_as_they_are(self):
        """Memory of results is taken again when nobody holds them any more, and inputs are read where they lie."""
        path = os.path.join(self.directory.path, "relu.onnx")
        with open(path, "wb") as file:
            file.write(test_examples.onnx("Relu", ["x"], (64, 1024), 1))
        with self.hone.Session(path, threads=1) as session:
            given = [numpy.random.default_rng(i).standard_normal((64, 1024)).astype(numpy.float32) for i in range(8)]
            kept = [session.run(each)[0] for each in given]
            part = session.run(given[0])[0][3:5]  # a view holds the memory, too
            for each in given[1:]:
                session.run(each)
            for each, result in zip(given, kept):
                numpy.testing.assert_array_equal(result, numpy.maximum(each, 0))
            numpy.testing.assert_array_equal(part, numpy.maximum(given[0][3:5], 0))
            places = {session.run(given[0])[0].ctypes.data for _ in range(5)}
            self.assertEqual(len(places), 1)
            # Not aligned, not dense, and the result's own memory.
            raw = numpy.zeros(64 * 1024 * 4 + 4, numpy.uint8)
            odd = raw[4:].view(numpy.float32).reshape(64, 1024)
            odd[...] = given[1]
            numpy.testing.assert_array_equal(session.run(odd)[0], numpy.maximum(given[1], 0))
            wide = numpy.zeros((64, 2048), numpy.float32)
            wide[:, ::2] = given[2]
            numpy.testing.assert_array_equal(session.run(wide[:, ::2])[0], numpy.maximum(given[2], 0))
            again = session.run(given[3])[0]
            again -= 1
            numpy.testing.assert_array_equal(session.run(again)[0], numpy.maximum(numpy.maximum(given[3], 0) - 1, 0))

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
            for library in ("libhone.so", "libhone_network.so"):
                self.assertTrue(os.path.exists(os.path.join(folder, "site", "hone", library)))
            environment = {key: value for key, value in os.environ.items() if not key.endswith("LIBRARY")}
            subprocess.run([sys.executable, "-c", "import hone; hone.kernel('add(M=2,N=3)')"], check=True, timeout=120,
                           cwd=folder, env={**environment, "PYTHONPATH": os.path.join(folder, "site")})


if __name__ == "__main__":
    harness.main()
