#include "cache/scan.h"

#include <algorithm>

namespace hone {
namespace {

// Longer than most keys: what is added below a key's last byte still counts as a later key.
constexpr size_t kNumberBytes = 48;

std::string AsNumber(std::string_view key) {
  std::string number(key.substr(0, kNumberBytes));
  number.resize(kNumberBytes, '\0');
  return number;
}

// number + 2^bit; "" when that overflows.
std::string Plus(std::string number, size_t bit) {
  size_t byte = kNumberBytes - 1 - bit / 8;
  unsigned carry = 1u << (bit % 8);
  for (size_t i = byte + 1; i-- > 0 && carry > 0;) {
    carry += static_cast<uint8_t>(number[i]);
    number[i] = static_cast<char>(carry & 255);
    carry >>= 8;
  }
  return carry > 0 ? "" : number;
}

// (a + b) / 2, rounded down.
std::string Middle(const std::string& a, const std::string& b) {
  std::string middle(kNumberBytes, '\0');
  unsigned carry = 0;
  std::string sum(kNumberBytes, '\0');
  for (size_t i = kNumberBytes; i-- > 0;) {
    carry += static_cast<uint8_t>(a[i]) + static_cast<uint8_t>(b[i]);
    sum[i] = static_cast<char>(carry & 255);
    carry >>= 8;
  }
  for (size_t i = 0; i < kNumberBytes; ++i) {
    unsigned bits = carry << 8 | static_cast<uint8_t>(sum[i]);
    middle[i] = static_cast<char>(bits >> 1);
    carry = bits & 1;
  }
  return middle;
}

}  // namespace

ResilientIterator::ResilientIterator(Source source, std::string prefix)
    : source_(std::move(source)), iterator_(source_()), prefix_(std::move(prefix)) {
  iterator_->Seek(prefix_);
  Settle(prefix_);
}

void ResilientIterator::Next() {
  last_key_.assign(iterator_->key());
  iterator_->Next();
  if (iterator_->Valid()) {
    valid_ = iterator_->key().starts_with(prefix_);
    return;
  }
  // The key after the last one: itself with a zero byte.
  Settle(last_key_ + '\0');
}

void ResilientIterator::Settle(std::string from) {
  if (!iterator_->Valid() && !iterator_->status()) {
    ++damaged_ranges_;
    std::string next = NextReadable(from);
    if (next.empty() || !Readable(next)) {
      valid_ = false;
      return;
    }
  }
  valid_ = iterator_->Valid() && iterator_->key().starts_with(prefix_);
}

// Positions at the first key ≥ from; false if that cannot be read.
bool ResilientIterator::Readable(const std::string& from) {
  if (!iterator_->status()) iterator_ = source_();
  iterator_->Seek(from);
  return iterator_->Valid() || iterator_->status().has_value();
}

// REQUIRES: reading at `from` fails. A key in front of the first stretch after it that can be read; "" if there is
// none.
std::string ResilientIterator::NextReadable(const std::string& from) {
  std::string bad = AsNumber(from), good;
  for (size_t bit = 0; bit < kNumberBytes * 8; ++bit) {
    std::string further = Plus(AsNumber(from), bit);
    if (further.empty()) return "";
    // Beyond the prefix nothing is wanted: what lies there is read once, to see where the damage ends.
    bool beyond = further.compare(0, prefix_.size(), prefix_) > 0;
    if (Readable(further)) {
      good = std::move(further);
      break;
    }
    if (beyond) return "";
    bad = std::move(further);
  }
  if (good.empty()) return "";
  for (std::string middle = Middle(bad, good); middle != bad; middle = Middle(bad, good)) {
    if (Readable(middle))
      good = std::move(middle);
    else
      bad = std::move(middle);
  }
  return good;
}

}  // namespace hone
