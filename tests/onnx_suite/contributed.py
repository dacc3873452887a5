#!/usr/bin/env python3
"""onnxruntime's own operators (com.microsoft), and ONNX's attention, against onnxruntime: random shapes and attributes.

usage: tests/onnx_suite/contributed.py [--bin DIR] [--cases N] [--seed N] [--only REGEX]

By hand; needs onnxruntime, which bench/lib.py installs into build/ the first time. Exit status 1 if a result differs, if hone
refuses what onnxruntime computes, or if fewer than half of an operator's cases could be compared."""
import argparse
import collections
import os
import re
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "python")]
import lib  # noqa: E402

lib.enter("bench-python")
import numpy  # noqa: E402
import onnx  # noqa: E402
import onnxruntime  # noqa: E402
from onnx import helper, numpy_helper  # noqa: E402

TOLERANCE = 2e-5  # of the largest value
# onnxruntime rounds what comes into the layer and each step's state to bytes; hone does not.
LOOSE = {"DynamicQuantizeLSTM": 2e-2}
MICROSOFT = "com.microsoft"


class Case:
    """One node: inputs that the caller gives, constants, attributes."""

    def __init__(self, op, domain, seed):
        self.random = numpy.random.default_rng(seed)
        self.op, self.domain = op, domain
        self.names, self.given, self.constants, self.attributes = [], {}, [], {}
        self.outputs = ["y"]

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
        node = helper.make_node(self.op, self.names, self.outputs, domain=self.domain, **self.attributes)
        inputs = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
                  for name, value in self.given.items()]
        outputs = [helper.make_empty_tensor_value_info(name) for name in self.outputs if name]
        graph = helper.make_graph([node], "g", inputs, outputs, self.constants)
        return helper.make_model(graph, ir_version=10, opset_imports=[
            helper.make_opsetid("", 23 if self.domain == "" else 18), helper.make_opsetid(MICROSOFT, 1)])


def skip_layer_norm(case):
    b, s, h = case.between(1, 3), case.between(1, 9), case.between(4, 40)
    case.add(case.real(b, s, h)).add(case.real(b, s, h)).add(case.real(h), True)
    if case.op == "SkipLayerNormalization":
        case.add(case.real(h) if case.pick(0, 1) else None, True)
    case.add(case.real(h) if case.pick(0, 1) else None, True)
    case.attributes["epsilon"] = 1e-5
    case.outputs = ["y", "", "", "sum"] if case.pick(0, 1) else ["y"]


def embed_layer_norm(case):
    b, s, h, words = case.between(1, 3), case.between(1, 9), case.between(4, 40), case.between(3, 30)
    segments = case.pick(0, 1)
    case.add(case.random.integers(0, words, (b, s)).astype(numpy.int32))
    case.add(case.random.integers(0, 2, (b, s)).astype(numpy.int32) if segments else None)
    case.add(case.real(words, h), True).add(case.real(s + case.between(0, 4), h), True)
    case.add(case.real(2, h) if segments else None, True).add(case.real(h), True).add(case.real(h), True)
    case.add(case.random.integers(0, 2, (b, s)).astype(numpy.int32) if case.pick(0, 1) else None)
    case.attributes["epsilon"] = 1e-5
    case.outputs = ["y", "count"]


def fused_matmul(case):
    m, n, k, batch = case.between(1, 9), case.between(1, 9), case.between(1, 20), [case.between(1, 3)] * case.pick(0, 1, 2)
    a, b = case.pick(0, 1), case.pick(0, 1)
    case.attributes.update(alpha=0.5, transA=a, transB=b)
    case.add(case.real(*batch, *((k, m) if a else (m, k)))).add(case.real(*batch, *((n, k) if b else (k, n))), case.pick(0, 1))


def fused_conv(case):
    c, o, plane, window = case.between(1, 9), case.between(1, 9), case.between(5, 12), case.pick(1, 3)
    case.add(case.real(1, c, plane, plane)).add(case.real(o, c, window, window), True).add(case.real(o), True)
    function, parameters = case.pick(("Relu", []), ("Sigmoid", []), ("Tanh", []), ("LeakyRelu", [0.2]), ("Clip", [-0.3, 0.4]),
                                     ("HardSigmoid", [0.3, 0.4]))
    case.attributes.update(activation=function, kernel_shape=[window, window], pads=[window // 2] * 4)
    if parameters:
        case.attributes["activation_params"] = parameters


def fused_gemm(case):
    m, n, k = case.between(1, 9), case.between(1, 9), case.between(1, 20)
    case.add(case.real(m, k)).add(case.real(k, n), True).add(case.real(n), True)
    case.attributes.update(activation=case.pick("Relu", "Sigmoid", "Tanh"), alpha=0.7, beta=0.3)


def matmul_nbits(case):
    m, n, k, block = case.between(1, 9), case.between(1, 40), case.pick(16, 32, 40, 100), case.pick(16, 32, 64)
    blocks = (k + block - 1) // block
    case.add(case.real(m, k))
    case.add(case.random.integers(0, 256, (n, blocks, block // 2), dtype=numpy.uint8), True).add(case.real(n * blocks), True)
    case.add(case.random.integers(0, 256, (n * ((blocks + 1) // 2),), dtype=numpy.uint8) if case.pick(0, 1) else None, True)
    case.attributes.update(K=k, N=n, bits=4, block_size=block)


def matmul_nbits_grouped(case):
    m, n, k, block, bits = case.between(1, 9), case.between(1, 40), case.pick(16, 32, 64, 96), case.pick(16, 32), 4
    blocks = (k + block - 1) // block
    case.add(case.real(m, k))
    case.add(case.random.integers(0, 256, (n, blocks, block * bits // 8), dtype=numpy.uint8), True).add(case.real(n * blocks), True)
    zeros = case.pick(None, "bytes", "reals")
    case.add(case.random.integers(0, 256, (n * ((blocks * bits + 7) // 8),), dtype=numpy.uint8) if zeros == "bytes" else
             case.real(n * blocks, least=0, most=15) if zeros else None, True)
    # onnxruntime 1.32 takes packed zero points for 8 where columns have groups.
    case.add(case.random.integers(0, blocks, (k,)).astype(numpy.int32) if zeros != "bytes" and case.pick(0, 1) else None, True)
    case.add(case.real(n) if case.pick(0, 1) else None, True)
    case.attributes.update(K=k, N=n, bits=bits, block_size=block)


def matmul_bnb4(case):
    m, n, k, block = case.between(1, 9), case.between(1, 20), case.pick(16, 31, 64), case.pick(16, 32, 64)
    case.add(case.real(m, k)).add(case.random.integers(0, 256, ((n * k + 1) // 2,), dtype=numpy.uint8), True)
    case.add(case.real((n * k + block - 1) // block), True)
    case.attributes.update(K=k, N=n, block_size=block, quant_type=case.pick(0, 1))


def mixture(case):
    tokens, width, inner, experts = case.between(1, 6), case.pick(16, 32), case.pick(16, 48), case.between(2, 6)
    activation = case.pick("relu", "gelu", "silu", "identity", "swiglu")
    fused = 2 if activation == "swiglu" else 1
    case.add(case.real(tokens, width) if case.pick(0, 1) else case.real(1, tokens, width)).add(case.real(tokens, experts))
    case.add(case.real(experts, fused * inner, width), True).add(case.real(experts, fused * inner) if case.pick(0, 1) else None, True)
    case.add(case.real(experts, width, inner), True).add(case.real(experts, width) if case.pick(0, 1) else None, True)
    case.attributes.update(k=case.between(1, min(3, experts)), activation_type=activation, normalize_routing_weights=case.pick(0, 1))
    if fused == 2:
        case.attributes.update(swiglu_fusion=1, activation_alpha=case.pick(1.0, 1.702), activation_beta=case.pick(0.0, 1.0))
        if case.pick(0, 1):
            case.attributes["swiglu_limit"] = 0.8


def quantized_mixture(case):
    tokens, width, inner, experts, bits = case.between(1, 6), case.pick(32, 64), case.pick(32, 64), case.between(2, 6), case.pick(4, 8)
    # Of 8 bits in blocks onnxruntime rounds what comes into a layer to bytes.
    activation, block = case.pick("relu", "silu", "swiglu"), case.pick(0, 16, 32) if bits == 4 else 0
    fused = 2 if activation == "swiglu" else 1
    case.add(case.real(tokens, width)).add(case.real(tokens, experts))
    zeros = case.pick(0, 1)

    def layer(rows, columns):
        blocks = [columns // block] if block else []
        case.add(case.random.integers(0, 256, (experts, rows, columns * bits // 8)).astype(numpy.uint8), True)
        case.add(case.real(experts, rows, *blocks, least=0.01, most=0.02), True)
        case.add(case.real(experts, rows) if case.pick(0, 1) else None, True)
    layer(fused * inner, width)
    layer(width, inner)
    case.add(None).add(None).add(None)
    for rows, columns in ((fused * inner, width), (width, inner)) if zeros and block else ():
        case.add(case.random.integers(0, 256, (experts, rows, (columns // block * bits + 7) // 8)).astype(numpy.uint8), True)
    case.attributes.update(k=case.between(1, min(3, experts)), activation_type=activation, expert_weight_bits=bits,
                           normalize_routing_weights=case.pick(0, 1))
    if block:
        case.attributes["block_size"] = block
    if fused == 2:
        case.attributes["swiglu_fusion"] = 1


def grouped_attention(case):
    kv_heads, size = case.between(1, 3), case.pick(16, 32)
    heads = kv_heads * case.pick(1, 2, 4)
    kind = case.pick("first", "first in a long cache", "next", "next in a long cache", "several more")
    b = 1 if kind == "several more" else case.between(1, 3)
    s = 1 if kind.startswith("next") else case.between(2, 9)
    before = 0 if kind.startswith("first") else case.between(2, 9)
    total, spare = before + s, case.between(1, 6) if "long" in kind else 0
    if case.pick(0, 1):
        case.add(case.real(b, s, heads * size)).add(case.real(b, s, kv_heads * size)).add(case.real(b, s, kv_heads * size))
    else:
        case.add(case.real(b, s, (heads + 2 * kv_heads) * size)).add(None).add(None)
    if kind == "first":
        case.add(None).add(None)
    else:
        case.add(case.real(b, kv_heads, before + s * (before == 0) + spare, size)).add(case.real(b, kv_heads, before + s * (before == 0) + spare, size))
    last = numpy.full((b,), total - 1, numpy.int32)
    if b > 1:
        last[1:] = case.random.integers(s - 1 if before else 0, total, (b - 1,))
    case.add(last).add(numpy.array([total], numpy.int32), True)
    if case.pick(0, 1):
        half = case.pick(8, size // 2)
        case.add(case.real(total + 12, half), True).add(case.real(total + 12, half), True)
        case.add(case.random.integers(0, 3, (b, s)).astype(numpy.int64) if case.pick(0, 0, 1) else None)
        case.attributes.update(do_rotary=1, rotary_interleaved=case.pick(0, 1))
    else:
        case.add(None).add(None).add(None)
    case.add(case.real(case.pick(1, b), case.pick(1, heads), s, total) if case.pick(0, 0, 1) else None)
    sink = case.pick(0, 0, 1)
    case.add(case.real(heads) if sink else None, True)
    case.attributes.update(num_heads=heads, kv_num_heads=kv_heads)
    for name, value in [("local_window_size", case.between(1, 6)), ("softcap", 0.7), ("scale", 0.3), ("smooth_softmax", 1)]:
        if case.pick(0, 0, 1) and not (sink and name == "smooth_softmax"):
            case.attributes[name] = value
    case.outputs = ["y", "k", "v"]


def dynamic_quantize_matmul(case):
    m, n, k, signed = case.between(1, 9), case.between(1, 20), case.between(1, 40), case.pick(0, 1)
    case.add(case.real(*[case.between(1, 3)] * case.pick(0, 1), m, k))
    weights = case.random.integers(-60, 60, (k, n)).astype(numpy.int8) if signed else case.random.integers(0, 120, (k, n)).astype(numpy.uint8)
    count = case.pick(1, n)
    case.add(weights, True).add(case.real(*[count] * (count > 1), least=0.01, most=0.02), True)
    case.add(case.random.integers(0, 9, [count] * (count > 1)).astype(weights.dtype) if case.pick(0, 1) else None, True)
    case.add(case.real(n) if case.pick(0, 1) else None, True)


def quantized_attention(case):
    b, s, heads, size, width = case.between(1, 3), case.between(1, 9), case.between(1, 4), case.pick(4, 8, 16), case.between(4, 40)
    past = case.pick(0, 0, case.between(1, 6))
    case.add(case.random.integers(0, 255, (b, s, width)).astype(numpy.uint8))
    case.add(case.random.integers(-60, 60, (width, 3 * heads * size)).astype(numpy.int8), True)
    case.add(case.real(3 * heads * size), True).add(numpy.float32(0.02), True).add(numpy.float32(0.01), True)
    if case.pick(0, 1):
        values = case.random.integers(0, 2, (b, past + s)).astype(numpy.int32)
        values[:, 0] = 1
        case.add(values)
    else:
        case.add(None)
    case.add(numpy.uint8(128), True).add(numpy.int8(0), True)
    case.add(case.real(2, b, heads, past, size) if past else None)
    case.attributes.update(num_heads=heads, unidirectional=case.pick(0, 1))
    case.outputs = ["y", "present"] if past else ["y"]


def quantized_embed_layer_norm(case):
    b, s, h, words = case.between(1, 3), case.between(1, 9), case.between(4, 40), case.between(3, 30)
    segments = case.pick(0, 1)

    def table(*shape):
        return case.random.integers(0, 255, shape).astype(numpy.uint8)
    case.add(case.random.integers(0, words, (b, s)).astype(numpy.int32))
    case.add(case.random.integers(0, 2, (b, s)).astype(numpy.int32) if segments else None)
    case.add(table(words, h), True).add(table(s, h), True).add(table(2, h) if segments else None, True).add(table(h), True).add(table(h), True)
    case.add(case.random.integers(0, 2, (b, s)).astype(numpy.int32) if case.pick(0, 1) else None)
    for kind, value in ((numpy.float32, 0.02), (numpy.uint8, 100)):
        for i in range(5):
            case.add(kind(value + i * (0.01 if kind == numpy.float32 else 9)) if i != 2 or segments else None, True)
    case.attributes["epsilon"] = 1e-5
    case.outputs = ["y", "count"]


def quantized_where(case):
    shape = [case.between(1, 5), case.between(1, 9)]
    case.add(case.random.integers(0, 2, shape).astype(bool))
    for most in (0.03, 0.05):
        case.add(case.random.integers(0, 255, shape).astype(numpy.uint8)).add(numpy.float32(most), True).add(numpy.uint8(case.between(0, 200)), True)
    case.add(numpy.float32(0.04), True).add(numpy.uint8(110), True)


def gather_block_quantized(case):
    rows, blocks, block, bits = case.between(2, 20), case.between(1, 4), case.pick(16, 32), case.pick(4, 8)
    case.add(case.random.integers(0, 255, (rows, blocks * block * bits // 8)).astype(numpy.uint8), True)
    case.add(case.random.integers(0, rows, (case.between(1, 3), case.between(1, 5))).astype(numpy.int64)).add(case.real(rows, blocks), True)
    case.add(case.random.integers(0, 255, (rows, (blocks * bits + 7) // 8)).astype(numpy.uint8) if case.pick(0, 1) else None, True)
    case.attributes.update(bits=bits, block_size=block, gather_axis=0, quantize_axis=1)


def triangle(case):
    case.add(case.real(case.between(1, 3), case.between(1, 7), case.between(1, 7)))
    case.add(numpy.int64(case.between(-3, 3)) if case.pick(0, 1) else None, True)
    case.attributes["upper"] = case.pick(0, 1)


def grid_sample(case):
    n, c = case.between(1, 3), case.between(1, 3)
    case.add(case.real(n, c, case.between(2, 7), case.between(2, 7)))
    case.add(case.real(n, case.between(1, 5), case.between(1, 5), 2, least=-1.3, most=1.3))
    case.attributes.update(mode=case.pick("bilinear", "nearest"), padding_mode=case.pick("zeros", "border", "reflection"), align_corners=case.pick(0, 1))


def padding(case):
    case.add(case.real(case.between(1, 5), case.between(1, 5))).add(case.random.integers(0, 3, (4,)).astype(numpy.int64), True)
    case.add(numpy.float32(0.5) if case.pick(0, 1) else None, True)
    case.attributes["mode"] = "constant"


def gather_nd(case):
    case.add(case.real(3, 4, 5)).add(case.random.integers(0, 3, (case.between(1, 4), case.between(1, 3))).astype(numpy.int64), case.pick(0, 1))


def counting(case):
    case.add(numpy.float32(case.between(0, 3)), True).add(numpy.float32(case.between(4, 9)), True)
    case.add(numpy.float32(0.5) if case.pick(0, 1) else None, True)


def distances(case):
    m, n, k = case.between(1, 9), case.between(1, 9), case.between(1, 20)
    case.add(case.real(m, k)).add(case.real(n, k))
    case.attributes["metric"] = case.pick("sqeuclidean", "euclidean")


def inverse(case):
    n = case.between(1, 6)
    case.add(case.real(case.between(1, 3), n, n) + 2 * numpy.eye(n, dtype=numpy.float32))


def pool_of_bytes(case):
    case.add(case.random.integers(0, 255, (1, case.between(4, 9), case.between(4, 9), case.between(1, 20))).astype(numpy.uint8))
    case.attributes.update(kernel_shape=[2, 2], strides=[case.pick(1, 2)] * 2, pads=[case.pick(0, 1)] * 4)


def quantized_conv(case):
    c, o, plane, window, last = case.between(1, 9), case.between(1, 9), case.between(5, 12), case.pick(1, 3), case.pick(0, 1)
    case.add(case.random.integers(0, 255, (1, plane, plane, c) if last else (1, c, plane, plane)).astype(numpy.uint8))
    case.add(numpy.float32(0.02), True).add(numpy.uint8(100), True)
    case.add(case.random.integers(-60, 60, (o, c, window, window)).astype(numpy.int8), True).add(numpy.float32(0.01), True).add(numpy.int8(0), True)
    case.add(numpy.float32(0.05), True).add(numpy.uint8(128), True)
    case.attributes.update(channels_last=last, kernel_shape=[window, window], pads=[window // 2] * 4)


def quantized_lstm(case):
    s, b, width, hidden, both = case.between(1, 5), case.between(1, 3), case.between(4, 12), case.pick(4, 8), case.pick(0, 1)
    case.add(case.real(s, b, width))
    for rows in (width, hidden):
        case.add(case.random.integers(-60, 60, (1 + both, rows, 4 * hidden)).astype(numpy.int8), True)
    case.add(case.real(1 + both, 8 * hidden) if case.pick(0, 1) else None, True)
    for _ in range(4):
        case.add(None)
    for _ in range(2):
        case.add(case.real(1 + both, least=0.004, most=0.006), True).add(numpy.zeros(1 + both, numpy.int8), True)
    case.attributes.update(hidden_size=hidden, direction="bidirectional" if both else "forward")
    case.outputs = ["y", "h", "c"]


def attention(case):
    b, s, heads, size = case.between(1, 3), case.between(1, 9), case.between(1, 4), case.pick(4, 8, 16)
    width, inputs = heads * size, case.between(4, 40)
    case.add(case.real(b, s, inputs)).add(case.real(inputs, 3 * width), True).add(case.real(3 * width), True)
    past = case.pick(0, 0, case.between(1, 6))
    mask = case.pick(None, "keys", "count") if not past else case.pick(None, "keys")
    if mask == "keys":
        values = case.random.integers(0, 2, (b, past + s)).astype(numpy.int32)
        values[:, 0] = 1
        case.add(values)
    elif mask == "count":
        case.add(case.random.integers(1, s + 1, (b,)).astype(numpy.int32))
    else:
        case.add(None)
    case.add(case.real(2, b, heads, past, size) if past else None)
    case.add(case.real(1, heads, s, past + s) if case.pick(0, 1) else None)
    case.attributes.update(num_heads=heads, unidirectional=case.pick(0, 1))
    case.outputs = ["y", "present"] if past else ["y"]


def multi_head_attention(case):
    b, s, keys, heads, size = case.between(1, 3), case.between(1, 9), case.between(1, 9), case.between(1, 4), case.pick(4, 8, 16)
    width = heads * size
    past = case.pick(0, 0, case.between(1, 6))
    keys = s if past else keys
    case.add(case.real(b, s, width)).add(case.real(b, keys, width)).add(case.real(b, keys, width))
    case.add(case.real(3 * width) if case.pick(0, 1) else None, True)
    if not past and case.pick(0, 1):
        values = case.random.integers(0, 2, (b, keys)).astype(numpy.int32)
        values[:, 0] = 1
        case.add(values)
    else:
        case.add(None)
    case.add(case.real(b, heads, s, past + keys) if case.pick(0, 1) else None)
    if past:
        case.add(case.real(b, heads, past, size)).add(case.real(b, heads, past, size))
        case.outputs = ["y", "k", "v"]
    case.attributes.update(num_heads=heads)


def rotary(case):
    b, s, heads, size = case.between(1, 3), case.between(1, 9), case.between(1, 4), case.pick(4, 8, 16)
    x = case.real(b, s, heads * size) if case.pick(0, 1) else case.real(b, heads, s, size)
    tables = [case.real(s + 5, size // 2), case.real(s + 5, size // 2)]
    positions = case.random.integers(0, s + 5, (b, s)).astype(numpy.int64)
    if case.domain:
        one = case.pick(0, 1)
        case.add(x).add(numpy.array([2], numpy.int64) if one else positions).add(tables[0], True).add(tables[1], True)
    else:
        case.add(x).add(tables[0], True).add(tables[1], True).add(positions)
        if x.ndim == 3:
            case.attributes["num_heads"] = heads
    case.attributes["interleaved"] = case.pick(0, 1)


def onnx_attention(case):
    b, s, keys, size = case.between(1, 3), case.between(1, 9), case.between(1, 9), case.pick(4, 8, 16)
    kv_heads = case.between(1, 3)
    heads = kv_heads * case.pick(1, 2, 3)
    past = case.pick(0, 0, case.between(1, 6))
    if case.pick(0, 1):
        case.add(case.real(b, heads, s, size)).add(case.real(b, kv_heads, keys, size)).add(case.real(b, kv_heads, keys, size))
    else:
        case.add(case.real(b, s, heads * size)).add(case.real(b, keys, kv_heads * size)).add(case.real(b, keys, kv_heads * size))
        case.attributes.update(q_num_heads=heads, kv_num_heads=kv_heads)
    mask = case.pick(None, "bool", "float")
    if mask == "bool":
        values = case.random.integers(0, 2, (s, past + keys)).astype(bool)
        values[:, 0] = True
        case.add(values)
    else:
        case.add(case.real(b, 1, s, past + keys) if mask else None)
    if past:
        case.add(case.real(b, kv_heads, past, size)).add(case.real(b, kv_heads, past, size))
        case.outputs = ["y", "k", "v"]
    elif case.pick(0, 1):
        case.attributes["is_causal"] = 1
    if case.pick(0, 1):
        case.attributes["scale"] = 0.3


OPERATORS = [("SkipLayerNormalization", MICROSOFT, skip_layer_norm),
             ("SkipSimplifiedLayerNormalization", MICROSOFT, skip_layer_norm),
             ("EmbedLayerNormalization", MICROSOFT, embed_layer_norm), ("FusedMatMul", MICROSOFT, fused_matmul),
             ("FusedConv", MICROSOFT, fused_conv), ("FusedGemm", MICROSOFT, fused_gemm),
             ("MatMulNBits", MICROSOFT, matmul_nbits), ("MatMulNBits", MICROSOFT, matmul_nbits_grouped),
             ("MoE", MICROSOFT, mixture), ("QMoE", MICROSOFT, quantized_mixture),
             ("MatMulBnb4", MICROSOFT, matmul_bnb4), ("GroupQueryAttention", MICROSOFT, grouped_attention), ("DynamicQuantizeMatMul", MICROSOFT, dynamic_quantize_matmul),
             ("QAttention", MICROSOFT, quantized_attention), ("QEmbedLayerNormalization", MICROSOFT, quantized_embed_layer_norm),
             ("QLinearWhere", MICROSOFT, quantized_where), ("GatherBlockQuantized", MICROSOFT, gather_block_quantized),
             ("Pad", MICROSOFT, padding), ("GatherND", MICROSOFT, gather_nd),
             ("Range", MICROSOFT, counting), ("CDist", MICROSOFT, distances), ("Inverse", MICROSOFT, inverse),
             ("NhwcMaxPool", MICROSOFT, pool_of_bytes), ("QLinearConv", MICROSOFT, quantized_conv),
             ("DynamicQuantizeLSTM", MICROSOFT, quantized_lstm), ("Trilu", MICROSOFT, triangle), ("GridSample", MICROSOFT, grid_sample), ("TransposeMatMul", MICROSOFT, fused_matmul),
             ("Attention", MICROSOFT, attention),
             ("MultiHeadAttention", MICROSOFT, multi_head_attention), ("RotaryEmbedding", MICROSOFT, rotary),
             ("RotaryEmbedding", "", rotary), ("Attention", "", onnx_attention)]


def difference(ours, theirs):
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return float("inf")
    off = numpy.abs(ours.astype(numpy.float64) - theirs.astype(numpy.float64))
    if not numpy.isfinite(off).all():
        return float("inf")
    return float(off.max() / max(1e-30, float(numpy.abs(theirs).max()))) if off.size else 0.0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=lib.BIN)
    parser.add_argument("--cases", type=int, default=24, help="of each operator")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    os.environ["HONE_LIBRARY"] = os.path.join(arguments.bin, "../lib/libhone.so")
    os.environ["HONE_NETWORK_LIBRARY"] = os.path.join(arguments.bin, "../lib/libhone_network.so")
    import hone
    status = 0
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    with lib.Daemon(arguments.bin) as daemon, tempfile.TemporaryDirectory() as folder:
        for op, domain, make in OPERATORS:
            name = f"{domain or 'ai.onnx'}.{op}"
            if not re.search(arguments.only, name):
                continue
            worst, compared, said = 0.0, 0, collections.Counter()
            for seed in range(arguments.seed, arguments.seed + arguments.cases):
                case = Case(op, domain, seed)
                make(case)
                path = os.path.join(folder, "case.onnx")
                onnx.save(case.model(), path)
                try:
                    theirs = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, case.given)
                except Exception as error:  # its own kinds, which are not public
                    said["onnxruntime: " + str(error)[-120:].replace("\n", " ")] += 1
                    continue
                compared += 1
                try:
                    with hone.Session(path, socket=daemon.socket, start=False) as session:
                        ours = session.run(case.given)
                except hone.Error as error:
                    said[f"hone, seed {seed}: {error}"[:200]] += 1
                    status = 1
                    continue
                off = max(difference(a, b) for a, b in zip(ours, theirs))
                worst = max(worst, off)
                if off > LOOSE.get(op, TOLERANCE):
                    status = 1
                    said[f"OFF by {off:.1e}, seed {seed}: {case.attributes}"] += 1
            print(f"{name:48} {compared:3} compared, off {worst:.1e}")
            for words, count in said.most_common(6):
                print(f"    {count} x {words}")
            if compared * 2 < arguments.cases:
                status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
