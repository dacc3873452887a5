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
from contributed_samples import attention, fused, narrow, others, quantized  # noqa: E402
from contributed_samples.case import Case  # noqa: E402

TOLERANCE = 2e-5  # of the largest value
# onnxruntime rounds what comes into the layer and each step's state to bytes; hone does not.
LOOSE = {"DynamicQuantizeLSTM": 2e-2}


def difference(ours, theirs, defined=True):
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return float("inf")
    where = numpy.broadcast_to(defined, ours.shape)
    ours, theirs = ours[where], theirs[where]
    ours, theirs = ours.astype(numpy.float64), theirs.astype(numpy.float64)
    is_finite = numpy.isfinite(theirs)
    if not numpy.array_equal(ours[~is_finite], theirs[~is_finite]) or not numpy.isfinite(ours[is_finite]).all():
        return float("inf")
    off, most = numpy.abs(ours[is_finite] - theirs[is_finite]), numpy.abs(theirs[is_finite])
    return float(off.max() / max(1e-30, float(most.max()))) if off.size else 0.0


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
        for op, domain, make in [each for group in (fused, narrow, quantized, attention, others) for each in group.OPERATORS]:
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
                off = max(difference(a, b, case.defined.get(i, True)) for i, (a, b) in enumerate(zip(ours, theirs)))
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
