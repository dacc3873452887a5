// One version of a kernel: code, constants packed for it, workspaces for its calls. An application holds a kernel; the
// versions come and go behind it (kernel_handle.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/aligned_bytes.h"
#include "base/generated_code.h"
#include "base/result.h"
#include "client/api/constant_source.h"
#include "client/api/loader.h"
#include "client/api/packed_constants.h"
#include "client/api/thread_pool.h"
#include "client/api/updatable.h"
#include "client/protocol/protocol.h"

namespace hone {

// Who runs parallel loops: the library's threads, or the application's.
struct Workers {
  std::shared_ptr<ThreadPool> pool;  // nullptr: the application's
  void* application_pool = nullptr;
  int (*parallel_for)(void* pool, int64_t n, int64_t grain, ThreadPool::Body body, void* ctx) = nullptr;
  int count = 1;
};

// Calls may come from any number of threads at once; the rest from one, Bind while none is calling.
class KernelVersion : public Updatable::Version {
 public:
  static constexpr int kMaxOperands = 64;

  // kUnsupported: more operands than a call can carry; kCorrupt: a manifest that cannot be.
  // `code` may be that of other versions, too. `packed`: where copies of constants are shared; nullptr: with no other
  // kernel.
  static Result<std::unique_ptr<KernelVersion>> Create(std::shared_ptr<const LoadedArtifact> code, ServedFacts facts,
                                                       Workers workers, std::shared_ptr<PackedConstants> packed = {});
  ~KernelVersion() override;

  // Who packs: the threads that calls run on, or the calling thread alone.
  enum class Packing : uint8_t { kShared, kAlone };
  // `data` must stay alive and unchanged as long as the version, or until it is bound again. kInvalid, kLimit (no
  // memory), kRunFailed.
  Result<void> Bind(int operand, const void* data, Packing packing = Packing::kShared);
  // The same of elements that are read now, and kept only if the kernel does not pack them. Errors of `source`, too.
  Result<void> Bind(int operand, std::shared_ptr<const ConstantSource> source, Packing packing = Packing::kShared);

  // What hone_call returns: 0, or an ErrorKind, with the operand's (or size's) index + 1 in bits 8 and up.
  int Call(void* const* buffers, const int64_t* sizes) noexcept;

  // Memory for as many calls at once as `other` has seen, so that the first ones need not fetch it from the system.
  void WarmLike(const KernelVersion& other);

  const Manifest& manifest() const { return code_->manifest(); }
  const ServedFacts& facts() const { return facts_; }
  int workers() const { return env_.workers; }
  const SealedMemfd& artifact() const { return code_->file(); }
  int64_t BytesOf(int operand) const { return operands_[operand].bytes; }
  bool Packs(int operand) const { return operands_[operand].must_bind; }

 private:
  // One call's memory. Calls that run at the same time have different ones.
  struct Workspace {
    std::atomic<bool> busy{false};
    AlignedBytes memory;
  };
  struct Operand {
    int64_t bytes = 0;        // most
    uint64_t misaligned = 0;  // address bits that must be 0
    bool is_output = false;
    bool is_dynamic = false;
    bool must_bind = false;
    const void* data = nullptr;   // as it was given
    const void* bound = nullptr;  // what generated code gets: the packed copy, or the data itself
    PackedConstants::Copy packed;
    std::shared_ptr<const ConstantSource> source;  // in place of `data`
    std::shared_ptr<const void> elements;          // of the source, where `bound` is them
  };

  KernelVersion(std::shared_ptr<const LoadedArtifact> code, ServedFacts facts, Workers workers,
                std::shared_ptr<PackedConstants> packed);
  Result<Operand*> Bindable(int operand);
  Result<void> CheckAlignment(int operand, const void* data) const;
  Result<PackedConstants::Copy> Pack(int operand, const void* data, Packing packing) const;
  int64_t BytesNow(int operand, const int64_t* sizes) const;
  int FindOverlap(void* const* arguments, const int64_t* sizes) const;
  Workspace* TakeWorkspace();

  const std::shared_ptr<const LoadedArtifact> code_;
  const ServedFacts facts_;
  const Workers workers_;
  const std::shared_ptr<PackedConstants> packed_;
  PoolView view_;
  hone_env env_{};  // what every call starts from
  hone_entry_fn entry_;
  int operand_count_ = 0;
  bool is_static_ = true;
  const int64_t* fixed_sizes_ = nullptr;  // for the entry: the code is for a range, the kernel has none
  int64_t workspace_bytes_ = 0;
  std::vector<Operand> operands_;
  std::vector<int> outputs_;
  static constexpr size_t kWorkspaces = 64;
  std::atomic<Workspace*> workspaces_[kWorkspaces] = {};
};

}  // namespace hone
