"""Models as graphs without their weights, small enough for a repository, and back: weights become inputs of the graph, and are made
from a seed when the model is run. The model's own inputs are named in its metadata, as "data"."""
import os
import zlib

FEWEST = 64  # elements of a weight; fewer stay in the file


def strip(path, target):
    """Writes the graph of an ONNX file without the elements of its weights."""
    import onnx
    from onnx import helper, numpy_helper
    model = onnx.load(path)
    graph = model.graph
    data = [value.name for value in graph.input]
    kept = []
    for tensor in graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype.kind != "f" or array.size < FEWEST:
            kept.append(tensor)
        else:
            graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, array.shape))
    del graph.initializer[:]
    graph.initializer.extend(kept)
    del graph.value_info[:]
    for node in graph.node:
        node.ClearField("doc_string")
        del node.metadata_props[:]
    del model.metadata_props[:]
    model.metadata_props.append(onnx.StringStringEntryProto(key="data", value=",".join(data)))
    onnx.save(model, target)


def array_of(name, shape, element, is_data):
    """Elements from a seed of their own: weights as layers are initialised, data as it comes."""
    import numpy
    random = numpy.random.default_rng(zlib.crc32(name.encode()))
    if element.kind in "iu":
        return numpy.ones(shape, element) if "mask" in name else random.integers(0, 1000, shape).astype(element)
    if is_data:
        return random.random(shape).astype(element)
    if len(shape) < 2:
        return (1 + 0.1 * numpy.abs(random.standard_normal(shape))).astype(element) if not name.endswith("bias") else \
            (0.1 * random.standard_normal(shape)).astype(element)
    fan_in = max(1, int(numpy.prod(shape[1:])) if len(shape) != 2 else shape[0])
    return (random.standard_normal(shape) / fan_in ** 0.5).astype(element)


def fill(path, folder):
    """NAME.onnx with weights and NAME.npz with inputs in the folder, as bench/zoo.py wants them."""
    import numpy
    import onnx
    from onnx import helper, numpy_helper
    model = onnx.load(path)
    graph = model.graph
    data = next(entry.value for entry in model.metadata_props if entry.key == "data").split(",")
    inputs, kept = {}, []
    for value in graph.input:
        tensor_type = value.type.tensor_type
        array = array_of(value.name, [dimension.dim_value for dimension in tensor_type.shape.dim],
                         helper.tensor_dtype_to_np_dtype(tensor_type.elem_type), value.name in data)
        if value.name in data:
            inputs[value.name] = array
            kept.append(value)
        else:
            graph.initializer.append(numpy_helper.from_array(array, value.name))
    del graph.input[:]
    graph.input.extend(kept)
    target = os.path.join(folder, os.path.basename(path))
    onnx.save(model, target)
    numpy.savez(target[:-len(".onnx")] + ".npz", **inputs)
