"""The Python package on arrays of devices, OpenCL's, as a program has them. test_python_cuda.py: CUDA's."""

import ctypes
import os
import threading

import harness
from dlpack_producer import BF16, CUDA, F16, OPENCL, VULKAN, Producer
from python_case import PythonCase, numpy

KERNEL = "dense(M=48,N=80,K=64,const=1)+bias+relu"
READ_WRITE, READ_ONLY, COPY = 1, 4, 32


class OpenClProgram:
    """A context with an in-order queue, and arrays there. Skips the test where there is no device."""

    def __init__(self, test):
        try:
            self.cl = cl = ctypes.CDLL("libOpenCL.so.1")
        except OSError as error:
            harness.skip_for_want_of("opencl", str(error))
        for name in ("clCreateContext", "clCreateCommandQueue", "clCreateBuffer", "clCreateUserEvent"):
            getattr(cl, name).restype = ctypes.c_void_p
        platform, self.device, self.status = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int32()
        if cl.clGetPlatformIDs(1, ctypes.byref(platform), None) or cl.clGetDeviceIDs(
                platform, ctypes.c_uint64(0xFFFFFFFF), 1, ctypes.byref(self.device), None):
            harness.skip_for_want_of("opencl", "no device of OpenCL's is here")
        self.context, self.other_context = self.new_context(), self.new_context()
        self.queue = self.new_queue(self.context)
        self.buffers = []
        test.addCleanup(self.close)

    def new_context(self):
        return ctypes.c_void_p(self.cl.clCreateContext(None, 1, ctypes.byref(self.device), None, None, ctypes.byref(self.status)))

    def new_queue(self, context):
        return ctypes.c_void_p(self.cl.clCreateCommandQueue(context, self.device, ctypes.c_uint64(0), ctypes.byref(self.status)))

    def array(self, values, *, context=None, flags=READ_WRITE, before=b"", **facts):
        """A buffer with `before` and the values in it, as an array of the values."""
        data = before + values.tobytes()
        memory = ctypes.c_void_p(self.cl.clCreateBuffer(context or self.context, ctypes.c_uint64(flags | COPY),
                                                        ctypes.c_size_t(len(data)), data, ctypes.byref(self.status)))
        assert self.status.value == 0
        self.buffers.append(memory)
        return Producer(memory.value, (OPENCL, 0), facts.pop("shape", values.shape), offset=len(before), **facts)

    def read(self, array, queue=None):
        """After what the queue has to do, the program's if none is named."""
        data, shape, *_ = array.facts
        values = numpy.empty(shape, numpy.float32)
        assert self.cl.clEnqueueReadBuffer(queue or self.queue, ctypes.c_void_p(data), 1, ctypes.c_size_t(array.facts[4]),
                                           ctypes.c_size_t(values.nbytes), values.ctypes.data_as(ctypes.c_void_p),
                                           0, None, None) == 0
        return values

    def hold(self, test):
        """The queue waits; for what this returns to be called."""
        event = ctypes.c_void_p(self.cl.clCreateUserEvent(self.context, ctypes.byref(self.status)))
        assert self.cl.clEnqueueBarrierWithWaitList(self.queue, 1, ctypes.byref(event), None) == 0
        test.addCleanup(self.cl.clSetUserEventStatus, event, 0)  # whatever else goes wrong
        return lambda: self.cl.clSetUserEventStatus(event, 0)

    def close(self):
        for memory in self.buffers:
            self.cl.clReleaseMemObject(memory)
        self.cl.clReleaseCommandQueue(self.queue)
        for context in (self.context, self.other_context):
            self.cl.clReleaseContext(context)


class OnOpenCl(PythonCase):
    def setUp(self):
        if not os.path.exists(os.environ["HONE_OPENCL_LIBRARY"]):
            self.skipTest(f"[SKIP] {os.environ['HONE_OPENCL_LIBRARY']} was not built")
        self.program = OpenClProgram(self)
        self.x, self.w, self.bias = self.arrays((48, 64), (80, 64), (80,))
        self.bias -= 16
        self.wanted = numpy.maximum(self.x @ self.w.T + self.bias, 0)
        self.y = self.program.array(numpy.full((48, 80), -1, numpy.float32))
        self.client = self.hone.Client(socket=self.directory.socket, disk_cache=False)  # of this test's contexts
        self.addCleanup(self.client.close)

    def bound(self, device=None, stream=None):
        kernel = self.client.kernel(KERNEL, device=device or self.y, stream=stream, deadline=60)
        self.addCleanup(kernel.release)
        return kernel.bind(w=self.program.array(self.w, version=0), bias=self.program.array(self.bias))

    def assert_right(self, y):
        numpy.testing.assert_allclose(self.program.read(y), self.wanted, rtol=1e-4, atol=1e-4)

    def assert_refused(self, words, function, *arguments, **options):
        with self.assertRaisesRegex(self.hone.Error, words):
            function(*arguments, **options)

    def test_a_call_without_a_queue_has_ended_when_it_returns(self):
        kernel = self.bound()
        self.assertIsInstance(kernel, self.hone.DeviceKernel)
        self.assertIn("opencl", kernel.info["target"])
        x = self.program.array(self.x)
        held = len(Producer.held)
        self.assertIs(kernel(x, out=self.y), self.y)
        self.assertEqual(len(Producer.held), held)
        self.assert_right(self.y)
        # Constants that the first call brings, and arrays of a DLPack older than versions.
        again = self.client.kernel(KERNEL, device=x)
        old = self.program.array(self.x, version=0, strides=(64, 1))
        y = self.program.array(numpy.zeros((48, 80), numpy.float32))
        again(old, self.program.array(self.w), self.program.array(self.bias), out=y)
        self.assert_right(y)
        again.release()

    def test_on_a_queue_arrays_are_kept_until_the_work_has_ended(self):
        for given in (self.program.queue.value, type("Queue", (), {"int_ptr": self.program.queue.value})()):
            kernel = self.bound(device="opencl", stream=given)
            held = len(Producer.held)
            go_on = self.program.hold(self)
            kernel(self.program.array(self.x), out=self.y)  # returns
            self.assertEqual(len(Producer.held), held + 2)
            self.assertEqual(self.y.streams, [None] * len(self.y.streams))
            go_on()
            self.assert_right(self.y)
            other = self.program.array(numpy.zeros((48, 80), numpy.float32))
            kernel(self.program.array(self.x), out=other, stream=given)
            self.program.cl.clFinish(self.program.queue)
            kernel.release()
            self.assertEqual(len(Producer.held), held)
            self.assert_right(other)

    def test_binding_waits_for_what_writes_the_constants(self):
        program = self.program
        w, x = program.array(numpy.zeros_like(self.w)), program.array(self.x)
        kernel = self.client.kernel(KERNEL, device=w, stream=program.queue)
        go_on = program.hold(self)
        program.cl.clEnqueueWriteBuffer(program.queue, ctypes.c_void_p(w.facts[0]), 0, ctypes.c_size_t(0),
                                        ctypes.c_size_t(self.w.nbytes), self.w.ctypes.data_as(ctypes.c_void_p), 0, None, None)
        bias = program.array(self.bias)
        binding = threading.Thread(target=kernel.bind, args=(w, bias))
        binding.start()
        binding.join(0.3)
        self.assertTrue(binding.is_alive())
        go_on()
        binding.join()
        kernel(x, out=self.y)
        self.assert_right(self.y)
        # A kernel that nobody has any more is released, and its arrays with it.
        held = len(Producer.held)
        del kernel, binding
        self.assertLess(len(Producer.held), held)

    def test_a_client_that_goes_waits_for_the_work(self):
        client = self.hone.Client(socket=self.directory.socket, disk_cache=False)
        held = len(Producer.held)
        kernel = client.kernel(KERNEL, device="opencl", stream=self.program.queue)
        kernel.bind(self.program.array(self.w), self.program.array(self.bias))
        for _ in range(20):
            kernel(self.program.array(self.x), out=self.y)
        client.close()
        kernel(self.program.array(self.x), out=self.y)  # kernels outlive it
        del kernel
        self.assertEqual(len(Producer.held), held)
        self.assert_right(self.y)

    def test_threads_call_one_kernel_at_once_on_queues_of_their_own(self):
        kernel = self.bound()
        queues = [None] + [self.program.new_queue(self.program.context) for _ in range(3)]
        held, wrong = len(Producer.held), []

        def work(queue):
            mine = self.program.array(numpy.zeros((48, 80), numpy.float32))
            for _ in range(30):
                kernel(self.program.array(self.x), out=mine, stream=queue)
                if queue is not None:
                    self.program.cl.clFinish(queue)
                if not numpy.allclose(self.program.read(mine), self.wanted, rtol=1e-4, atol=1e-4):
                    wrong.append(queue)

        threads = [threading.Thread(target=work, args=(queue,)) for queue in queues]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        kernel(self.program.array(self.x), out=self.y)
        self.assertEqual(len(Producer.held), held)

    def test_narrow_types_are_dlpacks(self):
        for dtype, element, one in (("f16", F16, 0x3C00), ("bf16", BF16, 0x3F80)):
            ones = numpy.full((8, 16), one, numpy.uint16)
            x, y = self.program.array(ones, element=element), self.program.array(numpy.zeros_like(ones), element=element)
            try:
                add = self.client.kernel(f"add(M=8,N=16,dtype={dtype})", device=x)
            except self.hone.Error as error:
                print(f"[SKIP] {dtype}: {error}")
                continue
            add(x, x, out=y)
            got = numpy.empty_like(ones)
            self.program.cl.clEnqueueReadBuffer(self.program.queue, ctypes.c_void_p(y.facts[0]), 1, ctypes.c_size_t(0),
                                                ctypes.c_size_t(got.nbytes), got.ctypes.data_as(ctypes.c_void_p), 0, None, None)
            self.assertEqual(set(got.flat), {0x4000}, dtype)  # two, in both
            self.assert_refused(r"float32 elements, wanted (b?float16|such elements)", add, self.y, x, out=y)

    def take_pyopencls(self, x, w, bias, y, queue, while_held=None):
        """Arrays as PyOpenCL has them. while_held: what is looked at when the queue has not come to the call."""
        held = len(Producer.held)
        with self.client.kernel(KERNEL, device=x, deadline=60) as kernel:
            kernel.bind(w=w, bias=bias)
            go_on = self.program.hold(self) if while_held else None
            self.assertIs(kernel(x, out=y), y)  # by the queue of the array that it was asked for with
            if while_held:
                while_held()
                go_on()
            self.assert_refused(r"^x: shape \(80, 64\), wanted \(48, 64\)", kernel, w, out=y)
            self.program.cl.clFinish(ctypes.c_void_p(queue))
        self.assertEqual(len(Producer.held), held)

    def test_what_looks_like_pyopencls_arrays_is_taken(self):
        program = self.program

        class Array:  # of PyOpenCL: what is asked of it
            def __init__(self, of, values, before=0):
                buffer = type("Buffer", (), {"int_ptr": of.facts[0]})()
                self.base_data, self.offset, self.queue = buffer, before, type("Queue", (), {"int_ptr": program.queue.value})()
                self.shape, self.dtype, self.strides = values.shape, values.dtype, values.strides

        y = program.array(numpy.zeros((48, 80), numpy.float32))
        x = Array(program.array(self.x, before=bytes(4096)), self.x, 4096)
        other = program.new_queue(program.context)
        self.take_pyopencls(x, Array(program.array(self.w), self.w), Array(program.array(self.bias), self.bias),
                            Array(y, self.wanted), program.queue.value, lambda: self.assertFalse(program.read(y, other).any()))
        self.assert_right(y)
        odd = Array(program.array(self.x), self.x.T.copy().T)
        with self.client.kernel(KERNEL, device=x) as kernel:
            self.assert_refused("^x: the array is not dense", kernel, odd, self.y, self.y, out=y)
            odd = Array(program.array(self.x), self.x.astype(numpy.float64))
            self.assert_refused("^x: float64 elements, wanted float32", kernel, odd, self.y, self.y, out=y)

    def test_pyopencls_arrays_are_taken(self):
        try:
            import pyopencl  # pylint: disable=import-outside-toplevel
            import pyopencl.array  # pylint: disable=import-outside-toplevel
        except ImportError:
            self.skipTest("[SKIP] PyOpenCL is not installed: only what looks like its arrays was tried")
        queue = pyopencl.CommandQueue(pyopencl.create_some_context(interactive=False))
        there = [pyopencl.array.to_device(queue, array) for array in (self.x, self.w, self.bias)]
        y = pyopencl.array.zeros(queue, (48, 80), numpy.float32)
        self.take_pyopencls(*there, y, queue.int_ptr)
        numpy.testing.assert_allclose(y.get(), self.wanted, rtol=1e-4, atol=1e-4)

    def test_a_context_goes_with_its_last_kernel(self):
        def references():
            count = ctypes.c_uint32()
            assert self.program.cl.clGetContextInfo(self.program.context, 0x1080, ctypes.c_size_t(4), ctypes.byref(count), None) == 0
            return count.value

        before = references()
        kernels = [self.client.kernel("add(M=48,N=80)", device=self.y) for _ in range(2)]
        self.assertGreater(references(), before)
        del kernels
        self.assertEqual(references(), before)

    def test_arrays_may_begin_within_their_buffers(self):
        kernel = self.bound()
        y = self.program.array(numpy.zeros((48, 80), numpy.float32), before=bytes(4096))
        kernel(self.program.array(self.x, before=bytes(8192)), out=y)
        self.assert_right(y)
        self.assert_refused("^x: the array begins 4 bytes into its buffer, where OpenCL makes no sub-buffer", kernel,
                            self.program.array(self.x, before=bytes(4)), out=self.y)

    def test_errors_name_the_operand_and_what_was_wanted(self):
        kernel = self.bound()
        program, x = self.program, self.program.array(self.x)
        odd = numpy.zeros((48, 64), numpy.float32)
        for words, array in (
                (r"^x: float16 elements, wanted float32", program.array(odd, element=F16)),
                (r"^x: bfloat16 elements, wanted float32", program.array(odd, element=BF16)),
                (r"^x: shape \(64, 48\), wanted \(48, 64\)", program.array(odd, shape=(64, 48))),
                (r"^x: the array is not dense", program.array(odd, strides=(1, 48))),
                (r"^x: the array is on cuda:0, the kernel on this opencl", Producer(16, (CUDA, 0), (48, 64))),
                (r"^x: the array is on cpu:0, the kernel on this opencl", odd),
                (r"^x: list is no array that speaks DLPack", [1.0]),
                (r"\(x\): the buffer is another context's", program.array(odd, context=program.other_context)),
                (r"\(x\): the buffer has 64 bytes, the operand 12288", program.array(odd[:1, :16], shape=(48, 64))),
                (r"^x: an array of DLPack 2.0, wanted 1", program.array(odd, version=2))):
            self.assert_refused(words, kernel, array, out=self.y)
        self.assert_refused("no array to write: give out=", kernel, x)
        self.assert_refused("^y: the array to write is read-only", kernel, x,
                            out=program.array(self.wanted, read_only=True))
        self.assert_refused(r"\(y\): the buffer is one that kernels only read", kernel, x,
                            out=program.array(self.wanted, flags=READ_ONLY))
        self.assert_refused("2 arrays to write, wanted 1", kernel, x, out=(self.y, self.y))
        self.assert_refused("queue: the queue is another context's", kernel, x, out=self.y,
                            stream=program.new_queue(program.other_context).value)
        self.assert_refused("stream: 'here', wanted a handle", kernel, x, out=self.y, stream="here")
        self.assert_refused("stream: no command queue", kernel, x, out=self.y, stream=0)
        self.assert_refused("overlaps", self.client.kernel("add(M=48,N=80)", device=x), self.y, self.y, out=self.y)
        kernel(x, out=self.y)
        self.assert_right(self.y)
        kernel.release()
        self.assert_refused("the kernel was released", kernel, x, out=self.y)

    def test_devices_that_cannot_be_opened_say_why(self):
        for words, device in (("DLPack does not say what handle an array of Vulkan's has", Producer(16, (VULKAN, 0), (1,))),
                              ("DLPack does not say what handle", "vulkan:0"), ("opencl:0 does not say which context", "opencl:0"),
                              ("rocm:1; wanted an array of a device", Producer(16, (10, 1), (1,))),
                              ("cuda:one; wanted", "cuda:one"), ("it is none of OpenCL's", Producer(0, (OPENCL, 0), (1,)))):
            self.assert_refused(words, self.client.kernel, KERNEL, device=device)
        # A device's array for a kernel of the host, and the host's for one that was asked for like it.
        host = self.client.kernel("add(M=48,N=80)", device=self.wanted)
        self.assert_refused("the array is on opencl:0, the kernel in the host's memory", host, self.y, self.y)
        numpy.testing.assert_array_equal(host(self.wanted, self.wanted), 2 * self.wanted)


class Garbage(PythonCase):
    def test_a_kernel_that_is_collected_while_its_device_is_at_work_is_released(self):
        """The collector may come at any moment, in the thread that holds the device's lock."""
        from hone.device import Device  # pylint: disable=import-outside-toplevel

        class Toy(Device):
            kind = "toy"
            ended, dropped, depth = set(), [], 0

            def has_ended(self, event):
                if self.depth < 2:
                    self.depth += 1
                    self.release(lambda kernel: None, "kernel")  # as the collector would have it
                return event in self.ended

            def drop(self, event):
                self.dropped.append(event)

        device = Toy(type("Library", (), {"hone_toy_close": staticmethod(lambda handle: None)}), 1, "toy")
        device.ended.update((1, 2, 4))

        def work():
            for event in (1, 2, 3, 4):
                device.depth = 0
                device.keep(event, ["memory"])

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(10)
        self.assertFalse(thread.is_alive(), "it waits for itself")
        self.assertEqual(sorted(device.dropped), [1, 2, 4])  # each once
        self.assertEqual([event for event, _ in device._under_way], [3])  # pylint: disable=protected-access


if __name__ == "__main__":
    harness.main()
