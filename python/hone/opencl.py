"""OpenCL's contexts and command queues, through libhone_opencl and the process' libOpenCL.so.1."""
import ctypes

from hone import dlpack
from hone import library as lib
from hone.device import Device, handle_of

_CONTEXT_DEVICES, _QUEUE_CONTEXT, _QUEUE_DEVICE, _MEM_CONTEXT = 0x1081, 0x1090, 0x1091, 0x1106
_EVENT_STATUS, _COMPLETE, _REGION = 0x11D3, 0, 0x1220
_QUEUE_NAMES = ("int_ptr", "ptr")
_POINTER = ctypes.POINTER(ctypes.c_void_p)
_STATUS = ctypes.POINTER(ctypes.c_int32)
_ASKS = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_size_t, ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)]
_FUNCTIONS = {
    "clGetContextInfo": (ctypes.c_int32, _ASKS), "clGetCommandQueueInfo": (ctypes.c_int32, _ASKS),
    "clGetMemObjectInfo": (ctypes.c_int32, _ASKS), "clGetEventInfo": (ctypes.c_int32, _ASKS),
    "clWaitForEvents": (ctypes.c_int32, [ctypes.c_uint32, _POINTER]), "clReleaseEvent": (ctypes.c_int32, [ctypes.c_void_p]),
    "clFinish": (ctypes.c_int32, [ctypes.c_void_p]), "clReleaseMemObject": (ctypes.c_int32, [ctypes.c_void_p]),
    "clReleaseCommandQueue": (ctypes.c_int32, [ctypes.c_void_p]),
    "clCreateCommandQueue": (ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, _STATUS]),
    "clCreateSubBuffer": (ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_void_p, _STATUS])}


def _load():
    cl = lib.driver("libOpenCL.so.1", "Debian: ocl-icd-libopencl1")
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(cl, name)
        function.restype, function.argtypes = result, arguments
    return cl


def _handle(ask, of, what, where):
    """A handle that an object is asked for."""
    value = ctypes.c_void_p()
    if not of or ask(of, what, ctypes.sizeof(value), ctypes.byref(value), None) != 0 or not value.value:
        raise lib.Error("invalid", "it is none of OpenCL's", where)
    return value.value


def _only_device(cl, context):
    devices = (ctypes.c_void_p * 64)()
    size = ctypes.c_size_t()
    if cl.clGetContextInfo(context, _CONTEXT_DEVICES, ctypes.sizeof(devices), devices, ctypes.byref(size)) != 0:
        raise lib.Error("invalid", "its context says of no device", "device")
    if (count := size.value // ctypes.sizeof(ctypes.c_void_p)) != 1:
        raise lib.Error("invalid", f"its context has {count} devices; give stream=, a command queue of the one that is meant",
                        "device")
    return devices[0]


class Context:
    """One that is meant, before it is opened."""

    def __init__(self, cl, context, device):
        self.key = ("opencl", context, device)
        self._arguments = (cl, context, device)

    def open(self, options):
        return OpenCl(*self._arguments, options)


def context_of(array, number, stream):
    """A command queue's, else an array's, if that context has one device."""
    cl = _load()
    if stream is not None:
        queue = handle_of(stream, _QUEUE_NAMES)
        return Context(cl, _handle(cl.clGetCommandQueueInfo, queue, _QUEUE_CONTEXT, "stream"),
                       _handle(cl.clGetCommandQueueInfo, queue, _QUEUE_DEVICE, "stream"))
    if array is None:
        name = "opencl" if number is None else f"opencl:{number}"
        raise lib.Error("invalid", f"{name} does not say which context; give an array that is there, or stream= a command queue",
                        "device")
    context = _handle(cl.clGetMemObjectInfo, dlpack.Tensor(array).data, _MEM_CONTEXT, "device")
    return Context(cl, context, _only_device(cl, context))


class _Part:
    """Of a buffer."""

    def __init__(self, cl, buffer, offset, size, where):
        self._release = cl.clReleaseMemObject
        region, status = (ctypes.c_size_t * 2)(offset, size), ctypes.c_int32()
        self.handle = cl.clCreateSubBuffer(buffer, 0, _REGION, region, ctypes.byref(status))
        if not self.handle:
            raise lib.Error("invalid", f"the array begins {offset} bytes into its buffer, where OpenCL makes no sub-buffer "
                            f"({status.value}); copy it first", where)

    def __del__(self):
        if self.handle:
            self._release(self.handle)


class OpenCl(Device):
    """A device of a context. Calls without a queue go by one of its own, and have ended when they return."""
    kind = "opencl"
    takes = (dlpack.OPENCL,)
    buffer_type = ctypes.c_void_p

    def __init__(self, cl, context, device, options):
        library = lib.load_for("opencl", [ctypes.c_void_p, ctypes.c_void_p], ctypes.c_void_p,
                               [ctypes.c_void_p, _POINTER, ctypes.c_uint32, _POINTER, _POINTER])
        self._cl = cl
        status, error = ctypes.c_int32(), lib.ErrorStruct()
        session = library.hone_opencl_open(context, device, ctypes.byref(options), ctypes.byref(error))
        if not session:
            raise error.raised()
        self._queue = cl.clCreateCommandQueue(context, device, 0, ctypes.byref(status))
        super().__init__(library, session, "this opencl")
        if not self._queue:
            raise lib.Error("run failed", f"the driver makes no queue ({status.value})", "device")

    def stream_of(self, given):
        if given is None:
            return None
        if not (queue := handle_of(given, _QUEUE_NAMES)):
            raise lib.Error("invalid", "no command queue", "stream")
        return queue

    def stream_for_producers(self, stream):
        return None  # DLPack has numbers for CUDA's streams alone

    def buffer(self, tensor, where):
        if tensor.byte_offset == 0:
            return tensor.data, None
        part = _Part(self._cl, tensor.data, tensor.byte_offset, tensor.nbytes, where)
        return part.handle, part

    def enqueue(self, kernel, stream, buffers):
        event, error = ctypes.c_void_p(), lib.ErrorStruct()
        if self._library.hone_opencl_enqueue(kernel, stream or self._queue, buffers, 0, None, ctypes.byref(event),
                                             ctypes.byref(error)):
            raise error.raised()
        if stream:
            return event
        self._cl.clWaitForEvents(1, ctypes.byref(event))
        self.drop(event)
        return None

    def settle(self, stream):
        if stream and self._cl.clFinish(stream) != 0:
            raise lib.Error("invalid", "it is no command queue of OpenCL's", "stream")

    def has_ended(self, event):
        status = ctypes.c_int32()
        code = self._cl.clGetEventInfo(event, _EVENT_STATUS, ctypes.sizeof(status), ctypes.byref(status), None)
        return code != 0 or status.value <= _COMPLETE

    def drop(self, event):
        self._cl.clReleaseEvent(event)

    def close(self):
        super().close()
        if self._queue:
            self._cl.clReleaseCommandQueue(self._queue)
            self._queue = None
