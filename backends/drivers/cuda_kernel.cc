#include "backends/drivers/cuda_kernel.h"

#include <fmt/format.h>

#include <algorithm>

namespace hone {
namespace {

using cuda::Driver;

class CudaWork : public EnqueuedWork {
 public:
  // Marks the end of what was enqueued so far. REQUIRES: inside the context.
  static Result<std::unique_ptr<CudaWork>> Mark(CudaQueue& queue, cuda::Stream stream) {
    const Driver& cu = queue.cu();
    cuda::Event event = nullptr;
    HONE_TRY(CheckCuda(cu, "making an event", cu.cuEventCreate(&event, cuda::kEventDisableTiming)));
    std::unique_ptr<CudaWork> work(new CudaWork(queue, event));
    HONE_TRY(CheckCuda(cu, "marking the end", cu.cuEventRecord(event, stream)));
    return work;
  }
  ~CudaWork() override {
    if (const Result<CudaQueue::Inside> inside = queue_.Enter()) queue_.cu().cuEventDestroy_v2(event_);
  }

  bool HasEnded() override {
    const Result<CudaQueue::Inside> inside = queue_.Enter();
    return !inside || queue_.cu().cuEventQuery(event_) != cuda::kNotReady;
  }
  void Wait() override {
    if (const Result<CudaQueue::Inside> inside = queue_.Enter()) queue_.cu().cuEventSynchronize(event_);
  }
  cuda::Event event() const { return event_; }

 private:
  CudaWork(CudaQueue& queue, cuda::Event event) : queue_(queue), event_(event) {}

  CudaQueue& queue_;
  const cuda::Event event_;
};

}  // namespace

Result<std::unique_ptr<CudaKernel>> CudaKernel::Make(CudaQueue& queue, std::shared_ptr<const CudaModule> module,
                                                     const DeviceArtifact& artifact, Operands operands, Guards guards) {
  auto plan = std::make_shared<const Plan>(Plan{artifact.buffers, artifact.launches, operands, guards});
  std::unique_ptr<CudaKernel> kernel(new CudaKernel(queue, std::move(module), std::move(plan)));
  HONE_TRY(kernel->Fill(nullptr));
  return kernel;
}

Result<std::unique_ptr<BorrowedKernel>> CudaKernel::Another() {
  std::unique_ptr<CudaKernel> kernel(new CudaKernel(queue_, module_, plan_));
  HONE_TRY(kernel->Fill(this));
  return std::unique_ptr<BorrowedKernel>(std::move(kernel));
}

Result<void> CudaKernel::Fill(const CudaKernel* packed) {
  const CudaQueue::Inside inside = HONE_TRY(queue_.Enter());
  const std::vector<bool> is_packed = PackedBuffers(plan_->buffers, plan_->launches);
  for (size_t i = 0; i < plan_->buffers.size(); ++i) {
    const bool is_elsewhere = plan_->operands == Operands::kPlaced && plan_->buffers[i].operand >= 0;
    const auto bytes = std::max<size_t>(static_cast<size_t>(plan_->buffers[i].bytes), 16);
    if (is_elsewhere)
      memory_.push_back(nullptr);
    else if (packed != nullptr && is_packed[i])
      memory_.push_back(packed->memory_[i]);
    else
      memory_.push_back(std::make_shared<const CudaMemory>(HONE_TRY(Allocate(bytes))));
    addresses_.push_back(is_elsewhere ? 0 : memory_.back()->address() + plan_->guard_bytes());
  }
  for (const DeviceLaunch& launch : plan_->launches) {
    Entry entry{.name = launch.entry, .function = nullptr, .grid = {}, .block = {}, .buffers = launch.buffers};
    HONE_TRY(CheckCuda(queue_.cu(), "finding " + launch.entry,
                       queue_.cu().cuModuleGetFunction(&entry.function, module_->get(), launch.entry.c_str())));
    for (size_t d = 0; d < 3; ++d) {
      entry.grid[d] = static_cast<unsigned>(launch.grid[d]);
      entry.block[d] = static_cast<unsigned>(launch.block[d]);
    }
    if (launch.shared_bytes > kCudaStaticBytes) {
      entry.shared_bytes = static_cast<unsigned>(launch.shared_bytes);
      HONE_TRY(CheckCuda(queue_.cu(),
                         fmt::format("giving {} {} bytes of block storage", entry.name, entry.shared_bytes),
                         queue_.cu().cuFuncSetAttribute(entry.function, cuda::kMaxDynamicSharedBytes,
                                                        static_cast<int>(entry.shared_bytes))));
    }
    (launch.packs ? pack_ : entries_).push_back(std::move(entry));
  }
  return {};
}

Result<CudaMemory> CudaKernel::Allocate(size_t bytes) {
  CudaMemory memory = HONE_TRY(queue_.Allocate(bytes + 2 * plan_->guard_bytes()));
  if (plan_->guards == Guards::kNone) return memory;
  for (const size_t at : {size_t{0}, kDeviceGuardBytes + bytes})
    HONE_TRY(CheckCuda(queue_.cu(), "filling memory",
                       queue_.cu().cuMemsetD8Async(memory.address() + at, static_cast<unsigned char>(kDeviceGuardByte),
                                                   kDeviceGuardBytes, queue_.stream())));
  return memory;
}

Result<void> CudaKernel::Place(size_t buffer, const DeviceMemory& memory, size_t offset) {
  if (offset % kCudaAlignment != 0)
    return Error{ErrorKind::kUnsupported, fmt::format("a buffer at offset {}", offset), ""};
  memory_[buffer] = nullptr;
  addresses_[buffer] = CudaMemoryOf(memory).address() + offset;
  return {};
}

Result<void> CudaKernel::PlaceBorrowed(size_t buffer, const BorrowedBuffer& memory) {
  memory_[buffer] = nullptr;
  addresses_[buffer] = memory.handle;
  return {};
}

Result<void> CudaKernel::Enqueue() {
  const CudaQueue::Inside inside = HONE_TRY(queue_.Enter());
  return EnqueueAll(entries_, queue_.stream());
}

Result<std::unique_ptr<EnqueuedWork>> CudaKernel::EnqueueOn(const BorrowedQueue& to, EnqueuedWork* after) {
  const CudaQueue::Inside inside = HONE_TRY(queue_.Enter());
  const Driver& cu = queue_.cu();
  auto* stream = static_cast<cuda::Stream>(to.queue);
  if (after != nullptr)
    HONE_TRY(CheckCuda(cu, "waiting for another call",
                       cu.cuStreamWaitEvent(stream, static_cast<CudaWork*>(after)->event(), 0)));
  Result<void> enqueued = EnqueueAll(entries_, stream);
  Result<std::unique_ptr<CudaWork>> work = Error{};
  if (enqueued) work = CudaWork::Mark(queue_, stream);
  if (!enqueued || !work) cu.cuStreamSynchronize(stream);  // what is enqueued by now is nobody's
  if (!enqueued) return std::move(enqueued).error();
  return std::unique_ptr<EnqueuedWork>(HONE_TRY(std::move(work)));
}

Result<void> CudaKernel::Write(size_t buffer, std::span<const std::byte> data) {
  const CudaQueue::Inside inside = HONE_TRY(queue_.Enter());
  return queue_.Write(addresses_[buffer], data);
}

Result<void> CudaKernel::Read(size_t buffer, std::span<std::byte> data) {
  const CudaQueue::Inside inside = HONE_TRY(queue_.Enter());
  return queue_.Read(addresses_[buffer], data);
}

Result<std::optional<size_t>> CudaKernel::FindOverrun() {
  const CudaQueue::Inside inside = HONE_TRY(queue_.Enter());
  std::vector<std::byte> guard(kDeviceGuardBytes);
  for (size_t i = 0; i < memory_.size() && plan_->guards == Guards::kBothSides; ++i) {
    if (memory_[i] == nullptr) continue;
    for (const size_t at : {size_t{0}, memory_[i]->bytes() - kDeviceGuardBytes}) {
      HONE_TRY(queue_.Read(memory_[i]->address() + at, guard));
      if (std::ranges::any_of(guard, [](std::byte b) { return b != kDeviceGuardByte; })) return std::optional(i);
    }
  }
  return std::optional<size_t>();
}

Result<void> CudaKernel::EnqueueAll(const std::vector<Entry>& entries, cuda::Stream stream) {
  for (const Entry& entry : entries) {
    std::vector<void*> arguments;
    for (int32_t buffer : entry.buffers) arguments.push_back(&addresses_[static_cast<size_t>(buffer)]);
    HONE_TRY(CheckCuda(queue_.cu(), "launching " + entry.name,
                       queue_.cu().cuLaunchKernel(entry.function, entry.grid[0], entry.grid[1], entry.grid[2],
                                                  entry.block[0], entry.block[1], entry.block[2], entry.shared_bytes,
                                                  stream, arguments.data(), nullptr)));
  }
  return {};
}

Result<int64_t> CudaKernel::Run(const std::vector<Entry>& entries, int calls) {
  if (entries.empty()) return 0;
  const CudaQueue::Inside inside = HONE_TRY(queue_.Enter());
  return queue_.Time([&]() -> Result<void> {
    for (int call = 0; call < calls; ++call) HONE_TRY(EnqueueAll(entries, queue_.stream()));
    return {};
  });
}

}  // namespace hone
