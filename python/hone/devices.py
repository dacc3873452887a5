"""Which device is meant: a name, or an array that is there."""
import threading
import weakref

from hone import dlpack
from hone import library as lib

_WORDS = "wanted an array of a device, \"cuda\", \"cuda:0\", or \"opencl\" with stream= a command queue"


class Devices:
    """Those that a client has opened, each once; they go with their last kernels."""

    def __init__(self, options):
        self._options = options
        self._opened = weakref.WeakValueDictionary()  # what tells contexts apart → device
        self._lock = threading.Lock()

    def find(self, device, stream):
        """The device, None: the host; and the stream of calls that name none, which is the queue of an array of PyOpenCL's where
        none is given. Error: "unsupported" kinds, names that are none, contexts that cannot be found out."""
        if device is None:
            return None, stream
        if stream is None and dlpack.is_pyopencls(device):
            stream = device.queue
        on = dlpack.device_of(device)
        name = str(device) if on is None else dlpack.device_name(on)
        kind, _, number = name.partition(":")
        if kind in ("cpu", "cuda_host"):
            return None, stream
        if kind == "vulkan":
            raise lib.Error("unsupported", "DLPack does not say what handle an array of Vulkan's has; C programs have "
                            "hone_vulkan.h for it", "device")
        if kind in ("cuda", "cuda_managed"):
            from hone.cuda import context_of  # pylint: disable=import-outside-toplevel
        elif kind == "opencl":
            from hone.opencl import context_of  # pylint: disable=import-outside-toplevel
        else:
            shown = name if on or isinstance(device, str) else type(device).__name__
            raise lib.Error("unsupported" if on else "invalid", f"{shown}; {_WORDS}", "device")
        if on is None and number and not number.isdecimal():
            raise lib.Error("invalid", f"{name}; {_WORDS}", "device")
        context = context_of(device if on else None, int(number) if number else None, stream)
        with self._lock:
            there = self._opened.get(context.key)
            if there is None:
                there = self._opened[context.key] = context.open(self._options)
            return there, stream
