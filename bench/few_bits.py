#!/usr/bin/env python3
"""Decoders with weights of few bits, through hone and onnxruntime: whether they agree, how fast, and in how much memory.

usage: bench/few_bits.py [--bin DIR] [--layers N] [--width N] [--tokens N …] [--rounds N] [--only REGEX]

Each model is a stack of layers like llama's (norms, products of queries, keys and values, attention without a cache, a gated
product of three) with random weights, written as exporters write them: f32; nbits, MatMulNBits of 4 bits in blocks of 32 with
zero points; qdq8, DequantizeLinear of i8 with a scale an output channel before MatMul; qdq4, DequantizeLinear of 4 bits in blocks.
A line for each number of tokens: hone's time over onnxruntime's, median of rounds that take turns, and what the resident memory of a
process grew by with the session."""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

import lib

BLOCK, HEAD = 32, 64
KINDS = ["f32", "nbits", "qdq8", "qdq4"]


class Stack:
    """A model of a kind under construction."""

    def __init__(self, kind, layers, width, inner, tokens):
        import numpy
        import onnx
        self.numpy, self.helper, self.onnx = numpy, onnx.helper, onnx
        self.kind, self.width, self.inner, self.tokens = kind, width, inner, tokens
        self.random = numpy.random.default_rng(1)
        self.nodes, self.constants, self.count = [], [], 0
        x = "x"
        for _ in range(layers):
            x = self.layer(x)
        value = self.helper.make_tensor_value_info
        graph = self.helper.make_graph(self.nodes, "stack", [value("x", 1, [1, tokens, width])], [value(x, 1, [1, tokens, width])],
                                       self.constants)
        self.model = self.helper.make_model(graph, ir_version=10, opset_imports=[self.helper.make_opsetid("", 21),
                                                                                 self.helper.make_opsetid("com.microsoft", 1)])

    def name(self):
        self.count += 1
        return f"v{self.count}"

    def node(self, op, *inputs, domain="", **attributes):
        self.nodes.append(self.helper.make_node(op, list(inputs), [self.name()], domain=domain, **attributes))
        return self.nodes[-1].output[0]

    def constant(self, values):
        self.constants.append(self.onnx.numpy_helper.from_array(values, self.name()))
        return self.constants[-1].name

    def half_bytes(self, values, shape):
        packed = (values.reshape(-1)[0::2] | values.reshape(-1)[1::2] << 4).astype(self.numpy.uint8)
        tensor = self.onnx.TensorProto(name=self.name(), data_type=self.onnx.TensorProto.UINT4, dims=shape, raw_data=packed.tobytes())
        self.constants.append(tensor)
        return tensor.name

    def product(self, x, rows, columns):
        """x · w, of [columns] numbers a row to [rows]."""
        random, np = self.random, self.numpy
        spread = 1 / columns ** 0.5
        if self.kind == "f32":
            return self.node("MatMul", x, self.constant(random.standard_normal((columns, rows), dtype=np.float32) * np.float32(spread)))
        blocks = columns // BLOCK
        if self.kind == "nbits":
            w = self.constant(random.integers(0, 256, (rows, blocks, BLOCK // 2), dtype=np.uint8))
            scales = self.constant(random.uniform(0.1, 0.3, rows * blocks).astype(np.float32) * np.float32(spread))
            zeros = self.constant(random.integers(6, 10, (rows, blocks // 2), dtype=np.uint8) * np.uint8(17))
            return self.node("MatMulNBits", x, w, scales, zeros, domain="com.microsoft", K=columns, N=rows, bits=4, block_size=BLOCK)
        if self.kind == "qdq8":
            w = self.constant(random.integers(-127, 128, (columns, rows), dtype=np.int8))
            scales = self.constant(random.uniform(0.006, 0.02, rows).astype(np.float32) * np.float32(spread))
            return self.node("MatMul", x, self.node("DequantizeLinear", w, scales, axis=1))
        w = self.half_bytes(random.integers(0, 16, (columns, rows), dtype=np.uint8), (columns, rows))
        scales = self.constant(random.uniform(0.1, 0.3, (blocks, rows)).astype(np.float32) * np.float32(spread))
        zeros = self.half_bytes(np.full((blocks, rows), 8, np.uint8), (blocks, rows))
        return self.node("MatMul", x, self.node("DequantizeLinear", w, scales, zeros, axis=0, block_size=BLOCK))

    def layer(self, x):
        np, width, heads = self.numpy, self.width, self.width // HEAD
        shape = self.constant(np.array([1, self.tokens, heads, HEAD], np.int64))
        back = self.constant(np.array([1, self.tokens, width], np.int64))
        norm = self.node("SimplifiedLayerNormalization", x, self.constant(np.ones(width, np.float32)), epsilon=1e-5, axis=-1)
        q, k, v = (self.node("Reshape", self.product(norm, width, width), shape) for _ in range(3))
        q, v = self.node("Transpose", q, perm=[0, 2, 1, 3]), self.node("Transpose", v, perm=[0, 2, 1, 3])
        scores = self.node("Mul", self.node("MatMul", q, self.node("Transpose", k, perm=[0, 2, 3, 1])), self.constant(np.float32(HEAD ** -0.5)))
        mixed = self.node("Transpose", self.node("MatMul", self.node("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        x = self.node("Add", x, self.product(self.node("Reshape", mixed, back), width, width))
        norm = self.node("SimplifiedLayerNormalization", x, self.constant(np.ones(width, np.float32)), epsilon=1e-5, axis=-1)
        gate = self.product(norm, self.inner, width)
        gate = self.node("Mul", gate, self.node("Sigmoid", gate))
        return self.node("Add", x, self.product(self.node("Mul", gate, self.product(norm, self.inner, width)), width, self.inner))


def resident():
    return int(re.search(r"VmRSS:\s+(\d+)", open("/proc/self/status", encoding="ascii").read()).group(1)) / 1024


def measure(path, socket, rounds, threads):
    """In a process of its own: {"off", "ratio", "hone_ms", "ort_ms", "hone_mib", "ort_mib"}."""
    import hone
    import numpy
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    before = resident()
    ours = hone.Session(path, socket=socket, start=False, threads=threads)
    x = {value.name: numpy.random.default_rng(2).standard_normal(value.shape, dtype=numpy.float32) for value in ours.get_inputs()}
    y = ours.run(x)
    between = resident()
    theirs = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    wanted = theirs.run(None, x)
    after = resident()
    off = float(numpy.abs(y[0] - wanted[0]).max() / numpy.abs(wanted[0]).max())
    times = ([], [])
    for _ in range(rounds):
        for i, run in enumerate((lambda: ours.run(x), lambda: theirs.run(None, x))):
            run()
            burst, begin = [], time.perf_counter()
            while len(burst) < 3 or time.perf_counter() - begin < 0.2:
                start = time.perf_counter()
                run()
                burst.append(time.perf_counter() - start)
            times[i].append(statistics.median(burst))
    ratios = sorted(a / b for a, b in zip(*times))
    print(json.dumps({"off": off, "ratio": statistics.median(ratios), "least": ratios[0], "most": ratios[-1],
                      "hone_ms": 1e3 * statistics.median(times[0]), "ort_ms": 1e3 * statistics.median(times[1]),
                      "hone_mib": between - before, "ort_mib": after - between}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=lib.BIN)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--tokens", type=int, nargs="+", default=[1, 128])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--measure", nargs=2, metavar=("FILE", "SOCKET"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ["HONE_LIBRARY"] = os.path.join(arguments.bin, "../lib/libhone.so")
    os.environ["HONE_NETWORK_LIBRARY"] = os.path.join(arguments.bin, "../lib/libhone_network.so")
    lib.enter("bench-python")
    sys.path.insert(0, os.path.join(lib.ROOT, "python"))
    if arguments.measure:
        return measure(*arguments.measure, arguments.rounds, arguments.threads)
    import onnx
    with tempfile.TemporaryDirectory() as folder, lib.Daemon(arguments.bin) as daemon:
        for kind in KINDS:
            for tokens in arguments.tokens:
                if not re.search(arguments.only, f"{kind} {tokens}"):
                    continue
                path = os.path.join(folder, "model.onnx")
                stack = Stack(kind, arguments.layers, arguments.width, arguments.width * 11 // 4 // BLOCK * BLOCK, tokens)
                onnx.save(stack.model, path)
                done = subprocess.run([sys.executable, os.path.abspath(__file__), "--bin", arguments.bin, "--rounds", str(arguments.rounds),
                                       "--threads", str(arguments.threads), "--measure", path, daemon.socket],
                                      capture_output=True, text=True, check=False)
                if done.returncode != 0:
                    print(f"{kind:6} {tokens:4} tokens: {done.stderr.strip().splitlines()[-1:]}")
                    continue
                seen = json.loads(done.stdout.strip().splitlines()[-1])
                print(f"{kind:6} {tokens:4} tokens: {seen['hone_ms']:8.2f} ms, onnxruntime {seen['ort_ms']:8.2f} ms, "
                      f"{seen['ratio']:.2f} ({seen['least']:.2f} … {seen['most']:.2f}); {seen['hone_mib']:.0f} MiB, "
                      f"onnxruntime {seen['ort_mib']:.0f} MiB; off {seen['off']:.1e}", flush=True)


if __name__ == "__main__":
    main()
