// Written after the API's manual, and run by tests against a driver without a device (tests/support/fake_cuda): no
// machine with such a device has run it yet. bench/gpu_machine.py does.
#include "backends/drivers/cuda_context.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "backends/drivers/cuda_driver.h"
#include "base/file.h"

namespace hone {
namespace {

using cuda::Address;
using cuda::Driver;

// What our code takes for granted of a buffer's begin: it reads and writes vectors of 16 bytes.
constexpr size_t kAlignment = 16;

Error Failed(const Driver& cu, const std::string& what, cuda::Status code) {
  const char* text = nullptr;
  if (cu.cuGetErrorString(code, &text) != cuda::kSuccess || text == nullptr) text = "an error that it does not know";
  return {code == cuda::kOutOfMemory ? ErrorKind::kLimit : ErrorKind::kRunFailed,
          fmt::format("{} failed: {} (CUDA's error {})", what, text, code), ""};
}

Result<void> Check(const Driver& cu, const std::string& what, cuda::Status code) {
  if (code != cuda::kSuccess) return Failed(cu, what, code);
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
    if (code != cuda::kSuccess) return Failed(cu, "starting the driver", code);
    return std::nullopt;
  }();
  if (failure) return *failure;
  return &cu;
}

struct Found {
  cuda::Device device = 0;
  DeviceTarget target;
};

// The kernel's half of the driver, or, where that hides, the version of the API.
std::string DriverVersion(const Driver& cu) {
  if (const Result<std::string> version = ReadFile("/sys/module/nvidia/version", 256)) return FactWord(*version);
  int version = 0;
  cu.cuDriverGetVersion(&version);
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

DeviceTarget Describe(const Driver& cu, cuda::Device device) {
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
  // What arrays in a kernel's text may take. Devices give more to who asks at run time: not yet.
  target.facts["block_bytes"] = std::to_string(ask(cuda::kMaxSharedPerBlock));
  target.facts["block_bytes_most"] = std::to_string(ask(cuda::kMaxSharedPerBlockOptIn));
  target.facts["l2"] = std::to_string(ask(cuda::kL2Bytes));
  return target;
}

Result<std::vector<Found>> Find(const Driver& cu) {
  int count = 0;
  HONE_TRY(Check(cu, "counting devices", cu.cuDeviceGetCount(&count)));
  std::vector<Found> found;
  for (int i = 0; i < count; ++i) {
    cuda::Device device = 0;
    int mode = 0;
    HONE_TRY(Check(cu, "finding a device", cu.cuDeviceGet(&device, i)));
    cu.cuDeviceGetAttribute(&mode, cuda::kComputeMode, device);
    if (mode != cuda::kComputeModeProhibited) found.push_back({device, Describe(cu, device)});
  }
  return found;
}

class Queue;

// Memory of a context, which lives longer.
class Memory {
 public:
  Memory() = default;
  Memory(Queue& queue, Address address, size_t bytes) : queue_(&queue), address_(address), bytes_(bytes) {}
  Memory(Memory&& other) noexcept
      : queue_(other.queue_), address_(std::exchange(other.address_, 0)), bytes_(std::exchange(other.bytes_, 0)) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(queue_, other.queue_), std::swap(address_, other.address_), std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Memory();
  Address address() const { return address_; }
  size_t bytes() const { return bytes_; }

 private:
  Queue* queue_ = nullptr;
  Address address_ = 0;
  size_t bytes_ = 0;
};

// A context and its stream: everything is done in the order in which it is asked for.
class Queue {
 public:
  static Result<std::unique_ptr<Queue>> Open(const Driver& cu, cuda::Device device) {
    cuda::Context context = nullptr;
    HONE_TRY(Check(cu, "making a context", cu.cuDevicePrimaryCtxRetain(&context, device)));
    std::unique_ptr<Queue> queue(new Queue(cu, device, context));
    HONE_TRY(queue->Enter());
    HONE_TRY(Check(cu, "making a stream", cu.cuStreamCreate(&queue->stream_, cuda::kStreamNonBlocking)));
    for (cuda::Event* event : {&queue->first_, &queue->last_})
      HONE_TRY(Check(cu, "making an event", cu.cuEventCreate(event, 0)));
    return queue;
  }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  ~Queue() {
    if (!Enter()) return;
    for (cuda::Event event : {first_, last_})
      if (event != nullptr) cu_.cuEventDestroy_v2(event);
    if (stream_ != nullptr) cu_.cuStreamDestroy_v2(stream_);
    cu_.cuDevicePrimaryCtxRelease_v2(device_);
  }

  const Driver& cu() const { return cu_; }
  cuda::Stream stream() const { return stream_; }

  // Whatever thread this is. Before everything else.
  Result<void> Enter() { return Check(cu_, "entering the context", cu_.cuCtxSetCurrent(context_)); }
  Result<void> Finish() { return Check(cu_, "running", cu_.cuStreamSynchronize(stream_)); }

  Result<Memory> Allocate(size_t bytes) {
    Address address = 0;
    HONE_TRY(Check(cu_, fmt::format("allocating {} bytes", bytes), cu_.cuMemAlloc_v2(&address, bytes)));
    return Memory(*this, address, bytes);
  }
  Result<void> Write(Address to, std::span<const std::byte> data) {
    if (data.empty()) return {};
    HONE_TRY(Check(cu_, "copying to the device", cu_.cuMemcpyHtoDAsync_v2(to, data.data(), data.size(), stream_)));
    return Finish();
  }
  Result<void> Read(Address from, std::span<std::byte> data) {
    if (data.empty()) return {};
    HONE_TRY(Check(cu_, "copying from the device", cu_.cuMemcpyDtoHAsync_v2(data.data(), from, data.size(), stream_)));
    return Finish();
  }

  // Nanoseconds of the device for what `enqueue` enqueues.
  template <typename Enqueue>
  Result<int64_t> Time(Enqueue&& enqueue) {
    HONE_TRY(Check(cu_, "marking the begin", cu_.cuEventRecord(first_, stream_)));
    HONE_TRY(enqueue());
    HONE_TRY(Check(cu_, "marking the end", cu_.cuEventRecord(last_, stream_)));
    HONE_TRY(Finish());
    float milliseconds = 0;
    HONE_TRY(Check(cu_, "reading times", cu_.cuEventElapsedTime(&milliseconds, first_, last_)));
    return static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6);
  }

 private:
  Queue(const Driver& cu, cuda::Device device, cuda::Context context) : cu_(cu), device_(device), context_(context) {}

  const Driver& cu_;
  const cuda::Device device_;
  const cuda::Context context_;
  cuda::Stream stream_ = nullptr;
  cuda::Event first_ = nullptr, last_ = nullptr;
};

Memory::~Memory() {
  if (address_ != 0 && queue_->Enter()) queue_->cu().cuMemFree_v2(address_);
}

struct CudaMemory : DeviceMemory {
  explicit CudaMemory(Memory owned) : memory(std::move(owned)) {}
  Memory memory;
};

const Memory& Of(const DeviceMemory& memory) { return static_cast<const CudaMemory&>(memory).memory; }

class Module {
 public:
  Module(Queue& queue, cuda::Module module) : queue_(queue), module_(module) {}
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  ~Module() {
    if (queue_.Enter()) queue_.cu().cuModuleUnload(module_);
  }
  cuda::Module get() const { return module_; }

 private:
  Queue& queue_;
  const cuda::Module module_;
};

struct Entry {
  std::string name;
  cuda::Function function = nullptr;
  std::array<unsigned, 3> grid{}, block{};
  std::vector<int32_t> buffers;
};

class CudaKernel : public LoadedKernel {
 public:
  CudaKernel(Queue& queue, std::shared_ptr<const Module> module) : queue_(queue), module_(std::move(module)) {}

  Result<void> Load(const DeviceArtifact& artifact, Operands operands) {
    for (const DeviceBuffer& buffer : artifact.buffers) {
      const bool is_elsewhere = operands == Operands::kPlaced && buffer.operand >= 0;
      memory_.push_back(
          is_elsewhere ? Memory() : HONE_TRY(AllocateGuarded(std::max<size_t>(static_cast<size_t>(buffer.bytes), 16))));
      addresses_.push_back(is_elsewhere ? 0 : memory_.back().address() + kDeviceGuardBytes);
    }
    for (const DeviceLaunch& launch : artifact.launches) {
      Entry entry{.name = launch.entry, .function = nullptr, .grid = {}, .block = {}, .buffers = launch.buffers};
      HONE_TRY(Check(queue_.cu(), "finding " + launch.entry,
                     queue_.cu().cuModuleGetFunction(&entry.function, module_->get(), launch.entry.c_str())));
      for (size_t d = 0; d < 3; ++d) {
        entry.grid[d] = static_cast<unsigned>(launch.grid[d]);
        entry.block[d] = static_cast<unsigned>(launch.block[d]);
      }
      (launch.packs ? pack_ : entries_).push_back(std::move(entry));
    }
    return {};
  }

  Result<void> Place(size_t buffer, const DeviceMemory& memory, size_t offset) override {
    if (offset % kAlignment != 0)
      return Error{ErrorKind::kUnsupported, fmt::format("a buffer at offset {}", offset), ""};
    HONE_TRY(queue_.Enter());
    memory_[buffer] = {};
    addresses_[buffer] = Of(memory).address() + offset;
    return {};
  }

  Result<void> Enqueue() override {
    HONE_TRY(queue_.Enter());
    return EnqueueAll(entries_);
  }

  Result<void> Write(size_t buffer, std::span<const std::byte> data) override {
    HONE_TRY(queue_.Enter());
    return queue_.Write(addresses_[buffer], data);
  }
  Result<void> Read(size_t buffer, std::span<std::byte> data) override {
    HONE_TRY(queue_.Enter());
    return queue_.Read(addresses_[buffer], data);
  }

  Result<int64_t> Pack() override { return Run(pack_, 1); }
  Result<int64_t> Call(int calls) override { return Run(entries_, calls); }

  Result<std::optional<size_t>> FindOverrun() override {
    HONE_TRY(queue_.Enter());
    std::vector<std::byte> guard(kDeviceGuardBytes);
    for (size_t i = 0; i < memory_.size(); ++i) {
      if (memory_[i].bytes() == 0) continue;  // somebody else's
      for (const size_t at : {size_t{0}, memory_[i].bytes() - kDeviceGuardBytes}) {
        HONE_TRY(queue_.Read(memory_[i].address() + at, guard));
        if (std::ranges::any_of(guard, [](std::byte b) { return b != kDeviceGuardByte; })) return std::optional(i);
      }
    }
    return std::optional<size_t>();
  }

 private:
  Result<Memory> AllocateGuarded(size_t bytes) {
    Memory memory = HONE_TRY(queue_.Allocate(bytes + 2 * kDeviceGuardBytes));
    for (const size_t at : {size_t{0}, kDeviceGuardBytes + bytes})
      HONE_TRY(Check(queue_.cu(), "filling memory",
                     queue_.cu().cuMemsetD8Async(memory.address() + at, static_cast<unsigned char>(kDeviceGuardByte),
                                                 kDeviceGuardBytes, queue_.stream())));
    return memory;
  }

  Result<void> EnqueueAll(const std::vector<Entry>& entries) {
    for (const Entry& entry : entries) {
      std::vector<void*> arguments;
      for (int32_t buffer : entry.buffers) arguments.push_back(&addresses_[static_cast<size_t>(buffer)]);
      HONE_TRY(Check(
          queue_.cu(), "launching " + entry.name,
          queue_.cu().cuLaunchKernel(entry.function, entry.grid[0], entry.grid[1], entry.grid[2], entry.block[0],
                                     entry.block[1], entry.block[2], 0, queue_.stream(), arguments.data(), nullptr)));
    }
    return {};
  }

  Result<int64_t> Run(const std::vector<Entry>& entries, int calls) {
    if (entries.empty()) return 0;
    HONE_TRY(queue_.Enter());
    return queue_.Time([&]() -> Result<void> {
      for (int call = 0; call < calls; ++call) HONE_TRY(EnqueueAll(entries));
      return {};
    });
  }

  Queue& queue_;
  const std::shared_ptr<const Module> module_;
  std::vector<Memory> memory_;      // with guards; of no bytes: somebody else's
  std::vector<Address> addresses_;  // of what kernels see
  std::vector<Entry> pack_, entries_;
};

class CudaContext : public GpuContext {
 public:
  explicit CudaContext(std::unique_ptr<Queue> queue) : queue_(std::move(queue)) {}

  Result<std::unique_ptr<LoadedKernel>> Load(const DeviceArtifact& artifact, Operands operands) override {
    HONE_TRY(queue_->Enter());
    auto kernel = std::make_unique<CudaKernel>(*queue_, HONE_TRY(ModuleOf(artifact)));
    HONE_TRY(kernel->Load(artifact, operands));
    return std::unique_ptr<LoadedKernel>(std::move(kernel));
  }

  Result<std::unique_ptr<DeviceMemory>> Allocate(size_t bytes) override {
    HONE_TRY(queue_->Enter());
    return std::unique_ptr<DeviceMemory>(
        std::make_unique<CudaMemory>(HONE_TRY(queue_->Allocate(std::max<size_t>(bytes, 16)))));
  }
  Result<void> Write(const DeviceMemory& to, size_t offset, std::span<const std::byte> data) override {
    HONE_TRY(queue_->Enter());
    return queue_->Write(Of(to).address() + offset, data);
  }
  Result<void> Read(const DeviceMemory& from, size_t offset, std::span<std::byte> data) override {
    HONE_TRY(queue_->Enter());
    return queue_->Read(Of(from).address() + offset, data);
  }
  Result<void> Copy(const DeviceMemory& from, size_t from_offset, const DeviceMemory& to, size_t to_offset,
                    size_t bytes) override {
    if (bytes == 0) return {};
    HONE_TRY(queue_->Enter());
    return Check(queue_->cu(), "copying on the device",
                 queue_->cu().cuMemcpyDtoDAsync_v2(Of(to).address() + to_offset, Of(from).address() + from_offset,
                                                   bytes, queue_->stream()));
  }
  Result<void> Finish() override {
    HONE_TRY(queue_->Enter());
    return queue_->Finish();
  }

 private:
  // The same code at other places is loaded once, for as long as somebody has it.
  Result<std::shared_ptr<const Module>> ModuleOf(const DeviceArtifact& artifact) {
    if (artifact.language != kCubin || artifact.sources.size() != 1)
      return Error{ErrorKind::kUnsupported, "an artifact in " + artifact.language + " for CUDA", "artifact"};
    std::weak_ptr<const Module>& known = modules_[artifact.sources[0]];
    if (std::shared_ptr<const Module> module = known.lock()) return module;
    std::string log(16 << 10, '\0');
    std::array<cuda::JitOption, 2> options{cuda::kJitErrorLog, cuda::kJitErrorLogBytes};
    std::array<void*, 2> values{log.data(), reinterpret_cast<void*>(log.size() - 1)};
    cuda::Module module = nullptr;
    const cuda::Status code = queue_->cu().cuModuleLoadDataEx(&module, artifact.sources[0].data(), options.size(),
                                                              options.data(), values.data());
    if (code != cuda::kSuccess) {
      log.resize(std::min(log.find('\0'), log.size()));
      Error error = Failed(queue_->cu(), "taking the code", code);
      if (code == cuda::kInvalidImage || code == cuda::kNoBinaryForGpu) error.kind = ErrorKind::kBuildFailed;
      if (!log.empty()) error.message += ": " + log;
      return error;
    }
    auto loaded = std::make_shared<const Module>(*queue_, module);
    known = loaded;
    return std::shared_ptr<const Module>(loaded);
  }

  std::unique_ptr<Queue> queue_;
  std::map<std::string, std::weak_ptr<const Module>> modules_;  // by code
};

}  // namespace

Result<std::vector<DeviceTarget>> FindCudaDevices() {
  const Driver& cu = *HONE_TRY(LoadCuda());
  std::vector<DeviceTarget> targets;
  for (Found& found : HONE_TRY(Find(cu))) targets.push_back(std::move(found.target));
  return targets;
}

Result<std::unique_ptr<GpuContext>> OpenCudaDevice(const DeviceTarget& target) {
  const Driver& cu = *HONE_TRY(LoadCuda());
  const std::vector<Found> all = HONE_TRY(Find(cu));
  const auto found = std::ranges::find(all, target, &Found::target);
  if (found == all.end()) return DeviceIsGone(target);
  return std::unique_ptr<GpuContext>(std::make_unique<CudaContext>(HONE_TRY(Queue::Open(cu, found->device))));
}

}  // namespace hone
