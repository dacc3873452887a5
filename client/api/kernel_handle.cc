#include "client/api/kernel_handle.h"

#include <string>
#include <utility>

#include "base/check.h"
#include "client/api/updates.h"

namespace hone {
Result<std::unique_ptr<KernelHandle>> KernelHandle::Create(std::shared_ptr<const LoadedArtifact> code,
                                                           ServedFacts facts, Workers workers, Change change,
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
      bound_(manifest_.operands.size()),
      gate_(change == Change::kLive ? new ReaderGate : nullptr),
      current_(nullptr) {
  for (size_t i = 0; i < manifest_.operands.size(); ++i) bytes_.push_back(version->BytesOf(static_cast<int>(i)));
  current_.store(version.release(), std::memory_order_seq_cst);
}

KernelHandle::~KernelHandle() {
  if (updates_) updates_->Remove(*this);
  delete current_.load(std::memory_order_relaxed);
}

int KernelHandle::ShapeOf(int operand, const int64_t* sizes, int64_t* shape) const noexcept {
  const auto invalid = [](int which) { return static_cast<int>(ErrorKind::kInvalid) | (which + 1) << 8; };
  if (operand < 0 || static_cast<size_t>(operand) >= manifest_.operands.size()) return invalid(-1);
  for (const ManifestDim& dim : manifest_.operands[static_cast<size_t>(operand)].shape) {
    const bool is_dynamic = dim.size_index >= 0;
    if (is_dynamic && sizes == nullptr) return invalid(-1);
    const int64_t size = is_dynamic ? sizes[dim.size_index] : dim.lo;
    if (size < dim.lo || size > dim.hi) return invalid(operand);
    *shape++ = size;
  }
  return 0;
}

Result<void> KernelHandle::Bind(int operand, const void* data) { return BindOne(operand, {data}); }

Result<void> KernelHandle::Bind(int operand, std::shared_ptr<const ConstantSource> source) {
  return BindOne(operand, {nullptr, std::move(source)});
}

Result<void> KernelHandle::Bound::To(KernelVersion& version, int operand, KernelVersion::Packing packing) const {
  return source != nullptr ? version.Bind(operand, source, packing) : version.Bind(operand, data, packing);
}

Result<void> KernelHandle::BindOne(int operand, Bound bound) {
  if (!updates_) return BindNow(operand, std::move(bound));
  Updates::Pause pause(*updates_, *this);
  HONE_TRY(BindNow(operand, std::move(bound)));
  if (std::exchange(needs_data_, false)) updates_->LookAgain(*this);
  return {};
}

Result<void> KernelHandle::BindNow(int operand, Bound bound) {
  HONE_TRY(bound.To(*current_.load(std::memory_order_relaxed), operand, KernelVersion::Packing::kShared));
  bound_[operand] = std::move(bound);
  return {};
}

ServedFacts KernelHandle::facts() const {
  if (gate_ == nullptr) return current_.load(std::memory_order_relaxed)->facts();
  ReaderGate::Entry inside(*gate_, ReaderGate::Purpose::kLook);
  return current_.load(std::memory_order_seq_cst)->facts();
}

Result<std::unique_ptr<Updatable::Code>> KernelHandle::OpenCode(SealedMemfd file, const GetReply& reply,
                                                                std::string_view canonical) {
  return std::unique_ptr<Code>(HONE_TRY(LoadedArtifact::Load(std::move(file), reply.size, reply.digest, canonical)));
}

Result<std::unique_ptr<Updatable::Version>> KernelHandle::PrepareCode(std::unique_ptr<Code> code, ServedFacts facts) {
  std::unique_ptr<LoadedArtifact> loaded(static_cast<LoadedArtifact*>(code.release()));
  return std::unique_ptr<Version>(HONE_TRY(Prepare(std::move(loaded), std::move(facts))));
}

void KernelHandle::PublishVersion(std::unique_ptr<Version> version) {
  Publish(std::unique_ptr<KernelVersion>(static_cast<KernelVersion*>(version.release())));
}

Result<std::unique_ptr<KernelVersion>> KernelHandle::Prepare(std::shared_ptr<const LoadedArtifact> code,
                                                             ServedFacts facts) {
  HONE_TRY(CheckSameCalls(manifest_, code->manifest()));
  const KernelVersion& held = *current_.load(std::memory_order_relaxed);
  std::unique_ptr<KernelVersion> fresh =
      HONE_TRY(KernelVersion::Create(std::move(code), std::move(facts), workers_, packed_));
  for (int i = 0; i < static_cast<int>(bound_.size()); ++i) {
    if (bound_[i].is_there()) {
      HONE_TRY(bound_[i].To(*fresh, i, KernelVersion::Packing::kAlone));
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
  {
    MutexLock lock(places_);
    retired_.reserve(retired_.size() + 1);
    retired_.emplace_back(current_.exchange(version.release(), std::memory_order_seq_cst));
  }
  swaps_.fetch_add(1, std::memory_order_relaxed);
  Reclaim();
}

bool KernelHandle::Reclaim() {
  // Released when nothing is held any more: it takes a while, and a child process has them for good.
  std::vector<std::unique_ptr<KernelVersion>> gone, gone_at_once;
  MutexLock lock(places_);
  if (!leaving_.empty() && gate_->GraceIsOver()) gone.swap(leaving_);
  if (leaving_.empty() && !retired_.empty()) {
    leaving_.swap(retired_);
    gate_->BeginGrace();
    if (gate_->GraceIsOver()) gone_at_once.swap(leaving_);
  }
  return leaving_.empty();
}

}  // namespace hone
