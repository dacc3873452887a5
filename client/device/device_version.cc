#include "client/device/device_version.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "ir/graph/dtype_traits.h"
#include "ir/target.h"

namespace hone {

// Scratch, arguments, and who uses them.
struct DeviceVersion::Slot {
  std::unique_ptr<BorrowedKernel> kernel;
  std::shared_ptr<EnqueuedWork> last;
  void* queue = nullptr;  // of `last`
  bool is_reserved = false;
  std::vector<std::unique_ptr<DeviceMemory>> own;  // for calls with the host's memory, by buffer

  bool IsFree() {
    if (last && last->HasEnded()) last.reset();
    return !is_reserved && !last;
  }
};

Result<std::unique_ptr<DeviceVersion>> DeviceVersion::Create(std::shared_ptr<SharedDevice> device,
                                                             const DeviceCode& code, ServedFacts facts) {
  const Result<Target> target = ParseTarget(code.artifact.manifest.target);
  if (!target || target->device() == nullptr || *target->device() != device->context->target())
    return Error{ErrorKind::kUnsupported,
                 "the code is for another device: " + code.artifact.manifest.target + "; this one is " +
                     PrintTarget(device->context->target()),
                 "artifact"};
  std::unique_ptr<DeviceVersion> version(new DeviceVersion(std::move(device), code, std::move(facts)));
  auto slot = std::make_unique<Slot>();
  slot->kernel = HONE_TRY(version->device_->context->LoadBorrowed(code.artifact));
  version->slots_.push_back(std::move(slot));
  HONE_TRY(version->Warm());
  return version;
}

Result<void> DeviceVersion::Warm() {
  size_t read = 0, written = 0;
  for (const DeviceBuffer& buffer : buffers_)
    if (size_t& most = buffer.is_written ? written : read; buffer.operand >= 0)
      most = std::max(most, static_cast<size_t>(buffer.bytes));
  if (read + written > kMostToWarm) return {};
  MutexLock lock(device_->own_queue);
  BorrowedContext& context = *device_->context;
  // Zeros are good indices, too.
  const std::vector<std::byte> zeros(std::max(read, written));
  const auto allocate = [&](size_t bytes) -> Result<std::unique_ptr<DeviceMemory>> {
    std::unique_ptr<DeviceMemory> memory = HONE_TRY(context.Allocate(std::max<size_t>(bytes, 1)));
    if (bytes > 0) HONE_TRY(context.Write(*memory, 0, std::span(zeros).first(bytes)));
    return memory;
  };
  const Result<std::unique_ptr<DeviceMemory>> inputs = allocate(read), outputs = allocate(written);
  if (!inputs || !outputs) return {};  // the first call may still find the memory that it wants
  BorrowedKernel& kernel = *slots_.front()->kernel;
  for (size_t i = 0; i < buffers_.size(); ++i)
    if (buffers_[i].operand >= 0) HONE_TRY(kernel.Place(i, buffers_[i].is_written ? **outputs : **inputs, 0));
  if (std::ranges::any_of(packs_, std::identity())) HONE_TRY(kernel.Pack());
  HONE_TRY(kernel.Enqueue());
  return context.Finish();
}

DeviceVersion::DeviceVersion(std::shared_ptr<SharedDevice> device, const DeviceCode& code, ServedFacts facts)
    : device_(std::move(device)),
      manifest_(code.artifact.manifest),
      facts_(std::move(facts)),
      buffers_(code.artifact.buffers),
      packs_(manifest_.operands.size()),
      bound_(manifest_.operands.size()) {
  for (const DeviceLaunch& launch : code.artifact.launches)
    for (const int32_t buffer : launch.buffers)
      if (const int32_t operand = buffers_[static_cast<size_t>(buffer)].operand; launch.packs && operand >= 0)
        packs_[static_cast<size_t>(operand)] = true;
  const std::vector<bool> is_packed = PackedBuffers(buffers_, code.artifact.launches);
  for (size_t i = 0; i < buffers_.size(); ++i) has_scratch_ |= buffers_[i].operand < 0 && !is_packed[i];
}

DeviceVersion::~DeviceVersion() { Wait(); }

Result<void> DeviceVersion::Bind(size_t operand, const BorrowedBuffer& data) {
  Wait();
  bound_[operand] = data;
  Result<void> placed = PlaceAndPack(operand);
  if (!placed) bound_[operand].reset();
  return placed;
}

Result<void> DeviceVersion::PlaceAndPack(size_t operand) {
  for (const std::unique_ptr<Slot>& slot : slots_) HONE_TRY(PlaceBound(*slot->kernel));
  if (!packs_[operand]) return {};
  for (size_t i = 0; i < packs_.size(); ++i)
    if (packs_[i] && !bound_[i]) return {};
  MutexLock lock(device_->own_queue);
  HONE_TRY(slots_.front()->kernel->Pack());
  return {};
}

Result<void> DeviceVersion::PlaceBound(BorrowedKernel& kernel) const {
  for (size_t i = 0; i < buffers_.size(); ++i)
    if (const int32_t operand = buffers_[i].operand; operand >= 0 && bound_[static_cast<size_t>(operand)])
      HONE_TRY(kernel.PlaceBorrowed(i, *bound_[static_cast<size_t>(operand)]));
  return {};
}

Result<void> DeviceVersion::Enqueue(std::span<const BorrowedBuffer> buffers, const BorrowedQueue& queue) {
  ForgetEnded();
  Slot& slot = *HONE_TRY(SlotFor(queue.queue));
  for (size_t i = 0; i < buffers_.size(); ++i)
    if (const int32_t operand = buffers_[i].operand; operand >= 0 && !bound_[static_cast<size_t>(operand)])
      HONE_TRY(slot.kernel->PlaceBorrowed(i, buffers[static_cast<size_t>(operand)]));
  const bool is_exclusive = has_scratch_ || !device_->context->CanOrder();
  std::shared_ptr<EnqueuedWork> work =
      HONE_TRY(slot.kernel->EnqueueOn(queue, is_exclusive ? slot.last.get() : nullptr));
  slot.last = work;
  slot.queue = queue.queue;
  under_way_.push_back(std::move(work));
  return {};
}

// Calls without scratch need no place of their own, where drivers take arguments as they are when work is enqueued.
Result<DeviceVersion::Slot*> DeviceVersion::SlotFor(void* queue) {
  const bool can_order = device_->context->CanOrder();
  if (can_order && !has_scratch_)
    for (const std::unique_ptr<Slot>& slot : slots_)
      if (!slot->is_reserved) return slot.get();
  for (const std::unique_ptr<Slot>& slot : slots_)
    if (slot->IsFree()) return slot.get();
  if (can_order) {
    for (const std::unique_ptr<Slot>& slot : slots_)
      if (!slot->is_reserved && slot->queue == queue) return slot.get();
    if (slots_.size() >= kMostOrdered)
      for (size_t tried = 0; tried < slots_.size(); ++tried)
        if (Slot& slot = *slots_[next_slot_++ % slots_.size()]; !slot.is_reserved) return &slot;
  }
  return AddSlot();
}

Result<DeviceVersion::Slot*> DeviceVersion::AddSlot() {
  auto slot = std::make_unique<Slot>();
  slot->kernel = HONE_TRY(slots_.front()->kernel->Another());
  HONE_TRY(PlaceBound(*slot->kernel));
  slots_.push_back(std::move(slot));
  return slots_.back().get();
}

Result<DeviceVersion::Slot*> DeviceVersion::TakeOwn() {
  const auto found = std::ranges::find_if(slots_, [](const auto& slot) { return slot->IsFree(); });
  Slot* slot = found != slots_.end() ? found->get() : HONE_TRY(AddSlot());
  slot->is_reserved = true;
  return slot;
}

void DeviceVersion::GiveBackOwn(Slot& slot) { slot.is_reserved = false; }

Result<void> DeviceVersion::RunOwn(Slot& slot, void* const* host) {
  MutexLock lock(device_->own_queue);
  BorrowedContext& context = *device_->context;
  slot.own.resize(buffers_.size());
  const auto bytes_of = [&](size_t i) {
    return std::span(static_cast<std::byte*>(host[buffers_[i].operand]), static_cast<size_t>(buffers_[i].bytes));
  };
  const auto is_given = [&](size_t i) {
    return buffers_[i].operand >= 0 && !bound_[static_cast<size_t>(buffers_[i].operand)];
  };
  for (size_t i = 0; i < buffers_.size(); ++i) {
    if (!is_given(i)) continue;
    if (!slot.own[i]) slot.own[i] = HONE_TRY(context.Allocate(static_cast<size_t>(buffers_[i].bytes)));
    HONE_TRY(slot.kernel->Place(i, *slot.own[i], 0));
    if (!buffers_[i].is_written) HONE_TRY(context.Write(*slot.own[i], 0, bytes_of(i)));
  }
  HONE_TRY(slot.kernel->Enqueue());
  HONE_TRY(context.Finish());
  for (size_t i = 0; i < buffers_.size(); ++i)
    if (is_given(i) && buffers_[i].is_written) HONE_TRY(context.Read(*slot.own[i], 0, bytes_of(i)));
  return {};
}

void DeviceVersion::ForgetEnded() {
  auto ended = under_way_.begin();
  while (ended != under_way_.end() && (*ended)->HasEnded()) ++ended;
  under_way_.erase(under_way_.begin(), ended);
}

bool DeviceVersion::IsIdle() {
  ForgetEnded();
  return under_way_.empty() && std::ranges::none_of(slots_, [](const auto& slot) { return slot->is_reserved; });
}

void DeviceVersion::Wait() {
  for (const std::shared_ptr<EnqueuedWork>& work : under_way_) work->Wait();
  under_way_.clear();
}

}  // namespace hone
