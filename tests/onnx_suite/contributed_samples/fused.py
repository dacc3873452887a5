"""What the optimiser makes of several nodes."""
import numpy

from .case import MICROSOFT


def skip_layer_norm(case):
    b, s, h = case.between(1, 3), case.between(1, 9), case.between(4, 40)
    shape = (b, s, h) if case.pick(0, 1) else (s, h)
    skip = case.pick(shape, shape, (1, s, h), (s, h)) if len(shape) == 3 else shape
    case.add(case.real(*shape)).add(case.real(*skip)).add(case.real(h), True)
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
    if case.pick(0, 1):
        case.add(case.random.integers(0, s, (case.pick(1, b), s)).astype(numpy.int32))
    case.attributes["epsilon"] = 1e-5
    case.outputs = ["y", "count", *(["sum"] if case.pick(0, 1) else [])]


def fused_matmul(case):
    m, n, k, batch = case.between(1, 9), case.between(1, 9), case.between(1, 20), [case.between(1, 3)] * case.pick(0, 1, 2)
    a, b = case.pick(0, 1), case.pick(0, 1)
    case.attributes.update(alpha=0.5, transA=a, transB=b)
    if len(batch) == 1 and case.pick(0, 1):  # the batch behind the rows
        case.attributes.update(transBatchA=1, transBatchB=1)
        first, second = case.real(*batch, *((k, m) if a else (m, k))), case.real(*batch, *((n, k) if b else (k, n)))
        case.add(numpy.ascontiguousarray(first.swapaxes(0, 1))).add(numpy.ascontiguousarray(second.swapaxes(0, 1)))
        return
    case.add(case.real(*batch, *((k, m) if a else (m, k)))).add(case.real(*batch, *((n, k) if b else (k, n))), case.pick(0, 1))


def fused_conv(case):
    c, o, plane, window, sum_shape = case.between(1, 9), case.between(1, 9), case.between(5, 12), case.pick(1, 3), None
    if case.pick(0, 1):
        sum_shape = (1, o, plane, plane)
    case.add(case.real(1, c, plane, plane)).add(case.real(o, c, window, window), True).add(case.real(o) if case.pick(0, 1) else None, True)
    case.add(case.real(*sum_shape) if sum_shape else None)
    function, parameters = case.pick(("Relu", []), ("Sigmoid", []), ("Tanh", []), ("LeakyRelu", [0.2]), ("Clip", [-0.3, 0.4]),
                                     ("HardSigmoid", [0.3, 0.4]))
    case.attributes.update(activation=function, kernel_shape=[window, window], pads=[window // 2] * 4)
    if parameters:
        case.attributes["activation_params"] = parameters


def fused_gemm(case):
    m, n, k = case.between(1, 9), case.between(1, 9), case.between(1, 20)
    case.add(case.real(m, k)).add(case.real(k, n), True).add(case.real(n), True)
    case.attributes.update(activation=case.pick("Relu", "Sigmoid", "Tanh"), alpha=0.7, beta=0.3)


def gelu(case):
    n = case.between(1, 20)
    case.add(case.real(case.between(1, 5), n, least=-4, most=4))
    if case.op == "BiasGelu" or (case.op == "FastGelu" and case.pick(0, 1)):
        case.add(case.real(n), True)
    if case.op == "QuickGelu":
        case.attributes["alpha"] = case.pick(1.702, 1.0)


OPERATORS = [("Gelu", MICROSOFT, gelu), ("BiasGelu", MICROSOFT, gelu), ("FastGelu", MICROSOFT, gelu), ("QuickGelu", MICROSOFT, gelu),
             ("SkipLayerNormalization", MICROSOFT, skip_layer_norm),
             ("SkipSimplifiedLayerNormalization", MICROSOFT, skip_layer_norm),
             ("EmbedLayerNormalization", MICROSOFT, embed_layer_norm),
             ("FusedMatMul", MICROSOFT, fused_matmul),
             ("TransposeMatMul", MICROSOFT, fused_matmul),
             ("FusedConv", MICROSOFT, fused_conv),
             ("FusedGemm", MICROSOFT, fused_gemm)]
