"""Networks from Python: sessions of ONNX files, as a program opens and runs them."""

import concurrent.futures
import json
import os
import subprocess

import harness
import test_examples
from python_case import SOURCE, PythonCase, numpy


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


class PythonNetworks(PythonCase):
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
        with self.session(path, constants={"a": numpy.ones((3, 4), numpy.float32)}) as session:
            self.assertEqual([value.shape for value in session.get_inputs()], [[3, 4]])
            with self.assertRaisesRegex(self.hone.Error, "shape .* wanted"):
                session.run(numpy.ones((1, 4), numpy.float32))

    def test_a_network_may_be_less_accurate(self):
        path = os.path.join(self.directory.path, "product.onnx")
        random = numpy.random.default_rng(3)
        w, x = (random.standard_normal(shape).astype(numpy.float32) for shape in ((256, 64), (8, 256)))
        with open(path, "wb") as file:
            file.write(product_model(w))
        right, terms = x.astype(numpy.float64) @ w, numpy.abs(x) @ numpy.abs(w)
        for accuracy, most in (("strict", 1e-5), ("relaxed", 1e-4), ("fast", 1e-2)):
            with self.session(path, accuracy=accuracy) as session:
                self.assertLess(numpy.max(numpy.abs(session.run(x)[0] - right) / terms), most)
                kernel = session.shares(x)[0]["kernel"]
                self.assertEqual(accuracy in kernel, accuracy != "strict", kernel)
        with self.assertRaisesRegex(self.hone.Error, "accuracy='exact', wanted strict, relaxed, fast"):
            self.session(path, accuracy="exact")

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

    def test_threads_that_ask_where_time_goes_do_not_disturb_each_other(self):
        path = os.path.join(self.directory.path, "open.onnx")
        with open(path, "wb") as file:
            file.write(open_model())
        a = numpy.ones((3, 4), numpy.float32)
        with self.session(path) as session:
            def calls(_):
                return {(share["label"], share["calls"]) for share in session.shares({"a": a, "b": a})}
            session.run({"a": a, "b": a})
            wanted = calls(None)
            with concurrent.futures.ThreadPoolExecutor(4) as threads:
                self.assertEqual([seen for seen in threads.map(calls, range(800)) if seen != wanted], [])

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

    def test_numbers_become_bfloat16_in_the_shape_that_they_have(self):
        for shape in ((), (1,), (2, 3), (0, 4)):
            bits = self.hone.session.to_bfloat16(numpy.full(shape, 1.5, numpy.float32))
            self.assertEqual((bits.shape, bits.dtype), (shape, numpy.uint16))

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


if __name__ == "__main__":
    harness.main()
