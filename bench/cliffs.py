#!/usr/bin/env python3
"""Cliffs: small changes of a computation that cost much of its speed.

usage: bench/cliffs.py [--bin DIR] [--only REGEX] [--random N] [--seed N] [--threads N] [--rounds N] [--json FILE]

Known ones first: graphs of a few layers that were slow once, or are slow elsewhere, beside onnxruntime; kernels that it has no
operator for, beside half of their bound (the greater of arithmetic at the FMA peak and of their operands' bytes at the speed
of reading memory, both measured here). Then random ones: --random graphs of layers with odd extents, windows, strides and
groups, beside onnxruntime, of which the slowest are listed; they set no mark but one for wrong results. Schedules are those
that hone serves at once; graphs and onnxruntime's sessions take turns. A ratio is the other's time over hone's: above 1, hone
is faster.

Needs Python's onnxruntime, onnx and numpy, in an environment of their own that is made the first time."""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

import lib

lib.enter("bench-python")
import numpy  # noqa: E402
import onnx  # noqa: E402
import onnxruntime  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import libhone  # noqa: E402
import turns  # noqa: E402
import zoo  # noqa: E402

SHOWN = 12  # of the random ones
LEAST_US = 100  # of onnxruntime's time: below, a session's own time is most of what is seen


class Graph:
    """An ONNX graph of one input under construction; weights are random, variances positive."""

    def __init__(self, *shape, seed=0):
        self.random = numpy.random.default_rng(seed)
        self.input = list(shape)
        self.nodes, self.weights = [], []
        self.value = "x"
        self.shape = list(shape)

    def weight(self, *shape, least=-1.0):
        array = self.random.uniform(least, 1, shape).astype(numpy.float32)
        if len(shape) > 1:
            array /= max(1, int(numpy.prod(shape[1:]))) ** 0.5
        return self.constant(array)

    def constant(self, array):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(numpy.asarray(array), name))
        return name

    def node(self, kind, inputs, shape=None, **attributes):
        self.value = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [self.value], **attributes))
        if shape is not None:
            self.shape = list(shape)
        return self

    def conv(self, outputs, window, stride=1, pad=None, groups=1, dilation=1, bias=True):
        n, channels, *plane = self.shape
        windows = [window] * len(plane) if isinstance(window, int) else list(window)
        pads = [(each - 1) * dilation // 2 for each in windows] if pad is None else [pad] * len(plane)
        inputs = [self.value, self.weight(outputs, channels // groups, *windows)] + ([self.weight(outputs)] if bias else [])
        extent = [(e + 2 * p - (w - 1) * dilation - 1) // stride + 1 for e, p, w in zip(plane, pads, windows)]
        return self.node("Conv", inputs, [n, outputs, *extent], group=groups, strides=[stride] * len(plane), pads=pads * 2,
                         dilations=[dilation] * len(plane))

    def transposed(self, outputs, window, stride, pad=0, groups=1):
        n, channels, *plane = self.shape
        extent = [(e - 1) * stride - 2 * pad + window for e in plane]
        return self.node("ConvTranspose", [self.value, self.weight(channels, outputs // groups, window, window)],
                         [n, outputs, *extent], strides=[stride] * 2, pads=[pad] * 4, group=groups)

    def pad(self, mode, by):
        n, channels, *plane = self.shape
        pads = self.constant(numpy.array([0, 0, by, by] * 2, numpy.int64))
        return self.node("Pad", [self.value, pads], [n, channels, *(e + 2 * by for e in plane)], mode=mode)

    def norm(self):
        c = self.shape[1]
        return self.node("BatchNormalization",
                         [self.value, self.weight(c), self.weight(c), self.weight(c), self.weight(c, least=0.5)])

    def apply(self, kind, **attributes):
        return self.node(kind, [self.value], **attributes)

    def transpose(self, *order):
        return self.node("Transpose", [self.value], [self.shape[each] for each in order], perm=order)

    def mean(self, axis):
        return self.node("ReduceMean", [self.value], [1 if d == axis else e for d, e in enumerate(self.shape)], axes=[axis])

    def pool(self, kind, window, stride, pad=0):
        n, channels, *plane = self.shape
        extent = [(e + 2 * pad - window) // stride + 1 for e in plane]
        return self.node(kind, [self.value], [n, channels, *extent], kernel_shape=[window] * 2, strides=[stride] * 2, pads=[pad] * 4)

    def dense(self, outputs):
        self.node("MatMul", [self.value, self.weight(self.shape[-1], outputs)], [*self.shape[:-1], outputs])
        return self.node("Add", [self.value, self.weight(outputs)])

    def gelu(self):
        x = self.value
        self.node("Div", [x, self.constant(numpy.float32(2 ** 0.5))]).apply("Erf")
        self.node("Add", [self.value, self.constant(numpy.float32(1))]).node("Mul", [x, self.value])
        return self.node("Mul", [self.value, self.constant(numpy.float32(0.5))])

    def silu(self):
        x = self.value
        return self.apply("Sigmoid").node("Mul", [x, self.value])

    def concat(self, first):
        shape = [*self.shape]
        shape[1] += first[1][1]
        return self.node("Concat", [first[0], self.value], shape, axis=1)

    def model(self):
        graph = helper.make_graph(self.nodes, "cliff", [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.input)],
                                  [helper.make_tensor_value_info(self.value, TensorProto.FLOAT, self.shape)], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def dense_block(channels, plane, layers, growth=32):
    """DenseNet's: each layer reads all before it."""
    graph = Graph(1, channels, plane, plane)
    for _ in range(layers):
        before = (graph.value, [*graph.shape])
        graph.norm().apply("Relu").conv(4 * growth, 1, bias=False).norm().apply("Relu").conv(growth, 3, bias=False).concat(before)
    return graph


def branches(channels, plane, outputs):
    """Inception's: convolutions of one input side by side."""
    graph = Graph(1, channels, plane, plane)
    start = ("x", [*graph.shape])
    done = None
    for window, width in zip((1, 3, 5), outputs):
        graph.value, graph.shape = start[0], [*start[1]]
        graph.conv(width, window).apply("Relu")
        if done:
            graph.concat(done)
        done = (graph.value, [*graph.shape])
    return graph


GRAPHS = {
    "border: edge, box 5x5, 1x480x640": lambda: Graph(1, 1, 480, 640).pad("edge", 2).conv(1, 5, pad=0, bias=False),
    "border: reflect, conv 3x3, 64x56x56": lambda: Graph(1, 64, 56, 56).pad("reflect", 1).conv(64, 3, pad=0),
    "border: reflect, conv 7x7, 3x224x224": lambda: Graph(1, 3, 224, 224).pad("reflect", 3).conv(64, 7, pad=0),
    "border: edge, depthwise 3x3, 96x56x56": lambda: Graph(1, 96, 56, 56).pad("edge", 1).conv(96, 3, pad=0, groups=96),
    "concat: dense block, 64x56x56": lambda: dense_block(64, 56, 6),
    "concat: dense block, 256x14x14": lambda: dense_block(256, 14, 12),
    "concat: dense block, 512x7x7": lambda: dense_block(512, 7, 8),
    "concat: branches, 192x28x28": lambda: branches(192, 28, (64, 128, 32)),
    "transposed 2x2 by 2, 128x28x28": lambda: Graph(1, 128, 28, 28).transposed(64, 2, 2),
    "transposed 4x4 by 2, 64x32x32": lambda: Graph(1, 64, 32, 32).transposed(32, 4, 2, 1).apply("Relu"),
    "transposed 4x4 by 2, 512x8x8": lambda: Graph(1, 512, 8, 8).transposed(256, 4, 2, 1).apply("Relu"),
    "transposed 3x3 by 2, 256x14x14": lambda: Graph(1, 256, 14, 14).transposed(128, 3, 2, 1),
    "transposed 16x16 by 8, 21x28x28": lambda: Graph(1, 21, 28, 28).transposed(21, 16, 8, 4),
    "transposed 4x4 by 2, 64 groups, 64x28x28": lambda: Graph(1, 64, 28, 28).transposed(64, 4, 2, 1, groups=64),
    "depthwise 7x7, 96x56x56": lambda: Graph(1, 96, 56, 56).conv(96, 7, groups=96),
    "depthwise 7x7, 384x14x14": lambda: Graph(1, 384, 14, 14).conv(384, 7, groups=384),
    "depthwise 9x9, 192x28x28": lambda: Graph(1, 192, 28, 28).conv(192, 9, groups=192),
    "depthwise 31x31, 128x28x28": lambda: Graph(1, 128, 28, 28).conv(128, 31, groups=128),
    "depthwise 7x7 by 2, 96x56x56": lambda: Graph(1, 96, 56, 56).conv(96, 7, stride=2, groups=96),
    "depthwise 5x5 by 2, 144x56x56": lambda: Graph(1, 144, 56, 56).conv(144, 5, stride=2, groups=144),
    "depthwise 3x3 dilated 2, 256x28x28": lambda: Graph(1, 256, 28, 28).conv(256, 3, groups=256, dilation=2),
    "depthwise 1x11, 128x28x28": lambda: Graph(1, 128, 28, 28).conv(128, (1, 11), groups=128),
    "depthwise 3, 768x512": lambda: Graph(1, 768, 512).conv(768, 3, groups=768),
    "softmax, rows of 197": lambda: Graph(12, 197, 197).apply("Softmax", axis=-1),
    "softmax, rows of 49": lambda: Graph(64, 3, 49, 49).apply("Softmax", axis=-1),
    "softmax, rows of 1001": lambda: Graph(300, 1001).apply("Softmax", axis=-1),
    "softmax, rows of 50257": lambda: Graph(16, 50257).apply("Softmax", axis=-1),
    "softmax over channels, 21x120x160": lambda: Graph(1, 21, 120, 160).apply("Softmax", axis=1),
    "1x1, 720 to 720, 20x20": lambda: Graph(1, 720, 20, 20).conv(720, 1),
    "1x1, 960 to 160, 14x14": lambda: Graph(1, 960, 14, 14).conv(160, 1),
    "1x1, 1024 to 256, 28x28": lambda: Graph(1, 1024, 28, 28).conv(256, 1),
    "1x1, 1280 to 320, 16x16": lambda: Graph(1, 1280, 16, 16).conv(320, 1),
    "1x1, 1792 to 448, 12x12": lambda: Graph(1, 1792, 12, 12).conv(448, 1),
    "gelu, 128x768 to 3072": lambda: Graph(128, 768).dense(3072).gelu(),
    "gelu, 197x768 to 3072": lambda: Graph(197, 768).dense(3072).gelu(),
    "gelu, 512x1024 to 4096": lambda: Graph(512, 1024).dense(4096).gelu(),
    "grouped 32, 256x28x28": lambda: Graph(1, 256, 28, 28).conv(256, 3, groups=32),
    "grouped 32 by 2, 512x28x28": lambda: Graph(1, 512, 28, 28).conv(512, 3, stride=2, groups=32),
    "grouped 2, 96x55x55": lambda: Graph(1, 96, 55, 55).conv(256, 5, groups=2),
    "dilated 12, 256x28x28": lambda: Graph(1, 256, 28, 28).conv(64, 3, dilation=12, pad=12),
    "one channel out, 64x112x112": lambda: Graph(1, 64, 112, 112).conv(1, 3),
    "3-d conv 3x3x3, 32x16x28x28": lambda: Graph(1, 32, 16, 28, 28).conv(32, 3),
    "1-d conv 3, 512x1000": lambda: Graph(1, 512, 1000).conv(512, 3),
    "1-d conv 10 by 5, 1x16000": lambda: Graph(1, 1, 16000).conv(512, 10, stride=5, pad=0),
    "maxpool 3x3 by 2, 64x112x112": lambda: Graph(1, 64, 112, 112).pool("MaxPool", 3, 2, 1),
    "maxpool 13x13, 256x16x16": lambda: Graph(1, 256, 16, 16).pool("MaxPool", 13, 1, 6),
    "avgpool 3x3, 288x35x35": lambda: Graph(1, 288, 35, 35).pool("AveragePool", 3, 1, 1),
    "channels last: transpose of 96x56x56": lambda: Graph(1, 96, 56, 56).transpose(0, 2, 3, 1),
    "shuffle: 116x28x28 in two groups": lambda: Graph(1, 2, 58, 784).transpose(0, 2, 1, 3),
    "mean over rows of 3000": lambda: Graph(500, 3000).mean(1),
    "mean over columns, 3000x500": lambda: Graph(3000, 500).mean(0),
    "one row by 4096x4096": lambda: Graph(1, 4096).dense(4096),
    "three rows by 1024x1024": lambda: Graph(3, 1024).dense(1024),
    "prime: 131x523 by 523x397": lambda: Graph(131, 523).dense(397),
}

BOX = ("kernel \"box\"(x: f32[480, 640]) -> y: f32[480, 640] {{ y[i, j] = sum(r < 5, s < 5) {} / 25.0 }}")
KERNELS = {
    "box 5x5, clamp": BOX.format("x[clamp(i + r - 2, 0, 479), clamp(j + s - 2, 0, 639)]"),
    "box 5x5, pad": BOX.format("pad(x[i + r - 2, j + s - 2], 0.0)"),
    "gradient, clamp": "kernel \"gradient\"(x: f32[1080, 1920]) -> y: f32[1080, 1920] { "
                       "y[i, j] = abs(x[i, clamp(j + 1, 0, 1919)] - x[i, clamp(j - 1, 0, 1919)]) + "
                       "abs(x[clamp(i + 1, 0, 1079), j] - x[clamp(i - 1, 0, 1079), j]) }",
}


def random_graph(seed):
    """Of one to three layers; the extents are those that nobody tunes for."""
    random = numpy.random.default_rng(seed)

    def pick(*options):
        return options[int(random.integers(len(options)))]

    def between(least, most):
        return int(round(float(numpy.exp(random.uniform(numpy.log(least), numpy.log(most))))))
    if random.random() < 0.25:
        graph = Graph(between(1, 300), between(30, 1500), seed=seed)
        for _ in range(int(random.integers(1, 3))):
            graph.dense(between(30, 1500))
            pick(lambda: graph.apply("Relu"), graph.gelu, graph.silu, lambda: graph.apply("Softmax", axis=-1), lambda: graph)()
        return graph
    plane = between(6, 120)
    graph = Graph(1, between(1, 400), plane, max(1, plane + int(random.integers(-5, 6))), seed=seed)
    for _ in range(int(random.integers(1, 4))):
        channels, smallest = graph.shape[1], min(graph.shape[2:])
        start = (graph.value, [*graph.shape])
        kind = pick("conv", "conv", "conv", "depthwise", "grouped", "transposed", "pool", "pad")
        window = pick(1, 1, 2, 3, 3, 3, 4, 5, 7, 9)
        stride, dilation = pick(1, 1, 1, 2, 3), pick(1, 1, 1, 2)
        if (window - 1) * dilation + 1 > smallest:
            window, stride, dilation = 1, 1, 1
        if kind == "conv":
            graph.conv(between(1, 300), window, stride, dilation=dilation)
        elif kind == "depthwise":
            graph.conv(channels * pick(1, 1, 2), window, stride, groups=channels, dilation=dilation)
        elif kind == "grouped":
            groups = pick(*[each for each in range(1, channels + 1) if channels % each == 0])
            graph.conv(groups * between(1, max(1, 300 // groups)), window, stride, groups=groups)
        elif kind == "transposed" and smallest < 60:
            graph.transposed(between(1, 100), max(window, stride), stride)
        elif kind == "pool":
            graph.pool(pick("MaxPool", "AveragePool"), window, stride)
        elif kind == "pad" and smallest > 3:
            graph.pad(pick("reflect", "edge"), 1).conv(between(1, 100), 3, pad=0)
        if random.random() < 0.3:
            graph.norm()
        pick(lambda: graph.apply("Relu"), graph.silu, lambda: graph.apply("HardSwish"), lambda: graph)()
        if graph.shape[2:] == start[1][2:] and random.random() < 0.3:
            graph.concat(start)
    return graph


class Bench:
    def __init__(self, arguments, daemon):
        os.environ["HONE_LIBRARY"] = os.path.join(arguments.bin, "../lib/libhone.so")
        os.environ["HONE_NETWORK_LIBRARY"] = os.path.join(arguments.bin, "../lib/libhone_network.so")
        sys.path.insert(0, os.path.join(lib.ROOT, "python"))
        import hone
        self.sessions = hone.Session
        self.arguments, self.daemon = arguments, daemon
        self.client = libhone.Client(libhone_path(arguments.bin), daemon.socket, arguments.threads)
        self.rows, self.wrong = [], 0

    def graph(self, name, graph):
        """onnxruntime's time over hone's; None where there is nothing to compare."""
        model = graph.model()
        onnx.checker.check_model(model)
        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads, options.inter_op_num_threads = 3, self.arguments.threads, 1
        theirs = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        given = {"x": graph.random.uniform(-1, 1, graph.input).astype(numpy.float32)}
        with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
            onnx.save(model, file.name)
            ours = self.sessions(file.name, threads=self.arguments.threads, socket=self.daemon.socket, start=False)
        off = zoo.difference(ours.run(given)[0], theirs.run(None, given)[0])
        times = turns.take([lambda: ours.run(given), lambda: theirs.run(None, given)], [0, 0], self.arguments.rounds,
                           self.arguments.threads)
        ours.close()
        ratio, least, most = turns.ratios(*times)
        us = [statistics.median(each) * 1e6 for each in times]
        row = {"name": name, "ratio": ratio, "least": least, "most": most, "hone_us": us[0], "other_us": us[1], "off": off}
        self.rows.append(row)
        self.wrong += off > zoo.AGREE
        return row

    def kernel(self, name, text, peaks):
        """Half the bound over hone's time."""
        held = self.client.get(text, self.arguments.threads)
        arrays = turns.operands(held)
        work = held.bind(arrays)
        times = turns.take([work], [0], self.arguments.rounds, self.arguments.threads)[0]
        bound = max(held.info.flops / peaks["fma_gflops"] / 1e9, sum(each.nbytes for each in arrays) / peaks["read_gb_s"] / 1e9)
        held.release()
        us = statistics.median(times) * 1e6
        row = {"name": name, "ratio": 2e6 * bound / us, "least": 2 * bound / max(times), "most": 2 * bound / min(times), "hone_us": us,
               "other_us": 2e6 * bound, "off": 0.0}
        self.rows.append(row)
        return row


def libhone_path(binaries):
    return os.path.join(binaries, "../lib/libhone.so")


def line(row):
    return (f"  {row['ratio']:6.2f} ({row['least']:.2f} … {row['most']:.2f})  {row['hone_us']:9.1f} us  {row['other_us']:9.1f} us  "
            f"{row['name']}" + (f"  OFF by {row['off']:.1e}" if row["off"] > zoo.AGREE else ""))


def describe(graph):
    """A graph in a line: the layers with their windows."""
    words = []
    for node in graph.nodes:
        facts = {each.name: list(each.ints) or each.i for each in node.attribute}
        shape = next((list(each.dims) for each in graph.weights if len(node.input) > 1 and each.name == node.input[1]), [])
        words.append(node.op_type + (f" {'x'.join(map(str, shape))}" if len(shape) > 1 else "") +
                     "".join(f" {key} {value}" for key, value in facts.items()
                             if key in ("group", "strides", "dilations", "kernel_shape") and value not in (1, [1, 1])))
    return f"{'x'.join(map(str, graph.input))}: " + ", ".join(words)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=lib.BIN)
    parser.add_argument("--only", default="", help="known cliffs whose name matches")
    parser.add_argument("--random", type=int, default=100, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", help="a line a graph or kernel")
    arguments = parser.parse_args()
    with lib.Daemon(arguments.bin) as daemon:
        bench = Bench(arguments, daemon)
        print("known cliffs, onnxruntime's time over hone's:")
        graphs, kernels = [], []
        for name, make in GRAPHS.items():
            if re.search(arguments.only, name):
                graphs.append(bench.graph(name, make()))
                print(line(graphs[-1]), flush=True)
        peaks = json.loads(subprocess.run([os.path.join(arguments.bin, "peak")], capture_output=True, check=True).stdout)
        print("kernels, half their bound over hone's time:")
        for name, text in KERNELS.items():
            if re.search(arguments.only, name):
                kernels.append(bench.kernel(name, text, peaks))
                print(line(kernels[-1]), flush=True)
        found = []
        for seed in range(arguments.seed, arguments.seed + arguments.random):
            lib.progress(f"random graph {seed - arguments.seed + 1} of {arguments.random}")
            graph = random_graph(seed)
            if graph.nodes:
                found.append(bench.graph(f"{seed}: {describe(graph)}", graph))
        lib.progress("")
        shown = sorted((row for row in found if row["other_us"] >= LEAST_US), key=lambda row: row["ratio"])
        if shown:
            print(f"random graphs: {len(found)}, of {len(shown)} above {LEAST_US} us the slowest beside onnxruntime:")
            for row in shown[:SHOWN]:
                print(line(row))
            print(f"  their geometric mean: {lib.geometric_mean([row['ratio'] for row in shown]):.2f}")
        for row in found:
            if row["off"] > zoo.AGREE:
                print(line(row))
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in bench.rows)
    if graphs:
        lib.mark("cliffs: against onnxruntime, worst", min(row["ratio"] for row in graphs), "x", 0.9, at_most=False)
        lib.mark("cliffs: against onnxruntime, mean", lib.geometric_mean([row["ratio"] for row in graphs]), "x", 1.0, at_most=False)
    if kernels:
        lib.mark("cliffs: half the bound / time, worst", min(row["ratio"] for row in kernels), "x", 1.0, at_most=False)
    lib.mark("cliffs: results that differ", bench.wrong, "", 0, at_most=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
