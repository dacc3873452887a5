#include "backends/drivers/cuda_queue.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <optional>

#include "backends/drivers/fact_word.h"
#include "base/file.h"

namespace hone {

using cuda::Address;
using cuda::Driver;

namespace {

// The kernel's half of the driver, or, where that hides, the version of the API.
std::string DriverVersion(const Driver& cu) {
  if (const Result<std::string> version = ReadFile("/sys/module/nvidia/version", 256)) return FactWord(*version);
  int version = 0;
  cu.cuDriverGetVersion(&version);
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace

Error CudaFailed(const Driver& cu, const std::string& what, cuda::Status code) {
  const char* text = nullptr;
  if (cu.cuGetErrorString(code, &text) != cuda::kSuccess || text == nullptr) text = "an error that it does not know";
  return {code == cuda::kOutOfMemory ? ErrorKind::kLimit : ErrorKind::kRunFailed,
          fmt::format("{} failed: {} (CUDA's error {})", what, text, code), ""};
}

Result<void> CheckCuda(const Driver& cu, const std::string& what, cuda::Status code) {
  if (code != cuda::kSuccess) return CudaFailed(cu, what, code);
  return {};
}

Result<const Driver*> LoadCuda() {
  static Driver cu;
  static const std::optional<Error> failure = []() -> std::optional<Error> {
    void* library = ::dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr)
      return Error{ErrorKind::kNotFound, "there is no libcuda.so.1 here: it comes with NVIDIA's driver", ""};
#define HONE_FIND(name, ...)                                              \
  cu.name = reinterpret_cast<decltype(cu.name)>(::dlsym(library, #name)); \
  if (cu.name == nullptr) return Error{ErrorKind::kUnsupported, "libcuda.so.1 has no " #name, ""};
    HONE_CUDA_FUNCTIONS(HONE_FIND)
#undef HONE_FIND
    const cuda::Status code = cu.cuInit(0);
    if (code == cuda::kNoDevice || code == cuda::kStubLibrary)
      return Error{ErrorKind::kNotFound, "CUDA's driver finds no device", ""};
    if (code != cuda::kSuccess) return CudaFailed(cu, "starting the driver", code);
    return std::nullopt;
  }();
  if (failure) return *failure;
  return &cu;
}

DeviceTarget DescribeCuda(const Driver& cu, cuda::Device device) {
  const auto ask = [&](cuda::Attribute attribute) {
    int value = 0;
    cu.cuDeviceGetAttribute(&value, attribute, device);
    return value;
  };
  std::string name(256, '\0');
  cu.cuDeviceGetName(name.data(), static_cast<int>(name.size() - 1), device);
  DeviceTarget target;
  target.kind = kCudaKind;
  target.facts["arch"] = fmt::format("sm_{}{}", ask(cuda::kMajor), ask(cuda::kMinor));
  target.facts["device"] = FactWord(std::move(name));
  target.facts["driver"] = DriverVersion(cu);
  target.facts["units"] = std::to_string(ask(cuda::kMultiprocessors));
  target.facts["block_threads"] = std::to_string(ask(cuda::kMaxThreadsPerBlock));
  // What arrays in a kernel's text may take, and what launches that ask for it are given.
  target.facts["block_bytes"] = std::to_string(ask(cuda::kMaxSharedPerBlock));
  target.facts["block_bytes_most"] = std::to_string(ask(cuda::kMaxSharedPerBlockOptIn));
  target.facts["l2"] = std::to_string(ask(cuda::kL2Bytes));
  return target;
}

Result<std::vector<CudaFound>> FindCuda(const Driver& cu) {
  int count = 0;
  HONE_TRY(CheckCuda(cu, "counting devices", cu.cuDeviceGetCount(&count)));
  std::vector<CudaFound> found;
  for (int i = 0; i < count; ++i) {
    cuda::Device device = 0;
    int mode = 0;
    HONE_TRY(CheckCuda(cu, "finding a device", cu.cuDeviceGet(&device, i)));
    cu.cuDeviceGetAttribute(&mode, cuda::kComputeMode, device);
    if (mode != cuda::kComputeModeProhibited) found.push_back({device, DescribeCuda(cu, device)});
  }
  return found;
}

Result<std::unique_ptr<CudaQueue>> CudaQueue::Open(const Driver& cu, cuda::Device device) {
  cuda::Context context = nullptr;
  HONE_TRY(CheckCuda(cu, "making a context", cu.cuDevicePrimaryCtxRetain(&context, device)));
  std::unique_ptr<CudaQueue> queue(new CudaQueue(cu, device, context, true));
  HONE_TRY(queue->MakeParts());
  return queue;
}

Result<std::unique_ptr<CudaQueue>> CudaQueue::Borrow(const Driver& cu, cuda::Context context) {
  std::unique_ptr<CudaQueue> queue(new CudaQueue(cu, 0, context, false));
  HONE_TRY(queue->MakeParts());
  return queue;
}

Result<void> CudaQueue::MakeParts() {
  const Inside inside = HONE_TRY(Enter());
  HONE_TRY(CheckCuda(cu_, "making a stream", cu_.cuStreamCreate(&stream_, cuda::kStreamNonBlocking)));
  for (cuda::Event* event : {&first_, &last_}) HONE_TRY(CheckCuda(cu_, "making an event", cu_.cuEventCreate(event, 0)));
  return {};
}

CudaQueue::~CudaQueue() {
  if (const Result<Inside> inside = Enter()) {
    for (cuda::Event event : {first_, last_})
      if (event != nullptr) cu_.cuEventDestroy_v2(event);
    if (stream_ != nullptr) cu_.cuStreamDestroy_v2(stream_);
  }
  if (is_owned_) cu_.cuDevicePrimaryCtxRelease_v2(device_);
}

Result<CudaMemory> CudaQueue::Allocate(size_t bytes) {
  Address address = 0;
  HONE_TRY(CheckCuda(cu_, fmt::format("allocating {} bytes", bytes), cu_.cuMemAlloc_v2(&address, bytes)));
  return CudaMemory(*this, address, bytes);
}

Result<void> CudaQueue::Write(Address to, std::span<const std::byte> data) {
  if (data.empty()) return {};
  HONE_TRY(CheckCuda(cu_, "copying to the device", cu_.cuMemcpyHtoDAsync_v2(to, data.data(), data.size(), stream_)));
  return Finish();
}

Result<void> CudaQueue::Read(Address from, std::span<std::byte> data) {
  if (data.empty()) return {};
  HONE_TRY(
      CheckCuda(cu_, "copying from the device", cu_.cuMemcpyDtoHAsync_v2(data.data(), from, data.size(), stream_)));
  return Finish();
}

CudaMemory::~CudaMemory() {
  if (address_ == 0) return;
  if (const Result<CudaQueue::Inside> inside = queue_->Enter()) queue_->cu().cuMemFree_v2(address_);
}

}  // namespace hone
