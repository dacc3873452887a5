// Calling generated code: arguments checked, a workspace found, the entry called.
#include "client/api/kernel_version.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "client/api/reader_gate.h"

namespace hone {
namespace {

int Status(ErrorKind kind, int index) { return static_cast<int>(kind) | (index + 1) << 8; }

// Of what hone_entry returned.
int StatusOf(int returned) {
  if (returned == 0) return 0;
  return Status(returned == HONE_SIZE_OUT_OF_RANGE ? ErrorKind::kInvalid : ErrorKind::kRunFailed, -1);
}

int Alone(void*, int64_t n, int64_t, ThreadPool::Body body, void* ctx) {
  if (n > 0) body(0, n, 0, ctx);
  return 0;
}

Error CannotBind(int operand, std::string why) {
  return {ErrorKind::kInvalid, std::move(why), "operand " + std::to_string(operand)};
}

// Sizes that can be computed with: whatever the manifest says, no product below overflows.
Result<void> CheckManifest(const Manifest& manifest) {
  auto corrupt = [](std::string what) { return Error{ErrorKind::kCorrupt, std::move(what), "manifest"}; };
  if (manifest.operands.size() > KernelVersion::kMaxOperands) {
    return Error{
        ErrorKind::kUnsupported,
        std::to_string(manifest.operands.size()) + " operands; at most " + std::to_string(KernelVersion::kMaxOperands),
        "kernel"};
  }
  constexpr int64_t kMost = int64_t{1} << 40;
  if (manifest.workspace_common < 0 || manifest.workspace_common > kMost || manifest.workspace_per_worker < 0 ||
      manifest.workspace_per_worker > kMost) {
    return corrupt("an impossible workspace");
  }
  for (const ManifestOperand& operand : manifest.operands) {
    int64_t bytes = ByteSize(operand.dtype);
    if (operand.packed_bytes < 0 || operand.packed_bytes > kMost || operand.alignment < 1 ||
        (operand.alignment & (operand.alignment - 1)) != 0) {
      return corrupt("operand " + operand.name + ": an impossible size or alignment");
    }
    for (const ManifestDim& dim : operand.shape) {
      if (dim.lo < 0 || dim.hi < dim.lo || __builtin_mul_overflow(bytes, dim.hi, &bytes) || bytes > kMost ||
          dim.size_index < -1 || dim.size_index >= static_cast<int>(manifest.dynamic_sizes.size())) {
        return corrupt("operand " + operand.name + ": an impossible shape");
      }
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<KernelVersion>> KernelVersion::Create(std::shared_ptr<const LoadedArtifact> code,
                                                             ServedFacts facts, Workers workers,
                                                             std::shared_ptr<PackedConstants> packed) {
  HONE_TRY(CheckManifest(code->manifest()));
  if (!packed) packed = std::make_shared<PackedConstants>();
  return std::unique_ptr<KernelVersion>(
      new KernelVersion(std::move(code), std::move(facts), std::move(workers), std::move(packed)));
}

KernelVersion::KernelVersion(std::shared_ptr<const LoadedArtifact> code, ServedFacts facts, Workers workers,
                             std::shared_ptr<PackedConstants> packed)
    : code_(std::move(code)),
      facts_(std::move(facts)),
      workers_(std::move(workers)),
      packed_(std::move(packed)),
      entry_(code_->entry()) {
  const Manifest& manifest = code_->manifest();
  view_ = {workers_.pool.get(), workers_.count};
  env_.struct_size = sizeof env_;
  env_.abi_version = HONE_ABI_VERSION;
  env_.workers = std::max(1, workers_.count);
  env_.pool = workers_.pool ? &view_ : workers_.application_pool;
  env_.parallel_for = workers_.pool ? PoolView::ParallelFor : workers_.parallel_for;
  workspace_bytes_ = manifest.workspace_common + env_.workers * manifest.workspace_per_worker;
  operand_count_ = static_cast<int>(manifest.operands.size());
  is_static_ = manifest.dynamic_sizes.empty();
  if (!code_->fixed_sizes().empty()) fixed_sizes_ = code_->fixed_sizes().data();
  for (int i = 0; i < operand_count_; ++i) {
    const ManifestOperand& from = manifest.operands[i];
    Operand operand;
    operand.bytes = ByteSize(from.dtype);
    for (const ManifestDim& dim : from.shape) {
      operand.bytes *= dim.hi;
      operand.is_dynamic |= dim.size_index >= 0;
    }
    operand.misaligned = static_cast<uint64_t>(std::max<int64_t>(1, from.alignment)) - 1;
    operand.is_output = from.is_output;
    operand.must_bind = from.packed_bytes > 0;
    if (operand.is_output) outputs_.push_back(i);
    operands_.push_back(std::move(operand));
  }
}

KernelVersion::~KernelVersion() {
  for (auto& slot : workspaces_) delete slot.load(std::memory_order_relaxed);
}

Result<KernelVersion::Operand*> KernelVersion::Bindable(int operand) {
  if (operand < 0 || operand >= operand_count_) {
    return CannotBind(operand, "there is no such operand; the kernel has " + std::to_string(operand_count_));
  }
  const ManifestOperand& facts = manifest().operands[operand];
  const auto known = static_cast<size_t>(operand_count_);
  const std::string& name =
      facts_.operands.size() == known ? facts_.operands[static_cast<size_t>(operand)] : facts.name;
  if (facts.is_output) return CannotBind(operand, name + " is an output; give it to each call");
  if (!facts.is_const)
    return CannotBind(operand, name + " is not constant; ask for the kernel with const=1 to bind it");
  return &operands_[operand];
}

Result<void> KernelVersion::CheckAlignment(int operand, const void* data) const {
  const uint64_t misaligned = operands_[operand].misaligned;
  if ((reinterpret_cast<uintptr_t>(data) & misaligned) == 0) return {};
  return CannotBind(operand, "the data must be aligned to " + std::to_string(misaligned + 1) + " bytes");
}

Result<void> KernelVersion::Bind(int operand, const void* data, Packing packing) {
  Operand& target = *HONE_TRY(Bindable(operand));
  if (data == nullptr) return CannotBind(operand, "no data");
  HONE_TRY(CheckAlignment(operand, data));
  if (target.must_bind) {
    // Who binds the same memory again has changed it.
    target.packed = HONE_TRY(packed_->Take(data, manifest().operands[operand], target.data == data,
                                           [&] { return Pack(operand, data, packing); }));
  }
  target.data = data;
  target.bound = target.must_bind ? target.packed.get() : data;
  target.source = nullptr;
  target.elements = nullptr;
  return {};
}

Result<void> KernelVersion::Bind(int operand, std::shared_ptr<const ConstantSource> source, Packing packing) {
  Operand& target = *HONE_TRY(Bindable(operand));
  auto read = [&]() -> Result<std::shared_ptr<const void>> {
    std::shared_ptr<const void> elements = HONE_TRY(source->Read());
    HONE_TRY(CheckAlignment(operand, elements.get()));
    return elements;
  };
  if (target.must_bind) {
    // By the source's address, which is its own as long as a version that has the copy keeps it.
    target.packed = HONE_TRY(
        packed_->Take(source.get(), manifest().operands[operand], false, [&]() -> Result<PackedConstants::Copy> {
          const std::shared_ptr<const void> elements = HONE_TRY(read());
          return Pack(operand, elements.get(), packing);
        }));
    target.bound = target.packed.get();
    target.elements = nullptr;
  } else {
    target.elements = HONE_TRY(read());
    target.bound = target.elements.get();
  }
  target.data = nullptr;
  target.source = std::move(source);
  return {};
}

Result<PackedConstants::Copy> KernelVersion::Pack(int operand, const void* data, Packing packing) const {
  const ManifestOperand& facts = manifest().operands[operand];
  std::shared_ptr<void> packed = packed_->Allocate(facts.packed_bytes);
  AlignedBytes workspace = AllocateAligned(std::max<int64_t>(workspace_bytes_, 64));
  if (!packed || !workspace) {
    return Error{ErrorKind::kLimit, "no memory for " + std::to_string(facts.packed_bytes) + " packed bytes",
                 facts.name};
  }
  hone_env env = env_;
  env.workspace = workspace.get();
  if (packing == Packing::kAlone) env.parallel_for = Alone;
  if (int status = code_->pack()(&env, operand, data, packed.get()); status != 0) {
    return Error{ErrorKind::kRunFailed, "packing failed with " + std::to_string(status), facts.name};
  }
  return packed;
}

int KernelVersion::Call(void* const* buffers, const int64_t* sizes) noexcept {
  void* arguments[kMaxOperands];
  if (buffers == nullptr) return Status(ErrorKind::kInvalid, -1);
  for (int i = 0; i < operand_count_; ++i) {
    const Operand& operand = operands_[i];
    void* argument = operand.bound != nullptr ? const_cast<void*>(operand.bound) : buffers[i];
    if (argument == nullptr || (reinterpret_cast<uintptr_t>(argument) & operand.misaligned) ||
        (operand.must_bind && operand.bound == nullptr)) {
      return Status(ErrorKind::kInvalid, i);
    }
    arguments[i] = argument;
  }
  if (!is_static_) {
    const std::vector<ManifestOperand>& facts = manifest().operands;
    if (sizes == nullptr) return Status(ErrorKind::kInvalid, -1);
    for (int i = 0; i < operand_count_; ++i) {
      for (const ManifestDim& dim : facts[i].shape) {
        if (dim.size_index >= 0 && (sizes[dim.size_index] < dim.lo || sizes[dim.size_index] > dim.hi)) {
          return Status(ErrorKind::kInvalid, i);
        }
      }
    }
  }
  if (int output = FindOverlap(arguments, sizes); output >= 0) return Status(ErrorKind::kInvalid, output);
  if (fixed_sizes_ != nullptr) sizes = fixed_sizes_;
  hone_env env = env_;
  if (workspace_bytes_ == 0) return StatusOf(entry_(&env, arguments, sizes));
  Workspace* workspace = TakeWorkspace();
  if (workspace == nullptr) {  // more threads call at once than there are slots: memory for this call alone
    AlignedBytes memory = AllocateAligned(workspace_bytes_);
    if (!memory) return Status(ErrorKind::kLimit, -1);
    env.workspace = memory.get();
    return StatusOf(entry_(&env, arguments, sizes));
  }
  env.workspace = workspace->memory.get();
  int status = env.workspace == nullptr ? Status(ErrorKind::kLimit, -1) : StatusOf(entry_(&env, arguments, sizes));
  workspace->busy.store(false, std::memory_order_release);
  return status;
}

void KernelVersion::WarmLike(const KernelVersion& other) {
  if (workspace_bytes_ == 0) return;
  for (size_t i = 0; i < kWorkspaces; ++i) {
    if (other.workspaces_[i].load(std::memory_order_relaxed) == nullptr) continue;
    auto* fresh = new (std::nothrow) Workspace;
    if (fresh == nullptr) return;
    fresh->memory = AllocateAligned(workspace_bytes_);
    if (!fresh->memory) {
      delete fresh;
      return;
    }
    std::memset(fresh->memory.get(), 0, static_cast<size_t>(workspace_bytes_));
    delete workspaces_[i].exchange(fresh, std::memory_order_acq_rel);
  }
}

int64_t KernelVersion::BytesNow(int operand, const int64_t* sizes) const {
  if (!operands_[operand].is_dynamic) return operands_[operand].bytes;
  const ManifestOperand& facts = manifest().operands[operand];
  int64_t bytes = ByteSize(facts.dtype);
  for (const ManifestDim& dim : facts.shape) bytes *= dim.size_index >= 0 ? sizes[dim.size_index] : dim.lo;
  return bytes;
}

// The first output that shares a byte with another operand, or with what one was packed from; -1 if none does.
int KernelVersion::FindOverlap(void* const* arguments, const int64_t* sizes) const {
  for (int output : outputs_) {
    auto begin = reinterpret_cast<uintptr_t>(arguments[output]);
    uintptr_t end = begin + static_cast<uintptr_t>(BytesNow(output, sizes));
    for (int other = 0; other < operand_count_; ++other) {
      const void* memory = operands_[other].packed ? operands_[other].data : arguments[other];
      if (other == output || memory == nullptr) continue;
      auto from = reinterpret_cast<uintptr_t>(memory);
      if (from < end && begin < from + static_cast<uintptr_t>(BytesNow(other, sizes))) return output;
    }
  }
  return -1;
}

KernelVersion::Workspace* KernelVersion::TakeWorkspace() {
  size_t hint = ThreadNumber();  // its last one is in its caches
  for (size_t i = 0; i < kWorkspaces; ++i) {
    std::atomic<Workspace*>& slot = workspaces_[(hint + i) % kWorkspaces];
    Workspace* workspace = slot.load(std::memory_order_acquire);
    if (workspace == nullptr) {
      auto* fresh = new (std::nothrow) Workspace;
      if (fresh == nullptr) return nullptr;
      fresh->busy.store(true, std::memory_order_relaxed);
      fresh->memory = AllocateAligned(workspace_bytes_);
      if (!fresh->memory) {
        delete fresh;
        return nullptr;
      }
      if (slot.compare_exchange_strong(workspace, fresh, std::memory_order_acq_rel)) return fresh;
      delete fresh;  // another thread was faster: look at its workspace
    }
    if (!workspace->busy.load(std::memory_order_relaxed) &&
        !workspace->busy.exchange(true, std::memory_order_acquire)) {
      return workspace;
    }
  }
  return nullptr;
}

}  // namespace hone
