#include "client/api/kernel_handle.h"

#include <string>
#include <utility>

#include "base/check.h"
#include "client/api/updates.h"
#include "ir/language/canonical.h"

namespace hone {
namespace {

// Whether calls that are right for `held` are right for `fresh`: the same operands in the same order, the same sizes,
// nothing asked of buffers that was not asked before. Packed layouts and workspaces are a version's own.
Result<void> CheckSameCalls(const Manifest& held, const Manifest& fresh) {
  auto differs = [](std::string what) {
    return Error{ErrorKind::kUnsupported, "the new version is called in another way: " + std::move(what), "manifest"};
  };
  if (!SameButThreads(fresh.kernel, held.kernel)) return differs("another kernel");
  if (fresh.dynamic_sizes != held.dynamic_sizes) return differs("other dynamic sizes");
  if (fresh.operands.size() != held.operands.size()) return differs("another number of operands");
  for (size_t i = 0; i < held.operands.size(); ++i) {
    const ManifestOperand &was = held.operands[i], &is = fresh.operands[i];
    auto same_dim = [](const ManifestDim& a, const ManifestDim& b) {
      return a.lo == b.lo && a.hi == b.hi && a.size_index == b.size_index;
    };
    bool same = is.name == was.name && is.dtype == was.dtype && is.is_output == was.is_output &&
                is.is_const == was.is_const && is.shape.size() == was.shape.size();
    for (size_t d = 0; same && d < is.shape.size(); ++d) same = same_dim(is.shape[d], was.shape[d]);
    if (!same) return differs("operand " + std::to_string(i) + " (" + was.name + ")");
    if (is.alignment > was.alignment) return differs("operand " + was.name + " is to be aligned more");
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<KernelHandle>> KernelHandle::Create(std::unique_ptr<LoadedArtifact> code, ServedFacts facts,
                                                           Workers workers, Change change,
                                                           std::shared_ptr<PackedConstants> packed) {
  if (!packed) packed = std::make_shared<PackedConstants>();
  std::unique_ptr<KernelVersion> version =
      HONE_TRY(KernelVersion::Create(std::move(code), std::move(facts), workers, packed));
  return std::unique_ptr<KernelHandle>(
      new KernelHandle(std::move(version), std::move(workers), change, std::move(packed)));
}

KernelHandle::KernelHandle(std::unique_ptr<KernelVersion> version, Workers workers, Change change,
                           std::shared_ptr<PackedConstants> packed)
    : workers_([&] {
        workers.count = version->workers();
        return std::move(workers);
      }()),
      packed_(std::move(packed)),
      manifest_(version->manifest()),
      bound_(manifest_.operands.size(), nullptr),
      gate_(change == Change::kLive ? new ReaderGate : nullptr),
      current_(nullptr) {
  for (size_t i = 0; i < manifest_.operands.size(); ++i) bytes_.push_back(version->BytesOf(static_cast<int>(i)));
  current_.store(version.release(), std::memory_order_seq_cst);
}

KernelHandle::~KernelHandle() {
  if (updates_) updates_->Remove(*this);
  delete current_.load(std::memory_order_relaxed);
}

Result<void> KernelHandle::Bind(int operand, const void* data) {
  if (!updates_) return BindNow(operand, data);
  Updates::Pause pause(*updates_, *this);
  HONE_TRY(BindNow(operand, data));
  if (std::exchange(needs_data_, false)) updates_->LookAgain(*this);
  return {};
}

Result<void> KernelHandle::BindNow(int operand, const void* data) {
  HONE_TRY(current_.load(std::memory_order_relaxed)->Bind(operand, data));
  bound_[operand] = data;
  return {};
}

ServedFacts KernelHandle::facts() const {
  if (gate_ == nullptr) return current_.load(std::memory_order_relaxed)->facts();
  ReaderGate::Entry inside(*gate_);
  return current_.load(std::memory_order_seq_cst)->facts();
}

Result<std::unique_ptr<KernelVersion>> KernelHandle::Prepare(std::unique_ptr<LoadedArtifact> code, ServedFacts facts) {
  HONE_TRY(CheckSameCalls(manifest_, code->manifest()));
  const KernelVersion& held = *current_.load(std::memory_order_relaxed);
  std::unique_ptr<KernelVersion> fresh =
      HONE_TRY(KernelVersion::Create(std::move(code), std::move(facts), workers_, packed_));
  for (int i = 0; i < static_cast<int>(bound_.size()); ++i) {
    if (bound_[i] != nullptr) {
      HONE_TRY(fresh->Bind(i, bound_[i], KernelVersion::Packing::kAlone));
    } else if (fresh->Packs(i) && !held.Packs(i)) {
      needs_data_ = true;
      return Error{ErrorKind::kUnsupported, "the new version packs it, and it was not bound",
                   manifest_.operands[i].name};
    }
  }
  fresh->WarmLike(held);
  return fresh;
}

void KernelHandle::Publish(std::unique_ptr<KernelVersion> version) {
  HONE_CHECK(is_live() && HasRoom());
  retired_.reserve(retired_.size() + 1);
  retired_.emplace_back(current_.exchange(version.release(), std::memory_order_seq_cst));
  swaps_.fetch_add(1, std::memory_order_relaxed);
  Reclaim();
}

bool KernelHandle::Reclaim() {
  if (!leaving_.empty() && gate_->GraceIsOver()) leaving_.clear();
  if (leaving_.empty() && !retired_.empty()) {
    leaving_.swap(retired_);
    gate_->BeginGrace();
    if (gate_->GraceIsOver()) leaving_.clear();
  }
  return leaving_.empty();
}

}  // namespace hone
