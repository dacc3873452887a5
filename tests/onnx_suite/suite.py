#!/usr/bin/env python3
"""Runs ONNX's own backend suite (the test data inside the Python package `onnx`) through hone.Session.

usage: suite.py [--data DIR] [--filter TEXT] [--json FILE] [--list refused|wrong|passed] [--floor FILE]

A case is passed (every output agrees with the file's, to the suite's tolerances), refused (with a message that names an
operator), wrong, or crashed. An input that decides a shape (axes, sizes, the new shape of a Reshape, the scales of a Resize) is an
input of the model in many cases; where a session refuses it so, it is given as a constant, and the case is counted as
passed_constant.

With --floor, the counts are compared with those in the file for this version of the package: it is an error if a case is
wrong or crashes, if fewer pass than stand there, if a refusal names neither an operator nor an input of its model,
or if `hone check` says otherwise than the session.

honed is started for the run with a cache of its own. HONE_BIN_DIR names a build (default: build/release/bin).
"""

import argparse
import collections
import json
import os
import re
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("HONE_BIN_DIR", os.path.join(ROOT, "build/release/bin"))


# Their numbers contradict ONNX's definition of the operator: what overflows int8 wraps around in them, and is to
# saturate.
WRONG_FILES = {f"test_qlinearmatmul_{rank}_int8_{scale}" for rank in ("2D", "3D") for scale in ("float16", "float32")}
# Numbers that later versions of the package have corrected: what hangs over the padding counted as padding.
CORRECTED = {"1.16.2": {"test_averagepool_3d_dilations_large_count_include_pad_is_1_ceil_mode_is_True"}}
# Floats beyond the whole numbers that they are cast to, which ONNX leaves open: they are clamped there, and wrap in later versions.
LEFT_OPEN = {"1.16.2": {f"test_cast_{float_type}_to_{small}" for float_type in ("FLOAT", "FLOAT16") for small in ("INT4", "UINT4")}}


def case_directories(data):
    for kind in ("node", "simple"):
        folder = os.path.join(data, kind)
        for name in sorted(os.listdir(folder)):
            yield name, os.path.join(folder, name)


def read_values(directory, kind, types):
    """The arrays of input_*.pb or output_*.pb; ValueError for what is no tensor of numbers or truth values."""
    import numpy
    import onnx
    from onnx import numpy_helper
    values = []
    for index, value_type in enumerate(types):
        path = os.path.join(directory, f"{kind}_{index}.pb")
        if not os.path.exists(path):
            break
        if (kind_of_type := value_type.WhichOneof("value")) != "tensor_type":
            raise ValueError(f"a value of {kind_of_type}")
        tensor = onnx.TensorProto()
        with open(path, "rb") as file:
            tensor.ParseFromString(file.read())
        if tensor.data_type == onnx.TensorProto.STRING:
            raise ValueError("a tensor of strings")
        array = numpy.asarray(numpy_helper.to_array(tensor))
        if value_type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16:  # sessions take and give floats
            is_bits = array.dtype == numpy.uint16
            array = (array.astype(numpy.uint32) << 16).view(numpy.float32) if is_bits else array.astype(numpy.float32)
        if tensor.data_type in (21, 22) and array.dtype.kind == "f":  # numbers of 4 bits, before ml_dtypes had them
            array = array.astype(numpy.uint8 if tensor.data_type == 21 else numpy.int8)
        values.append(array)
    return values


def agrees(seen, wanted, value_type):
    import numpy
    import onnx
    from hone.session import widened
    if seen.shape != wanted.shape:
        return f"shape {seen.shape}, wanted {wanted.shape}"
    wanted = widened(wanted)
    if seen.dtype != wanted.dtype:
        return f"{seen.dtype}, wanted {wanted.dtype}"
    if seen.dtype.kind != "f":
        return "" if numpy.array_equal(seen, wanted) else "elements differ"
    # Elements of bfloat16 were cut off where the files were made, and are rounded here.
    tolerance = 2**-7 if value_type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16 else 1e-3
    return "" if numpy.allclose(seen, wanted, rtol=tolerance, atol=1e-5, equal_nan=True) else "elements differ"


def run_case(directory, socket):
    """(verdict, message)"""
    import hone
    import onnx
    path = os.path.join(directory, "model.onnx")
    graph = onnx.load(path).graph
    stored = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in stored]
    if os.path.basename(directory) in WRONG_FILES:
        return "beyond", "its numbers contradict the operator's definition"
    if os.path.basename(directory) in CORRECTED.get(onnx.__version__, ()):
        return "beyond", "its numbers were corrected in later versions"
    if os.path.basename(directory) in LEFT_OPEN.get(onnx.__version__, ()):
        return "beyond", "its result is one that ONNX leaves open"
    data = os.path.join(directory, "test_data_set_0")
    try:
        given = read_values(data, "input", [value.type for value in inputs])
        wanted = read_values(data, "output", [value.type for value in graph.output])
    except ValueError as error:
        return "beyond", str(error)
    arrays = {value.name: array for value, array in zip(inputs, given)}
    refusal = ""
    for kinds in ("", "ib", "ibf"):
        as_constants = kinds != ""
        constants = {name: array for name, array in arrays.items() if array.dtype.kind in kinds and array.ndim <= 1}
        if as_constants and not constants:
            continue
        try:
            shapes = {name: array.shape for name, array in arrays.items() if name not in constants}
            with hone.Session(path, constants=constants, shapes=shapes, threads=1, socket=socket, start=False) as session:
                left = {value.name for value in session.get_inputs()}
                outputs = session.run({name: array for name, array in arrays.items() if name in left})
        except hone.Error as error:
            refusal = refusal or str(error)
            continue
        for seen, expected, value in zip(outputs, wanted, graph.output):
            if problem := agrees(seen, expected, value.type):
                return "wrong", problem
        return ("passed_constant" if as_constants else "passed"), refusal
    return "refused", refusal


def worker(names, data, socket, out):
    """A child process: a line of JSON a case, so that what kills it costs one case."""
    sys.path.insert(0, os.path.join(ROOT, "python"))
    directories = dict(case_directories(data))
    for name in names:
        print(json.dumps({"begin": name}), file=out, flush=True)
        try:
            verdict, message = run_case(directories[name], socket)
        except Exception as error:  # of the harness or the binding: a defect, told as such
            verdict, message = "crashed", f"{type(error).__name__}: {error}"
        print(json.dumps({"case": name, "verdict": verdict, "message": message}), file=out, flush=True)


def run_all(names, data, socket):
    """Yields each case's verdict. A child that dies is replaced by one that goes on after the case that killed it."""
    left = list(names)
    while left:
        child = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--worker", socket, "--data", data],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        child.stdin.write(json.dumps(left))
        child.stdin.close()
        begun = None
        for line in child.stdout:
            told = json.loads(line)
            if "begin" in told:
                begun = told["begin"]
                continue
            left.remove(told["case"])
            begun = None
            yield told
        status = child.wait()
        if begun is None:
            if left:
                raise RuntimeError(f"the child ended with status {status} before {left[0]}")
            return
        left.remove(begun)
        yield {"case": begun, "verdict": "crashed", "message": f"ended by {status}"}


def names_operator(message, model):
    """Whether a refusal says which operator or input of the file it is about (its path aside), or that all are too old."""
    import onnx
    graph = onnx.load(model).graph
    words = [re.escape(node.op_type) for node in graph.node] + [f"input {re.escape(value.name)}" for value in graph.input]
    return re.search(rf"\b({'|'.join(words)}|its operators are of opset \d+)\b", message.replace(model, "")) is not None


def told_otherwise(results, data):
    """Cases of which `hone check` says something else than the session did, without constants of our own."""
    directories = dict(case_directories(data))
    models = {os.path.join(directories[told["case"]], "model.onnx"): told for told in results}
    with tempfile.TemporaryDirectory() as directory:
        # No daemon: what a model lacks is known without one.
        command = [os.path.join(BIN, "hone"), "check", "--json", "--no-start", "--socket", os.path.join(directory, "none")]
        lines = subprocess.run([*command, *models], stdout=subprocess.PIPE, text=True, check=False).stdout.splitlines()
    said = {row["model"]: row["runs"] for row in map(json.loads, lines)}
    for model, told in models.items():
        if told["verdict"] != "beyond" and said.get(model) != (told["verdict"] == "passed"):
            yield f"{told['case']}: hone check says runs: {said.get(model)}, the session {told['verdict']}"


def below_floor(counts, floor_file, unnamed):
    """What is worse than the file says; a line each."""
    import onnx
    with open(floor_file, encoding="utf-8") as file:
        floors = json.load(file)
    if onnx.__version__ not in floors:
        return [f"{floor_file} has no counts for onnx {onnx.__version__}; it has {', '.join(floors)}"]
    floor = floors[onnx.__version__]
    problems = [f"{counts[verdict]} cases {verdict}" for verdict in ("wrong", "crashed") if counts[verdict]]
    # A case that passes without a help that it needed is no loss.
    for kinds in (("passed",), ("passed", "passed_constant")):
        seen, wanted = (sum(each.get(kind, 0) for kind in kinds) for each in (counts, floor))
        if seen < wanted:
            problems.append(f"{seen} {' and '.join(kinds)}, wanted at least {wanted}")
        elif seen > wanted:
            print(f"{seen} {' and '.join(kinds)}, more than {wanted}: raise it in {floor_file}")
    problems += [f"a refusal that names no operator: {case}" for case in unnamed]
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="onnx/backend/test/data; default: of the installed package")
    parser.add_argument("--filter", default="", help="only cases whose name matches this regular expression")
    parser.add_argument("--json", help="every case's verdict, as one document")
    parser.add_argument("--list", action="append", default=[], help="print the cases of this verdict")
    parser.add_argument("--floor", metavar="FILE", help="counts that must be reached, by version of the package")
    parser.add_argument("--worker", metavar="SOCKET", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.data is None:
        import onnx
        arguments.data = os.path.join(os.path.dirname(onnx.__file__), "backend/test/data")
    if arguments.worker:
        worker(json.load(sys.stdin), arguments.data, arguments.worker, sys.stdout)
        return 0
    names = [name for name, _ in case_directories(arguments.data) if re.search(arguments.filter, name)]
    with tempfile.TemporaryDirectory() as directory:
        socket = os.path.join(directory, "honed.sock")
        daemon = subprocess.Popen([os.path.join(BIN, "honed"), "--no-idle", "--socket", socket, "--cache",
                                   os.path.join(directory, "cache")], stderr=subprocess.DEVNULL)
        try:
            while not os.path.exists(socket):
                time.sleep(0.01)
            for variable, library in (("HONE_LIBRARY", "libhone.so"), ("HONE_NETWORK_LIBRARY", "libhone_network.so")):
                os.environ.setdefault(variable, os.path.join(os.path.dirname(BIN), "lib", library))
            results = []
            for told in run_all(names, arguments.data, socket):
                results.append(told)
                if told["verdict"] in arguments.list:
                    print(f"{told['verdict']:8} {told['case']}: {told['message']}", flush=True)
        finally:
            daemon.terminate()
            daemon.wait()
    counts = collections.Counter(told["verdict"] for told in results)
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()), f"of {len(results)}")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({told["case"]: [told["verdict"], told["message"]] for told in results}, file, indent=0, sort_keys=True)
    if arguments.floor:
        directories = dict(case_directories(arguments.data))
        unnamed = [told["case"] for told in results if told["verdict"] == "refused" and
                   not names_operator(told["message"], os.path.join(directories[told["case"]], "model.onnx"))]
        problems = below_floor(counts, arguments.floor, unnamed) + list(told_otherwise(results, arguments.data))
        for problem in problems:
            print(problem, file=sys.stderr)
        return 1 if problems else 0
    return 1 if counts["wrong"] or counts["crashed"] else 0


if __name__ == "__main__":
    sys.exit(main())
