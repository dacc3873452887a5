"""Connections to honed."""
import ctypes
import threading

from hone import library as lib
from hone.devices import Devices
from hone.kernel import Kernel


class Client:
    """A connection's owner; any number of threads may use it.

    socket: where honed listens (default: $HONE_SOCKET, this user's honed, the system's); threads: of the library's pool,
    0 for as many as this process may run on; start: start honed if nothing listens; disk_cache: whether copies of code
    are kept by this client, too."""

    def __init__(self, socket=None, threads=0, start=False, disk_cache=True):
        self._library = lib.load()
        self._options = lib.connect_options(socket, threads, start, disk_cache)
        error = lib.ErrorStruct()
        handle = self._library.hone_connect(ctypes.byref(self._options), ctypes.byref(error))
        if not handle:
            raise error.raised()
        self._handle = lib.Handle(handle, self._library.hone_close, "", "the client is closed")
        self._devices = Devices(self._options)

    def kernel(self, text, threads=0, budget=0.0, deadline=10.0, frozen=False, compile=True, device=None, stream=None):
        """A kernel that can be called: a library operation or the kernel language.

        threads: that the code is made for (0: what the text says, else the pool's); budget: seconds to wait for better
        code; deadline: seconds until this returns or raises; frozen: the same bits for as long as it is held;
        compile=False: what is in the cache, or Error("not found").

        device: whose arrays the kernel takes, by DLPack: an array that is there, "cuda:0" (CUDA's device 0, in its primary
        context), "cuda" (the context that is current), or "opencl" with `stream`; None or "cpu": the host's. stream: where
        calls go that name none, a CUDA stream or an OpenCL command queue: its handle as a number, or an object of PyTorch's,
        CuPy's or PyOpenCL's. The kernel is a DeviceKernel then."""
        options = lib.get_options(threads, budget, deadline, frozen, compile)
        error = lib.ErrorStruct()
        with self._handle as client:
            there, stream = self._devices.find(device, stream)
            if there is not None:
                return there.kernel(text, options, stream)
            handle = self._library.hone_get(client, lib.text(text, "kernel"), ctypes.byref(options), ctypes.byref(error))
        if not handle:
            raise error.raised()
        return Kernel(self._library, handle, text)

    def close(self):
        """Kernels may outlive it."""
        self._handle.free()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


_default = None
_lock = threading.Lock()


def default_client():
    """One for all who name none. It starts honed if none is running, as the command line does."""
    global _default
    with _lock:
        if _default is None:
            _default = Client(start=True)
        return _default


def kernel(text, client=None, **options):
    """Client.kernel of `client`, or of one that all share: hone.kernel("matmul(M=64,N=64,K=64)")(a, b)."""
    return (client or default_client()).kernel(text, **options)
