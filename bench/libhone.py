"""libhone for scripts that measure kernels as an application calls them: the structures of the Python package, and calls
without its checks."""
import ctypes
import os
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
from hone.kernel import DTYPES  # noqa: E402,F401
from hone.library import NO_DISK_CACHE, ConnectOptions, Error, ErrorStruct, GetOptions, KernelInfo  # noqa: E402


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
        self.options = ConnectOptions(ctypes.sizeof(ConnectOptions), NO_DISK_CACHE, socket.encode(), None, threads)
        error = ErrorStruct()
        self.handle = self.library.hone_connect(ctypes.byref(self.options), ctypes.byref(error))
        if not self.handle:
            raise error.raised()

    def get(self, kernel, threads=0):
        return Kernel(self, kernel, threads)

    def close(self):
        self.library.hone_close(ctypes.c_void_p(self.handle))


class Kernel:
    def __init__(self, client, text, threads):
        self.library = client.library
        options = GetOptions(ctypes.sizeof(GetOptions), threads, 0, 60_000_000, 1, 0)
        error = ErrorStruct()
        self.handle = self.library.hone_get(ctypes.c_void_p(client.handle), text.encode(), ctypes.byref(options),
                                            ctypes.byref(error))
        if not self.handle:
            raise error.raised()
        self.handle = ctypes.c_void_p(self.handle)
        self.info = KernelInfo(ctypes.sizeof(KernelInfo))
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
                error = ErrorStruct()
                data = ctypes.c_void_p(array.ctypes.data)
                if self.library.hone_bind(self.handle, index, data, ctypes.byref(error)):
                    raise error.raised()
            else:
                buffers[index] = array.ctypes.data
        call, handle = self.library.hone_call, self.handle
        if status := call(handle, buffers, None):
            raise Error("run failed", f"hone_call: {status}")
        return lambda: call(handle, buffers, None)

    def release(self):
        self.library.hone_release(self.handle)
