"""One node under construction."""
import numpy
from onnx import helper, numpy_helper

MICROSOFT = "com.microsoft"
OLD = "old"  # ONNX's, of an opset before changes


class Case:
    """One node: inputs that the caller gives, constants, attributes."""

    def __init__(self, op, domain, seed):
        self.random = numpy.random.default_rng(seed)
        self.op, self.domain = op, domain
        self.names, self.given, self.constants, self.attributes = [], {}, [], {}
        self.outputs = ["y"]
        self.defined = {}  # of an output, by its place: where its values are, true; the rest is left open

    def pick(self, *options):
        return options[int(self.random.integers(len(options)))]

    def between(self, least, most):
        return int(self.random.integers(least, most + 1))

    def real(self, *shape, least=-1.0, most=1.0):
        return self.random.uniform(least, most, shape).astype(numpy.float32)

    def add(self, value, constant=False):
        """The next input; None leaves it out."""
        if value is None:
            self.names.append("")
            return self
        name = f"i{len(self.names)}"
        self.names.append(name)
        value = numpy.asarray(value)
        if constant:
            self.constants.append(numpy_helper.from_array(value, name))
        else:
            self.given[name] = value
        return self

    def model(self):
        while self.names and not self.names[-1]:
            self.names.pop()
        while not self.outputs[-1]:
            self.outputs.pop()
        is_old = self.domain == OLD
        node = helper.make_node(self.op, self.names, self.outputs, domain="" if is_old else self.domain, **self.attributes)
        inputs = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
                  for name, value in self.given.items()]
        outputs = [helper.make_empty_tensor_value_info(name) for name in self.outputs if name]
        graph = helper.make_graph([node], "g", inputs, outputs, self.constants)
        opset = 8 if is_old else 23 if self.domain == "" else 18
        return helper.make_model(graph, ir_version=4 if is_old else 10, opset_imports=[
            helper.make_opsetid("", opset), *([] if is_old else [helper.make_opsetid(MICROSOFT, 1)])])
