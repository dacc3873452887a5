#!/usr/bin/env python3
"""Layers and networks of narrow types beside onnxruntime, OpenVINO and PyTorch (oneDNN), in one process and in turns.

usage: bench/narrow_peers.py [--bin DIR] [--rounds N] [--only layers|networks]… [--types i8,bf16] [--kernels REGEX]
                             [--tune TRIALS] [--models DIRECTORY] [--json FILE]

  layers    the convolutions and products of ResNet-50 and BERT (models/*.kernels) as ONNX graphs of one layer, by default
            schedules, one thread. i8: values of u8, weights of i8 with a scale an output channel, DequantizeLinear and
            QuantizeLinear around the layer; bf16: all tensors are bf16. A line a layer: hone's time, each peer's time over it.
            --tune searches each first, with so many trials, and says what that won, and the share of the instruction's peak
  networks  NAME.qdq.onnx and NAME.f32.onnx in --models (bench/narrow_models.py makes them; the default makes resnet50,
            mobilenet_v2 and bert_128 first), one thread and two

What a call costs before any work is taken off each. A peer that cannot take a layer is left out of it. Needs Python's packages
in an environment of their own, made the first time."""
import argparse
import ctypes
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import warnings

import lib

lib.enter("bench-narrow-python")
import numpy  # noqa: E402
import onnx  # noqa: E402
import onnxruntime  # noqa: E402
import openvino  # noqa: E402
import torch  # noqa: E402
import torch.utils.mkldnn  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import turns  # noqa: E402
from libhone import aligned  # noqa: E402

LISTS = ["resnet50", "bert_128"]
NETWORKS = ["resnet50", "mobilenet_v2", "bert_128"]
SCALE, ZERO, FACTOR = 0.02, 128, 0.05  # of the values that come in, and of the results
ONNX_TYPES = {"i8": TensorProto.UINT8, "bf16": TensorProto.BFLOAT16}


def bf16(array):
    """Rounded, as the numbers' upper halves."""
    bits = numpy.ascontiguousarray(array, numpy.float32).view(numpy.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(numpy.uint16)


def from_bf16(halves):
    return (halves.astype(numpy.uint32) << 16).view(numpy.float32)


class Layer:
    """A convolution or product, with its bias and perhaps a rectification, from a kernel's text."""

    def __init__(self, kernel, dtype):
        self.name, self.values, epilogues = turns.attributes(kernel)
        a, random = self.values, numpy.random.default_rng(1)
        self.kernel, self.dtype, self.relu = kernel, dtype, "relu" in epilogues
        self.is_conv = self.name == "conv2d"
        if self.is_conv:
            x, w = (1, a["C"], a["H"], a["W"]), (a["O"], a["C"], a["R"], a["S"])
            size = [(a[side] + 2 * a.get("pad", 0) - a[window]) // a.get("stride", 1) + 1 for side, window in (("H", "R"), ("W", "S"))]
            self.out = (1, a["O"], *size)
            self.flops = 2 * numpy.prod(self.out) * numpy.prod(w[1:])
        else:
            x, w, self.out = (a["M"], a["K"]), (a["N"], a["K"]), (a["M"], a["N"])
            self.flops = 2 * a["M"] * a["N"] * a["K"]
        self.x, self.w = random.uniform(-1, 1, x).astype(numpy.float32), random.uniform(-1, 1, w).astype(numpy.float32)
        self.bias = random.uniform(-1, 1, self.out[1]).astype(numpy.float32)
        self.pad, self.stride = a.get("pad", 0), a.get("stride", 1)
        if dtype == "i8":
            self.x = aligned_copy(random.integers(0, 256, x, numpy.uint8))
            self.w_scale = (numpy.abs(self.w).reshape(w[0], -1).max(1) / 127).astype(numpy.float32)
            self.w = numpy.rint(self.w / self.w_scale.reshape(-1, *[1] * (len(w) - 1))).astype(numpy.int8)
            self.bias = random.integers(-5000, 5000, self.out[1], numpy.int32)
        else:
            self.x = aligned_copy(bf16(self.x))

    def model(self, is_f32=False):
        """An ONNX graph; of bf16, is_f32: the same in f32, for a library that is told to compute in bf16."""
        nodes, constants = [], []

        def constant(name, array, as_bf16=False):
            if as_bf16:
                constants.append(helper.make_tensor(name, TensorProto.BFLOAT16, array.shape, bf16(array).tobytes(), raw=True))
            else:
                constants.append(numpy_helper.from_array(array, name))
            return name

        def node(kind, inputs, output, **values):
            nodes.append(helper.make_node(kind, inputs, [output], **values))
            return output

        layer = {"strides": [self.stride] * 2, "pads": [self.pad] * 4} if self.is_conv else {"transB": 1}
        kind, narrow = "Conv" if self.is_conv else "Gemm", self.dtype == "bf16" and not is_f32
        if self.dtype == "i8":
            scale, zero = constant("scale", numpy.float32(SCALE)), constant("zero", numpy.uint8(ZERO))
            x = node("DequantizeLinear", ["x", scale, zero], "x_f32")
            w = node("DequantizeLinear", [constant("w", self.w), constant("w_scale", self.w_scale),
                                          constant("w_zero", numpy.zeros(self.out[1], numpy.int8))], "w_f32", axis=0)
            bias = node("DequantizeLinear", [constant("bias", self.bias), constant("bias_scale", self.w_scale * numpy.float32(SCALE)),
                                             constant("bias_zero", numpy.zeros(self.out[1], numpy.int32))], "bias_f32", axis=0)
        else:
            x, w, bias = "x", constant("w", self.w, narrow), constant("bias", self.bias, narrow)
        y = node(kind, [x, w, bias], "y0", **layer)
        if self.relu:
            y = node("Relu", [y], "y1")
        if self.dtype == "i8":
            node("QuantizeLinear", [y, constant("factor", numpy.float32(FACTOR)), "zero"], "y")
        else:
            nodes[-1].output[0] = "y"
        number = TensorProto.FLOAT if is_f32 else ONNX_TYPES[self.dtype]
        info = [helper.make_tensor_value_info(name, number, shape) for name, shape in (("x", self.x.shape), ("y", self.out))]
        graph = helper.make_graph(nodes, "layer", info[:1], info[1:], constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)

    def in_torch(self):
        """Functions that compute it, each in another way."""
        function = torch.nn.functional
        if self.dtype == "i8":
            x = torch._make_per_tensor_quantized_tensor(torch.from_numpy(self.x), SCALE, ZERO)
            w = torch._make_per_channel_quantized_tensor(torch.from_numpy(self.w), torch.from_numpy(self.w_scale).double(),
                                                         torch.zeros(self.out[1], dtype=torch.long), 0)
            bias = torch.from_numpy(self.bias * self.w_scale * SCALE).float()
            operations = torch.ops.quantized
            if self.is_conv:
                x = x.contiguous(memory_format=torch.channels_last)
                packed = operations.conv2d_prepack(w, bias, [self.stride] * 2, [self.pad] * 2, [1, 1], 1)
                run = operations.conv2d_relu if self.relu else operations.conv2d
                return [lambda: run(x, packed, FACTOR, ZERO)]
            packed = operations.linear_prepack(w, bias)
            run = operations.linear_relu if self.relu else operations.linear
            return [lambda: run(x, packed, FACTOR, ZERO)]
        x, w, bias = (torch.from_numpy(array).to(torch.bfloat16) for array in (from_bf16(self.x), self.w, self.bias))
        if not self.is_conv:
            plain = lambda: function.linear(x, w, bias)  # noqa: E731
            return [(lambda: function.relu_(plain())) if self.relu else plain]
        x, w = (each.contiguous(memory_format=torch.channels_last) for each in (x, w))
        plain = lambda: function.conv2d(x, w, bias, self.stride, self.pad)  # noqa: E731
        module = torch.nn.Conv2d(w.shape[1], w.shape[0], tuple(w.shape[2:]), self.stride, self.pad).to(torch.bfloat16).eval()
        packed, blocked = torch.utils.mkldnn.to_mkldnn(module, torch.bfloat16), x.contiguous().to_mkldnn()
        ways = [plain, lambda: packed(blocked)]
        return [lambda way=way: function.relu_(way()) for way in ways] if self.relu else ways


def aligned_copy(array):
    copy = aligned(array.shape, array.dtype)
    copy[...] = array
    return copy


class Hone:
    """Sessions whose runs are calls of the C library with the arrays that they were opened with."""

    def __init__(self, binaries, daemon):
        libraries = os.path.join(os.path.dirname(os.path.abspath(binaries)), "lib")
        os.environ.update(HONE_LIBRARY=os.path.join(libraries, "libhone.so"),
                          HONE_NETWORK_LIBRARY=os.path.join(libraries, "libhone_network.so"))
        sys.path.insert(0, os.path.join(lib.ROOT, "python"))
        import hone
        self.hone, self.socket, self.daemon = hone, daemon.socket, daemon

    def tuned(self, path, trials):
        """What a search won over the default, head to head; 1: nothing beyond noise."""
        answers = self.daemon.hone("tune", path, "--threads", "1", "--trials", str(trials))
        fingerprints = {answer["fingerprint"] for answer in answers if "fingerprint" in answer}
        won = [told.get("won_ratio") or 1 for each in fingerprints for told in self.daemon.hone("explain", each)
               if told.get("threads") == 1]
        return max(won, default=1)

    def work(self, path, inputs, outputs, threads):
        session = self.hone.Session(path, threads=threads, socket=self.socket, start=False, frozen=True)
        pointers = [(ctypes.c_void_p * len(arrays))(*[array.ctypes.data for array in arrays]) for arrays in (inputs, outputs)]
        run, error = session._library.hone_network_run, None
        with session._handle as handle:
            handle = ctypes.c_void_p(handle)
        work = lambda: run(handle, pointers[0], pointers[1], error)  # noqa: E731
        if work():
            raise SystemExit(f"bench: {path} does not run")
        work.session = session  # held
        return work


def in_onnxruntime(path, inputs, outputs, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for value, array in zip(session.get_inputs(), inputs):
        binding.bind_input(value.name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
    for value, array in zip(session.get_outputs(), outputs):
        binding.bind_output(value.name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
    work = lambda: session.run_with_iobinding(binding)  # noqa: E731
    work()
    return work


def in_openvino(path, inputs, threads, is_bf16=False):
    core = openvino.Core()
    model = core.read_model(path)
    if is_bf16:
        steps = openvino.preprocess.PrePostProcessor(model)
        steps.input().tensor().set_element_type(openvino.Type.bf16)
        steps.output().tensor().set_element_type(openvino.Type.bf16)
        model = steps.build()
    settings = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY",
                "INFERENCE_PRECISION_HINT": "bf16" if is_bf16 else "f32"}
    request = core.compile_model(model, "CPU", settings).create_infer_request()
    for index, array in enumerate(inputs):
        request.set_input_tensor(index, openvino.Tensor(array, openvino.Shape(array.shape), openvino.Type.bf16) if is_bf16
                                 else openvino.Tensor(array, shared_memory=True))
    request.infer()
    return request.infer


def tried(peers, name, make):
    """Adds what a peer computes with, where it can."""
    try:
        works = make()
    except Exception as error:  # pylint: disable=broad-except
        lib.progress("")
        print(f"    {name} left out: {str(error).strip().splitlines()[0][:100]}", flush=True)
        return
    peers += [(name, work) for work in (works if isinstance(works, list) else [works])]


def call_overheads(hone, folder):
    """Seconds of a call of each that has nothing to do."""
    path = os.path.join(folder, "nothing.onnx")
    info = [helper.make_tensor_value_info(name, TensorProto.UINT8, [1]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "nothing", info[:1], info[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), path)
    x, y, one = aligned((1,), numpy.uint8), aligned((1,), numpy.uint8), torch.zeros(1)
    x[...] = 1
    return {"hone": turns.overhead(hone.work(path, [x], [y], 1)), "onnxruntime": turns.overhead(in_onnxruntime(path, [x], [y], 1)),
            "OpenVINO": turns.overhead(in_openvino(path, [x], 1)), "PyTorch": turns.overhead(lambda: torch.relu(one))}


def layers(arguments, hone, folder, costs):
    rows = []
    peak = json.loads(subprocess.run([os.path.join(arguments.bin, "peak")], capture_output=True, text=True, check=True).stdout)
    peaks = {"i8": peak["vpdpbusd_gops"] or peak["fma_gflops"], "bf16": peak["vdpbf16ps_gflops"] or peak["fma_gflops"]}
    for dtype in arguments.types.split(","):
        for kernel in sorted({kernel for name in LISTS for _, kernel in
                              lib.kernels([os.path.join(lib.ROOT, "models", name + ".kernels")])}):
            if not re.match("conv2d|dense|matmul", kernel) or not re.search(arguments.kernels, kernel):
                continue
            layer = Layer(kernel, dtype)
            path, wide = os.path.join(folder, "layer.onnx"), os.path.join(folder, "layer.f32.onnx")
            onnx.save(layer.model(), path)
            onnx.save(layer.model(is_f32=True) if dtype == "bf16" else layer.model(), wide)
            won = hone.tuned(path, arguments.tune) if arguments.tune else 1
            out = [aligned(layer.out, layer.x.dtype) for _ in range(2)]
            works = [("hone", hone.work(path, [layer.x], [out[0]], 1))]
            if dtype == "i8":
                tried(works, "onnxruntime", lambda: in_onnxruntime(path, [layer.x], [out[1]], 1))
            tried(works, "OpenVINO", lambda: in_openvino(wide, [layer.x], 1, dtype == "bf16"))
            tried(works, "PyTorch", layer.in_torch)
            times = turns.take([work for _, work in works], [costs[name] for name, _ in works], arguments.rounds)
            ratios = {}
            for (name, _), each in zip(works[1:], times[1:]):
                ratio = turns.ratios(times[0], each)[0]
                ratios[name] = min(ratio, ratios.get(name, ratio))
            difference = None
            if dtype == "i8" and "onnxruntime" in ratios:
                difference = int(numpy.max(numpy.abs(out[0].astype(numpy.int32) - out[1])))
            ours = statistics.median(times[0])
            rows.append({"kernel": kernel, "dtype": dtype, "us": ours * 1e6, "gflops": layer.flops / ours / 1e9,
                         "ratios": ratios, "steps_apart": difference, "won": won, "peak": layer.flops / ours / 1e9 / peaks[dtype]})
            lib.progress("")
            print(f"  {dtype:4} {ours * 1e6:8.1f} us {layer.flops / ours / 1e9:7.1f} GFLOP/s  " +
                  "  ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items()) +
                  (f"  won {won:.2f}, {rows[-1]['peak']:.2f} of the peak" if arguments.tune else "") +
                  (f"  {difference} steps apart" if difference else "") + f"  {kernel}", flush=True)
    for dtype in arguments.types.split(","):
        least = [min(row["ratios"].values()) for row in rows if row["dtype"] == dtype and row["ratios"]]
        if not least:
            continue
        layers_of = f"{dtype} layers, tuned," if arguments.tune else f"{dtype} layers"
        lib.mark(f"{layers_of} against the fastest peer", lib.geometric_mean(least), "x", 1.15 if arguments.tune else 1, at_most=False)
        lib.mark(f"{layers_of} against the fastest peer, worst", min(least), "x", 0.8, at_most=False)
    return rows


def networks(arguments, hone, folder, costs):
    models = arguments.models
    if not models:
        models = folder
        sources = [os.path.join(os.environ.get("HONE_MODELS", ""), name + ".onnx") for name in NETWORKS]
        subprocess.run([sys.executable, os.path.join(lib.ROOT, "bench/narrow_models.py"), "--bin", arguments.bin, "--kinds", "qdq",
                        "-o", models, *[source for source in sources if os.path.exists(source)]], check=True)
    rows = []
    for name in NETWORKS:
        path, wide = (os.path.join(models, f"{name}.{kind}.onnx") for kind in ("qdq", "f32"))
        if not os.path.exists(path):
            print(f"left out: {path} is not there")
            continue
        for threads in (1, 2):
            session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
            random = numpy.random.default_rng(1)
            inputs = []
            for value in session.get_inputs():
                integers = "int" in value.type
                array = aligned(tuple(value.shape), numpy.int64 if integers else numpy.float32)
                array[...] = random.integers(0, 2, value.shape) if integers else random.uniform(-1, 1, value.shape)
                inputs.append(array)
            shapes = [array.shape for array in session.run(None, dict(zip([value.name for value in session.get_inputs()], inputs)))]
            outs = [[aligned(shape, numpy.float32) for shape in shapes] for _ in range(3)]
            works = [("hone", hone.work(path, inputs, outs[0], threads)), ("f32", hone.work(wide, inputs, outs[2], threads))]
            tried(works, "onnxruntime", lambda: in_onnxruntime(path, inputs, outs[1], threads))
            tried(works, "OpenVINO", lambda: in_openvino(path, inputs, threads))
            torch.set_num_threads(threads)
            times = turns.take([work for _, work in works], [costs["hone"] if name == "f32" else costs[name] for name, _ in works],
                               arguments.rounds, threads)
            # Our time over theirs: below 1 is faster.
            shares = {name: 1 / turns.ratios(times[0], each)[0] for (name, _), each in zip(works[1:], times[1:])}
            ours = statistics.median(times[0])
            rows.append({"network": name, "threads": threads, "us": ours * 1e6, "shares": shares})
            print(f"  {name:14} {threads} threads {ours * 1e3:8.2f} ms of " +
                  ", ".join(f"{other} {ours / share * 1e3:.2f} ({share:.2f})" for other, share in shares.items()), flush=True)
    for count in (1, 2):
        threads, some = "1 thread" if count == 1 else "2 threads", [row for row in rows if row["threads"] == count]
        for other, limit in (("onnxruntime", 0.8), ("OpenVINO", 1.0)):
            shares = [row["shares"][other] for row in some if other in row["shares"]]
            if shares:
                lib.mark(f"int8 networks, time / {other}, worst, {threads}", max(shares), "x", limit, at_most=True)
        for row in some:
            if row["network"] == "resnet50":
                lib.mark(f"resnet50 int8 over f32, {threads}", 1 / row["shares"]["f32"], "x", 3, at_most=False)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--bin", default=lib.BIN)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", action="append", choices=["layers", "networks"])
    parser.add_argument("--types", default="i8,bf16")
    parser.add_argument("--kernels", default="")
    parser.add_argument("--tune", type=int, default=0, metavar="TRIALS")
    parser.add_argument("--models")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # quantised tensors of PyTorch's will go
    rows = []
    with tempfile.TemporaryDirectory(prefix="hone-bench-") as folder, lib.Daemon(arguments.bin) as daemon, torch.inference_mode():
        hone = Hone(arguments.bin, daemon)
        costs = call_overheads(hone, folder)
        print("a call costs " + ", ".join(f"{cost * 1e6:.1f} us into {name}" for name, cost in costs.items()) + "; taken off")
        print(f"onnxruntime {onnxruntime.__version__}, OpenVINO {openvino.__version__}, PyTorch {torch.__version__}, oneDNN in it "
              f"{re.search(r'(?:oneDNN|MKL-DNN|DNNL)[^0-9]*([0-9.]+)', torch.__config__.show())[1]}")
        for part, measure in (("layers", layers), ("networks", networks)):
            if not arguments.only or part in arguments.only:
                rows += measure(arguments, hone, folder, costs)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
