#!/usr/bin/env python3
"""Makes models of narrow types from models of f32: f16 and bf16, and quantised as onnxruntime's tools quantise.

usage: bench/narrow_models.py [--bin DIR] [--kinds KIND,…] -o DIRECTORY [MODEL.onnx …]
       (default: resnet18, resnet50, mobilenet_v2 and bert_128 in $HONE_MODELS)

Weights that a file lacks are made by `hone run --export`, always the same ones. Written are NAME.f32.onnx, and of each kind
NAME.KIND.onnx:

  f16, bf16   every float of the file in that type
  qdq         static quantisation, QuantizeLinear and DequantizeLinear around operators: u8 values, i8 weights with a scale
              an output channel, calibrated with random inputs
  qoperator   the same with QLinearConv, QLinearMatMul and so on
  dynamic     DynamicQuantizeLinear, MatMulInteger and ConvInteger

Needs Python's onnxruntime and onnx, in an environment of their own that is made the first time."""
import argparse
import os
import shutil
import subprocess
import tempfile

import lib

lib.enter("bench-python")
import numpy  # noqa: E402
import onnx  # noqa: E402
from onnx import numpy_helper  # noqa: E402
from onnxruntime import quantization  # noqa: E402
from onnxruntime.quantization import shape_inference  # noqa: E402

MODELS = ["resnet18", "resnet50", "mobilenet_v2", "bert_128"]
KINDS = ["f16", "bf16", "qdq", "qoperator", "dynamic"]
FLOAT = onnx.TensorProto.FLOAT
SAMPLES = 8  # inputs that a calibration sees


def with_weights(binaries, daemon, path, directory):
    """The path of the model with its weights inside."""
    subprocess.run([os.path.join(binaries, "hone"), "--socket", daemon.socket, "--no-start", "run", path, "--no-check",
                    "--export", directory], check=True, stdout=subprocess.DEVNULL)
    return os.path.join(directory, "model.onnx")


class RandomInputs(quantization.CalibrationDataReader):
    """Normal floats, and whole numbers that are valid indices: 0 and 1."""

    def __init__(self, path):
        random = numpy.random.default_rng(1)
        model = onnx.load(path)
        known = {each.name for each in model.graph.initializer}
        inputs = [each for each in model.graph.input if each.name not in known]
        self.samples = iter([{each.name: self.sample(random, each) for each in inputs} for _ in range(SAMPLES)])

    @staticmethod
    def sample(random, value):
        kind = value.type.tensor_type
        shape = [max(each.dim_value, 1) for each in kind.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        if kind.elem_type == FLOAT:
            return random.standard_normal(shape).astype(dtype)
        return random.integers(0, 2, shape).astype(dtype)

    def get_next(self):
        return next(self.samples, None)


def narrowed(tensor, elements):
    """A tensor of floats in another float type."""
    if tensor.data_type != FLOAT:
        return
    values = numpy_helper.to_array(tensor).astype(onnx.helper.tensor_dtype_to_np_dtype(elements))
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    assert tensor.data_type == elements


def narrow(graph, elements):
    """Every float of a graph in another type, in place."""
    for tensor in graph.initializer:
        narrowed(tensor, elements)
    for value in [*graph.input, *graph.output, *graph.value_info]:
        if value.type.tensor_type.elem_type == FLOAT:
            value.type.tensor_type.elem_type = elements
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                narrowed(attribute.t, elements)
            if attribute.type == onnx.AttributeProto.GRAPH:
                narrow(attribute.g, elements)
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == FLOAT:
                attribute.i = elements


def write(kind, source, target):
    """The model of a kind."""
    if kind in ("f16", "bf16"):
        model = onnx.load(source)
        narrow(model.graph, onnx.TensorProto.FLOAT16 if kind == "f16" else onnx.TensorProto.BFLOAT16)
        onnx.save(model, target)
        return
    if kind == "dynamic":
        quantization.quantize_dynamic(source, target, weight_type=quantization.QuantType.QInt8)
        return
    prepared = target + ".prepared"
    shape_inference.quant_pre_process(source, prepared, skip_symbolic_shape=True)
    form = quantization.QuantFormat.QDQ if kind == "qdq" else quantization.QuantFormat.QOperator
    quantization.quantize_static(prepared, target, RandomInputs(prepared), quant_format=form, per_channel=True,
                                 activation_type=quantization.QuantType.QUInt8,
                                 weight_type=quantization.QuantType.QInt8)
    os.unlink(prepared)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(lib.ROOT, "build/release/bin"))
    parser.add_argument("--kinds", default=",".join(KINDS), help="which kinds (default: all)")
    parser.add_argument("-o", "--out", required=True)
    parser.add_argument("models", nargs="*")
    options = parser.parse_args()
    models = options.models or [os.path.join(os.environ["HONE_MODELS"], name + ".onnx") for name in MODELS]
    os.makedirs(options.out, exist_ok=True)
    with tempfile.TemporaryDirectory() as cache, lib.Daemon(options.bin, "--cache", cache) as daemon:
        for path in models:
            name = os.path.basename(path).removesuffix(".onnx")
            source = os.path.join(options.out, name + ".f32.onnx")
            with tempfile.TemporaryDirectory() as directory:
                shutil.copyfile(with_weights(options.bin, daemon, path, directory), source)
            for kind in options.kinds.split(","):
                target = os.path.join(options.out, f"{name}.{kind}.onnx")
                write(kind, source, target)
                print(target)


if __name__ == "__main__":
    main()
