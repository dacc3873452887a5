// The C interface of CUDA's contexts: nothing but translation, and no exception leaves it.
#include "backends/drivers/cuda_context.h"
#include "client/device/c_device.h"
#include "client/hone_cuda.h"

struct hone_cuda : hone::DeviceSession {};
struct hone_cuda_kernel : hone::DeviceKernel {};

namespace {

auto& Cuda() {
  static auto& interface = *new hone::CDevice<hone_cuda, hone_cuda_kernel>("hone_cuda", "hone_cuda_kernel");
  return interface;
}

hone::BorrowedBuffer BufferOf(const hone_cuda_buffer& buffer) { return {buffer.address, buffer.bytes}; }

}  // namespace

extern "C" {

hone_cuda* hone_cuda_open(CUctx_st* context, const hone_connect_options* options, hone_error* error) {
  return Cuda().Open(options, error, [&] { return hone::BorrowCudaContext(context); });
}

hone_cuda_kernel* hone_cuda_get(hone_cuda* cuda, const char* text, const hone_get_options* options, hone_error* error) {
  return Cuda().Get(cuda, text, options, error);
}

int hone_cuda_bind(hone_cuda_kernel* kernel, int32_t operand, hone_cuda_buffer data, hone_error* error) {
  return Cuda().Bind(kernel, operand, BufferOf(data), error);
}

int hone_cuda_enqueue(hone_cuda_kernel* kernel, CUstream_st* stream, const hone_cuda_buffer* buffers,
                      hone_error* error) {
  return hone::StatusOfCall(error, [&] { return Cuda().Enqueue(kernel, buffers, BufferOf, {.queue = stream}); });
}

int hone_cuda_call(hone_cuda_kernel* kernel, void* const* buffers, hone_error* error) {
  return Cuda().Call(kernel, buffers, error);
}

int hone_cuda_info(const hone_cuda_kernel* kernel, hone_kernel_info* info) { return Cuda().Info(kernel, info); }
void hone_cuda_release(hone_cuda_kernel* kernel) { Cuda().Release(kernel); }
void hone_cuda_close(hone_cuda* cuda) { Cuda().Close(cuda); }

}  // extern "C"
