"""CUDA's contexts and streams, through libhone_cuda and the process' libcuda.so.1."""
import contextlib
import ctypes

from hone import dlpack
from hone import library as lib
from hone.device import Device, handle_of

_LEGACY, _NO_TIMING, _CONTEXT_OF_POINTER = 1, 2, 1
_STREAM_NAMES = ("cuda_stream", "ptr", "__cuda_stream__")
_NOT_READY = 600
_POINTER = ctypes.POINTER(ctypes.c_void_p)
_FUNCTIONS = {"cuInit": [ctypes.c_uint], "cuGetErrorString": [ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)],
              "cuDeviceGet": [ctypes.POINTER(ctypes.c_int), ctypes.c_int], "cuDevicePrimaryCtxRetain": [_POINTER, ctypes.c_int],
              "cuDevicePrimaryCtxRelease_v2": [ctypes.c_int], "cuCtxGetCurrent": [_POINTER],
              "cuCtxPushCurrent_v2": [ctypes.c_void_p], "cuCtxPopCurrent_v2": [_POINTER],
              "cuCtxGetDevice": [ctypes.POINTER(ctypes.c_int)],
              "cuPointerGetAttribute": [ctypes.c_void_p, ctypes.c_int, ctypes.c_ulonglong],
              "cuEventCreate": [_POINTER, ctypes.c_uint], "cuEventRecord": [ctypes.c_void_p, ctypes.c_void_p],
              "cuEventQuery": [ctypes.c_void_p], "cuEventDestroy_v2": [ctypes.c_void_p],
              "cuStreamSynchronize": [ctypes.c_void_p]}


class Buffer(ctypes.Structure):
    """hone_cuda_buffer."""
    _fields_ = [("address", ctypes.c_ulonglong), ("bytes", ctypes.c_size_t)]


def _load():
    """The driver. Error: "not found", and what it says if it does not start."""
    cu = lib.driver("libcuda.so.1", "NVIDIA's driver brings it")
    for name, arguments in _FUNCTIONS.items():
        getattr(cu, name).argtypes = arguments
    _need(cu, "starting the driver", cu.cuInit(0))
    return cu


def _need(cu, what, status):
    if status == 0:
        return
    words = ctypes.c_char_p()
    cu.cuGetErrorString(status, ctypes.byref(words))
    raise lib.Error("run failed", f"{what}: {(words.value or b'').decode(errors='replace')} ({status})", "CUDA")


@contextlib.contextmanager
def _inside(cu, context, is_needed=True):
    """With the context current; what was current before is so again. Error, if it is needed and cannot be."""
    status = cu.cuCtxPushCurrent_v2(context)
    if is_needed:
        _need(cu, "entering a context", status)
    try:
        yield
    finally:
        if status == 0:
            cu.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))


class Context:
    """One that is meant, before it is opened."""

    def __init__(self, cu, number, handle):
        self.key = ("cuda", number, handle)
        self._cu, self._number, self._handle = cu, number, handle

    def open(self, options):
        return Cuda(self._cu, self._number, self._handle, options)


def context_of(array, number, _stream):
    """An array's, else the primary one of CUDA's device `number`, else the one that is current."""
    cu = _load()
    current = ctypes.c_void_p()
    if array is not None:
        address = dlpack.Tensor(array, _LEGACY).data
        if cu.cuPointerGetAttribute(ctypes.byref(current), _CONTEXT_OF_POINTER, address) != 0:
            current.value = None  # memory of pools is no context's
    elif number is None:
        cu.cuCtxGetCurrent(ctypes.byref(current))
        number = 0
    if not current.value:
        return Context(cu, number, None)
    device = ctypes.c_int()
    with _inside(cu, current):
        _need(cu, "asking for the context's device", cu.cuCtxGetDevice(ctypes.byref(device)))
    return Context(cu, device.value, current.value)


class Cuda(Device):
    """A context; without a handle the primary one of a device, which is held."""
    kind = "cuda"
    takes = (dlpack.CUDA, dlpack.CUDA_MANAGED)
    buffer_type = Buffer

    def __init__(self, cu, number, handle, options):
        library = lib.load_for("cuda", [ctypes.c_void_p], Buffer, [ctypes.c_void_p, ctypes.POINTER(Buffer)])
        self._cu, self._number = cu, number
        self._primary = None  # the device whose primary context is held
        if handle is None:
            device, context = ctypes.c_int(), ctypes.c_void_p()
            _need(cu, f"looking for device {number}", cu.cuDeviceGet(ctypes.byref(device), number))
            _need(cu, "taking its primary context", cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
            self._primary, handle = device.value, context.value
        self._context = ctypes.c_void_p(handle)
        self._free_events = []
        error = lib.ErrorStruct()
        session = library.hone_cuda_open(self._context, ctypes.byref(options), ctypes.byref(error))
        if not session:
            self._release_primary()
            raise error.raised()
        super().__init__(library, session, f"cuda:{number}")

    def _release_primary(self):
        if self._primary is not None:
            self._cu.cuDevicePrimaryCtxRelease_v2(self._primary)
            self._primary = None

    def has(self, device):
        return device[0] in self.takes and device[1] == self._number

    def stream_of(self, given):
        return _LEGACY if given is None else handle_of(given, _STREAM_NAMES) or _LEGACY

    def stream_for_producers(self, stream):
        return stream  # CU_STREAM_LEGACY and CU_STREAM_PER_THREAD are DLPack's numbers

    def buffer(self, tensor, where):
        return Buffer(tensor.data + tensor.byte_offset, tensor.nbytes), None

    def enqueue(self, kernel, stream, buffers):
        event = self._event()
        error = lib.ErrorStruct()
        queue = None if stream == _LEGACY else stream
        if self._library.hone_cuda_enqueue(kernel, queue, buffers, ctypes.byref(error)):
            self._free_events.append(event)
            raise error.raised()
        with _inside(self._cu, self._context):
            if self._cu.cuEventRecord(event, queue) != 0:  # nothing tells of the end, so it is waited for
                _need(self._cu, "waiting for the stream", self._cu.cuStreamSynchronize(queue))
        return event

    def _event(self):
        with contextlib.suppress(IndexError):
            return self._free_events.pop()
        event = ctypes.c_void_p()
        with _inside(self._cu, self._context):
            _need(self._cu, "making an event", self._cu.cuEventCreate(ctypes.byref(event), _NO_TIMING))
        return event

    def settle(self, stream):
        with _inside(self._cu, self._context):
            _need(self._cu, "waiting for the stream", self._cu.cuStreamSynchronize(None if stream == _LEGACY else stream))

    def has_ended(self, event):
        with _inside(self._cu, self._context, is_needed=False):
            return self._cu.cuEventQuery(event) != _NOT_READY

    def drop(self, event):
        self._free_events.append(event)

    def close(self):
        super().close()
        with _inside(self._cu, self._context, is_needed=False):
            while self._free_events:
                self._cu.cuEventDestroy_v2(self._free_events.pop())
        self._release_primary()
