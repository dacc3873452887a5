// The C interface of OpenCL's contexts: nothing but translation, and no exception leaves it.
#include "client/hone_opencl.h"

#include <memory>
#include <vector>

#include "backends/drivers/opencl_context.h"
#include "client/device/c_device.h"

struct hone_opencl : hone::DeviceSession {};
struct hone_opencl_kernel : hone::DeviceKernel {};

namespace {

using hone::BorrowedBuffer;
using hone::BorrowedQueue;
using hone::Guard;
using hone::HandedOut;
using hone::Report;
using hone::Result;

HandedOut<hone_opencl>& Opened() {
  static auto& opened = *new HandedOut<hone_opencl>;
  return opened;
}
HandedOut<hone_opencl_kernel>& Kernels() {
  static auto& kernels = *new HandedOut<hone_opencl_kernel>;
  return kernels;
}

BorrowedBuffer BufferOf(cl_mem memory) { return {reinterpret_cast<uint64_t>(memory), 0}; }

}  // namespace

extern "C" {

hone_opencl* hone_opencl_open(cl_context context, cl_device_id device, const hone_connect_options* options,
                              hone_error* error) {
  auto opened = Guard([&]() -> Result<hone_opencl*> {
    auto session = std::make_shared<hone_opencl>();
    HONE_TRY(hone::OpenSession(options, HONE_TRY(hone::BorrowOpenClContext(context, device)), session.get()));
    return Opened().Add(std::move(session));
  });
  if (opened) return *opened;
  Report(opened.error(), error);
  return nullptr;
}

hone_opencl_kernel* hone_opencl_get(hone_opencl* opencl, const char* text, const hone_get_options* options,
                                    hone_error* error) {
  uint32_t retry_after_ms = 0;
  auto got = Guard([&]() -> Result<hone_opencl_kernel*> {
    const std::shared_ptr<hone_opencl> session = HONE_TRY(Opened().Find(opencl, "hone_opencl"));
    auto kernel = std::make_shared<hone_opencl_kernel>();
    HONE_TRY(hone::GetForDevice(*session, text, options, kernel.get(), &retry_after_ms));
    return Kernels().Add(std::move(kernel));
  });
  if (got) return *got;
  Report(got.error(), error, retry_after_ms);
  return nullptr;
}

int hone_opencl_bind(hone_opencl_kernel* kernel, int32_t operand, cl_mem data, hone_error* error) {
  return hone::StatusOfCall(error, [&]() -> Result<void> {
    return HONE_TRY(Kernels().Find(kernel, "hone_opencl_kernel"))->handle->Bind(operand, BufferOf(data));
  });
}

int hone_opencl_enqueue(hone_opencl_kernel* kernel, cl_command_queue queue, const cl_mem* buffers, cl_uint wait_count,
                        const cl_event* waits, cl_event* done, hone_error* error) {
  return hone::StatusOfCall(error, [&]() -> Result<void> {
    const std::shared_ptr<hone_opencl_kernel> found = HONE_TRY(Kernels().Find(kernel, "hone_opencl_kernel"));
    std::vector<BorrowedBuffer> given;
    for (size_t i = 0; buffers != nullptr && i < found->texts.operands.size(); ++i)
      given.push_back(BufferOf(buffers[i]));
    if (wait_count > 0 && waits == nullptr)
      return hone::Error{hone::ErrorKind::kInvalid, "wait_count without events", "waits"};
    const std::vector<void*> events(waits, waits + wait_count);
    void* end = nullptr;
    HONE_TRY(found->handle->Enqueue(buffers == nullptr ? nullptr : given.data(),
                                    BorrowedQueue{.queue = queue, .waits = events, .done = done ? &end : nullptr}));
    if (done != nullptr) *done = static_cast<cl_event>(end);
    return {};
  });
}

int hone_opencl_call(hone_opencl_kernel* kernel, void* const* buffers, hone_error* error) {
  return hone::StatusOfCall(error, [&]() -> Result<void> {
    return HONE_TRY(Kernels().Find(kernel, "hone_opencl_kernel"))->handle->Call(buffers);
  });
}

int hone_opencl_info(const hone_opencl_kernel* kernel, hone_kernel_info* info) {
  const Result<std::shared_ptr<hone_opencl_kernel>> found = Kernels().Find(kernel, "hone_opencl_kernel");
  return found ? hone::InfoOfDevice(**found, info) : static_cast<int>(HONE_INVALID);
}

void hone_opencl_release(hone_opencl_kernel* kernel) { Kernels().Remove(kernel); }
void hone_opencl_close(hone_opencl* opencl) { Opened().Remove(opencl); }

}  // extern "C"
