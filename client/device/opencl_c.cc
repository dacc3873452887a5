// The C interface of OpenCL's contexts: nothing but translation, and no exception leaves it.
#include <vector>

#include "backends/drivers/opencl_context.h"
#include "client/device/c_device.h"
#include "client/hone_opencl.h"

struct hone_opencl : hone::DeviceSession {};
struct hone_opencl_kernel : hone::DeviceKernel {};

namespace {

auto& OpenCl() {
  static auto& interface = *new hone::CDevice<hone_opencl, hone_opencl_kernel>("hone_opencl", "hone_opencl_kernel");
  return interface;
}

hone::BorrowedBuffer BufferOf(cl_mem memory) { return {reinterpret_cast<uint64_t>(memory), 0}; }

}  // namespace

extern "C" {

hone_opencl* hone_opencl_open(cl_context context, cl_device_id device, const hone_connect_options* options,
                              hone_error* error) {
  return OpenCl().Open(options, error, [&] { return hone::BorrowOpenClContext(context, device); });
}

hone_opencl_kernel* hone_opencl_get(hone_opencl* opencl, const char* text, const hone_get_options* options,
                                    hone_error* error) {
  return OpenCl().Get(opencl, text, options, error);
}

int hone_opencl_bind(hone_opencl_kernel* kernel, int32_t operand, cl_mem data, hone_error* error) {
  return OpenCl().Bind(kernel, operand, BufferOf(data), error);
}

int hone_opencl_enqueue(hone_opencl_kernel* kernel, cl_command_queue queue, const cl_mem* buffers, cl_uint wait_count,
                        const cl_event* waits, cl_event* done, hone_error* error) {
  return hone::StatusOfCall(error, [&]() -> hone::Result<void> {
    if (wait_count > 0 && waits == nullptr)
      return hone::Error{hone::ErrorKind::kInvalid, "wait_count without events", "waits"};
    const std::vector<void*> events(waits, waits + wait_count);
    void* end = nullptr;
    HONE_TRY(OpenCl().Enqueue(kernel, buffers, BufferOf,
                              {.queue = queue, .waits = events, .done = done == nullptr ? nullptr : &end}));
    if (done != nullptr) *done = static_cast<cl_event>(end);
    return {};
  });
}

int hone_opencl_call(hone_opencl_kernel* kernel, void* const* buffers, hone_error* error) {
  return OpenCl().Call(kernel, buffers, error);
}

int hone_opencl_info(const hone_opencl_kernel* kernel, hone_kernel_info* info) { return OpenCl().Info(kernel, info); }
void hone_opencl_release(hone_opencl_kernel* kernel) { OpenCl().Release(kernel); }
void hone_opencl_close(hone_opencl* opencl) { OpenCl().Close(opencl); }

}  // extern "C"
