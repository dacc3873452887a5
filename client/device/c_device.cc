#include "client/device/c_device.h"

#include <utility>

#include "base/clock.h"
#include "client/api/device_code.h"

namespace hone {

Result<void> OpenSession(const hone_connect_options* options, std::unique_ptr<BorrowedContext> context,
                         DeviceSession* session) {
  ClientOptions client = HONE_TRY(ClientOptionsOf(options));
  client.threads.threads = 1;
  session->client = HONE_TRY(Client::Create(std::move(client)));
  session->device = std::make_shared<SharedDevice>();
  session->device->context = std::move(context);
  return {};
}

Result<void> GetForDevice(DeviceSession& session, const char* text, const hone_get_options* given, DeviceKernel* kernel,
                          uint32_t* retry_after_ms) {
  if (text == nullptr) return Error{ErrorKind::kInvalid, "no kernel", "kernel"};
  GetOptions options = HONE_TRY(GetOptionsOf(given));
  options.target = PrintTarget(session.device->context->target());
  const Stopwatch stopwatch;
  Served served = HONE_TRY(session.client->Fetch(text, options, retry_after_ms));
  auto code = std::make_unique<DeviceCode>(HONE_TRY(OpenDeviceCode(served)));
  ServedFacts facts{std::move(served.reply), std::move(served.source), 0, std::move(served.operands)};
  kernel->handle = HONE_TRY(DeviceHandle::Create(session.device, std::move(code), std::move(facts)));
  HONE_TRY(kernel->texts.Fill(kernel->handle->facts(), kernel->handle->manifest()));
  for (size_t i = 0; i < kernel->texts.operands.size(); ++i)
    kernel->texts.operands[i].needs_bind = kernel->handle->NeedsBind(i);
  kernel->served_us = stopwatch.Microseconds();
  if (!options.frozen) session.client->KeepUpToDate(*kernel->handle, text, options, std::move(served.canonical));
  return {};
}

int InfoOfDevice(const DeviceKernel& kernel, hone_kernel_info* info) {
  if (info == nullptr || info->struct_size < sizeof(uint32_t)) return HONE_INVALID;
  Result<ServedFacts> facts = Guard([&]() -> Result<ServedFacts> { return kernel.handle->facts(); });
  if (!facts) return HONE_LIMIT;
  facts->served_us = kernel.served_us;
  hone_kernel_info full = HONE_KERNEL_INFO_INIT;
  full.threads = 1;
  full.flops = kernel.handle->manifest().flops;
  full.updates = static_cast<int64_t>(kernel.handle->swaps());
  WriteKernelInfo(kernel.texts, *facts, full, info);
  return HONE_OK;
}

}  // namespace hone
