"""libhone through ctypes, for scripts that measure kernels as an application calls them."""
import ctypes
import os

import numpy

DTYPES = {1: numpy.bool_, 2: numpy.int8, 3: numpy.int32, 4: numpy.int64, 7: numpy.float32, 8: numpy.float64}


class _Error(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("kind", ctypes.c_int32), ("retry_after_ms", ctypes.c_uint32),
                ("message", ctypes.c_char * 512), ("where", ctypes.c_char * 256)]

    def __init__(self):
        super().__init__(ctypes.sizeof(_Error))


class _ConnectOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("socket", ctypes.c_char_p),
                ("disk_cache", ctypes.c_char_p), ("threads", ctypes.c_int32), ("spin_us", ctypes.c_int32),
                ("pool", ctypes.c_void_p), ("parallel_for", ctypes.c_void_p)]


class _GetOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("threads", ctypes.c_int32), ("budget_us", ctypes.c_int64),
                ("deadline_us", ctypes.c_int64), ("frozen", ctypes.c_int32), ("no_compile", ctypes.c_int32)]


class Operand(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("dtype", ctypes.c_int32), ("rank", ctypes.c_int32),
                ("dimensions", ctypes.c_int64 * 16), ("bytes", ctypes.c_int64), ("is_output", ctypes.c_int32),
                ("is_const", ctypes.c_int32), ("needs_bind", ctypes.c_int32)]

    @property
    def shape(self):
        return tuple(self.dimensions[:self.rank])


class _Info(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("operand_count", ctypes.c_int32),
                ("operands", ctypes.POINTER(Operand)), ("size_count", ctypes.c_int32), ("threads", ctypes.c_int32),
                ("fingerprint", ctypes.c_char_p), ("class_name", ctypes.c_char_p), ("target", ctypes.c_char_p),
                ("origin", ctypes.c_char_p), ("source", ctypes.c_char_p), ("hit", ctypes.c_int32),
                ("pinned", ctypes.c_int32), ("expected_us", ctypes.c_double), ("served_us", ctypes.c_double),
                ("flops", ctypes.c_double)]


class HoneError(Exception):
    """What libhone says when it refuses."""


def aligned(shape, dtype):
    """An array whose data begins at a multiple of 64 bytes, as hone_call wants it to be fast."""
    size = int(numpy.prod(shape, dtype=numpy.int64)) * numpy.dtype(dtype).itemsize
    raw = numpy.empty(size + 64, numpy.uint8)
    begin = -raw.ctypes.data % 64
    return raw[begin:begin + size].view(dtype).reshape(shape)


class Client:
    def __init__(self, library, socket, threads):
        self.library = ctypes.CDLL(os.path.abspath(library))
        for name in ("hone_connect", "hone_get"):
            getattr(self.library, name).restype = ctypes.c_void_p
        self.options = _ConnectOptions(ctypes.sizeof(_ConnectOptions), 2, socket.encode(), None, threads)
        error = _Error()
        self.handle = self.library.hone_connect(ctypes.byref(self.options), ctypes.byref(error))
        if not self.handle:
            raise HoneError(error.message.decode())

    def get(self, kernel, threads=0):
        return Kernel(self, kernel, threads)


class Kernel:
    def __init__(self, client, text, threads):
        self.library = client.library
        options = _GetOptions(ctypes.sizeof(_GetOptions), threads, 0, 60_000_000, 1, 0)
        error = _Error()
        self.handle = self.library.hone_get(ctypes.c_void_p(client.handle), text.encode(), ctypes.byref(options),
                                            ctypes.byref(error))
        if not self.handle:
            raise HoneError(error.message.decode())
        self.handle = ctypes.c_void_p(self.handle)
        self.info = _Info(ctypes.sizeof(_Info))
        self.library.hone_info(self.handle, ctypes.byref(self.info))
        self.operands = self.info.operands[:self.info.operand_count]
        self.arrays = []

    def bind(self, arrays):
        """One array per operand; constants are packed now. Returns a function without arguments that computes."""
        self.arrays = arrays
        buffers = (ctypes.c_void_p * len(arrays))()
        for index, (operand, array) in enumerate(zip(self.operands, arrays)):
            assert array.shape == operand.shape and array.flags.c_contiguous
            if operand.is_const:
                error = _Error()
                data = ctypes.c_void_p(array.ctypes.data)
                if self.library.hone_bind(self.handle, index, data, ctypes.byref(error)):
                    raise HoneError(error.message.decode())
            else:
                buffers[index] = array.ctypes.data
        call, handle = self.library.hone_call, self.handle
        if status := call(handle, buffers, None):
            raise HoneError(f"hone_call: {status}")
        return lambda: call(handle, buffers, None)

    def release(self):
        self.library.hone_release(self.handle)
