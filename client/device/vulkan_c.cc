// The C interface of Vulkan's devices: nothing but translation, and no exception leaves it.
#include "backends/drivers/vulkan_context.h"
#include "client/device/c_device.h"
#include "client/hone_vulkan.h"

struct hone_vulkan : hone::DeviceSession {};
struct hone_vulkan_kernel : hone::DeviceKernel {};

namespace {

using hone::BorrowedVulkan;
using hone::Error;
using hone::ErrorKind;
using hone::Result;

auto& Vulkan() {
  static auto& interface = *new hone::CDevice<hone_vulkan, hone_vulkan_kernel>("hone_vulkan", "hone_vulkan_kernel");
  return interface;
}

hone::BorrowedBuffer BufferOf(const hone_vulkan_buffer& buffer) { return {buffer.address, buffer.bytes}; }

Result<BorrowedVulkan> DeviceOf(const hone_vulkan_device* given) {
  if (given == nullptr) return Error{ErrorKind::kInvalid, "no device", "hone_vulkan_device"};
  const hone_vulkan_device device =
      HONE_TRY(hone::ReadOptions<hone_vulkan_device>(given, HONE_VULKAN_DEVICE_INIT, "hone_vulkan_device"));
  return BorrowedVulkan{.instance = device.instance,
                        .physical_device = device.physical_device,
                        .device = device.device,
                        .queue_family = device.queue_family,
                        .queue = device.queue,
                        .lock = device.lock,
                        .unlock = device.unlock,
                        .user = device.user};
}

}  // namespace

extern "C" {

hone_vulkan* hone_vulkan_open(const hone_vulkan_device* device, const hone_connect_options* options,
                              hone_error* error) {
  return Vulkan().Open(options, error, [&]() -> Result<std::unique_ptr<hone::BorrowedContext>> {
    return hone::BorrowVulkanDevice(HONE_TRY(DeviceOf(device)));
  });
}

hone_vulkan_kernel* hone_vulkan_get(hone_vulkan* vulkan, const char* text, const hone_get_options* options,
                                    hone_error* error) {
  return Vulkan().Get(vulkan, text, options, error);
}

int hone_vulkan_bind(hone_vulkan_kernel* kernel, int32_t operand, hone_vulkan_buffer data, hone_error* error) {
  return Vulkan().Bind(kernel, operand, BufferOf(data), error);
}

int hone_vulkan_record(hone_vulkan_kernel* kernel, VkCommandBuffer commands, const hone_vulkan_buffer* buffers,
                       VkSemaphore timeline, uint64_t value, hone_error* error) {
  return hone::StatusOfCall(error, [&] {
    return Vulkan().Enqueue(
        kernel, buffers, BufferOf,
        {.queue = commands, .timeline = reinterpret_cast<uint64_t>(timeline), .timeline_value = value});
  });
}

int hone_vulkan_call(hone_vulkan_kernel* kernel, void* const* buffers, hone_error* error) {
  return Vulkan().Call(kernel, buffers, error);
}

int hone_vulkan_info(const hone_vulkan_kernel* kernel, hone_kernel_info* info) { return Vulkan().Info(kernel, info); }
void hone_vulkan_release(hone_vulkan_kernel* kernel) { Vulkan().Release(kernel); }
void hone_vulkan_close(hone_vulkan* vulkan) { Vulkan().Close(vulkan); }

}  // extern "C"
