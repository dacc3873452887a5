#include "client/device/device_handle.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "client/api/device_code.h"
#include "client/api/updates.h"

namespace hone {
namespace {

uint64_t BytesOf(const ManifestOperand& operand) {
  int64_t bytes = ByteSize(operand.dtype);
  for (const ManifestDim& dim : operand.shape) bytes *= dim.hi;
  return static_cast<uint64_t>(bytes);
}

std::vector<std::string> NamesOf(const DeviceVersion& version) {
  std::vector<std::string> names = version.facts().operands;
  if (names.size() == version.manifest().operands.size()) return names;
  names.clear();
  for (const ManifestOperand& operand : version.manifest().operands) names.push_back(operand.name);
  return names;
}

}  // namespace

Result<std::unique_ptr<DeviceHandle>> DeviceHandle::Create(std::shared_ptr<SharedDevice> device,
                                                           std::unique_ptr<DeviceCode> code, ServedFacts facts) {
  std::unique_ptr<DeviceVersion> version = HONE_TRY(DeviceVersion::Create(device, *code, std::move(facts)));
  return std::unique_ptr<DeviceHandle>(new DeviceHandle(std::move(device), std::move(version)));
}

DeviceHandle::DeviceHandle(std::shared_ptr<SharedDevice> device, std::unique_ptr<DeviceVersion> version)
    : device_(std::move(device)),
      manifest_(version->manifest()),
      names_(NamesOf(*version)),
      bound_(manifest_.operands.size()),
      ranges_(manifest_.operands.size()),
      current_(std::move(version)) {
  for (const ManifestOperand& operand : manifest_.operands) bytes_.push_back(BytesOf(operand));
}

DeviceHandle::~DeviceHandle() {
  if (updates_) updates_->Remove(*this);
}

Error DeviceHandle::InOperand(Error error, size_t operand) const {
  const std::string place = "operand " + std::to_string(operand) + " (" + names_[operand] + ")";
  error.where = error.where.empty() ? place : place + ": " + error.where;
  return error;
}

Result<void> DeviceHandle::Bind(int32_t operand, const BorrowedBuffer& data) {
  const auto invalid = [&](std::string what) { return Error{ErrorKind::kInvalid, std::move(what), ""}; };
  if (operand < 0 || static_cast<size_t>(operand) >= bytes_.size())
    return Error{ErrorKind::kInvalid, "there is no such operand; the kernel has " + std::to_string(bytes_.size()),
                 "operand " + std::to_string(operand)};
  const auto index = static_cast<size_t>(operand);
  const ManifestOperand& facts = manifest_.operands[index];
  if (facts.is_output) return InOperand(invalid("it is an output; give it to each call"), index);
  if (!facts.is_const)
    return InOperand(invalid("it is not constant; ask for the kernel with const=1 to bind it"), index);
  if (data.handle == 0) return InOperand(invalid("no buffer"), index);
  const auto element = static_cast<uint64_t>(ByteSize(facts.dtype));
  const Result<MemoryRange> range = device_->context->Find(data, bytes_[index], false, element);
  if (!range) return InOperand(range.error(), index);
  if (!updates_) return BindNow(index, data, *range);
  Updates::Pause pause(*updates_, *this);
  HONE_TRY(BindNow(index, data, *range));
  if (std::exchange(needs_data_, false)) updates_->LookAgain(*this);
  return {};
}

Result<void> DeviceHandle::BindNow(size_t operand, const BorrowedBuffer& data, const MemoryRange& range) {
  MutexLock lock(mutex_);
  const Result<void> bound = current_->Bind(operand, data);
  bound_[operand] = bound ? data : BorrowedBuffer{};
  ranges_[operand] = bound ? range : MemoryRange{};
  if (!bound) return InOperand(bound.error(), operand);
  return {};
}

Result<void> DeviceHandle::CheckBound(size_t operand) const {
  if (current_->Packs(operand) && !current_->IsBound(operand))
    return InOperand(Error{ErrorKind::kInvalid, "the code packs it: bind it before the first call", ""}, operand);
  return {};
}

Result<void> DeviceHandle::CheckBuffers(const BorrowedBuffer* buffers) const {
  std::vector<MemoryRange> ranges = ranges_;
  for (size_t i = 0; i < bytes_.size(); ++i) {
    HONE_TRY(CheckBound(i));
    if (current_->IsBound(i)) continue;
    const ManifestOperand& facts = manifest_.operands[i];
    if (buffers == nullptr || buffers[i].handle == 0) return InOperand(Error{ErrorKind::kInvalid, "no buffer", ""}, i);
    const auto element = static_cast<uint64_t>(ByteSize(facts.dtype));
    Result<MemoryRange> range = device_->context->Find(buffers[i], bytes_[i], facts.is_output, element);
    if (!range) return InOperand(range.error(), i);
    ranges[i] = *range;
  }
  for (size_t i = 0; i < bytes_.size(); ++i)
    for (size_t j = 0; manifest_.operands[i].is_output && j < bytes_.size(); ++j)
      if (j != i && ranges[i].Meets(ranges[j], bytes_[i], bytes_[j]))
        return InOperand(Error{ErrorKind::kInvalid, "it overlaps " + names_[j], ""}, i);
  return {};
}

Result<void> DeviceHandle::Enqueue(const BorrowedBuffer* buffers, const BorrowedQueue& queue) {
  HONE_TRY(device_->context->Check(queue));
  MutexLock lock(mutex_);
  HONE_TRY(CheckBuffers(buffers));
  HONE_TRY(current_->Enqueue({buffers, buffers == nullptr ? 0 : bytes_.size()}, queue));
  calls_.fetch_add(1, std::memory_order_relaxed);
  return {};
}

Result<void> DeviceHandle::Call(void* const* host) {
  DeviceVersion* version = nullptr;
  DeviceVersion::Slot* slot = nullptr;
  {
    MutexLock lock(mutex_);
    for (size_t i = 0; i < bytes_.size(); ++i) {
      HONE_TRY(CheckBound(i));
      if (!current_->IsBound(i) && (host == nullptr || host[i] == nullptr))
        return InOperand(Error{ErrorKind::kInvalid, "no memory", ""}, i);
    }
    version = current_.get();
    slot = HONE_TRY(version->TakeOwn());
  }
  Result<void> ran = version->RunOwn(*slot, host);
  MutexLock lock(mutex_);
  version->GiveBackOwn(*slot);
  if (ran) calls_.fetch_add(1, std::memory_order_relaxed);
  return ran;
}

bool DeviceHandle::NeedsBind(size_t operand) const {
  MutexLock lock(mutex_);
  return current_->Packs(operand);
}

ServedFacts DeviceHandle::facts() const {
  MutexLock lock(mutex_);
  return current_->facts();
}

Result<std::unique_ptr<Updatable::Code>> DeviceHandle::OpenCode(SealedMemfd file, const GetReply& reply,
                                                                std::string_view canonical) {
  return std::unique_ptr<Code>(std::make_unique<DeviceCode>(HONE_TRY(OpenDeviceCode(file, reply, canonical))));
}

Result<std::unique_ptr<Updatable::Version>> DeviceHandle::PrepareCode(std::unique_ptr<Code> code, ServedFacts facts) {
  const auto& opened = static_cast<const DeviceCode&>(*code);
  HONE_TRY(CheckSameCalls(manifest_, opened.artifact.manifest));
  std::unique_ptr<DeviceVersion> fresh = HONE_TRY(DeviceVersion::Create(device_, opened, std::move(facts)));
  for (size_t i = 0; i < bound_.size(); ++i) {
    if (bound_[i].handle != 0) {
      HONE_TRY(fresh->Bind(i, bound_[i]));
    } else if (fresh->Packs(i) && !NeedsBind(i)) {
      needs_data_ = true;
      return InOperand({ErrorKind::kUnsupported, "the new version packs it, and it was not bound", ""}, i);
    }
  }
  return std::unique_ptr<Version>(std::move(fresh));
}

void DeviceHandle::PublishVersion(std::unique_ptr<Version> version) {
  HONE_CHECK(HasRoom());
  std::unique_ptr<DeviceVersion> fresh(static_cast<DeviceVersion*>(version.release()));
  retired_.reserve(retired_.size() + 1);
  {
    MutexLock lock(mutex_);
    retired_.push_back(std::exchange(current_, std::move(fresh)));
  }
  swaps_.fetch_add(1, std::memory_order_relaxed);
  Reclaim();
}

bool DeviceHandle::Reclaim() {
  std::vector<std::unique_ptr<DeviceVersion>> idle;
  {
    MutexLock lock(mutex_);  // a call of the host's memory may be about to give its place back
    for (std::unique_ptr<DeviceVersion>& version : retired_)
      if (version->IsIdle()) idle.push_back(std::move(version));
  }
  std::erase(retired_, nullptr);
  return retired_.empty();
}

Result<SealedMemfd> DeviceHandle::CopyArtifact() const {
  return Error{ErrorKind::kUnsupported, "code for devices is not kept by clients", "artifact"};
}

}  // namespace hone
