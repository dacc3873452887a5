"""Kernels that are called with arrays."""
import ctypes
import threading

import numpy

from hone import dlpack
from hone import library as lib
from hone.memory import ResultMemory, address

# enum hone_dtype → NumPy. What NumPy does not have, ml_dtypes brings, which JAX and TensorFlow install.
DTYPES = {1: numpy.bool_, 2: numpy.int8, 3: numpy.int32, 4: numpy.int64, 5: numpy.float16, 7: numpy.float32, 8: numpy.float64,
          9: numpy.uint8, 10: numpy.uint16, 11: numpy.int16, 12: numpy.uint32, 13: numpy.uint64}
NAMES_IN_ML_DTYPES = {6: "bfloat16"}
try:
    import ml_dtypes
    DTYPES.update({number: getattr(ml_dtypes, name) for number, name in NAMES_IN_ML_DTYPES.items()})
except ImportError:
    pass


class Operand:
    """name, dtype, shape (of dynamic sizes the largest), is_output, is_const."""

    def __init__(self, info):
        self.name = info.name.decode()
        self.dtype = numpy.dtype(DTYPES[info.dtype]) if info.dtype in DTYPES else None
        self.element = dlpack.ELEMENTS.get(info.dtype)
        self.dtype_name = self.dtype.name if self.dtype else NAMES_IN_ML_DTYPES.get(info.dtype, "such elements")
        self.shape = info.shape
        self.is_output = bool(info.is_output)
        self.is_const = bool(info.is_const)

    def numpy_dtype(self):
        if self.dtype is None:
            raise lib.Error("unsupported", f"NumPy has no {self.dtype_name}; install ml_dtypes", self.name)
        return self.dtype

    def __repr__(self):
        return f"{'const ' if self.is_const else ''}{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


def as_array(value):
    """A NumPy array of the same memory where that is possible: arrays, and whatever speaks DLPack."""
    if isinstance(value, numpy.ndarray) or not hasattr(value, "__dlpack__"):
        return numpy.asarray(value)
    device = dlpack.device_of(value)
    if device is not None and device[0] not in dlpack.ON_HOST:
        raise lib.Error("invalid", f"the array is on {dlpack.device_name(device)}, the kernel in the host's memory; ask for the "
                        "kernel with device= that array")
    return numpy.from_dlpack(value)


def is_read_only(value, array):
    """Whether the array that as_array made of a value is not to be written. NumPy says so of all that comes by a DLPack
    older than 1, which has no word for it."""
    if array.flags.writeable:
        return False
    if isinstance(value, numpy.ndarray) or not hasattr(value, "__dlpack__"):
        return True
    return dlpack.is_read_only(value)


class Kernel:
    """Callable code. Calls may come from any number of threads at once; they let other Python threads run. Binding waits
    for the calls that run, and calls for what binds."""
    _PREFIX = "hone_"  # of the library's functions

    def __init__(self, library, handle, text, free=None):
        self._library = library
        self._bound = {}  # index → the array whose memory the library reads
        self._handle = lib.Handle(handle, free or library.hone_release, text, "the kernel was released", self._bound)
        self.text = text
        with self._handle as held:
            info = self._info(held)
            self.operands = [Operand(info.operands[i]) for i in range(info.operand_count)]
            self._sizes = info.size_count
        self._inputs = [i for i, operand in enumerate(self.operands) if not operand.is_output]
        self._outputs = [i for i, operand in enumerate(self.operands) if operand.is_output]
        self._memories = None  # of the outputs, from the first call that wants them on
        self._lock = threading.Lock()  # of what is bound, and the last two
        self._turn = threading.Condition(self._lock)
        self._calls = 0  # that run
        self._binding = False  # somebody waits for those to end, or binds

    def _info(self, held):
        info = lib.KernelInfo(ctypes.sizeof(lib.KernelInfo))
        getattr(self._library, self._PREFIX + "info")(held, ctypes.byref(info))
        return info

    @property
    def info(self):
        """Facts about the code that is called now."""
        with self._handle as held:
            info = self._info(held)
            return {"fingerprint": info.fingerprint.decode(), "class": info.class_name.decode(),
                    "target": info.target.decode(), "origin": info.origin.decode(), "source": info.source.decode(),
                    "hit": bool(info.hit), "pinned": bool(info.pinned), "threads": info.threads,
                    "expected_us": info.expected_us, "served_us": info.served_us, "flops": info.flops,
                    "updates": info.updates}

    def bind(self, *arrays, **named):
        """Gives constant operands their data, in order or by name, packed now and read again when better code comes: the
        arrays are held, and must not change. Returns the kernel."""
        constants = [i for i, operand in enumerate(self.operands) if operand.is_const]
        if len(arrays) > len(constants):
            raise lib.Error("invalid", f"{len(arrays)} arrays for {len(constants)} constant operands", self.text)
        given = dict(zip(constants, arrays))
        for name, array in named.items():
            found = [i for i in constants if self.operands[i].name == name]
            if not found:
                names = ", ".join(self.operands[i].name for i in constants) or "none"
                raise lib.Error("invalid", f"{name} is no constant operand; there are: {names}", self.text)
            given[found[0]] = array
        with self._handle as held, self._lock:
            self._bind_alone(held, given, anew=True)
        return self

    def _shape(self, held, index, sizes):
        """Of an operand in a call with these sizes, a ctypes array."""
        operand = self.operands[index]
        if self._sizes == 0:
            return operand.shape
        shape = (ctypes.c_int64 * lib.MAX_RANK)()
        if self._library.hone_shape(held, index, sizes, shape):
            raise lib.Error("invalid", f"sizes {list(sizes)} are out of range; the largest shape is {operand.shape}",
                            operand.name)
        return tuple(shape[:len(operand.shape)])

    def _bind_alone(self, held, given, anew=False):
        """Binds constants, index → array, while no call runs; anew: those that are bound already, too. With the turn held,
        which nobody else gets between the last bind and the return."""
        while self._binding:
            self._turn.wait()
        given = {index: value for index, value in given.items()
                 if anew or index not in self._bound or self._bound[index][0] is not value}
        if not given:
            return
        self._binding = True  # no call begins from now on
        try:
            while self._calls:
                self._turn.wait()
            for index, value in given.items():
                self._bind(held, index, value)
        finally:
            self._binding = False
            self._turn.notify_all()

    def _bind(self, held, index, value):
        array = self._checked(self.operands[index], value, self.operands[index].shape)
        error = lib.ErrorStruct()
        if self._library.hone_bind(held, index, address(array), ctypes.byref(error)):
            raise error.raised()
        self._bound[index] = (value, array)

    @staticmethod
    def _checked(operand, value, shape):
        """As the operand wants it; copied only where the memory is not dense or not aligned."""
        if type(value) is numpy.ndarray and value.shape == shape and value.dtype == operand.dtype:
            flags = value.flags
            if flags.c_contiguous and flags.aligned:
                return value
        array = as_array(value)
        if array.dtype != operand.numpy_dtype():
            raise lib.Error("invalid", f"{array.dtype} elements, wanted {operand.dtype}", operand.name)
        if array.shape != shape:
            raise lib.Error("invalid", f"shape {array.shape}, wanted {shape}", operand.name)
        return numpy.require(array, requirements=["C", "ALIGNED"]).reshape(array.shape)

    def __call__(self, *arrays, out=None, sizes=()):
        """Computes. arrays: the inputs in order; constants that were bound may be left out, the others are bound by the
        first call that brings them. out: where to write, one array or one per output; made if it is missing. sizes: the
        dynamic ones, which decide the arrays' shapes. Returns the output, a tuple if there are several."""
        with self._handle as held:
            return self._call(held, arrays, out, sizes)

    def _wanted(self, arrays):
        """The operands that a call brings: all inputs, or those that are not bound."""
        wanted = self._inputs
        if len(arrays) != len(wanted):
            with self._lock:
                wanted = [i for i in self._inputs if i not in self._bound]
        if len(arrays) != len(wanted):
            raise lib.Error("invalid", f"{len(arrays)} arrays, wanted {len(wanted)}: "
                            + ", ".join(map(repr, (self.operands[i] for i in wanted))), self.text)
        return wanted

    def _begin(self, held, constants):
        """A call, which may bring constants; _end ends it."""
        with self._lock:
            if constants:
                self._bind_alone(held, constants)
            self._calls += 1

    def _end(self):
        with self._lock:
            self._calls -= 1
            if self._binding:
                self._turn.notify_all()

    def _call(self, held, arrays, out, sizes):
        wanted = self._wanted(arrays)
        if len(sizes) != self._sizes:
            raise lib.Error("invalid", f"{len(sizes)} sizes, wanted {self._sizes}", self.text)
        dynamic = (ctypes.c_int64 * len(sizes))(*(lib.whole(size, 64, "sizes") for size in sizes)) if sizes else None
        buffers = (ctypes.c_void_p * len(self.operands))()
        given, constants = [], {}
        for index, value in zip(wanted, arrays):
            operand = self.operands[index]
            if operand.is_const:
                constants[index] = value
                continue
            array = self._checked(operand, value, self._shape(held, index, dynamic))
            given.append(array)  # until the call has ended
            buffers[index] = address(array)
        results = self._results(held, dynamic) if out is None else self._given_results(held, out, dynamic)
        for index, (_, begin) in zip(self._outputs, results):
            buffers[index] = begin
        self._begin(held, constants)
        try:
            status = self._library.hone_call(held, buffers, dynamic)
        finally:
            self._end()
        if status:
            which = (status >> 8) - 1
            where = self.operands[which].name if 0 <= which < len(self.operands) else self.text
            raise lib.Error(lib.KINDS.get(status & 0xff, str(status & 0xff)),
                            "the call was refused: a buffer that is missing, misaligned or overlaps another, a constant that is "
                            "not bound, or a size out of its range", where)
        values = [value for value, _ in results]
        return values[0] if len(values) == 1 else tuple(values)

    def _results(self, held, sizes):
        """Arrays to write, and their addresses."""
        if sizes is not None:
            made = [numpy.empty(self._shape(held, i, sizes), self.operands[i].numpy_dtype()) for i in self._outputs]
            return [(array, address(array)) for array in made]
        if self._memories is None:
            self._memories = [ResultMemory(self.operands[i].shape, self.operands[i].numpy_dtype()) for i in self._outputs]
        return [memory.take() for memory in self._memories]

    def _to_write(self, out):
        given = list(out) if isinstance(out, (tuple, list)) else [out]
        if len(given) != len(self._outputs):
            raise lib.Error("invalid", f"{len(given)} arrays to write, wanted {len(self._outputs)}", self.text)
        return given

    def _given_results(self, held, out, sizes):
        """The same of what the caller wants to have written."""
        results = []
        for index, value in zip(self._outputs, self._to_write(out)):
            array = as_array(value)
            if is_read_only(value, array):
                raise lib.Error("invalid", "the array to write is read-only", self.operands[index].name)
            wanted = self._checked(self.operands[index], array, self._shape(held, index, sizes))
            if wanted is not array and address(wanted) != address(array):
                raise lib.Error("invalid", "the array to write is not dense, or not aligned", self.operands[index].name)
            results.append((value, address(array)))
        return results

    def release(self):
        """Gives the code back, once the calls that run have ended."""
        self._handle.free()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()

    def __repr__(self):
        return f"<hone.Kernel {self.text!r}>"
