"""Attention and what belongs to it."""
import numpy

from .case import MICROSOFT


def add_mask(case, batch, queries, keys, *kinds):
    """Which keys count: of each batch, or of each query, or how many of them."""
    kind = case.pick(None, *kinds)
    if kind == "count":
        case.add(case.random.integers(1, keys + 1, (batch,)).astype(numpy.int32))
    elif kind:
        values = case.random.integers(0, 2, (batch, keys) if kind == "keys" else (batch, queries, keys)).astype(numpy.int32)
        values[..., 0] = 1
        case.add(values)
    else:
        case.add(None)


def attention(case):
    b, s, heads, size = case.between(1, 3), case.between(1, 9), case.between(1, 4), case.pick(4, 8, 16)
    width, inputs, values = heads * size, case.between(4, 40), heads * case.pick(size, size, 3)
    past = case.pick(0, 0, case.between(1, 6))
    if past:
        values = width
    case.add(case.real(b, s, inputs)).add(case.real(inputs, 2 * width + values), True).add(case.real(2 * width + values), True)
    add_mask(case, b, s, past + s, "keys", "queries", *(("count",) if not past else ()))
    case.add(case.real(2, b, heads, past, size) if past else None)
    case.add(case.real(case.pick(1, b), case.pick(1, heads), s, past + s) if not past and case.pick(0, 1) else None)
    case.attributes.update(num_heads=heads, unidirectional=case.pick(0, 1))
    if values != width:
        case.attributes["qkv_hidden_sizes"] = [width, width, values]
    for name, value in (("scale", 0.3), ("mask_filter_value", -100.0)):
        if case.pick(0, 0, 1):
            case.attributes[name] = value
    case.outputs = ["y", "present"] if past else ["y"]


def multi_head_attention(case):
    b, s, keys, heads, size = case.between(1, 3), case.between(1, 9), case.between(1, 9), case.between(1, 4), case.pick(4, 8, 16)
    width = heads * size
    past, is_cross = case.pick(0, 0, case.between(1, 6)), case.pick(0, 0, 1)
    keys = s if past and not is_cross else keys
    values = heads * (size if past or is_cross else case.pick(size, size, 3))
    case.add(case.real(b, s, width))
    if is_cross:  # keys that are split already
        past = 0
        case.add(case.real(b, heads, keys, size)).add(case.real(b, heads, keys, size)).add(None)
    else:
        case.add(case.real(b, keys, width)).add(case.real(b, keys, values))
        case.add(case.real(2 * width + values) if case.pick(0, 1) else None, True)
    add_mask(case, b, s, past + keys, "keys", "queries", *(("count",) if not past and not is_cross else ()))
    case.add(case.real(case.pick(1, b), case.pick(1, heads), s, past + keys) if case.pick(0, 1) else None)
    if past:
        case.add(case.real(b, heads, past, size)).add(case.real(b, heads, past, size))
        case.outputs = ["y", "k", "v"]
    case.attributes.update(num_heads=heads)
    for name, value in (("scale", 0.3), ("mask_filter_value", -100.0), ("unidirectional", 1)):
        # With more keys than there are queries onnxruntime shows all of them to the last one.
        if case.pick(0, 0, 1) and (name != "unidirectional" or keys <= s):
            case.attributes[name] = value


def grouped_attention(case, bits=0):
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
    length = before + s * (before == 0) + spare
    for _ in range(2):
        if kind == "first":
            case.add(None)
        elif bits == 0:
            case.add(case.real(b, kv_heads, length, size))
        else:
            shape, kind_of_bytes = (b, kv_heads, length, size * bits // 8), numpy.int8 if bits == 8 else numpy.uint8
            case.add(case.random.integers(0, 256, shape).astype(numpy.uint8).view(kind_of_bytes))
    last = numpy.full((b,), total - 1, numpy.int32)
    if b > 1 and (before or bits == 0):  # of bytes onnxruntime leaves open what rows behind a sequence are
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
    if not before and (last != total - 1).any():  # onnxruntime leaves open what a window shows to rows behind a sequence
        case.attributes.pop("local_window_size", None)
    case.outputs = ["y", "k", "v"]
    if bits:
        kind, most = case.pick("PER_TENSOR", "PER_CHANNEL"), 2 / 2 ** bits
        for name in ("k_quant_type", "v_quant_type"):
            case.attributes[name] = kind
            shape = (1,) if kind == "PER_TENSOR" else (1, kv_heads, 1, size)
            case.add(case.real(*shape, least=most / 2, most=most), True)
        case.attributes["kv_cache_bit_width"] = bits
    elif case.pick(0, 0, 1):
        case.attributes["qk_output"] = case.pick(1, 2)
        case.outputs.append("scores")


def grouped_attention_of_bytes(case):
    grouped_attention(case, 8)


def grouped_attention_of_4_bits(case):
    grouped_attention(case, 4)


def sliding_attention(case):
    """A window's cache or a whole one, chunks with lengths of their own or not."""
    slides, has_lengths = case.pick((1, 0), (1, 1), (0, 1))
    kv_heads, size, window = case.between(1, 2), 16, case.between(2, 5)
    heads, bits = kv_heads * case.pick(1, 2), case.pick(0, 0, 8)
    kind = case.pick("first", "next", "more")
    b = case.between(1, 3) if has_lengths or kind != "more" else 1
    s = 1 if kind == "next" else case.between(2, 9)
    spare = case.between(0, 4)
    if has_lengths:
        lengths = case.random.integers(0, s + 1, (b,)).astype(numpy.int32)
        lengths[0] = max(1, lengths[0])
        before = case.random.integers(0 if kind == "first" else 1, 12, (b,)).astype(numpy.int32)
        before[lengths == 0] += 1
        after = before + lengths
        total = int(max(after.max(), s)) + (spare if slides else 0)
    else:
        after = numpy.full((b,), s if kind == "first" else s + case.between(1, 12), numpy.int32)
        before, total = after - s, int(after.max())
    capacity = window + spare if slides else int(max(before.max() + s, total)) + spare
    case.add(case.real(b, s, heads * size)).add(case.real(b, s, kv_heads * size)).add(case.real(b, s, kv_heads * size))
    for _ in range(2):
        shape = (b, kv_heads, capacity, size)
        case.add(case.random.integers(-127, 127, shape).astype(numpy.int8) if bits else case.real(*shape))
    case.add((after - 1).astype(numpy.int32)).add(numpy.array([total], numpy.int32), True)
    if case.pick(0, 1):
        case.add(case.real(total + 12, 8), True).add(case.real(total + 12, 8), True)
        case.attributes["do_rotary"] = 1
        case.add(case.random.integers(0, total, (b, s)).astype(numpy.int64) if has_lengths and case.pick(0, 0, 1) else None)
    else:
        case.add(None).add(None).add(None)
    case.add(case.real(case.pick(1, b), case.pick(1, heads), s, total) if case.pick(0, 0, 1) else None)
    case.add(case.real(heads) if case.pick(0, 0, 1) else None, True)
    case.attributes.update(num_heads=heads, kv_num_heads=kv_heads)
    if slides:
        case.attributes["sliding_window_cache"] = 1
    if slides or case.pick(0, 1):
        case.attributes["local_window_size"] = window
    for _ in range(2):
        case.add(case.real(1, least=0.005, most=0.01) if bits else None, True)
    if bits:
        case.attributes.update(k_quant_type="PER_TENSOR", v_quant_type="PER_TENSOR", kv_cache_bit_width=8)
    case.add(None).add(None).add(lengths if has_lengths else None)
    case.outputs = ["y", "k", "v"]
    if has_lengths:
        case.defined[0] = (numpy.arange(s) < lengths[:, None])[:, :, None]
    group = capacity - window + 1
    resident = after - group * -(-numpy.maximum(0, after - capacity) // group) if slides else after
    case.defined[1] = case.defined[2] = (numpy.arange(capacity) < resident[:, None])[:, None, :, None]


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


def decoder_attention(case):
    b, heads, size, keys = case.between(1, 3), case.between(1, 4), case.pick(4, 8, 16), case.between(1, 9)
    width, is_cross = heads * size, case.pick(0, 1)
    mask, bias = case.pick(0, 1), case.pick(0, 1)
    before = case.between(1, keys)
    counted = keys if is_cross else before + 1
    case.add(case.real(b, 1, width))
    for _ in range(2):
        case.add(case.real(b, heads, keys, size) if is_cross else case.real(b, 1, width))
    values = case.random.integers(0, 2, (b, counted)).astype(numpy.int32)
    values[:, 0] = 1
    case.add(values if mask else None)
    case.add(case.real(case.pick(1, b), heads, 1, counted) if not is_cross and case.pick(0, 1) else None)
    if is_cross:
        for _ in range(5):
            case.add(None)
    else:
        most = counted + case.between(0, 4)
        case.add(case.real(b, heads, most, size)).add(case.real(b, heads, most, size))
        case.add(numpy.array([before], numpy.int32), case.pick(0, 1)).add(None).add(None)
        case.outputs = ["y", "k", "v"]
    case.add(case.real(3 * width) if bias else None, True)
    case.attributes.update(num_heads=heads, past_present_share_buffer=0 if is_cross else 1)
    if case.pick(0, 1):
        case.attributes["scale"] = 0.3


def linear_attention(case):
    b, kv_heads, size, width = case.between(1, 3), case.between(1, 3), case.pick(4, 8), case.pick(4, 8, 16)
    steps = case.pick(1, 1, case.between(2, 9), 40)
    kind = case.pick("one", "more queries", "fewer queries")
    q_heads = kv_heads * case.between(1, 3) if kind == "more queries" else kv_heads
    k_heads = kv_heads
    if kind == "fewer queries":
        q_heads = k_heads = case.pick(1, kv_heads)
    rule = case.pick("linear", "gated", "delta", "gated_delta")
    keys = case.real(b, steps, k_heads, size)
    keys /= numpy.linalg.norm(keys, axis=-1, keepdims=True)
    case.add(case.real(b, steps, q_heads * size)).add(keys.reshape(b, steps, -1)).add(case.real(b, steps, kv_heads * width))
    case.add(case.real(b, kv_heads, size, width) if case.pick(0, 1) else None)
    gates = kv_heads * case.pick(1, size)
    case.add(case.real(b, steps, gates, least=-1, most=0) if rule.startswith("gated") else None)
    case.add(case.real(b, steps, case.pick(1, kv_heads), least=0, most=1) if rule.endswith("delta") else None)
    case.attributes.update(q_num_heads=q_heads, kv_num_heads=kv_heads, update_rule=rule)
    if case.pick(0, 1):
        case.attributes["scale"] = 0.3
    case.outputs = ["y", "state"]


def causal_conv(case):
    b, channels, length, window = case.between(1, 3), case.between(1, 20), case.pick(1, case.between(2, 12)), case.between(2, 5)
    dilation, last = case.pick(1, 1, 2), case.pick(0, 1)
    reach, planes = dilation * (window - 1), case.pick((), (3,)) if last else ()
    all_channels = channels * (3 if planes else 1)
    case.add(case.real(b, length, channels, *planes) if last else case.real(b, channels, length)).add(case.real(all_channels, 1, window), True)
    case.add(case.real(all_channels) if case.pick(0, 1) else None, True)
    case.add((case.real(b, reach, channels, *planes) if last else case.real(b, channels, reach)) if case.pick(0, 1) else None)
    case.attributes.update(channels_last=last, dilation=dilation)
    case.attributes.update(activation=case.pick("none", "silu", "swish"))
    case.outputs = ["y", "state"]


def rotary_of_three(case):
    b, s, heads, half = case.between(1, 3), case.between(1, 9), case.between(1, 3), case.pick(3, 6, 8)
    size = 2 * half + case.pick(0, 0, 4)
    case.add(case.real(b, s, heads * size) if case.pick(0, 1) else case.real(b, heads, s, size))
    case.add(case.random.integers(0, s + 5, (3, b, s)).astype(numpy.int64))
    case.add(case.real(s + 5, half), True).add(case.real(s + 5, half), True)
    third = half // 3
    case.attributes.update(num_heads=heads, mrope_section=[half - 2 * third, third, third], mrope_layout=case.pick(0, 1), interleaved=case.pick(0, 0, 1))
    if size > 2 * half:
        case.attributes["rotary_embedding_dim"] = 2 * half


def gated_norm(case):
    b, heads, width = case.between(1, 3), case.between(1, 4), case.between(2, 16)
    case.add(case.real(b, 3, heads * width)).add(case.real(width), True).add(case.real(b, 3, heads * width))
    case.attributes.update(activation=case.pick("silu", "swish", "sigmoid"))
    if case.pick(0, 1):
        case.attributes["epsilon"] = 0.1


def branch_norm(case):
    b, branches, width, joined = case.between(1, 3), case.between(1, 4), case.between(2, 16), case.pick(0, 1)
    case.add(case.real(b, branches * width) if joined else case.real(b, branches, width))
    shape = case.pick(None, (width,), (branches, width), (branches * width,))
    case.add(case.real(*shape) if shape else None, True)
    if joined:
        case.attributes["num_branches"] = branches


def gates(case):
    b, s, heads = case.between(1, 3), case.between(1, 9), case.between(1, 5)
    case.add(case.real(b, s, heads)).add(case.real(heads), True).add(case.real(heads), True)
    if case.pick(0, 1):
        case.add(case.real(b, s, heads))
        case.outputs = ["decay", "beta"]


def scaled_silu(case):
    case.add(case.real(case.between(1, 5), case.between(1, 20), least=-4, most=4)).add(numpy.float32(0.3) if case.pick(0, 1) else None)
    case.attributes["alpha"] = 0.7


def gated_sum(case):
    rows, width = case.between(1, 5), case.between(1, 20)
    case.add(case.real(2, rows, width)).add(case.real(2, rows, width)).add(case.real(2, rows, 1))


OPERATORS = [("Attention", MICROSOFT, attention),
             ("MultiHeadAttention", MICROSOFT, multi_head_attention),
             ("GroupQueryAttention", MICROSOFT, grouped_attention),
             ("GroupQueryAttention", MICROSOFT, grouped_attention_of_bytes),
             ("GroupQueryAttention", MICROSOFT, grouped_attention_of_4_bits),
             ("GroupQueryAttention", MICROSOFT, sliding_attention),
             ("DecoderMaskedMultiHeadAttention", MICROSOFT, decoder_attention),
             ("LinearAttention", MICROSOFT, linear_attention),
             ("CausalConvWithState", MICROSOFT, causal_conv),
             ("QAttention", MICROSOFT, quantized_attention),
             ("RotaryEmbedding", MICROSOFT, rotary),
             ("MRotaryEmbedding", MICROSOFT, rotary_of_three),
             ("GatedRMSNorm", MICROSOFT, gated_norm),
             ("BranchwiseRMSNorm", MICROSOFT, branch_norm),
             ("LinearAttentionGate", MICROSOFT, gates),
             ("ScaledSiLU", MICROSOFT, scaled_silu),
             ("GatedAdd", MICROSOFT, gated_sum),
             ("RotaryEmbedding", "", rotary),
             ("Attention", "", onnx_attention)]
