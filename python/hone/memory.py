"""Where arrays lie, and the memory of results."""
import ctypes
import sys
import threading

import numpy


def address(array):
    """Of its first element."""
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(array))  # a third of the time of what follows
    except (BufferError, TypeError, ValueError):  # read-only, not dense, empty, elements that buffers have no letter for
        return array.ctypes.data


class ResultMemory:
    """Arrays of one shape and type for results, aligned for vectors. The memory of one that nobody holds any more is taken
    again: fresh memory costs a fault a page, often more than what is computed."""
    _ALIGNMENT, _MOST_KEPT, _SMALL = 64, 4, 1 << 15

    def __init__(self, shape, dtype):
        self._shape, self._dtype = tuple(shape), numpy.dtype(dtype)
        self._size = int(numpy.prod(self._shape, dtype=numpy.int64)) * self._dtype.itemsize
        self._is_kept = self._size >= self._SMALL and hasattr(sys, "getrefcount")
        self._kept = []  # arrays that nobody else has, the memory under them, its address
        self._lock = threading.Lock()

    def take(self):
        """An array, and its address."""
        if not self._is_kept:
            array = numpy.empty(self._shape, self._dtype)
            return array, address(array)
        with self._lock:
            for array, memory, begin in self._kept:
                # The tuple's reference, the array's, this loop's and the call's own; whoever has a result adds one.
                if sys.getrefcount(memory) == 4:
                    return array.view(), begin
            memory = numpy.empty(self._size + self._ALIGNMENT, numpy.uint8)
            skipped = -address(memory) % self._ALIGNMENT
            array = memory[skipped:skipped + self._size].view(self._dtype).reshape(self._shape)
            self._kept.append((array, memory, address(array)))
            del self._kept[:-self._MOST_KEPT]
            return array.view(), address(array)
