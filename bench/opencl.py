"""OpenCL for scripts that measure: a context and a queue, hone's kernels on them by libhone_opencl, CLBlast's beside them, and
times in turns. All through ctypes."""
import ctypes
import glob
import json
import math
import os
import re
import subprocess
import sys
import time

import lib

sys.path.insert(0, os.path.join(lib.ROOT, "python"))
from hone.library import NO_DISK_CACHE, ConnectOptions, Error, ErrorStruct, GetOptions, KernelInfo  # noqa: E402

SAMPLE_SECONDS = 0.05  # that calls of a sample take together, about
FLOAT = 4  # bytes
# What has to be tuned before CLBlast multiplies matrices as fast as it can; of each tuner's space one in so many is tried (of
# that of xgemm some 500).
TUNERS = {"xgemm": 256, "xgemm_direct": 64, "copy_fast": 1, "copy_pad": 1, "transpose_fast": 1, "transpose_pad": 1}
KERNELS = {"copy": b"Copy", "pad": b"Pad", "transpose": b"Transpose", "padtranspose": b"Padtranspose", "xgemm": b"Xgemm",
           "xgemm_direct": b"XgemmDirect"}  # of each tuner's family
TUNED_SIZE = 256


def check(status, what):
    if status:
        raise Error("run failed", f"{what}: {status}")


class Device:
    """The first device of the first platform."""

    def __init__(self):
        self.cl = cl = ctypes.CDLL("libOpenCL.so.1")
        for name in ("clCreateContext", "clCreateCommandQueue", "clCreateBuffer"):
            getattr(cl, name).restype = ctypes.c_void_p
        platform, self.id = ctypes.c_void_p(), ctypes.c_void_p()
        check(cl.clGetPlatformIDs(1, ctypes.byref(platform), None), "clGetPlatformIDs")
        check(cl.clGetDeviceIDs(platform, ctypes.c_uint64(0xFFFFFFFF), 1, ctypes.byref(self.id), None), "clGetDeviceIDs")
        status = ctypes.c_int()
        self.context = ctypes.c_void_p(cl.clCreateContext(None, 1, ctypes.byref(self.id), None, None, ctypes.byref(status)))
        check(status.value, "clCreateContext")
        self.queue = ctypes.c_void_p(cl.clCreateCommandQueue(self.context, self.id, ctypes.c_uint64(0), ctypes.byref(status)))
        check(status.value, "clCreateCommandQueue")
        name = ctypes.create_string_buffer(256)
        cl.clGetDeviceInfo(self.id, 0x102B, ctypes.c_size_t(256), name, None)
        self.name = name.value.decode()
        self.filled = {}

    def buffer(self, size, fill=True):
        """Device memory of numbers between -1 and 1."""
        status = ctypes.c_int()
        made = ctypes.c_void_p(self.cl.clCreateBuffer(self.context, ctypes.c_uint64(1), ctypes.c_size_t(max(size, 4)), None,
                                                      ctypes.byref(status)))
        check(status.value, "clCreateBuffer")
        if fill:
            block = self.filled.setdefault("block", (ctypes.c_float * 65536)(*(math.sin(1 + 7.1 * i) for i in range(65536))))
            for begin in range(0, size, ctypes.sizeof(block)):
                check(self.cl.clEnqueueWriteBuffer(self.queue, made, 1, ctypes.c_size_t(begin),
                                                   ctypes.c_size_t(min(size - begin, ctypes.sizeof(block))), block, 0, None, None),
                      "clEnqueueWriteBuffer")
        return made

    def read(self, buffer, count):
        out = (ctypes.c_float * count)()
        check(self.cl.clEnqueueReadBuffer(self.queue, buffer, 1, ctypes.c_size_t(0), ctypes.c_size_t(ctypes.sizeof(out)), out, 0,
                                          None, None), "clEnqueueReadBuffer")
        return out

    def free(self, *buffers):
        for buffer in buffers:
            self.cl.clReleaseMemObject(buffer)

    def seconds(self, call, calls):
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        check(self.cl.clFinish(self.queue), "clFinish")
        return (time.perf_counter() - begin) / calls

    def in_turns(self, calls, rounds=7):
        """Microseconds of each of several functions that enqueue: a list of rounds per function, the functions in turns."""
        counts = []
        for call in calls:
            self.seconds(call, 1)
            counts.append(max(1, min(1000, int(SAMPLE_SECONDS / max(1e-7, self.seconds(call, 1))))))
        times = [[] for _ in calls]
        for turn in range(rounds):
            order = list(range(len(calls)))
            for index in order[turn % len(order):] + order[:turn % len(order)]:
                times[index].append(1e6 * self.seconds(calls[index], counts[index]))
        return times


class Hone:
    """libhone_opencl on a device, served by the daemon on a socket."""

    def __init__(self, device, binaries, socket):
        self.device = device
        self.library = ctypes.CDLL(os.path.join(os.path.dirname(os.path.abspath(binaries)), "lib", "libhone_opencl.so"))
        for name in ("hone_opencl_open", "hone_opencl_get"):
            getattr(self.library, name).restype = ctypes.c_void_p
        options = ConnectOptions(ctypes.sizeof(ConnectOptions), NO_DISK_CACHE, socket.encode())
        error = ErrorStruct()
        self.handle = ctypes.c_void_p(self.library.hone_opencl_open(device.context, device.id, ctypes.byref(options),
                                                                    ctypes.byref(error)))
        if not self.handle:
            raise error.raised()

    def get(self, text, buffers=None):
        return HoneKernel(self, text, buffers)


class HoneKernel:
    """Served and bound; called, it enqueues. `buffers`: of another kernel with the same operands, to share."""

    def __init__(self, hone, text, buffers=None):
        self.hone, library, device = hone, hone.library, hone.device
        error = ErrorStruct()
        options = GetOptions(ctypes.sizeof(GetOptions), 0, 0, 120_000_000, 1, 0)
        self.handle = ctypes.c_void_p(library.hone_opencl_get(hone.handle, text.encode(), ctypes.byref(options),
                                                              ctypes.byref(error)))
        if not self.handle:
            raise error.raised()
        self.info = KernelInfo(ctypes.sizeof(KernelInfo))
        library.hone_opencl_info(self.handle, ctypes.byref(self.info))
        self.operands = self.info.operands[:self.info.operand_count]
        self.origin, self.flops = self.info.origin.decode(), self.info.flops
        self.buffers = buffers or [device.buffer(operand.bytes, not operand.is_output) for operand in self.operands]
        self.array = (ctypes.c_void_p * len(self.buffers))()
        for index, (operand, buffer) in enumerate(zip(self.operands, self.buffers)):
            if not operand.is_const:
                self.array[index] = buffer
            elif library.hone_opencl_bind(self.handle, index, buffer, ctypes.byref(error)):
                raise error.raised()
        self.error = error

    def __call__(self):
        if self.hone.library.hone_opencl_enqueue(self.handle, self.hone.device.queue, self.array, 0, None, None,
                                                 ctypes.byref(self.error)):
            raise self.error.raised()

    def output(self):
        return self.hone.device.read(self.buffers[-1], self.operands[-1].bytes // FLOAT)

    def release(self, buffers=True):
        self.hone.library.hone_opencl_release(self.handle)
        if buffers:
            self.hone.device.free(*self.buffers)


class ClBlast:
    """CLBlast as its own tuners leave it; what they find is kept in build/clblast-tuned, by device."""

    def __init__(self, device):
        lib.install("libclblast1", "clblast-utils")
        self.device = device
        self.library = ctypes.CDLL("libclblast.so.1")
        self.directory = os.path.join(lib.ROOT, "build/clblast-tuned", re.sub(r"\W+", "-", device.name))
        self.take_best()

    def tuned(self):
        os.makedirs(self.directory, exist_ok=True)
        for tuner, share in TUNERS.items():
            done = os.path.join(self.directory, f"{tuner}.done")
            if os.path.exists(done):
                continue
            print(f"tuning CLBlast's {tuner} …", flush=True)
            size = [str(word) for name in "mnk" if tuner.startswith("xgemm") or name != "k" for word in (f"-{name}", TUNED_SIZE)]
            with open(os.path.join(self.directory, f"{tuner}.log"), "w", encoding="utf-8") as log:
                ended = subprocess.run([f"clblast_tuner_{tuner}", *size, "-fraction", str(share)], cwd=self.directory, check=False,
                                       stdout=log)
            if ended.returncode != 0:  # some of them crash on PoCL; what they had found by then is kept
                print(f"CLBlast's tuner of {tuner} ended with {ended.returncode}")
            with open(done, "w", encoding="utf-8"):
                pass
        best = {}
        for path in glob.glob(os.path.join(self.directory, "*.json")):
            with open(path, encoding="utf-8") as file:
                found = json.load(file)
            # xgemm_1 … _12 are halves of one space: the kernel that keeps its operands in registers, and that which does not.
            best.setdefault(re.sub(r"_\d+$", "", found["kernel_family"]), []).append(found)
        for of_family in best.values():
            of_family.sort(key=lambda found: float(found["best_time"]))
        return best

    def take_best(self):
        self.best = self.tuned()  # by family, the fastest first
        self.take_up()

    def take_next(self):
        """What its tuner calls the fastest of xgemm may compute something else on PoCL: then the next one. False: there is none."""
        del self.best["xgemm"][0]
        if not self.best["xgemm"]:
            return False
        self.take_up()
        return True

    def take_up(self):
        for family, (found, *_) in self.best.items():
            values = {name: int(value) for name, value in (word.split("=") for word in found["best_parameters"].split())
                      if name != "PRECISION"}
            names = (ctypes.c_char_p * len(values))(*(name.encode() for name in values))
            numbers = (ctypes.c_size_t * len(values))(*values.values())
            check(self.library.CLBlastOverrideParameters(self.device.id, KERNELS[family], 32,
                                                         ctypes.c_size_t(len(values)), names, numbers),
                  f"CLBlastOverrideParameters of {family}")

    def route(self, indirect):
        """Which of its two ways to multiply matrices it takes."""
        names = (ctypes.c_char_p * 1)(b"XGEMM_MIN_INDIRECT_SIZE")
        values = (ctypes.c_size_t * 1)(0 if indirect else 1 << 20)
        check(self.library.CLBlastOverrideParameters(self.device.id, b"GemmRoutine", 32, ctypes.c_size_t(1), names, values),
              "CLBlastOverrideParameters of GemmRoutine")

    def gemm(self, m, n, k, a, b, c, batch=1):
        """A function that enqueues row-major c = a · b, of `batch` matrices one after the other."""
        size, queue, one, zero = ctypes.c_size_t, ctypes.c_void_p(self.device.queue.value), ctypes.c_float(1), ctypes.c_float(0)
        common = (101, 111, 111, size(m), size(n), size(k), one)  # row-major, nothing transposed

        def single():
            check(self.library.CLBlastSgemm(*common, a, size(0), size(k), b, size(0), size(n), zero, c, size(0), size(n),
                                            ctypes.byref(queue), None), "CLBlastSgemm")

        def batched():
            check(self.library.CLBlastSgemmStridedBatched(*common, a, size(0), size(k), size(m * k), b, size(0), size(n),
                                                          size(k * n), zero, c, size(0), size(n), size(m * n), size(batch),
                                                          ctypes.byref(queue), None), "CLBlastSgemmStridedBatched")
        return single if batch == 1 else batched


