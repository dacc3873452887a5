"""Whole networks from ONNX files."""
import ctypes
import os
import threading

import numpy

from hone import library as lib
from hone.kernel import DTYPES, as_array
from hone.memory import ResultMemory, address

# onnxruntime's names where they are not NumPy's.
ONNX_NAMES = {"float32": "tensor(float)", "float64": "tensor(double)"}
BFLOAT16 = 6
ACCURACIES = {"strict": 1, "relaxed": 2, "fast": 3}
NUMBERS = {numpy.dtype(dtype): number for number, dtype in DTYPES.items()}


class Value:
    """name, shape, dtype and type (as onnxruntime spells it) of an input or output. A dimension that each run decides is None,
    and so is a shape of which nothing is known."""

    def __init__(self, described):
        self.name = described.name.decode()
        self.shape = [size if size >= 0 else None for size in described.shape[:described.rank]] if described.rank >= 0 else None
        # NumPy has no bfloat16: arrays of float32 hold it, and are rounded on the way in.
        self.is_bfloat16 = described.dtype == BFLOAT16
        self.dtype = numpy.dtype(numpy.float32 if self.is_bfloat16 else DTYPES[described.dtype])
        self.type = "tensor(bfloat16)" if self.is_bfloat16 else ONNX_NAMES.get(self.dtype.name, f"tensor({self.dtype.name})")
        self._as_is = None if self.is_open() or self.is_bfloat16 else tuple(self.shape)  # of arrays that are read where they are

    def is_open(self):
        """Whether each run decides its shape."""
        return self.shape is None or None in self.shape

    def memory(self):
        """Of an output whose shape no run decides."""
        return ResultMemory(self.shape, numpy.uint16 if self.is_bfloat16 else self.dtype)

    def checked(self, given):
        """An array of this shape and type, dense."""
        if (type(given) is numpy.ndarray and given.shape == self._as_is and given.dtype == self.dtype and
                given.flags.c_contiguous):
            return given
        array = widened(as_array(given))
        if array.dtype != self.dtype:
            raise lib.Error("invalid", f"{array.dtype} elements, wanted {self.dtype}", self.name)
        if self.shape is not None and (len(self.shape) != array.ndim or
                                       any(size not in (None, seen) for size, seen in zip(self.shape, array.shape))):
            raise lib.Error("invalid", f"shape {list(array.shape)}, wanted {self.shape}", self.name)
        return to_bfloat16(array) if self.is_bfloat16 else numpy.ascontiguousarray(array).reshape(array.shape)

    def __repr__(self):
        return f"{self.name}: {self.type}{self.shape}"


class Session:
    """A network whose kernels are served, whose constants are packed and whose memory is planned. It becomes faster while it
    is held. Any number of threads may use it; one run goes after another.

    Where the file leaves dimensions open, or values decide shapes that the network computes, each run has shapes of its own;
    kernels for those that are new are made then, and kept.

    path: an ONNX file; constants: inputs that never change (name → array), as weights of a file that ships without them;
    shapes: of inputs whose dimensions the file leaves open (name → sequence); threads: of its kernels, 0 for as many as
    this process may run on; budget: seconds to wait for better code of each kernel; deadline: seconds until one is there;
    frozen: the same bits for as long as it is held; accuracy: of its convolutions and products of f32, "strict", "relaxed"
    (errors of up to 1e-4 of a layer's terms: Winograd's algorithm) or "fast" (up to 1e-2: factors of bf16); socket, start: as of hone.Client."""

    def __init__(self, path, constants=None, shapes=None, threads=0, budget=0.0, deadline=60.0, frozen=False, socket=None,
                 start=True, accuracy="strict"):
        self._library = load()
        given = [(name, None, tuple(shape)) for name, shape in (shapes or {}).items()]
        given += [(name, numpy.ascontiguousarray(widened(as_array(value))), numpy.shape(value))
                  for name, value in (constants or {}).items()]
        values = (NetworkValue * max(1, len(given)))()
        for value, (name, array, shape) in zip(values, given):
            if len(shape) > lib.MAX_RANK:
                raise lib.Error("unsupported", f"rank {len(shape)}, at most {lib.MAX_RANK}", name)
            value.name, value.rank = lib.text(name, "a value's name"), len(shape)
            value.shape[:len(shape)] = [lib.whole(size, 64, name) for size in shape]
            if array is not None:
                if array.dtype not in NUMBERS:
                    raise lib.Error("unsupported", f"hone has no {array.dtype}", name)
                value.dtype, value.data = NUMBERS[array.dtype], array.ctypes.data
        connect = lib.ConnectOptions(ctypes.sizeof(lib.ConnectOptions), lib.START_DAEMON if start else 0,
                                     lib.text(socket, "socket") if socket else None, None, lib.whole(threads, 32, "threads"))
        get = lib.get_options(threads, budget, deadline, frozen, True)
        if accuracy not in ACCURACIES:
            raise lib.Error("invalid", f"accuracy={accuracy!r}, wanted {', '.join(ACCURACIES)}", self.__class__.__name__)
        options = NetworkOptions(ctypes.sizeof(NetworkOptions), len(given), values, ctypes.pointer(get), ACCURACIES[accuracy])
        error = lib.ErrorStruct()
        handle = self._library.hone_network_open(lib.text(path, "path"), ctypes.byref(connect), ctypes.byref(options),
                                                 ctypes.byref(error))
        if not handle:
            raise error.raised()
        self._path = os.fspath(path)
        self._handle = lib.Handle(handle, self._library.hone_network_close, self._path, "the session is closed")
        self._shares_lock = threading.Lock()
        self._inputs, self._outputs = ([self._describe(handle, is_output, i)
                                        for i in range(self._library.hone_network_count(handle, is_output))]
                                       for is_output in (0, 1))
        self._input_names = [value.name for value in self._inputs]
        self._is_open = any(value.is_open() for value in self._inputs + self._outputs)
        self._memories = [] if self._is_open else [value.memory() for value in self._outputs]
        self._has_bfloat16 = any(value.is_bfloat16 for value in self._outputs)

    def _describe(self, handle, is_output, index):
        value = NetworkValue()
        self._library.hone_network_describe(handle, is_output, index, ctypes.byref(value))
        return Value(value)

    def get_inputs(self):
        return list(self._inputs)

    def get_outputs(self):
        return list(self._outputs)

    def run(self, *arguments):
        """run(inputs) or, as onnxruntime has it, run(output_names, inputs). inputs: name → array; or arrays in order, one
        alone without a list. A list of arrays comes back: those named, or all of them."""
        if len(arguments) not in (1, 2):
            raise TypeError("run(inputs) or run(output_names, inputs)")
        wanted = self._places(arguments[0]) if len(arguments) == 2 and arguments[0] else None
        with self._handle as handle:
            arrays = [value.checked(array) for value, array in zip(self._inputs, self._in_order(arguments[-1]))]
            results = self._compute(handle, arrays) if self._is_open else self._run(handle, arrays)
        return results if wanted is None else [results[place] for place in wanted]

    def _places(self, names):
        """Of outputs, by their names."""
        known = [value.name for value in self._outputs]
        for name in names:
            if name not in known:
                raise lib.Error("invalid", f"there is no output {name}; there are: {', '.join(known)}", self._path)
        return [known.index(name) for name in names]

    def _run(self, handle, arrays):
        taken = [memory.take() for memory in self._memories]
        error = lib.ErrorStruct()
        if self._library.hone_network_run(handle, pointers([address(array) for array in arrays]),
                                          pointers([begin for _, begin in taken]), error):
            raise error.raised()
        if self._has_bfloat16:
            return [from_bfloat16(array) if value.is_bfloat16 else array for value, (array, _) in zip(self._outputs, taken)]
        return [array for array, _ in taken]

    def shares(self, *arguments):
        """Runs as run() does, once, with every call timed: a list of kernels and of what ran on the host, largest first, each a
        dictionary of label, kernel (its text; "" on the host), why_host ("" for kernels), calls and time_us. Shapes that were not
        met before cost more; run them once before. Runs of other threads at the same time are counted, too."""
        with self._handle as handle, self._shares_lock:
            self._library.hone_network_time_calls(handle, 1)
            try:
                self.run(*arguments)
                rows = (NetworkShare * self._library.hone_network_shares(handle, None, 0))()
                count = min(len(rows), self._library.hone_network_shares(handle, rows, len(rows)))
                return [{"label": row.label.decode(), "kernel": row.kernel.decode(), "why_host": row.why_host.decode(),
                         "calls": row.calls, "time_us": row.time_us} for row in rows[:count]]
            finally:
                self._library.hone_network_time_calls(handle, 0)

    def _compute(self, handle, arrays):
        given = (NetworkValue * max(1, len(arrays)))()
        for value, input_value, array in zip(given, self._inputs, arrays):
            if array.ndim > lib.MAX_RANK:
                raise lib.Error("unsupported", f"rank {array.ndim}, at most {lib.MAX_RANK}", input_value.name)
            value.rank, value.data = array.ndim, array.ctypes.data
            value.dtype = BFLOAT16 if input_value.is_bfloat16 else NUMBERS[array.dtype]
            value.shape[:array.ndim] = array.shape
        error = lib.ErrorStruct()
        computed = self._library.hone_network_compute(handle, given, ctypes.byref(error))
        if not computed:
            raise error.raised()
        try:
            results = []
            for i in range(len(self._outputs)):
                value = NetworkValue()
                self._library.hone_network_result(computed, i, ctypes.byref(value))
                is_bfloat16 = value.dtype == BFLOAT16
                array = numpy.empty(list(value.shape[:value.rank]), numpy.uint16 if is_bfloat16 else DTYPES[value.dtype])
                ctypes.memmove(array.ctypes.data, value.data, value.bytes)
                results.append(from_bfloat16(array) if is_bfloat16 else array)
            return results
        finally:
            self._library.hone_network_results_free(computed)

    def _in_order(self, given):
        names = self._input_names
        if isinstance(given, dict):
            if unknown := [name for name in given if name not in names]:
                raise lib.Error("invalid", f"there is no input {unknown[0]}; there are: {', '.join(names)}", self._path)
            if missing := [name for name in names if name not in given]:
                raise lib.Error("invalid", f"input {missing[0]} is missing", self._path)
            return [given[name] for name in names]
        arrays = list(given) if isinstance(given, (list, tuple)) else [given]
        if len(arrays) != len(names):
            raise lib.Error("invalid", f"{len(arrays)} inputs, wanted {len(names)}: {', '.join(names)}", self._path)
        return arrays

    def close(self):
        """Gives it back, once the runs that are under way have ended."""
        self._handle.free()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        return f"<hone.Session {self._path!r}>"


class NetworkValue(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("dtype", ctypes.c_int32), ("rank", ctypes.c_int32),
                ("shape", ctypes.c_int64 * lib.MAX_RANK), ("bytes", ctypes.c_int64), ("data", ctypes.c_void_p)]


class NetworkShare(ctypes.Structure):
    _fields_ = [("label", ctypes.c_char_p), ("kernel", ctypes.c_char_p), ("why_host", ctypes.c_char_p),
                ("calls", ctypes.c_int64), ("time_us", ctypes.c_double)]


class NetworkOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("value_count", ctypes.c_int32), ("values", ctypes.POINTER(NetworkValue)),
                ("get", ctypes.POINTER(lib.GetOptions)), ("accuracy", ctypes.c_int32)]


def widened(array):
    """ml_dtypes' whole numbers of 2 and 4 bits as bytes, its floats of 4 and 8 bits as float32: sessions take and give those."""
    name = array.dtype.name
    if name.startswith(("float8_", "float4_")):
        return array.astype(numpy.float32)
    if name in ("int2", "int4", "uint2", "uint4"):
        return array.astype(numpy.uint8 if name.startswith("u") else numpy.int8)
    return array


def to_bfloat16(array):
    """The upper halves of float32, rounded to nearest, ties to even."""
    bits = numpy.ascontiguousarray(array).view(numpy.uint32)
    rounded = ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(numpy.uint16)
    return numpy.where(numpy.isnan(array), (bits >> 16 | 0x40).astype(numpy.uint16), rounded).reshape(numpy.shape(array))


def from_bfloat16(bits):
    return (bits.astype(numpy.uint32) << 16).view(numpy.float32)


def pointers(addresses):
    return (ctypes.c_void_p * max(1, len(addresses)))(*addresses)


_LOADED = None
_LOCK = threading.Lock()


def load():
    """libhone_network, loaded once, from where libhone is looked for."""
    global _LOADED
    with _LOCK:
        if _LOADED is None:
            library = lib.find("HONE_NETWORK_LIBRARY", "hone_network")
            library.hone_network_open.restype = ctypes.c_void_p
            library.hone_network_open.argtypes = [ctypes.c_char_p, ctypes.POINTER(lib.ConnectOptions),
                                                  ctypes.POINTER(NetworkOptions), ctypes.POINTER(lib.ErrorStruct)]
            library.hone_network_count.argtypes = [ctypes.c_void_p, ctypes.c_int32]
            library.hone_network_describe.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32,
                                                      ctypes.POINTER(NetworkValue)]
            library.hone_network_run.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p),
                                                 ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(lib.ErrorStruct)]
            library.hone_network_compute.restype = ctypes.c_void_p
            library.hone_network_compute.argtypes = [ctypes.c_void_p, ctypes.POINTER(NetworkValue),
                                                     ctypes.POINTER(lib.ErrorStruct)]
            library.hone_network_result.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.POINTER(NetworkValue)]
            library.hone_network_results_free.argtypes = [ctypes.c_void_p]
            library.hone_network_results_free.restype = None
            library.hone_network_time_calls.argtypes = [ctypes.c_void_p, ctypes.c_int]
            library.hone_network_time_calls.restype = None
            library.hone_network_shares.argtypes = [ctypes.c_void_p, ctypes.POINTER(NetworkShare), ctypes.c_int32]
            library.hone_network_close.argtypes = [ctypes.c_void_p]
            library.hone_network_close.restype = None
            _LOADED = library
    return _LOADED
