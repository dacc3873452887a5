"""libhone through ctypes: its structures, where it is, and its errors. client/hone.h says what everything means."""
import ctypes
import ctypes.util
import glob
import operator
import os
import threading

MAX_RANK = 16
START_DAEMON = 1
NO_DISK_CACHE = 2

KINDS = {1: "invalid", 2: "not found", 3: "unsupported", 4: "limit", 5: "io", 6: "corrupt", 7: "busy", 8: "timeout",
         9: "unavailable", 10: "build failed", 11: "run failed", 12: "wrong result", 13: "internal"}


class Error(Exception):
    """What hone refused, and why.

    kind: "invalid", "timeout" … (client/hone.h); where: "kernel:1:14", a path; retry_after: seconds, of "busy"."""

    def __init__(self, kind, message, where="", retry_after=0.0):
        super().__init__(f"{where}: {message}" if where else message)
        self.kind = kind
        self.message = message
        self.where = where
        self.retry_after = retry_after


# What Python has in any size and C does not: ctypes would take a number's low half, and a text up to its first zero.


def whole(value, bits, where):
    """A whole number for an intN_t."""
    number = operator.index(value)
    if not -2**(bits - 1) <= number < 2**(bits - 1):
        raise Error("invalid", f"{value} is out of range, wanted a number of {bits} bits", where)
    return number


def microseconds(seconds, where):
    """Seconds, any number of them; what is beyond a thousand years is as good as forever."""
    if not seconds >= 0:
        raise Error("invalid", f"{seconds}, wanted seconds, 0 or more", where)
    return int(min(seconds, 3e10) * 1e6)


def text(value, where):
    """Bytes of a text or path."""
    data = os.fsencode(value)
    if b"\0" in data:
        raise Error("invalid", f"{value!r} has a zero byte in it", where)
    return data


class Handle:
    """Something of the library's, for as long as a `with` lasts. What is given back while it is in use goes with the last
    use."""

    def __init__(self, value, free, name, words, keeps=None):
        self._value = value
        self._keeps = keeps  # what it needs until it is given back
        self._free = free
        self._error = ("invalid", words, name)  # of who comes later
        self._lock = threading.Lock()
        self._uses = 0
        self._is_free = False

    def __enter__(self):
        with self._lock:
            if self._is_free:
                raise Error(*self._error)
            self._uses += 1
        return self._value

    def __exit__(self, *_):
        with self._lock:
            self._uses -= 1
            is_last = self._is_free and self._uses == 0
        if is_last:
            self._free(self._value)

    def free(self):
        with self._lock:
            is_last = not self._is_free and self._uses == 0
            self._is_free = True
        if is_last:
            self._free(self._value)

    def __del__(self):
        self.free()


class ErrorStruct(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("kind", ctypes.c_int32), ("retry_after_ms", ctypes.c_uint32),
                ("message", ctypes.c_char * 512), ("where", ctypes.c_char * 256)]

    def __init__(self):
        super().__init__(ctypes.sizeof(ErrorStruct))

    def raised(self):
        return Error(KINDS.get(self.kind, str(self.kind)), self.message.decode(errors="replace"),
                     self.where.decode(errors="replace"), self.retry_after_ms / 1000)


class ConnectOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("socket", ctypes.c_char_p),
                ("disk_cache", ctypes.c_char_p), ("threads", ctypes.c_int32), ("spin_us", ctypes.c_int32),
                ("pool", ctypes.c_void_p), ("parallel_for", ctypes.c_void_p)]


def connect_options(socket, threads, start, disk_cache):
    flags = (START_DAEMON if start else 0) | (0 if disk_cache else NO_DISK_CACHE)
    return ConnectOptions(ctypes.sizeof(ConnectOptions), flags, text(socket, "socket") if socket else None, None,
                          whole(threads, 32, "threads"))


class GetOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("threads", ctypes.c_int32), ("budget_us", ctypes.c_int64),
                ("deadline_us", ctypes.c_int64), ("frozen", ctypes.c_int32), ("no_compile", ctypes.c_int32)]


def get_options(threads, budget, deadline, frozen, compile):
    return GetOptions(ctypes.sizeof(GetOptions), whole(threads, 32, "threads"), microseconds(budget, "budget"),
                      microseconds(deadline, "deadline"), int(frozen), int(not compile))


class OperandInfo(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("dtype", ctypes.c_int32), ("rank", ctypes.c_int32),
                ("dimensions", ctypes.c_int64 * MAX_RANK), ("bytes", ctypes.c_int64), ("is_output", ctypes.c_int32),
                ("is_const", ctypes.c_int32), ("needs_bind", ctypes.c_int32)]

    @property
    def shape(self):
        """Of dynamic sizes the largest."""
        return tuple(self.dimensions[:self.rank])


class KernelInfo(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("operand_count", ctypes.c_int32),
                ("operands", ctypes.POINTER(OperandInfo)), ("size_count", ctypes.c_int32), ("threads", ctypes.c_int32),
                ("fingerprint", ctypes.c_char_p), ("class_name", ctypes.c_char_p), ("target", ctypes.c_char_p),
                ("origin", ctypes.c_char_p), ("source", ctypes.c_char_p), ("hit", ctypes.c_int32),
                ("pinned", ctypes.c_int32), ("expected_us", ctypes.c_double), ("served_us", ctypes.c_double),
                ("flops", ctypes.c_double), ("updates", ctypes.c_int64)]


def candidates(variable, name):
    """Where a library may be, in order: where the variable says, in this package, installed, in the tree that this file lies
    in."""
    here = os.path.dirname(os.path.abspath(__file__))
    if os.environ.get(variable):
        yield os.environ[variable]
        return
    yield os.path.join(here, f"lib{name}.so")
    yield f"lib{name}.so"
    if found := ctypes.util.find_library(name):
        yield found
    yield f"/usr/local/lib/lib{name}.so"
    yield os.path.join(here, "..", "..", "build", "release", "lib", f"lib{name}.so")


def _load_beside(directory):
    """What a wheel brings for its libraries: the linker takes what is loaded already for what they ask for by name."""
    for path in sorted(glob.glob(os.path.join(directory, "lib*.so.*"))):
        _BESIDE.setdefault(path, ctypes.CDLL(path))


_BESIDE = {}


def find(variable, name):
    """The library. Error("not found") names what was tried."""
    tried = []
    here = os.path.dirname(os.path.abspath(__file__))
    for path in candidates(variable, name):
        try:
            if os.path.dirname(path) == here and os.path.exists(path):
                _load_beside(here)
            return ctypes.CDLL(path)
        except OSError as error:
            tried.append(str(error))
    raise Error("not found", f"lib{name} is not there; build or install hone, or set {variable}. Tried: " + "; ".join(tried))


_LOADED = None
_LOADED_FOR = {}  # kinds of devices


def load_for(kind, opens, buffer, enqueues):
    """libhone_cuda or libhone_opencl, loaded once. opens, enqueues: types of what hone_KIND_open and hone_KIND_enqueue take
    before the options and the error; buffer: of a buffer. Error("not found") says what was tried."""
    if kind in _LOADED_FOR:
        return _LOADED_FOR[kind]
    library = find(f"HONE_{kind.upper()}_LIBRARY", f"hone_{kind}")
    error = ctypes.POINTER(ErrorStruct)
    types = {"open": (ctypes.c_void_p, [*opens, ctypes.POINTER(ConnectOptions), error]),
             "get": (ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(GetOptions), error]),
             "bind": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_int32, buffer, error]),
             "enqueue": (ctypes.c_int, [ctypes.c_void_p, *enqueues, error]),
             "info": (ctypes.c_int, [ctypes.c_void_p, ctypes.POINTER(KernelInfo)]),
             "release": (None, [ctypes.c_void_p]), "close": (None, [ctypes.c_void_p])}
    for name, (result, arguments) in types.items():
        function = getattr(library, f"hone_{kind}_{name}")
        function.restype, function.argtypes = result, arguments
    return _LOADED_FOR.setdefault(kind, library)


def driver(name, package):
    """A driver's library, which the process may have already. Error("not found")."""
    try:
        return ctypes.CDLL(name)
    except OSError:
        raise Error("not found", f"there is no {name} here ({package})") from None


def load():
    """libhone, loaded once."""
    global _LOADED
    if _LOADED is not None:
        return _LOADED
    library = find("HONE_LIBRARY", "hone")
    library.hone_connect.restype = ctypes.c_void_p
    library.hone_connect.argtypes = [ctypes.POINTER(ConnectOptions), ctypes.POINTER(ErrorStruct)]
    library.hone_get.restype = ctypes.c_void_p
    library.hone_get.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(GetOptions),
                                 ctypes.POINTER(ErrorStruct)]
    library.hone_bind.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(ErrorStruct)]
    library.hone_call.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_int64)]
    library.hone_shape.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.POINTER(ctypes.c_int64),
                                   ctypes.POINTER(ctypes.c_int64)]
    library.hone_info.argtypes = [ctypes.c_void_p, ctypes.POINTER(KernelInfo)]
    library.hone_release.argtypes = [ctypes.c_void_p]
    library.hone_release.restype = None
    library.hone_close.argtypes = [ctypes.c_void_p]
    library.hone_close.restype = None
    _LOADED = library
    return library
