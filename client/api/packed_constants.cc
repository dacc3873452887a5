#include "client/api/packed_constants.h"

#include <utility>

namespace hone {

Result<PackedConstants::Copy> PackedConstants::Take(const void* data, const ManifestOperand& operand, bool anew,
                                                    const std::function<Result<Copy>()>& pack) {
  std::vector<int64_t> shape;
  for (const ManifestDim& dim : operand.shape) shape.push_back(dim.hi);
  Key key(data, operand.dtype, std::move(shape), operand.packed_bytes, operand.packed_layout);
  if (!anew) {
    MutexLock lock(mutex_);
    if (auto found = copies_.find(key); found != copies_.end())
      if (Copy copy = found->second.copy.lock()) return copy;
  }
  Copy packed = HONE_TRY(pack());
  MutexLock lock(mutex_);
  std::erase_if(copies_, [](const auto& each) { return each.second.copy.expired(); });
  Kept& kept = copies_[std::move(key)];
  if (Copy other = anew ? nullptr : kept.copy.lock()) return other;
  kept = {packed, operand.packed_bytes};
  return packed;
}

int64_t PackedConstants::bytes() const {
  MutexLock lock(mutex_);
  int64_t sum = 0;
  for (const auto& [_, kept] : copies_) sum += kept.copy.expired() ? 0 : kept.bytes;
  return sum;
}

}  // namespace hone
