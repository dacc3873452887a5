"""Connections to honed."""
import ctypes
import threading

from hone import library as lib
from hone.kernel import Kernel


class Client:
    """A connection's owner; any number of threads may use it.

    socket: where honed listens (default: $HONE_SOCKET, this user's honed, the system's); threads: of the library's pool,
    0 for as many as this process may run on; start: start honed if nothing listens; disk_cache: whether copies of code
    are kept by this client, too."""

    def __init__(self, socket=None, threads=0, start=False, disk_cache=True):
        self._library = lib.load()
        flags = (lib.START_DAEMON if start else 0) | (0 if disk_cache else lib.NO_DISK_CACHE)
        options = lib.ConnectOptions(ctypes.sizeof(lib.ConnectOptions), flags,
                                     lib.text(socket, "socket") if socket else None, None,
                                     lib.whole(threads, 32, "threads"))
        error = lib.ErrorStruct()
        handle = self._library.hone_connect(ctypes.byref(options), ctypes.byref(error))
        if not handle:
            raise error.raised()
        self._handle = lib.Handle(handle, self._library.hone_close, "", "the client is closed")

    def kernel(self, text, threads=0, budget=0.0, deadline=10.0, frozen=False, compile=True):
        """A kernel that can be called: a library operation or the kernel language.

        threads: that the code is made for (0: what the text says, else the pool's); budget: seconds to wait for better
        code; deadline: seconds until this returns or raises; frozen: the same bits for as long as it is held;
        compile=False: what is in the cache, or Error("not found")."""
        options = lib.get_options(threads, budget, deadline, frozen, compile)
        error = lib.ErrorStruct()
        with self._handle as client:
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
