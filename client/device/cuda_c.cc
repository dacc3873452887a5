// The C interface of CUDA's contexts: nothing but translation, and no exception leaves it.
#include <memory>
#include <vector>

#include "backends/drivers/cuda_context.h"
#include "client/device/c_device.h"
#include "client/hone_cuda.h"

struct hone_cuda : hone::DeviceSession {};
struct hone_cuda_kernel : hone::DeviceKernel {};

namespace {

using hone::BorrowedBuffer;
using hone::BorrowedQueue;
using hone::Guard;
using hone::HandedOut;
using hone::Report;
using hone::Result;

HandedOut<hone_cuda>& Opened() {
  static auto& opened = *new HandedOut<hone_cuda>;
  return opened;
}
HandedOut<hone_cuda_kernel>& Kernels() {
  static auto& kernels = *new HandedOut<hone_cuda_kernel>;
  return kernels;
}

}  // namespace

extern "C" {

hone_cuda* hone_cuda_open(CUctx_st* context, const hone_connect_options* options, hone_error* error) {
  auto opened = Guard([&]() -> Result<hone_cuda*> {
    auto session = std::make_shared<hone_cuda>();
    HONE_TRY(hone::OpenSession(options, HONE_TRY(hone::BorrowCudaContext(context)), session.get()));
    return Opened().Add(std::move(session));
  });
  if (opened) return *opened;
  Report(opened.error(), error);
  return nullptr;
}

hone_cuda_kernel* hone_cuda_get(hone_cuda* cuda, const char* text, const hone_get_options* options, hone_error* error) {
  uint32_t retry_after_ms = 0;
  auto got = Guard([&]() -> Result<hone_cuda_kernel*> {
    const std::shared_ptr<hone_cuda> session = HONE_TRY(Opened().Find(cuda, "hone_cuda"));
    auto kernel = std::make_shared<hone_cuda_kernel>();
    HONE_TRY(hone::GetForDevice(*session, text, options, kernel.get(), &retry_after_ms));
    return Kernels().Add(std::move(kernel));
  });
  if (got) return *got;
  Report(got.error(), error, retry_after_ms);
  return nullptr;
}

int hone_cuda_bind(hone_cuda_kernel* kernel, int32_t operand, hone_cuda_buffer data, hone_error* error) {
  return hone::StatusOfCall(error, [&]() -> Result<void> {
    return HONE_TRY(Kernels().Find(kernel, "hone_cuda_kernel"))->handle->Bind(operand, {data.address, data.bytes});
  });
}

int hone_cuda_enqueue(hone_cuda_kernel* kernel, CUstream_st* stream, const hone_cuda_buffer* buffers,
                      hone_error* error) {
  return hone::StatusOfCall(error, [&]() -> Result<void> {
    const std::shared_ptr<hone_cuda_kernel> found = HONE_TRY(Kernels().Find(kernel, "hone_cuda_kernel"));
    std::vector<BorrowedBuffer> given;
    for (size_t i = 0; buffers != nullptr && i < found->texts.operands.size(); ++i)
      given.push_back({buffers[i].address, buffers[i].bytes});
    return found->handle->Enqueue(buffers == nullptr ? nullptr : given.data(), BorrowedQueue{.queue = stream});
  });
}

int hone_cuda_call(hone_cuda_kernel* kernel, void* const* buffers, hone_error* error) {
  return hone::StatusOfCall(error, [&]() -> Result<void> {
    return HONE_TRY(Kernels().Find(kernel, "hone_cuda_kernel"))->handle->Call(buffers);
  });
}

int hone_cuda_info(const hone_cuda_kernel* kernel, hone_kernel_info* info) {
  const Result<std::shared_ptr<hone_cuda_kernel>> found = Kernels().Find(kernel, "hone_cuda_kernel");
  return found ? hone::InfoOfDevice(**found, info) : static_cast<int>(HONE_INVALID);
}

void hone_cuda_release(hone_cuda_kernel* kernel) { Kernels().Remove(kernel); }
void hone_cuda_close(hone_cuda* cuda) { Opened().Remove(cuda); }

}  // extern "C"
