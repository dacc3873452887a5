// The C interface of Vulkan's devices: nothing but translation, and no exception leaves it.
#include <memory>
#include <vector>

#include "backends/drivers/vulkan_context.h"
#include "client/device/c_device.h"
#include "client/hone_vulkan.h"

struct hone_vulkan : hone::DeviceSession {};
struct hone_vulkan_kernel : hone::DeviceKernel {};

namespace {

using hone::BorrowedBuffer;
using hone::BorrowedQueue;
using hone::BorrowedVulkan;
using hone::Error;
using hone::ErrorKind;
using hone::Guard;
using hone::HandedOut;
using hone::Report;
using hone::Result;

HandedOut<hone_vulkan>& Opened() {
  static auto& opened = *new HandedOut<hone_vulkan>;
  return opened;
}
HandedOut<hone_vulkan_kernel>& Kernels() {
  static auto& kernels = *new HandedOut<hone_vulkan_kernel>;
  return kernels;
}

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
  auto opened = Guard([&]() -> Result<hone_vulkan*> {
    auto session = std::make_shared<hone_vulkan>();
    const BorrowedVulkan borrowed = HONE_TRY(DeviceOf(device));
    HONE_TRY(hone::OpenSession(options, HONE_TRY(hone::BorrowVulkanDevice(borrowed)), session.get()));
    return Opened().Add(std::move(session));
  });
  if (opened) return *opened;
  Report(opened.error(), error);
  return nullptr;
}

hone_vulkan_kernel* hone_vulkan_get(hone_vulkan* vulkan, const char* text, const hone_get_options* options,
                                    hone_error* error) {
  uint32_t retry_after_ms = 0;
  auto got = Guard([&]() -> Result<hone_vulkan_kernel*> {
    const std::shared_ptr<hone_vulkan> session = HONE_TRY(Opened().Find(vulkan, "hone_vulkan"));
    auto kernel = std::make_shared<hone_vulkan_kernel>();
    HONE_TRY(hone::GetForDevice(*session, text, options, kernel.get(), &retry_after_ms));
    return Kernels().Add(std::move(kernel));
  });
  if (got) return *got;
  Report(got.error(), error, retry_after_ms);
  return nullptr;
}

int hone_vulkan_bind(hone_vulkan_kernel* kernel, int32_t operand, hone_vulkan_buffer data, hone_error* error) {
  return hone::StatusOfCall(error, [&]() -> Result<void> {
    return HONE_TRY(Kernels().Find(kernel, "hone_vulkan_kernel"))->handle->Bind(operand, {data.address, data.bytes});
  });
}

int hone_vulkan_record(hone_vulkan_kernel* kernel, VkCommandBuffer commands, const hone_vulkan_buffer* buffers,
                       VkSemaphore timeline, uint64_t value, hone_error* error) {
  return hone::StatusOfCall(error, [&]() -> Result<void> {
    const std::shared_ptr<hone_vulkan_kernel> found = HONE_TRY(Kernels().Find(kernel, "hone_vulkan_kernel"));
    std::vector<BorrowedBuffer> given;
    for (size_t i = 0; buffers != nullptr && i < found->texts.operands.size(); ++i)
      given.push_back({buffers[i].address, buffers[i].bytes});
    return found->handle->Enqueue(
        buffers == nullptr ? nullptr : given.data(),
        BorrowedQueue{.queue = commands, .timeline = reinterpret_cast<uint64_t>(timeline), .timeline_value = value});
  });
}

int hone_vulkan_call(hone_vulkan_kernel* kernel, void* const* buffers, hone_error* error) {
  return hone::StatusOfCall(error, [&]() -> Result<void> {
    return HONE_TRY(Kernels().Find(kernel, "hone_vulkan_kernel"))->handle->Call(buffers);
  });
}

int hone_vulkan_info(const hone_vulkan_kernel* kernel, hone_kernel_info* info) {
  const Result<std::shared_ptr<hone_vulkan_kernel>> found = Kernels().Find(kernel, "hone_vulkan_kernel");
  return found ? hone::InfoOfDevice(**found, info) : static_cast<int>(HONE_INVALID);
}

void hone_vulkan_release(hone_vulkan_kernel* kernel) { Kernels().Remove(kernel); }
void hone_vulkan_close(hone_vulkan* vulkan) { Opened().Remove(vulkan); }

}  // extern "C"
