// A device's kernel that an application holds and enqueues on queues of its own. Better versions replace the one that
// is enqueued; a replaced one is released when the work that uses it has ended.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "client/api/updatable.h"
#include "client/device/device_version.h"

namespace hone {

// Enqueue and Call may come from any number of threads at once, and Bind from one, while nothing else does; the
// destructor waits for what was enqueued.
class DeviceHandle : public Updatable {
 public:
  // kBuildFailed, kLimit (no memory), kUnsupported (another device's code).
  static Result<std::unique_ptr<DeviceHandle>> Create(std::shared_ptr<SharedDevice> device,
                                                      std::unique_ptr<DeviceCode> code, ServedFacts facts);
  ~DeviceHandle() override;

  // The buffer must stay as it is for as long as the handle: another version may want it in another layout. kInvalid:
  // no constant, or a buffer that it cannot be; kRunFailed: nothing is bound there then. Waits for what was enqueued,
  // and while constants are packed for a new version.
  Result<void> Bind(int32_t operand, const BorrowedBuffer& data);
  // `buffers`: one per operand; not read where one is bound. kInvalid: which one, and why; nothing was enqueued then.
  // kLimit, kRunFailed: of the driver.
  Result<void> Enqueue(const BorrowedBuffer* buffers, const BorrowedQueue& queue);
  // The same on the host's memory, by a queue of the context's own; waits for the end.
  Result<void> Call(void* const* host);

  const Manifest& manifest() const { return manifest_; }
  bool NeedsBind(size_t operand) const;  // now
  uint64_t swaps() const { return swaps_.load(std::memory_order_relaxed); }

  Open opener() const override { return OpenCode; }
  ServedFacts facts() const override;
  uint64_t calls() const override { return calls_.load(std::memory_order_relaxed); }
  Result<std::unique_ptr<Version>> PrepareCode(std::unique_ptr<Code> code, ServedFacts facts) override;
  void PublishVersion(std::unique_ptr<Version> version) override;
  bool Reclaim() override;
  bool HasRoom() const override { return retired_.size() < kMostRetired; }
  bool HasRetired() const override { return !retired_.empty(); }
  Result<SealedMemfd> CopyArtifact() const override;

 private:
  static constexpr size_t kMostRetired = 2;

  DeviceHandle(std::shared_ptr<SharedDevice> device, std::unique_ptr<DeviceVersion> version);
  static Result<std::unique_ptr<Code>> OpenCode(SealedMemfd file, const GetReply& reply, std::string_view canonical);
  Error InOperand(Error error, size_t operand) const;
  Result<void> BindNow(size_t operand, const BorrowedBuffer& data, const MemoryRange& range);
  Result<void> CheckBuffers(const BorrowedBuffer* buffers) const HONE_REQUIRES(mutex_);
  Result<void> CheckBound(size_t operand) const HONE_REQUIRES(mutex_);

  const std::shared_ptr<SharedDevice> device_;
  const Manifest manifest_;
  const std::vector<std::string> names_;  // of operands, as the application calls them
  std::vector<uint64_t> bytes_;
  std::vector<BorrowedBuffer> bound_;  // of handle 0: not
  std::vector<MemoryRange> ranges_;    // of what is bound
  bool needs_data_ = false;            // a version was turned down for want of it
  mutable Mutex mutex_;
  std::unique_ptr<DeviceVersion> current_ HONE_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<DeviceVersion>> retired_;  // of the thread that publishes
  std::atomic<uint64_t> calls_{0}, swaps_{0};
};

}  // namespace hone
