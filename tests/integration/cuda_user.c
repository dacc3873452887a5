/* An application of libhone_cuda with a context, streams and memory of its own. */
#include <hone_cuda.h>

#include "device_user.h"

/* Of CUDA's driver API, by the names that libcuda.so.1 has: no package of Debian's main archive has cuda.h. */
typedef struct CUctx_st* CUcontext;
typedef struct CUstream_st* CUstream;
typedef unsigned long long CUdeviceptr;
enum { CUDA_SUCCESS = 0, CU_STREAM_NON_BLOCKING = 1 };
int cuInit(unsigned flags);
int cuDeviceGet(int* device, int ordinal);
int cuDevicePrimaryCtxRetain(CUcontext* context, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuCtxCreate_v2(CUcontext* context, unsigned flags, int device);
int cuCtxDestroy_v2(CUcontext context);
int cuCtxPushCurrent_v2(CUcontext context);
int cuCtxPopCurrent_v2(CUcontext* context);
int cuCtxGetCurrent(CUcontext* context);
int cuMemAlloc_v2(CUdeviceptr* address, size_t bytes);
int cuMemFree_v2(CUdeviceptr address);
int cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t bytes, CUstream stream);
int cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream);
int cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream);
int cuStreamCreate(CUstream* stream, unsigned flags);
int cuStreamDestroy_v2(CUstream stream);
int cuStreamSynchronize(CUstream stream);

static int device;
static CUcontext context, other_context;
static CUstream streams[kQueues], other_stream;
static hone_cuda_buffer inputs[3], outputs[kOutputs], foreign;
static hone_cuda* cuda;
static hone_cuda_kernel* kernel;

static void Check(int code, const char* what) { Need(code == CUDA_SUCCESS, what); }

/* The driver's calls are about the context that is current in the thread; libhone_cuda's are not. */
static void Enter(CUcontext of) { Check(cuCtxPushCurrent_v2(of), "no context is entered"); }
static void Leave(void) {
  CUcontext left;
  Check(cuCtxPopCurrent_v2(&left), "no context is left");
}

static hone_cuda_buffer BufferOf(size_t bytes, const void* data) {
  hone_cuda_buffer made = {0, bytes};
  Check(cuMemAlloc_v2(&made.address, bytes), "no memory of the device");
  if (data != NULL) {
    Check(cuMemcpyHtoDAsync_v2(made.address, data, bytes, streams[0]), "no copy");
    Check(cuStreamSynchronize(streams[0]), "no end of a copy");
  }
  return made;
}

static void Open(void) {
  Check(cuInit(0), "no driver of CUDA's");
  Check(cuDeviceGet(&device, 0), "no device");
  Check(cuCtxCreate_v2(&other_context, 0, device), "no other context");
  foreign = BufferOf(sizeof wanted, NULL);
  Check(cuStreamCreate(&other_stream, CU_STREAM_NON_BLOCKING), "no other stream");
  Leave();
  Check(cuDevicePrimaryCtxRetain(&context, device), "no context");
  Enter(context);
  for (int i = 0; i < kQueues; ++i) Check(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING), "no stream");
  inputs[0] = BufferOf(sizeof x, x);
  inputs[1] = BufferOf(sizeof w, w);
  inputs[2] = BufferOf(sizeof bias, bias);
  for (int i = 0; i < kOutputs; ++i) outputs[i] = BufferOf(sizeof wanted, NULL);
  cuda = hone_cuda_open(NULL, NULL, &error); /* the current one */
  Need(cuda != NULL, error.message);
  Leave();
  hone_get_options options = HONE_GET_OPTIONS_INIT;
  options.deadline_us = 60000000;
  kernel = hone_cuda_get(cuda, kernel_text, &options, &error);
  Need(kernel != NULL, error.message);
  for (int i = 1; i <= constants; ++i) Need(hone_cuda_bind(kernel, i, inputs[i], &error) == 0, error.message);
}

static int EnqueueOf(hone_cuda_kernel* of, CUstream stream, hone_cuda_buffer from, hone_cuda_buffer to) {
  hone_cuda_buffer buffers[4] = {from, {0, 0}, {0, 0}, {0, 0}};
  buffers[1 + constants] = to;
  return hone_cuda_enqueue(of, stream, buffers, &error);
}

static int Enqueue(int queue, int output) {
  Enter(context);
  Check(cuMemsetD8Async(outputs[output].address, 0xff, sizeof wanted, streams[queue]), "nothing is filled");
  Leave();
  return EnqueueOf(kernel, streams[queue], inputs[0], outputs[output]);
}

static void Wait(void) {
  Enter(context);
  for (int i = 0; i < kQueues; ++i) Check(cuStreamSynchronize(streams[i]), "what was enqueued fails");
  Leave();
}

static void Read(int output, float* y) {
  Enter(context);
  Check(cuMemcpyDtoHAsync_v2(y, outputs[output].address, sizeof wanted, streams[0]), "no copy");
  Check(cuStreamSynchronize(streams[0]), "no end of a copy");
  Leave();
}

static int CallOnHost(void* const* buffers) { return hone_cuda_call(kernel, buffers, &error); }
static void GetInfo(hone_kernel_info* info) { Need(hone_cuda_info(kernel, info) == 0, "no info"); }

static void UseWrongly(void) {
  const hone_cuda_buffer from = inputs[0], to = outputs[0], none = {0, 0};
  const hone_cuda_buffer small = {from.address, from.bytes - 4}, odd = {from.address + 4, from.bytes};
  const hone_cuda_buffer over = {from.address + 64, to.bytes}, nowhere = {64, to.bytes};
  Say("foreign stream", EnqueueOf(kernel, other_stream, from, to));
  Say("foreign buffer", EnqueueOf(kernel, streams[0], from, foreign));
  Say("no memory of CUDA's", EnqueueOf(kernel, streams[0], from, nowhere));
  Say("small buffer", EnqueueOf(kernel, streams[0], small, to));
  Say("misaligned", EnqueueOf(kernel, streams[0], odd, to));
  Say("missing buffer", EnqueueOf(kernel, streams[0], none, to));
  Say("overlap", EnqueueOf(kernel, streams[0], from, over));
  Say("no constant", hone_cuda_bind(kernel, 0, from, &error));
  Say("no operand", hone_cuda_bind(kernel, 7, from, &error));
  void* nothing[] = {NULL, NULL, NULL, NULL};
  Say("no memory", hone_cuda_call(kernel, nothing, &error));
  hone_cuda_kernel* second = hone_cuda_get(cuda, kernel_text, NULL, &error);
  if (constants > 0) Say("not bound", EnqueueOf(second, streams[0], from, to));
  hone_cuda_release(second);
  Say("released", EnqueueOf(second, streams[0], from, to));
  hone_cuda_release(second);
  hone_cuda* closed = hone_cuda_open(context, NULL, &error);
  hone_cuda_close(closed);
  Need(hone_cuda_get(closed, kernel_text, NULL, &error) == NULL, "a closed one gives kernels");
  Say("closed", error.kind);
  CUcontext current = context;
  Need(cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == NULL, "the library leaves a context current");
  Need(hone_cuda_open(NULL, NULL, &error) == NULL, "no context was opened");
  Say("no context", error.kind);
  Need(hone_cuda_get(cuda, "matmul(M=1..9,N=8,K=8)", NULL, &error) == NULL, "dynamic sizes are served");
  Say("dynamic", error.kind);
}

static void Close(void) {
  hone_cuda_close(cuda);
  Need(MakeCalls(kOutputs) == 0, "a kernel does not outlive its device");
  hone_cuda_release(kernel);
  Enter(context);
  for (int i = 0; i < kOutputs; ++i) Check(cuMemFree_v2(outputs[i].address), "memory is not given back");
  for (int i = 0; i < 3; ++i) Check(cuMemFree_v2(inputs[i].address), "memory is not given back");
  for (int i = 0; i < kQueues; ++i) Check(cuStreamDestroy_v2(streams[i]), "a stream is not given back");
  Leave();
  Check(cuDevicePrimaryCtxRelease_v2(device), "the context is not given back");
  Enter(other_context);
  Check(cuStreamDestroy_v2(other_stream), "a stream is not given back");
  Check(cuMemFree_v2(foreign.address), "memory is not given back");
  Leave();
  Check(cuCtxDestroy_v2(other_context), "the other context is not given back");
}
