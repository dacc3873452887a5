// A kernel that an application holds, callable in well under 100 ns. Better versions replace the one that is called
// while calls run: readers are wait-free, and a replaced version is released when no call is inside it any more.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "client/api/kernel_version.h"
#include "client/api/reader_gate.h"
#include "client/api/updatable.h"

namespace hone {

// Calls may come from any number of threads at once; Bind and the destructor from one, while none is calling.
class KernelHandle : public Updatable {
 public:
  static constexpr int kMaxOperands = KernelVersion::kMaxOperands;

  // kFrozen: this code as long as it is held, and calls that need not say that they are inside.
  enum class Change : uint8_t { kFrozen, kLive };

  // kUnsupported: more operands than a call can carry; kCorrupt: a manifest that cannot be.
  static Result<std::unique_ptr<KernelHandle>> Create(std::shared_ptr<const LoadedArtifact> code, ServedFacts facts,
                                                      Workers workers, Change change = Change::kFrozen,
                                                      std::shared_ptr<PackedConstants> packed = {});
  ~KernelHandle() override;

  // `data` must stay alive and unchanged as long as the handle: another version may want it in another layout.
  // kInvalid, kLimit (no memory), kRunFailed. Waits while constants are packed for a new version.
  Result<void> Bind(int operand, const void* data);
  // The same of elements that are read when a version packs them. What cannot be read again for another version keeps
  // the one that there is.
  Result<void> Bind(int operand, std::shared_ptr<const ConstantSource> source);

  // What hone_call returns: 0, or an ErrorKind, with the operand's (or size's) index + 1 in bits 8 and up.
  int Call(void* const* buffers, const int64_t* sizes) noexcept {
    if (gate_ == nullptr) return current_.load(std::memory_order_relaxed)->Call(buffers, sizes);
    ReaderGate::Entry inside(*gate_);
    return current_.load(std::memory_order_seq_cst)->Call(buffers, sizes);
  }

  // What hone_shape returns; `shape` has room for the operand's dimensions.
  int ShapeOf(int operand, const int64_t* sizes, int64_t* shape) const noexcept;

  bool is_live() const { return gate_ != nullptr; }
  // What every version has in common: operands, sizes, threads.
  const Manifest& manifest() const { return manifest_; }
  int workers() const { return workers_.count; }
  int64_t BytesOf(int operand) const { return bytes_[operand]; }  // all of it, or the most there may be

  // Of the version that is called now. From any thread.
  ServedFacts facts() const override;
  // Versions that replaced another.
  uint64_t swaps() const { return swaps_.load(std::memory_order_relaxed); }
  // REQUIRES: no version is replaced meanwhile.
  const SealedMemfd& artifact() const { return current_.load(std::memory_order_relaxed)->artifact(); }

  // The other side of a live handle: one thread at a time, and not while Bind runs (Updates sees to both).

  // Another version, with what is bound packed for it by the calling thread. kUnsupported: it is to be called otherwise
  // than the held one, or packs a constant that calls bring with them; Bind has it asked for again.
  Result<std::unique_ptr<KernelVersion>> Prepare(std::shared_ptr<const LoadedArtifact> code, ServedFacts facts);
  // Has calls go there from now on. REQUIRES: HasRoom().
  void Publish(std::unique_ptr<KernelVersion> version);
  // Releases replaced versions that no call is inside; true if none is left.
  bool Reclaim() override;
  bool HasRoom() const override { return leaving_.size() + retired_.size() < kMostRetired; }
  bool HasRetired() const override { return !leaving_.empty() || !retired_.empty(); }
  uint64_t calls() const override { return gate_->entries(); }

  static Result<std::unique_ptr<Code>> OpenCode(SealedMemfd file, const GetReply& reply, std::string_view canonical);
  Open opener() const override { return OpenCode; }
  Result<std::unique_ptr<Version>> PrepareCode(std::unique_ptr<Code> code, ServedFacts facts) override;
  void PublishVersion(std::unique_ptr<Version> version) override;
  Result<SealedMemfd> CopyArtifact() const override { return artifact().Duplicate(); }

 private:
  KernelHandle(std::unique_ptr<KernelVersion> version, Workers workers, Change change,
               std::shared_ptr<PackedConstants> packed);
  struct Bound {
    const void* data = nullptr;
    std::shared_ptr<const ConstantSource> source = {};  // in place of `data`

    Result<void> To(KernelVersion& version, int operand, KernelVersion::Packing packing) const;
    bool is_there() const { return data != nullptr || source != nullptr; }
  };
  Result<void> BindOne(int operand, Bound bound);
  Result<void> BindNow(int operand, Bound bound);

  const Workers workers_;
  const std::shared_ptr<PackedConstants> packed_;  // where versions share what is bound
  const Manifest manifest_;
  std::vector<int64_t> bytes_;
  std::vector<Bound> bound_;                // the application's data, per operand
  bool needs_data_ = false;                 // a version was turned down for want of it
  const std::unique_ptr<ReaderGate> gate_;  // nullptr: frozen
  std::atomic<KernelVersion*> current_;     // owned
  std::atomic<uint64_t> swaps_{0};

  // Replaced versions: those whose last calls are awaited now, and those that came later.
  static constexpr size_t kMostRetired = 2;
  std::vector<std::unique_ptr<KernelVersion>> leaving_, retired_;
};

}  // namespace hone
