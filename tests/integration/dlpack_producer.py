"""Arrays of devices that speak DLPack, as PyTorch's and CuPy's do, over memory that a test has: capsules of either form, and
how many of them are held. Written from DLPack's specification, byte by byte."""
import ctypes
import struct

CUDA, OPENCL, VULKAN = 2, 4, 7
F32, F16, BF16, BOOL = (2, 32), (2, 16), (4, 16), (6, 8)

_NEW = ctypes.pythonapi.PyCapsule_New
_NEW.restype, _NEW.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_DESTRUCTOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_POINTER_OF = ctypes.PyDLL(None).PyCapsule_GetPointer  # of a capsule that is on its way out
_POINTER_OF.restype, _POINTER_OF.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p)


class Producer:
    """An array. streams: which ones its consumers named; held: capsules of all arrays that somebody has. version 0: older than
    versions."""
    held = {}  # address of the structure → all that it points to

    def __init__(self, data, device, shape, *, element=F32, strides=None, offset=0, version=1, read_only=False, owner=None):
        self.facts = (data, shape, element, strides, offset, read_only)
        self.device, self.version, self.owner = device, version, owner
        self.streams = []

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **options):
        if self.version == 0 and "max_version" in options:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        self.streams.append(options.get("stream"))
        data, shape, (code, bits), strides, offset, read_only = self.facts
        sizes = (ctypes.c_int64 * 8)(*shape)
        steps = (ctypes.c_int64 * 8)(*strides) if strides else None
        tensor = struct.pack("<QiiiBBHQQQ", data, *self.device, len(shape), code, bits, 1, ctypes.addressof(sizes),
                             ctypes.addressof(steps) if steps else 0, offset)
        # The tensor, whose it is, how to give it back; from 1 on behind a version, flags before it.
        managed = struct.pack("<IIQQQ", self.version, 0, 0, 0, int(read_only)) + tensor if self.version else tensor + bytes(16)
        name, forget = (b"dltensor_versioned", _forget_versioned) if self.version else (b"dltensor", _forget)
        memory = ctypes.create_string_buffer(managed, len(managed))
        address = ctypes.addressof(memory)
        Producer.held[address] = (memory, sizes, steps, self.owner)
        return _NEW(address, name, ctypes.cast(forget, ctypes.c_void_p))


def _forgets(name):
    return _DESTRUCTOR(lambda capsule: Producer.held.pop(_POINTER_OF(capsule, name)) and None)


_forget, _forget_versioned = _forgets(b"dltensor"), _forgets(b"dltensor_versioned")
