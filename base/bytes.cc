#include "base/bytes.h"

#include <fmt/format.h>

namespace hone {

Error ByteReader::Short(uint64_t wanted) const {
  return Bad(position_, fmt::format("wanted {} bytes, {} left", wanted, left()));
}

Error ByteReader::Bad(size_t at, std::string message) const {
  return Error{ErrorKind::kCorrupt, std::move(message), fmt::format("byte {}", at)};
}

Result<bool> ByteReader::Bool() { return HONE_TRY(InRange(0, 1)) != 0; }

Result<uint64_t> ByteReader::Varint() {
  uint64_t value = 0;
  for (size_t i = 0; i < 10; ++i) {
    if (position_ + i >= data_.size()) return Short(i + 1);
    uint8_t byte = static_cast<uint8_t>(data_[position_ + i]);
    if (i == 9 && byte > 1) return Bad(position_, "varint does not fit 64 bits");
    value |= static_cast<uint64_t>(byte & 127) << (7 * i);
    if (byte >= 128) continue;
    if (i > 0 && byte == 0) return Bad(position_, "varint is longer than its value needs");
    position_ += i + 1;
    return value;
  }
  return Bad(position_, "varint does not fit 64 bits");
}

Result<int64_t> ByteReader::SignedVarint() {
  uint64_t value = HONE_TRY(Varint());
  return static_cast<int64_t>((value >> 1) ^ (~(value & 1) + 1));
}

Result<uint64_t> ByteReader::Count(uint64_t limit, size_t least_bytes) {
  size_t start = position_;
  uint64_t count = HONE_TRY(Varint());
  if (count > limit) return Bad(start, fmt::format("count {} exceeds the limit {}", count, limit));
  if (least_bytes > 0 && count > left() / least_bytes)
    return Bad(start, fmt::format("count {} cannot fit in the {} bytes left", count, left()));
  return count;
}

Result<std::string_view> ByteReader::String(size_t limit) {
  size_t start = position_;
  uint64_t size = HONE_TRY(Varint());
  if (size > limit) return Bad(start, fmt::format("string of {} bytes exceeds the limit {}", size, limit));
  return Raw(size);
}

Result<std::string_view> ByteReader::Raw(size_t size) {
  if (left() < size) return Short(size);
  std::string_view bytes = data_.substr(position_, size);
  position_ += size;
  return bytes;
}

Result<uint8_t> ByteReader::InRange(uint8_t first, uint8_t last) {
  size_t start = position_;
  uint8_t value = HONE_TRY(U8());
  if (value < first || value > last) return Bad(start, fmt::format("saw {}, wanted {} to {}", value, first, last));
  return value;
}

Result<void> ByteReader::Finish() const {
  if (left() > 0) return Bad(position_, fmt::format("{} bytes too many", left()));
  return {};
}

}  // namespace hone
