"""What the kinds of devices have in common: kernels that are enqueued with arrays of theirs."""
import collections
import ctypes
import functools
import threading

from hone import dlpack
from hone import library as lib
from hone.kernel import Kernel


def handle_of(value, names):
    """A driver's handle: a number, or what an object of another package calls so."""
    for name in names:
        found = getattr(value, name, None)
        if found is not None:
            value = found() if callable(found) else found
            break
    if isinstance(value, tuple):  # of __cuda_stream__: a version and the handle
        value = value[-1]
    elif isinstance(value, ctypes.c_void_p):
        value = value.value or 0
    try:
        handle = int(value)
    except (TypeError, ValueError):
        handle = -1
    if not 0 <= handle < 2**64:
        raise lib.Error("invalid", f"{value!r}, wanted a handle as a number, or an object with {' or '.join(names)}", "stream")
    return handle


class Device:
    """A context of the program's, where kernels are loaded, and what their work uses: arrays are kept until the event of the
    work says that it has ended. Each kind derives from it. Thread-safe. It lives as long as its kernels."""
    kind = ""         # of the library's functions
    takes = ()        # DLPack's kinds
    buffer_type = None

    def __init__(self, library, handle, name):
        self.name = name
        self._library = library
        self._session = lib.Handle(handle, getattr(library, f"hone_{self.kind}_close"), name, "the device is closed")
        self._lock = threading.RLock()  # the collector may release a kernel in the midst of what follows
        self._under_way = collections.deque()  # the oldest first: event, what is kept

    # What each kind has of its own.

    def stream_of(self, given):
        """The driver's handle of what a caller gave, None as well."""
        raise NotImplementedError

    def stream_for_producers(self, stream):
        """As __dlpack__ wants it."""
        raise NotImplementedError

    def buffer(self, tensor, where):
        """As the library wants it, and what to keep besides."""
        raise NotImplementedError

    def enqueue(self, kernel, stream, buffers):
        """An event for the work's end, None if it has ended."""
        raise NotImplementedError

    def settle(self, stream):
        """Waits for what was enqueued there."""
        raise NotImplementedError

    # The next two raise no errors: where the driver has failed, there is nothing to wait for.

    def has_ended(self, event):
        raise NotImplementedError

    def drop(self, event):
        """It is not asked for again."""
        raise NotImplementedError

    def has(self, device):
        """Whether an array there (kind, number) may be this device's."""
        return device[0] in self.takes

    # What they share.

    def kernel(self, text, options, stream):
        error = lib.ErrorStruct()
        with self._session as session:
            handle = getattr(self._library, f"hone_{self.kind}_get")(session, lib.text(text, "kernel"), ctypes.byref(options),
                                                                     ctypes.byref(error))
        if not handle:
            raise error.raised()
        return DeviceKernel(self._library, handle, text, self, self.stream_of(stream))

    def tensor(self, operand, value, stream, is_written=False):
        """What the operand gets, checked."""
        device = dlpack.device_of(value)
        if device is None:
            raise lib.Error("invalid", f"{type(value).__name__} is no array that speaks DLPack", operand.name)
        if not self.has(device):
            raise lib.Error("invalid", f"the array is on {dlpack.device_name(device)}, the kernel on {self.name}", operand.name)
        try:
            tensor = dlpack.Tensor(value, self.stream_for_producers(stream))
        except lib.Error as error:
            raise lib.Error(error.kind, error.message, operand.name) from None
        if tensor.element != operand.element:
            raise lib.Error("invalid", f"{tensor.element_name} elements, wanted {operand.dtype_name}", operand.name)
        if tensor.shape != operand.shape:
            raise lib.Error("invalid", f"shape {tensor.shape}, wanted {operand.shape}", operand.name)
        if not tensor.is_dense:
            raise lib.Error("invalid", "the array is not dense, row by row; copy it first", operand.name)
        if is_written and tensor.is_read_only:
            raise lib.Error("invalid", "the array to write is read-only", operand.name)
        return tensor

    def keep(self, event, things):
        """Until the event has come. Forgets what has ended."""
        with self._lock:
            if event is not None:
                self._under_way.append((event, things))
        self.forget_ended()

    def forget_ended(self):
        ended = []
        with self._lock:
            while self._under_way:
                oldest = self._under_way.popleft()  # from now on nobody else's
                if not self.has_ended(oldest[0]):
                    self._under_way.appendleft(oldest)
                    break
                ended.append(oldest)
            for event, _ in ended:
                self.drop(event)
        # Arrays go here, without the lock: their owners may do anything.

    def release(self, function, kernel):
        """Gives a kernel back, by the library's function, which waits for its work."""
        function(kernel)
        self.forget_ended()

    def close(self):
        """Its kernels are released, which waited for their work."""
        with self._lock:
            ended = list(self._under_way)
            self._under_way.clear()
            for event, _ in ended:
                self.drop(event)
        self._session.free()

    def __del__(self):
        if hasattr(self, "_under_way"):  # else it was never made
            self.close()


class DeviceKernel(Kernel):
    """A kernel on arrays of a device. A call enqueues, and returns: what it computes is there when its stream has come so far.
    Arrays are kept until then. Calls may come from any number of threads at once."""

    def __init__(self, library, handle, text, device, stream):
        self._PREFIX = f"hone_{device.kind}_"
        super().__init__(library, handle, text, functools.partial(device.release, getattr(library, self._PREFIX + "release")))
        self._device = device
        self._stream = stream

    def _bind(self, held, index, value):
        operand = self.operands[index]
        tensor = self._device.tensor(operand, value, self._stream)
        self._device.settle(self._stream)  # the library wants elements that are there
        buffer, beside = self._device.buffer(tensor, operand.name)
        error = lib.ErrorStruct()
        if getattr(self._library, self._PREFIX + "bind")(held, index, buffer, ctypes.byref(error)):
            raise error.raised()
        self._bound[index] = (value, (tensor, beside))

    def __call__(self, *arrays, out=None, stream=None):  # pylint: disable=arguments-differ
        """Enqueues one call. arrays: the inputs in order, without constants that were bound; out: the array to write, or one
        for each output. stream: whose order the work is in, and by which the producers of the arrays are told; None: the one
        that the kernel was asked for with. Returns out."""
        if out is None:
            raise lib.Error("invalid", "no array to write: give out=, an array of the device for each output", self.text)
        with self._handle as held:
            queue = self._stream if stream is None else self._device.stream_of(stream)
            buffers = (self._device.buffer_type * len(self.operands))()
            kept, constants, given = [], {}, {}
            for index, value in zip(self._wanted(arrays), arrays):
                if self.operands[index].is_const:
                    constants[index] = value
                else:
                    given[index] = value
            given.update(zip(self._outputs, self._to_write(out)))
            for index, value in given.items():
                operand = self.operands[index]
                tensor = self._device.tensor(operand, value, queue, operand.is_output)
                buffers[index], beside = self._device.buffer(tensor, operand.name)
                kept.append((tensor, beside))
            self._begin(held, constants)
            try:
                event = self._device.enqueue(held, queue, buffers)
            finally:
                self._end()
        self._device.keep(event, kept)
        return out
