"""DLPack: where an array lies, and what its capsule says of it (https://dmlc.github.io/dlpack/latest/c_api.html). PyOpenCL's
arrays do not speak it, and are read by their attributes."""
import ctypes

from hone import library as lib

CPU, CUDA, CUDA_HOST, OPENCL, VULKAN, CUDA_MANAGED = 1, 2, 3, 4, 7, 13
KINDS = {CPU: "cpu", CUDA: "cuda", CUDA_HOST: "cuda_host", OPENCL: "opencl", VULKAN: "vulkan", 8: "metal", 10: "rocm",
         11: "rocm_host", CUDA_MANAGED: "cuda_managed", 14: "oneapi"}
ON_HOST = (CPU, CUDA_HOST, 11, CUDA_MANAGED)  # what NumPy takes
VERSION = (1, 0)

# enum hone_dtype → DLDataType's code and bits; of one lane.
ELEMENTS = {1: (6, 8), 2: (0, 8), 3: (0, 32), 4: (0, 64), 5: (2, 16), 6: (4, 16), 7: (2, 32), 8: (2, 64), 9: (1, 8),
            10: (1, 16), 11: (0, 16), 12: (1, 32), 13: (1, 64)}
_CODES = {0: "int", 1: "uint", 2: "float", 3: "handle", 4: "bfloat", 5: "complex", 6: "bool"}
_CODE_OF_NAME = {name: code for code, name in _CODES.items()}


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _ManagedVersioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _Tensor)]


_READ_ONLY = 1  # a flag

_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
_name_of = ctypes.pythonapi.PyCapsule_GetName
_name_of.restype, _name_of.argtypes = ctypes.c_char_p, (ctypes.py_object,)


def is_pyopencls(value):
    """Whether it is what pyopencl.array.Array is: base_data (with its cl_mem's handle), offset, shape, strides, dtype, queue."""
    return not hasattr(value, "__dlpack__") and hasattr(getattr(value, "base_data", None), "int_ptr")


def device_of(value):
    """(kind, number), as __dlpack_device__ says; None: the value does not speak DLPack."""
    if is_pyopencls(value):
        return OPENCL, 0
    if not hasattr(value, "__dlpack_device__"):
        return None
    kind, number = value.__dlpack_device__()
    return int(kind), int(number)


def device_name(device):
    """"cuda:0"."""
    return f"{KINDS.get(device[0], f'DLPack device of kind {device[0]}')}:{device[1]}"


class Tensor:
    """What the array's capsule says. The memory stays for as long as this lives: the capsule is kept as it came, and gives it
    back at its end. stream: the consumer's, after whose present work the elements are there, as DLPack numbers streams; None:
    the producer is told nothing.

    data, byte_offset, shape, itemsize, element (code, bits), device (kind, number), is_read_only."""

    def __init__(self, value, stream=None):
        self.is_read_only = False
        if is_pyopencls(value):
            self._take_pyopencls(value)
        else:
            self._take_capsule(value, stream)

    def _take_pyopencls(self, value):
        self._capsule = value.base_data
        self.data, self.byte_offset, self.device = value.base_data.int_ptr, value.offset, (OPENCL, 0)
        self.shape, self.itemsize = tuple(value.shape), value.dtype.itemsize
        self._strides = tuple(stride // self.itemsize for stride in value.strides)
        self.element = (_CODE_OF_NAME.get(value.dtype.name.rstrip("0123456789"), 3), 8 * self.itemsize)

    def _take_capsule(self, value, stream):
        words = {} if stream is None else {"stream": stream}
        try:
            self._capsule = value.__dlpack__(max_version=VERSION, **words)
        except TypeError:  # it is older than versions
            self._capsule = value.__dlpack__(**words)
        name = _name_of(self._capsule)
        if name == b"dltensor_versioned":
            managed = _ManagedVersioned.from_address(_pointer_of(self._capsule, name))
            if managed.major != VERSION[0]:
                raise lib.Error("unsupported", f"an array of DLPack {managed.major}.{managed.minor}, wanted {VERSION[0]}")
            self.is_read_only = bool(managed.flags & _READ_ONLY)
        elif name == b"dltensor":
            managed = _Managed.from_address(_pointer_of(self._capsule, name))
        else:
            raise lib.Error("invalid", f"a capsule {name!r}, wanted DLPack's, which nobody has taken yet")
        tensor = managed.tensor
        self.data = tensor.data or 0
        self.byte_offset = tensor.byte_offset
        self.device = (tensor.device_type, tensor.device_id)
        self.shape = tuple(tensor.shape[:tensor.ndim]) if tensor.ndim else ()
        self._strides = tuple(tensor.strides[:tensor.ndim]) if tensor.ndim and tensor.strides else None
        self.element = (tensor.code, tensor.bits) if tensor.lanes == 1 else (tensor.code, tensor.bits, tensor.lanes)
        self.itemsize = (tensor.bits * tensor.lanes + 7) // 8

    @property
    def is_dense(self):
        """Row by row, without gaps."""
        if self._strides is None or 0 in self.shape:
            return True
        step = 1
        for size, stride in zip(reversed(self.shape), reversed(self._strides)):
            if size != 1 and stride != step:
                return False
            step *= size
        return True

    @property
    def nbytes(self):
        """Of a dense one."""
        count = 1
        for size in self.shape:
            count *= size
        return count * self.itemsize

    @property
    def element_name(self):
        """"float32"."""
        code, bits, *lanes = self.element
        name = "bool" if self.element == ELEMENTS[1] else f"{_CODES.get(code, f'code {code} of ')}{bits}"
        return f"{name}x{lanes[0]}" if lanes else name


def is_read_only(value):
    """Whether the array says that it is not to be written. DLPack older than 1 has no word for it: no."""
    try:
        return Tensor(value).is_read_only
    except lib.Error:
        return False
