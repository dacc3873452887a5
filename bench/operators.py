#!/usr/bin/env python3
"""ONNX operators one by one beside onnxruntime: those that no layer of the usual networks has, on tensors of some size.

usage: bench/operators.py [--bin DIR] [--only REGEX] [--threads N] [--rounds N] [--shown N] [--json FILE]

A model of one operator each (a few have two), served at once; a session of hone and one of onnxruntime take turns. A ratio
is hone's time over onnxruntime's: above 1, hone is slower. The slowest are listed last. Sets no mark but one for results
that differ.

Needs Python's onnxruntime, onnx and numpy, in an environment of their own that is made the first time."""
import argparse
import json
import os
import re
import statistics
import sys
import tempfile

import lib

lib.enter("bench-python")
import numpy  # noqa: E402
import onnx  # noqa: E402
import onnxruntime  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import turns  # noqa: E402
import zoo  # noqa: E402

TYPES = {"f32": TensorProto.FLOAT, "f64": TensorProto.DOUBLE, "i64": TensorProto.INT64, "i32": TensorProto.INT32,
         "u64": TensorProto.UINT64, "u8": TensorProto.UINT8, "bool": TensorProto.BOOL}
LEAST_US = 100  # of onnxruntime's time: below, a session's own time is most of what is seen


def tensor(text):
    """"x i64 4x128": a name, a type and an extent for each dimension; without extents a scalar."""
    name, dtype, *extents = text.split()
    return name, TYPES[dtype], [int(each) if each.isdigit() else each for each in extents[0].split("x")] if extents else []


# operator: inputs; results; constants by name (numbers, or the shape of random floats); attributes. x is data, i64 in 0 … 99.
def table():
    f32 = numpy.float32
    wide, plane, rows = "128x3072", "1x64x56x56", "64x5000"
    big = "1000x1000"
    yield from ((name, [f"x f32 {wide}"], [f"y f32 {wide}"], {}, {}) for name in (
        "Sigmoid", "Tanh", "Exp", "Erf", "Sin", "Atan", "Softplus", "Mish", "Elu", "Gelu", "HardSwish", "Round", "Shrink"))
    yield from ((name, [f"x f32 {wide}", f"z f32 {wide}"], [f"y f32 {wide}"], {}, {}) for name in ("Div", "Pow"))
    yield "Mod", [f"x f32 {wide}", f"z f32 {wide}"], [f"y f32 {wide}"], {}, {"fmod": 1}
    yield "Greater", [f"x f32 {wide}", f"z f32 {wide}"], [f"y bool {wide}"], {}, {}
    yield "IsNaN", [f"x f32 {big}"], [f"y bool {big}"], {}, {}
    yield "And", [f"x bool {big}", f"z bool {big}"], [f"y bool {big}"], {}, {}
    for name in ("Add", "Mul", "Min"):
        yield name, [f"x i64 {big}", f"z i64 {big}"], [f"y i64 {big}"], {}, {}
    yield "Mod", [f"x i64 {big}"], [f"y i64 {big}"], {"k": numpy.int64(7)}, {}
    yield "Less", [f"x i64 {big}"], [f"y bool {big}"], {"k": numpy.int64(7)}, {}
    yield "BitShift", [f"x u64 {big}"], [f"y u64 {big}"], {"k": numpy.uint64(3)}, {"direction": "LEFT"}
    yield "Where", ["c bool 1x1x128x128", "x f32 1x12x128x128"], ["y f32 1x12x128x128"], {"k": f32(-1e9)}, {}
    yield "Cast", [f"x f32 {wide}"], [f"y i64 {wide}"], {}, {"to": TensorProto.INT64}
    yield "Cast", [f"x i64 {wide}"], [f"y f32 {wide}"], {}, {"to": TensorProto.FLOAT}
    yield "Transpose", [f"x i64 {big}"], [f"y i64 {big}"], {}, {"perm": [1, 0]}
    yield "Transpose", ["x f32 1x256x56x56"], ["y f32 1x56x56x256"], {}, {"perm": [0, 2, 3, 1]}
    yield "Pad", ["x i64 500x500"], ["y i64 502x502"], {"p": [1, 1, 1, 1]}, {}
    yield "Concat", ["x i64 500x500", "z i64 500x500"], ["y i64 500x1000"], {}, {"axis": 1}
    yield "Tile", ["x f32 64x1x128"], ["y f32 64x100x128"], {"r": [1, 100, 1]}, {}
    yield "DepthToSpace", ["x f32 1x256x28x28"], [f"y f32 {plane}"], {}, {"blocksize": 2}
    yield "SpaceToDepth", [f"x f32 {plane}"], ["y f32 1x256x28x28"], {}, {"blocksize": 2}
    yield "Trilu", ["x f32 8x512x512"], ["y f32 8x512x512"], {}, {"upper": 0}
    yield "Gather", ["x f32 3000x256", "i i64 4x128"], ["y f32 4x128x256"], {}, {}
    yield "GatherElements", ["x f32 256x1000", "i i64 256x1000"], ["y f32 256x1000"], {}, {"axis": 1}
    yield "GatherND", ["x f32 8x100x64", "i i64 8x50x1"], ["y f32 8x50x64"], {}, {"batch_dims": 1}
    yield "ScatterElements", ["x f32 256x1000", "i i64 256x500", "u f32 256x500"], ["y f32 256x1000"], {}, {"axis": 1}
    yield "ScatterND", ["x f32 1000x64", "i i64 500x1", "u f32 500x64"], ["y f32 1000x64"], {}, {}
    yield "OneHot", ["x i64 512"], ["y f32 512x1000"], {"d": numpy.int64(1000), "v": f32([0, 1])}, {}
    yield "Compress", ["x f32 1000x512", "k bool 1000"], ["y f32 nx512"], {}, {"axis": 0}
    yield "NonZero", ["x f32 512x512"], ["y i64 2xn"], {}, {}
    yield "Unique", ["x i64 10000"], ["y i64 n"], {}, {}
    yield "ReverseSequence", ["x f32 100x8x256", "l i64 8"], ["y f32 100x8x256"], {}, {"batch_axis": 1, "time_axis": 0}
    yield "ArgMax", ["x f32 512x1000"], ["y i64 512x1"], {}, {"axis": 1}
    yield "ArgMax", ["x f32 1x21x300x300"], ["y i64 1x1x300x300"], {}, {"axis": 1}
    yield "TopK", ["x f32 64x10000"], ["y f32 64x10", "z i64 64x10"], {"k": [10]}, {}
    yield "Hardmax", ["x f32 128x1000"], ["y f32 128x1000"], {}, {}
    yield "CumSum", ["x f32 64x4096"], ["y f32 64x4096"], {"a": numpy.int64(1)}, {}
    yield "CumSum", ["x i64 64x4096"], ["y i64 64x4096"], {"a": numpy.int64(1)}, {}
    yield "ReduceMax", ["x i64 512x512"], ["y i64 512x1"], {"a": [1]}, {}
    yield "ReduceSum", ["x i64 512x512"], ["y i64 512x1"], {"a": [1]}, {}
    yield "ReduceProd", ["x f32 512x100"], ["y f32 512x1"], {"a": [1]}, {}
    yield "ReduceL2", ["x f32 1x256x56x56"], ["y f32 1x1x56x56"], {"a": [1]}, {}
    yield "ReduceMean", ["x f32 1x256x56x56"], ["y f32 1x256x1x1"], {"a": [2, 3]}, {}
    yield "LogSoftmax", [f"x f32 {rows}"], [f"y f32 {rows}"], {}, {}
    yield "Softmax", ["x f32 1x150x64x64"], ["y f32 1x150x64x64"], {}, {"axis": 1}
    yield "LpNormalization", ["x f32 512x1024"], ["y f32 512x1024"], {}, {"axis": 1}
    yield "LRN", [f"x f32 {plane}"], [f"y f32 {plane}"], {}, {"size": 5}
    yield "PRelu", [f"x f32 {plane}"], [f"y f32 {plane}"], {"s": (64, 1, 1)}, {}
    yield "InstanceNormalization", [f"x f32 {plane}"], [f"y f32 {plane}"], {"s": (64,), "b": (64,)}, {}
    yield "GroupNormalization", [f"x f32 {plane}"], [f"y f32 {plane}"], {"s": (64,), "b": (64,)}, {"num_groups": 8}
    yield "LayerNormalization", ["x f32 197x768"], ["y f32 197x768"], {"s": (768,), "b": (768,)}, {}
    for mode in ("nearest", "linear", "cubic"):
        more = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"} if mode == "nearest" else {}
        yield "Resize", [f"x f32 {plane}"], ["y f32 1x64x112x112"], {"": None, "s": f32([1, 1, 2, 2])}, {"mode": mode, **more}
    yield "GridSample", ["x f32 1x64x64x64", "g f32 1x64x64x2"], ["y f32 1x64x64x64"], {}, {}
    yield "Col2Im", ["x f32 1x576x900"], ["y f32 1x64x32x32"], {"s": [32, 32], "b": [3, 3]}, {}
    yield "DeformConv", ["x f32 1x32x28x28"], ["y f32 1x32x28x28"], {"w": (32, 32, 3, 3), "o": (1, 18, 28, 28)}, {"pads": [1] * 4}
    yield "MaxPool", ["x f32 1x64x112x112"], ["y f32 1x64x56x56", "z i64 1x64x56x56"], {}, {"kernel_shape": [2, 2], "strides": [2, 2]}
    yield "AveragePool", ["x f32 1x512x14x14"], ["y f32 1x512x8x8"], {}, {"kernel_shape": [7, 7]}
    yield "Conv", ["x f32 1x16x8x28x28"], ["y f32 1x32x8x28x28"], {"w": (32, 16, 3, 3, 3)}, {"pads": [1] * 6}
    yield "ConvTranspose", ["x f32 1x64x28x28"], [f"y f32 {plane}"], {"w": (64, 1, 4, 4)}, {"group": 64, "strides": [2, 2], "pads": [1] * 4}
    yield "LSTM", ["x f32 50x1x64"], ["y f32 50x1x1x128"], {"w": (1, 512, 64), "r": (1, 512, 128)}, {"hidden_size": 128}
    yield "GRU", ["x f32 50x1x64"], ["y f32 50x1x1x128"], {"w": (1, 384, 64), "r": (1, 384, 128)}, {"hidden_size": 128}
    yield "DFT", ["x f32 16x512x1"], ["y f32 16x512x2"], {"": None, "a": numpy.int64(1)}, {}
    yield "STFT", ["x f32 1x16000x1"], ["y f32 1x124x129x2"], {"s": numpy.int64(128), "": None, "l": numpy.int64(256)}, {}
    yield "MatMul", ["x f64 128x256", "z f64 256x256"], ["y f64 128x256"], {}, {}
    yield "MatMul", ["x f32 12x128x64", "z f32 12x64x128"], ["y f32 12x128x128"], {}, {}
    yield "Einsum", ["x f32 2x64x30x25"], ["y f32 2x128x30x25"], {"w": (64, 128)}, {"equation": "nctw,cd->ndtw"}
    yield "NonMaxSuppression", ["x f32 1x1000x4", "s f32 1x1x1000"], ["y i64 nx3"], {"m": numpy.int64(100), "t": f32(0.5)}, {}
    yield "DynamicQuantizeLinear", ["x f32 128x768"], ["q u8 128x768", "s f32", "z u8"], {}, {}


def model(operator, inputs, results, constants, attributes, random):
    weights = []
    for name, value in constants.items():
        if value is not None:
            array = random.standard_normal(value).astype(numpy.float32) / 8 if isinstance(value, tuple) else numpy.asarray(value)
            weights.append(numpy_helper.from_array(array, name))
    taken = [tensor(each) for each in inputs]
    made = [tensor(each) for each in results]
    node = helper.make_node(operator, [each[0] for each in taken] + list(constants), [each[0] for each in made], **attributes)
    graph = helper.make_graph([node], "operator", [helper.make_tensor_value_info(*each) for each in taken],
                              [helper.make_tensor_value_info(*each) for each in made], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def numbers(name, dtype, shape, random):
    if dtype == TensorProto.BOOL:
        return random.random(shape) < 0.5
    if dtype in (TensorProto.FLOAT, TensorProto.DOUBLE):
        return random.standard_normal(shape).astype(helper.tensor_dtype_to_np_dtype(dtype))
    return random.integers(0, 50, shape).astype(helper.tensor_dtype_to_np_dtype(dtype))


def compare(arguments, daemon, sessions, row):
    random = numpy.random.default_rng(1)
    operator, inputs, results, constants, attributes = row
    made = model(operator, inputs, results, constants, attributes, random)
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads, options.inter_op_num_threads = 3, arguments.threads, 1
    theirs = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    given = {name: numbers(name, dtype, shape, random) for name, dtype, shape in map(tensor, inputs)}
    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        onnx.save(made, file.name)
        ours = sessions(file.name, threads=arguments.threads, socket=daemon.socket, start=False)
    off = max(zoo.difference(a, b) for a, b in zip(ours.run(given), theirs.run(None, given)))
    times = turns.take([lambda: ours.run(given), lambda: theirs.run(None, given)], [0, 0], arguments.rounds, arguments.threads)
    ours.close()
    ratio, least, most = turns.ratios(*times)
    us = [statistics.median(each) * 1e6 for each in times]
    name = f"{operator}, {inputs[0].split(maxsplit=1)[1]}" + (f", {attributes['mode']}" if "mode" in attributes else "")
    return {"name": name, "ratio": 1 / ratio, "least": 1 / most, "most": 1 / least, "hone_us": us[0], "other_us": us[1], "off": off}


def line(row):
    return (f"  {row['ratio']:6.2f} ({row['least']:.2f} … {row['most']:.2f})  {row['hone_us']:9.1f} us  {row['other_us']:9.1f} us  "
            f"{row['name']}" + (f"  OFF by {row['off']:.1e}" if row["off"] > zoo.AGREE else ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=lib.BIN)
    parser.add_argument("--only", default="", help="operators whose name matches")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--shown", type=int, default=12, metavar="N", help="how many of the slowest are listed again")
    parser.add_argument("--json", help="a line an operator")
    arguments = parser.parse_args()
    os.environ["HONE_LIBRARY"] = os.path.join(arguments.bin, "../lib/libhone.so")
    os.environ["HONE_NETWORK_LIBRARY"] = os.path.join(arguments.bin, "../lib/libhone_network.so")
    sys.path.insert(0, os.path.join(lib.ROOT, "python"))
    import hone
    rows = []
    print("hone's time over onnxruntime's:")
    with lib.Daemon(arguments.bin) as daemon:
        for each in table():
            if re.search(arguments.only, each[0]):
                rows.append(compare(arguments, daemon, hone.Session, each))
                print(line(rows[-1]), flush=True)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    shown = sorted((row for row in rows if row["other_us"] >= LEAST_US), key=lambda row: -row["ratio"])[:arguments.shown]
    if len(rows) > len(shown) > 0:
        print(f"the slowest of those above {LEAST_US} us:")
        for row in shown:
            print(line(row))
    if rows:
        lib.mark("operators: results that differ", sum(row["off"] > zoo.AGREE for row in rows), "", 0, at_most=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
