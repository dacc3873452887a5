// Bounded little-endian writing and reading: the words every stored or sent format of hone is made of.
//
// The reader never reads past its end: each read is checked and fails with kCorrupt, saying where it stood, what it
// wanted and what was left. Lengths are checked against a limit before anything is allocated.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace hone {

// The same bytes seen as the other of the two views that APIs here take.
inline std::string_view AsText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline std::span<const std::byte> AsBytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// A T at any offset: files align what memory need not. REQUIRES: it is within the bytes.
template <typename T>
T ReadAt(std::span<const std::byte> bytes, uint64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

class ByteWriter {
 public:
  void U8(uint8_t value) { out_.push_back(static_cast<char>(value)); }
  void U16(uint16_t value) { Fixed(value); }
  void U32(uint32_t value) { Fixed(value); }
  void U64(uint64_t value) { Fixed(value); }
  void I64(int64_t value) { Fixed(static_cast<uint64_t>(value)); }
  void F64(double value) { Fixed(std::bit_cast<uint64_t>(value)); }
  void Bool(bool value) { U8(value ? 1 : 0); }
  void Varint(uint64_t value) {  // LEB128: 1 byte below 128, at most 10
    for (; value >= 128; value >>= 7) U8(static_cast<uint8_t>(value | 128));
    U8(static_cast<uint8_t>(value));
  }
  void SignedVarint(int64_t value) {  // zigzag: small magnitudes stay short
    Varint((static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63));
  }
  void String(std::string_view text) {  // varint length, then the bytes
    Varint(text.size());
    Raw(text);
  }
  void Raw(std::string_view text) { out_.append(text); }
  void Raw(std::span<const std::byte> bytes) { out_.append(AsText(bytes)); }
  void Raw(std::span<const uint8_t> bytes) { Raw(std::as_bytes(bytes)); }

  void Reserve(size_t bytes) { out_.reserve(bytes); }
  size_t size() const { return out_.size(); }
  std::string_view view() const { return out_; }
  std::string Take() { return std::move(out_); }

 private:
  template <typename T>
  void Fixed(T value) {
    static_assert(std::endian::native == std::endian::little, "hone's formats are little-endian, as are its targets");
    char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    out_.append(bytes, sizeof(T));
  }

  std::string out_;
};

// Reads what ByteWriter wrote. Borrows the bytes: views that it returns last as long as they do.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : data_(bytes) {}
  explicit ByteReader(std::span<const std::byte> bytes) : data_(AsText(bytes)) {}

  Result<uint8_t> U8() { return Fixed<uint8_t>(); }
  Result<uint16_t> U16() { return Fixed<uint16_t>(); }
  Result<uint32_t> U32() { return Fixed<uint32_t>(); }
  Result<uint64_t> U64() { return Fixed<uint64_t>(); }
  Result<int64_t> I64() { return static_cast<int64_t>(HONE_TRY(U64())); }
  Result<double> F64() { return std::bit_cast<double>(HONE_TRY(U64())); }
  Result<bool> Bool();        // 0 or 1, nothing else
  Result<uint64_t> Varint();  // refuses what does not fit 64 bits and longer spellings than needed
  Result<int64_t> SignedVarint();
  // A count of things that take at least `least_bytes` each: refused if larger than `limit` or than what is left.
  Result<uint64_t> Count(uint64_t limit, size_t least_bytes = 1);
  // A length-prefixed string of at most `limit` bytes.
  Result<std::string_view> String(size_t limit);
  Result<std::string_view> Raw(size_t size);
  template <size_t N>
  Result<std::array<uint8_t, N>> Array() {
    std::string_view bytes = HONE_TRY(Raw(N));
    std::array<uint8_t, N> array;
    std::memcpy(array.data(), bytes.data(), N);
    return array;
  }
  // A stored enum: a byte within first … last.
  template <typename Enum>
  Result<Enum> Enumerator(Enum first, Enum last) {
    return static_cast<Enum>(HONE_TRY(InRange(static_cast<uint8_t>(first), static_cast<uint8_t>(last))));
  }
  // kCorrupt if bytes are left over.
  Result<void> Finish() const;

  size_t position() const { return position_; }
  size_t left() const { return data_.size() - position_; }

 private:
  template <typename T>
  Result<T> Fixed() {
    if (left() < sizeof(T)) return Short(sizeof(T));
    T value;
    std::memcpy(&value, data_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }
  Result<uint8_t> InRange(uint8_t first, uint8_t last);
  Error Short(uint64_t wanted) const;
  Error Bad(size_t at, std::string message) const;

  std::string_view data_;
  size_t position_ = 0;
};

}  // namespace hone
