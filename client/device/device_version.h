// One version of a device's kernel in an application's context: its program there, constants packed for it, scratch for
// calls that are under way at the same time. The versions come and go behind a handle (device_handle.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backends/drivers/borrowed_context.h"
#include "base/mutex.h"
#include "base/result.h"
#include "client/api/updatable.h"
#include "ir/device_artifact.h"

namespace hone {

// An application's context, shared by what is loaded there.
struct SharedDevice {
  std::unique_ptr<BorrowedContext> context;
  Mutex own_queue;  // held for what goes by the context's own queue
};

// Opened and checked, not yet in a context.
struct DeviceCode : Updatable::Code {
  explicit DeviceCode(DeviceArtifact opened) : artifact(std::move(opened)) {}
  DeviceArtifact artifact;
};

// One thread at a time, but for RunOwn.
class DeviceVersion : public Updatable::Version {
 public:
  // Compiles, and calls it once on zeros, since drivers compile or load some of it only then: not at the application's
  // first call. kBuildFailed, kLimit (no memory), kUnsupported (another device's code), kRunFailed.
  static Result<std::unique_ptr<DeviceVersion>> Create(std::shared_ptr<SharedDevice> device, const DeviceCode& code,
                                                       ServedFacts facts);
  ~DeviceVersion() override;  // waits

  const ServedFacts& facts() const { return facts_; }
  const Manifest& manifest() const { return manifest_; }
  // Whether calls read what the launches that pack made of an operand, in place of it.
  bool Packs(size_t operand) const { return packs_[operand]; }

  // The operand is there from now on; after an error it is not, whatever was bound before. Packs, when all that is
  // packed is bound, and waits for that.
  // REQUIRES: the context found the buffer good for it.
  Result<void> Bind(size_t operand, const BorrowedBuffer& data);
  // Whether it was.
  bool IsBound(size_t operand) const { return bound_[operand].has_value(); }

  // `buffers`: for each operand; not read where one is bound. REQUIRES: they and the queue are good, nothing is
  // missing.
  Result<void> Enqueue(std::span<const BorrowedBuffer> buffers, const BorrowedQueue& queue);

  // A place for one call by the context's own queue, which TakeOwn reserves and GiveBackOwn returns.
  struct Slot;
  Result<Slot*> TakeOwn();
  void GiveBackOwn(Slot& slot);
  // Copies `host` (for each operand; not read where one is bound) to the device, calls, and copies outputs back. Not
  // under the lock that the rest is under: for as long as the slot is taken.
  Result<void> RunOwn(Slot& slot, void* const* host);

  // Nothing that was enqueued or reserved is under way.
  bool IsIdle();
  // Until that is so, but for reserved slots.
  void Wait();

 private:
  static constexpr size_t kMostToWarm = size_t{256} << 20;  // bytes of operands
  static constexpr size_t kMostOrdered = 4;  // slots beyond: calls wait for each other, where they can be made to

  DeviceVersion(std::shared_ptr<SharedDevice> device, const DeviceCode& code, ServedFacts facts);
  Result<void> Warm();
  Result<Slot*> SlotFor(void* queue);
  Result<Slot*> AddSlot();
  Result<void> PlaceAndPack(size_t operand);
  Result<void> PlaceBound(BorrowedKernel& kernel) const;
  void ForgetEnded();

  const std::shared_ptr<SharedDevice> device_;
  const Manifest manifest_;
  const ServedFacts facts_;
  const std::vector<DeviceBuffer> buffers_;
  std::vector<bool> packs_;   // by operand
  bool has_scratch_ = false;  // that a call writes
  std::vector<std::optional<BorrowedBuffer>> bound_;
  std::vector<std::unique_ptr<Slot>> slots_;  // the first one packs
  size_t next_slot_ = 0;
  std::vector<std::shared_ptr<EnqueuedWork>> under_way_;  // the oldest first
};

}  // namespace hone
