"""Operators on bytes with scales and zero points, each operand with its own."""
import numpy

from .case import MICROSOFT


def add_bytes(case, signed, *shape, constant=False):
    """An operand, its scale, its zero point."""
    least, kind = (-128, numpy.int8) if signed else (0, numpy.uint8)
    case.add(case.random.integers(least, least + 256, shape).astype(kind), constant)
    add_parameters(case, signed)


def add_parameters(case, signed, most=0.05):
    least, kind = (-20, numpy.int8) if signed else (100, numpy.uint8)
    case.add(numpy.float32(case.random.uniform(0.01, most)), True)
    case.add(kind(case.between(least, least + 40)) if case.pick(0, 1) else kind(0), True)


def weights(case, *shape):
    """Of 7 bits: of 8, onnxruntime's sums of two products do not fit its 16 bits where there is no VNNI."""
    return case.random.integers(-60, 61, shape).astype(numpy.int8)


def binary(case):
    signed, shape = case.pick(0, 1), [case.between(1, 5), case.between(1, 9)]
    add_bytes(case, signed, *shape)
    add_bytes(case, signed, *(shape if case.pick(0, 1) else shape[1:]))
    add_parameters(case, signed)


def unary(case):
    signed = case.pick(0, 1)
    add_bytes(case, signed, case.between(1, 5), case.between(1, 9))
    if case.op == "QLinearSigmoid":
        kind, zero = (numpy.int8, -128) if signed else (numpy.uint8, 0)
        case.add(numpy.float32(1 / 256), True).add(kind(zero), True)
    else:
        add_parameters(case, signed)
        case.attributes["alpha"] = 0.1


def softmax(case):
    signed = case.pick(0, 1)
    add_bytes(case, signed, case.between(1, 5), case.between(1, 9), case.between(2, 9))
    kind, zero = (numpy.int8, -128) if signed else (numpy.uint8, 0)
    case.add(numpy.float32(1 / 256), True).add(kind(zero), True)
    case.attributes.update(axis=case.pick(-1, 1) if case.pick(0, 1) else -1, opset=case.pick(12, 13))


def pool(case):
    signed, last = case.pick(0, 1), case.pick(0, 1)
    channels, height, width = case.between(1, 9), case.between(4, 9), case.between(4, 9)
    add_bytes(case, signed, *((2, height, width, channels) if last else (2, channels, height, width)))
    add_parameters(case, signed)
    case.attributes["channels_last"] = last
    if case.op == "QLinearAveragePool":
        case.attributes.update(kernel_shape=[2, 3], strides=[case.pick(1, 2)] * 2, pads=[case.pick(0, 1)] * 4, count_include_pad=case.pick(0, 1))


def concat(case):
    signed, rows = case.pick(0, 1), case.between(1, 5)
    add_parameters(case, signed)
    for _ in range(case.between(2, 3)):
        add_bytes(case, signed, rows, case.between(1, 9), constant=case.pick(0, 0, 1))
    case.attributes["axis"] = case.pick(1, -1)


def gemm(case):
    m, n, k, transposed = case.between(1, 9), case.between(1, 9), case.between(1, 20), case.pick(0, 1)
    add_bytes(case, 0, m, k)
    case.add(weights(case, *((n, k) if transposed else (k, n))), True)
    case.add(numpy.float32(case.random.uniform(0.01, 0.05)), True).add(numpy.int8(case.between(-9, 9)), True)
    case.add(case.random.integers(-500, 500, (n,)).astype(numpy.int32) if case.pick(0, 1) else None, True)
    if case.pick(0, 1):
        add_parameters(case, 0, 0.5)
    case.attributes.update(transB=transposed, alpha=case.pick(1.0, 0.7))


def product_as_floats(case):
    m, n, k = case.between(1, 9), case.between(1, 9), case.between(1, 20)
    case.add(case.random.integers(0, 256, (m, k)).astype(numpy.uint8)).add(weights(case, k, n), True)
    columns = case.pick((), (n,))
    case.add(numpy.float32(0.02), True).add(numpy.asarray(case.real(*columns, least=0.01, most=0.02)), True)
    case.add(numpy.uint8(128), True).add(numpy.asarray(case.random.integers(-9, 9, columns), numpy.int8) if case.pick(0, 1) else None, True)
    case.add(case.real(n) if case.pick(0, 1) else None, True)


def product_of_16_bits(case):
    m, n, k = case.between(1, 9), case.between(1, 9), case.between(1, 20)
    case.add(case.random.integers(-3000, 3000, (m, k)).astype(numpy.int16)).add(case.random.integers(-3000, 3000, (k, n)).astype(numpy.int16))


OPERATORS = [("QLinearAdd", MICROSOFT, binary),
             ("QLinearMul", MICROSOFT, binary),
             ("QLinearSigmoid", MICROSOFT, unary),
             ("QLinearLeakyRelu", MICROSOFT, unary),
             ("QLinearSoftmax", MICROSOFT, softmax),
             ("QLinearGlobalAveragePool", MICROSOFT, pool),
             ("QLinearAveragePool", MICROSOFT, pool),
             ("QLinearConcat", MICROSOFT, concat),
             ("QGemm", MICROSOFT, gemm),
             ("MatMulIntegerToFloat", MICROSOFT, product_as_floats),
             ("MatMulInteger16", MICROSOFT, product_of_16_bits)]
