#!/usr/bin/env python3
"""hone's kernels beside onnxruntime's, as two libraries called from one process, one thread each.

usage: bench/peers.py [--bin DIR] [--rounds N] [--cache DIR] [--json FILE]
                      [KERNEL | FILE.kernels …]   (default: the eleven lists)

Each kernel becomes an ONNX graph with the same constants; both get their buffers ahead of time and compute from the same
inputs, and their results are compared. They take turns in bursts of a few milliseconds; a round's ratio is
onnxruntime's time over hone's (above 1: hone is faster), the kernel's is the median over the rounds. What a call costs
before any work is done is taken off both; a kernel that takes both less than a quarter of such a call into onnxruntime
is named and left out, for its ratio would be one of small differences. Schedules are what hone serves at once: nothing is tuned, unless
--cache names a cache with tuned kernels.

Needs Python's onnxruntime, onnx and numpy, in an environment of their own that is made the first time."""
import argparse
import ctypes
import json
import os
import statistics
import sys

import lib

lib.enter("bench-python")
import numpy  # noqa: E402
import onnx  # noqa: E402
import onnxruntime  # noqa: E402
from onnx import TensorProto, helper  # noqa: E402

import libhone  # noqa: E402
import turns  # noqa: E402


class Graph:
    """An ONNX graph under construction over hone's operands, in their order."""

    def __init__(self, operands):
        self.nodes = []
        self.operands = [operand.name.decode() for operand in operands]
        self.next_operand = 0
        self.value = None

    def operand(self):
        self.next_operand += 1
        return self.operands[self.next_operand - 1]

    def node(self, kind, inputs, **values):
        result = f"value{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [result], **values))
        self.value = result

    def operation(self, name, a, bias):
        pads, strides = [a.get("pad", 0)] * 4, [a.get("stride", 1)] * 2
        if name in ("matmul", "batch_matmul"):
            x, w = self.operand(), self.operand()
            self.node("MatMul", [x, w])
        elif name == "dense":
            x, w = self.operand(), self.operand()
            self.node("Gemm", [x, w] + ([self.operand()] if bias else []), transB=1)
        elif name in ("conv2d", "depthwise_conv2d"):
            x, w = self.operand(), self.operand()
            groups = a["C"] if name == "depthwise_conv2d" else a.get("groups", 1)
            self.node("Conv", [x, w] + ([self.operand()] if bias else []), group=groups, strides=strides, pads=pads,
                      dilations=[a.get("dilation", 1)] * 2)
        elif name in ("maxpool2d", "avgpool2d"):
            kind = {"maxpool2d": "MaxPool", "avgpool2d": "AveragePool"}[name]
            self.node(kind, [self.operand()], kernel_shape=[a["R"], a["S"]], strides=strides, pads=pads,
                      ceil_mode=a.get("ceil", 0))
        elif name == "global_avgpool":
            self.node("GlobalAveragePool", [self.operand()])
        elif name == "softmax":
            self.node("Softmax", [self.operand()], axis=1)
        elif name == "layer_norm":
            x, gamma, beta = self.operand(), self.operand(), self.operand()
            self.node("LayerNormalization", [x, gamma, beta], axis=1, epsilon=float(a.get("eps", 1e-5)))
        elif name == "transpose":
            self.node("Transpose", [self.operand()], perm=[1, 0])
        elif name in ("add", "mul"):
            self.node(name.capitalize(), [self.operand(), self.operand()])
        elif name == "gelu":
            self.node("Gelu", [self.operand()])
        else:
            raise ValueError(f"no ONNX graph for {name}")
        return name in ("dense", "conv2d", "depthwise_conv2d") and bias

    def epilogue(self, name):
        if name in ("bias", "add"):
            self.node("Add", [self.value, self.operand()])
        elif name == "mul":
            self.node("Mul", [self.value, self.operand()])
        elif name == "relu6":
            self.node("Clip", [self.value, "zero", "six"])
        elif name == "silu":
            before = self.value
            self.node("Sigmoid", [before])
            self.node("Mul", [before, self.value])
        else:
            kinds = {"relu": "Relu", "gelu": "Gelu", "sigmoid": "Sigmoid", "tanh": "Tanh", "hardswish": "HardSwish"}
            self.node(kinds[name], [self.value])


def is_constant(kernel, index, operand):
    """Weights; onnxruntime's layer normalisation is fast with constant gamma and beta alone."""
    return operand.is_const or kernel.startswith("layer_norm") and index in (1, 2)


def model_of(kernel, operands, arrays):
    name, values, epilogues = turns.attributes(kernel)
    graph = Graph(operands)
    if graph.operation(name, values, "bias" in epilogues[:1]):
        epilogues = epilogues[1:]
    for epilogue in epilogues:
        graph.epilogue(epilogue)
    graph.nodes[-1].output[0] = "result"
    constants = [onnx.numpy_helper.from_array(numpy.float32(v), n) for n, v in (("zero", 0), ("six", 6))]
    inputs = []
    for index, (operand, array) in enumerate(zip(operands, arrays)):
        label = operand.name.decode()
        if is_constant(kernel, index, operand):
            constants.append(onnx.numpy_helper.from_array(array, label))
        elif not operand.is_output:
            inputs.append(helper.make_tensor_value_info(label, TensorProto.FLOAT, array.shape))
    result = helper.make_tensor_value_info("result", TensorProto.FLOAT, arrays[-1].shape)
    body = helper.make_graph(graph.nodes, "kernel", inputs, [result], constants)
    return helper.make_model(body, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def session_of(model, inputs, result, threads=1):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_input(name, "cpu", 0, numpy.float32, array.shape, array.ctypes.data)
    binding.bind_output("result", "cpu", 0, numpy.float32, result.shape, result.ctypes.data)
    run = session.run_with_iobinding
    return lambda: run(binding)


def overheads(client):
    """Seconds that a call costs before any work: an Identity of one number; a call that hone refuses at once."""
    x, y = libhone.aligned((1,), numpy.float32), libhone.aligned((1,), numpy.float32)
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in ("x", "result")]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["result"])], "identity", info[:1], info[1:])
    identity = session_of(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9),
                          {"x": x}, y)
    call, nothing = client.library.hone_call, (ctypes.c_void_p * 1)()
    refused = lambda: call(None, nothing, None)  # noqa: E731
    return turns.overhead(identity), turns.overhead(refused)


def compare(client, kernel, rounds, overhead, threads=1):
    held = client.get(kernel, threads)
    arrays = turns.operands(held)
    expected = libhone.aligned(arrays[-1].shape, numpy.float32)
    inputs = {operand.name.decode(): array for index, (operand, array) in enumerate(zip(held.operands, arrays))
              if not operand.is_output and not is_constant(kernel, index, operand)}
    theirs = session_of(model_of(kernel, held.operands, arrays), inputs, expected, threads)
    ours = held.bind(arrays)
    theirs()
    ours_s, theirs_s = turns.take([ours, theirs], [overhead[1], overhead[0]], rounds, threads)
    ratio, least, most = turns.ratios(ours_s, theirs_s)
    row = {"kernel": kernel, "kind": lib.kind(kernel), "flops": held.info.flops,
           "hone_us": statistics.median(ours_s) * 1e6, "onnxruntime_us": statistics.median(theirs_s) * 1e6,
           "ratio": ratio, "least": least, "most": most, "difference": turns.difference(arrays[-1], expected)}
    held.release()
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bin", default=lib.BIN)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--cache", help="a cache with tuned kernels; default: an empty one")
    parser.add_argument("--json", help="a line per kernel")
    parser.add_argument("files", nargs="*")
    arguments = parser.parse_args()
    rows = []
    with lib.Daemon(arguments.bin, *(["--cache", arguments.cache] if arguments.cache else [])) as daemon:
        library = os.path.join(arguments.bin, "../lib/libhone.so")
        client = libhone.Client(library, daemon.socket, 1)
        overhead = overheads(client)
        print(f"a call costs {overhead[0] * 1e6:.2f} us into onnxruntime {onnxruntime.__version__}, "
              f"{overhead[1] * 1e6:.2f} us into libhone; taken off")
        kernels = lib.kernels(arguments.files)
        for number, (_, kernel) in enumerate(kernels):
            lib.progress(f"kernel {number + 1} of {len(kernels)}")
            rows.append(compare(client, kernel, arguments.rounds, overhead))
            if arguments.json:
                with open(arguments.json, "w" if number == 0 else "a", encoding="utf-8") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    lib.progress("")
    report(rows, overhead)
    return 0


def report(rows, overhead):
    measurable = overhead[0] / 4 * 1e6
    tiny = [row for row in rows if max(row["onnxruntime_us"], row["hone_us"]) < measurable]
    for row in tiny:
        print(f"  below what can be measured, left out: {row['hone_us']:.2f} us, onnxruntime {row['onnxruntime_us']:.2f} us  "
              f"{row['kernel']}")
    wrong = [row for row in rows if not row["difference"] < 1e-4]
    rows = [row for row in rows if row not in tiny]
    kinds = {}
    for row in rows:
        kinds.setdefault(row["kind"], []).append(row)
    print(f"{'onnxruntime time / hone time':40} {'kernels':>8} {'geomean':>8} {'least':>8} {'most':>8}")
    means = {}
    for name, some in sorted(kinds.items()):
        ratios = [row["ratio"] for row in some]
        means[name] = lib.geometric_mean(ratios)
        print(f"  {name:38} {len(some):8} {means[name]:8.2f} {min(ratios):8.2f} {max(ratios):8.2f}")
    print("worst ten (range over the rounds):")
    for row in sorted(rows, key=lambda each: each["ratio"])[:10]:
        print(f"  {row['ratio']:5.2f} ({row['least']:.2f} … {row['most']:.2f})  {row['hone_us']:9.1f} us, onnxruntime "
              f"{row['onnxruntime_us']:9.1f} us  {row['kernel']}")
    for row in wrong:
        print(f"  results differ by {row['difference']:.2g} of the largest value: {row['kernel']}")
    lib.mark("results that differ from onnxruntime", len(wrong), "", 0, at_most=True)
    if not rows:
        raise SystemExit("no kernel is long enough to be measured")
    lib.mark("against onnxruntime, all", lib.geometric_mean([row["ratio"] for row in rows]), "x", 0.75, at_most=False)
    lib.mark("against onnxruntime, worst kind", min(means.values()), "x", 0.6, at_most=False)
    lib.mark("against onnxruntime, worst kernel", min(row["ratio"] for row in rows), "x", 0.4, at_most=False)


if __name__ == "__main__":
    sys.exit(main())
