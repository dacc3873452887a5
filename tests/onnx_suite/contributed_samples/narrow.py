"""Weights of bytes and of few bits, mixtures of experts among them."""
import ml_dtypes
import numpy

from .case import MICROSOFT


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


def gather_block_quantized(case):
    rows, blocks, block, bits = case.between(2, 20), case.between(1, 4), case.pick(16, 32), case.pick(4, 8)
    case.add(case.random.integers(0, 255, (rows, blocks * block * bits // 8)).astype(numpy.uint8), True)
    case.add(case.random.integers(0, rows, (case.between(1, 3), case.between(1, 5))).astype(numpy.int64)).add(case.real(rows, blocks), True)
    case.add(case.random.integers(0, 255, (rows, (blocks * bits + 7) // 8)).astype(numpy.uint8) if case.pick(0, 1) else None, True)
    case.attributes.update(bits=bits, block_size=block, gather_axis=0, quantize_axis=1)


def gather_of_4_bits(case):
    sizes = [case.between(2, 20), case.between(1, 3), case.between(16, 70)]
    if case.pick(0, 1):
        del sizes[1]
    axis, along, block, signed = case.pick(0, len(sizes) - 1), case.pick(0, len(sizes) - 1), case.pick(16, 32), case.pick(0, 1)
    scales = [(size + block - 1) // block if i == axis else size for i, size in enumerate(sizes)]
    kind, least = (ml_dtypes.int4, -8) if signed else (ml_dtypes.uint4, 0)
    case.add(case.random.integers(least, least + 16, sizes).astype(numpy.int8).astype(kind), True)
    case.add(case.random.integers(0, sizes[along], (case.between(1, 3), case.between(1, 5))).astype(numpy.int64)).add(case.real(*scales), True)
    case.add(case.random.integers(least, least + 16, scales).astype(numpy.int8).astype(kind) if case.pick(0, 1) else None, True)
    case.attributes.update(block_size=block, gather_axis=along, quantize_axis=axis)


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


def dynamic_quantize_matmul(case):
    m, n, k, signed = case.between(1, 9), case.between(1, 20), case.between(1, 40), case.pick(0, 1)
    case.add(case.real(*[case.between(1, 3)] * case.pick(0, 1), m, k))
    weights = case.random.integers(-60, 60, (k, n)).astype(numpy.int8) if signed else case.random.integers(0, 120, (k, n)).astype(numpy.uint8)
    count = case.pick(1, n)
    case.add(weights, True).add(case.real(*[count] * (count > 1), least=0.01, most=0.02), True)
    case.add(case.random.integers(0, 9, [count] * (count > 1)).astype(weights.dtype) if case.pick(0, 1) else None, True)
    case.add(case.real(n) if case.pick(0, 1) else None, True)


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


OPERATORS = [("MatMulNBits", MICROSOFT, matmul_nbits),
             ("MatMulNBits", MICROSOFT, matmul_nbits_grouped),
             ("MatMulBnb4", MICROSOFT, matmul_bnb4),
             ("GatherBlockQuantized", MICROSOFT, gather_block_quantized),
             ("GatherBlockQuantized", MICROSOFT, gather_of_4_bits),
             ("MoE", MICROSOFT, mixture),
             ("QMoE", MICROSOFT, quantized_mixture),
             ("DynamicQuantizeMatMul", MICROSOFT, dynamic_quantize_matmul),
             ("QEmbedLayerNormalization", MICROSOFT, quantized_embed_layer_norm),
             ("QLinearWhere", MICROSOFT, quantized_where),
             ("NhwcMaxPool", MICROSOFT, pool_of_bytes),
             ("QLinearConv", MICROSOFT, quantized_conv),
             ("DynamicQuantizeLSTM", MICROSOFT, quantized_lstm)]
