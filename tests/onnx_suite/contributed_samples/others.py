"""Operators that ONNX has too, or that stand alone."""
import numpy

from .case import MICROSOFT, OLD


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


def more_dimensions(case):
    case.add(case.real(*[case.between(1, 4) for _ in range(case.between(1, 3))])).add(numpy.array(case.between(-2, 1), numpy.int32), True)


def crop_and_resize(case):
    n, rois, height, width = case.between(1, 3), case.between(1, 4), case.between(1, 9), case.between(1, 9)
    case.add(case.real(n, case.between(1, 3), height, width)).add(case.real(rois, 4, least=-0.2, most=1.2))
    case.add(case.random.integers(0, n, (rois,)).astype(numpy.int32))
    case.add(case.random.integers(1, 6, (2,)).astype(numpy.int32), True)
    case.attributes.update(mode=case.pick("bilinear", "nearest"), extrapolation_value=case.pick(0.0, 0.5))


def transposed_conv(case):
    c, o, window = case.between(1, 5), case.between(1, 5), case.pick(2, 3)
    case.add(case.real(1, c, case.between(3, 7), case.between(3, 7))).add(case.real(c, o, window, window), True)
    case.add(case.random.integers(0, 2, (4,)).astype(numpy.int64), True).add(case.real(o) if case.pick(0, 1) else None, True)
    case.attributes.update(kernel_shape=[window, window], strides=[case.pick(1, 2)] * 2)


def unfolded(case):
    sizes = [case.between(3, 6) for _ in range(case.between(1, 3))]
    case.add(case.real(*sizes))
    case.attributes.update(dim=case.pick(-1, 0), size=case.between(1, 3), step=case.between(1, 2))


def repeated_words(case):
    b, length, words = case.between(1, 3), case.between(3, 20), case.between(3, 6)
    case.add(case.random.integers(0, words, (b, length)).astype(numpy.int64)).add(case.real(b, words))
    case.attributes["ngram_size"] = case.between(1, 3)


def old_function(case):
    case.add(case.real(2, 3, 4, 5))
    case.attributes.update({"Affine": {"alpha": 0.5, "beta": 0.3}, "ParametricSoftplus": {"alpha": 0.5, "beta": 0.7},
                            "ScaledTanh": {"alpha": 0.5, "beta": 0.7}, "ImageScaler": {"scale": 0.5, "bias": [0.1, 0.2, 0.3]},
                            "Scale": {"scale": 0.3}, "Crop": {"border": [1, 0, 2, 1]}, "ThresholdedRelu": {"alpha": 0.2},
                            "MeanVarianceNormalization": {"across_channels": case.pick(0, 1), "normalize_variance": case.pick(0, 1)}}[case.op])


OPERATORS = [("ExpandDims", MICROSOFT, more_dimensions), ("CropAndResize", MICROSOFT, crop_and_resize),
             ("ConvTransposeWithDynamicPads", MICROSOFT, transposed_conv), ("UnfoldTensor", MICROSOFT, unfolded),
             ("NGramRepeatBlock", MICROSOFT, repeated_words),
             *[(op, OLD, old_function) for op in ("Affine", "ParametricSoftplus", "ScaledTanh", "ImageScaler", "Scale", "Crop",
                                                    "ThresholdedRelu", "MeanVarianceNormalization")],
             ("Trilu", MICROSOFT, triangle),
             ("GridSample", MICROSOFT, grid_sample),
             ("Pad", MICROSOFT, padding),
             ("GatherND", MICROSOFT, gather_nd),
             ("Range", MICROSOFT, counting),
             ("CDist", MICROSOFT, distances),
             ("Inverse", MICROSOFT, inverse)]
