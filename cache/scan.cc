#include "cache/scan.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

namespace hone {
namespace {

// A key as a big-endian number, longer than most keys: what is added below a key's last byte still names a later key.
using Number = std::array<uint8_t, 48>;

constexpr int kProbesPerStep = 32;

Number AsNumber(std::string_view key) {
  Number number{};
  std::copy_n(key.begin(), std::min(key.size(), number.size()), number.begin());
  return number;
}

std::string AsKey(const Number& number) { return {number.begin(), number.end()}; }

// Saturates at the largest number.
Number Add(const Number& a, const Number& b) {
  Number sum;
  unsigned carry = 0;
  for (size_t i = sum.size(); i-- > 0; carry >>= 8) {
    carry += a[i] + b[i];
    sum[i] = static_cast<uint8_t>(carry);
  }
  if (carry > 0) sum.fill(255);
  return sum;
}

// REQUIRES: a >= b.
Number Subtract(const Number& a, const Number& b) {
  Number difference;
  int borrow = 0;
  for (size_t i = difference.size(); i-- > 0;) {
    int digit = a[i] - b[i] - borrow;
    borrow = digit < 0 ? 1 : 0;
    difference[i] = static_cast<uint8_t>(digit + 256 * borrow);
  }
  return difference;
}

Number Half(const Number& number) {
  Number half;
  unsigned carry = 0;
  for (size_t i = 0; i < half.size(); ++i) {
    unsigned bits = carry << 8 | number[i];
    half[i] = static_cast<uint8_t>(bits >> 1);
    carry = bits & 1;
  }
  return half;
}

// Between a and b, rounded down: a itself when they are neighbours.
Number Middle(const Number& a, const Number& b) { return Add(a, Half(Subtract(b, a))); }

}  // namespace

ResilientIterator::ResilientIterator(Source source, std::string prefix, std::string from)
    : source_(std::move(source)), iterator_(source_()), prefix_(std::move(prefix)) {
  const std::string first = std::max(prefix_, std::move(from));
  iterator_->Seek(first);
  Settle(first);
}

void ResilientIterator::Next() {
  std::string& last = last_keys_[last_count_++ % last_keys_.size()];
  last.assign(iterator_->key());
  iterator_->Next();
  if (iterator_->Valid()) {
    valid_ = iterator_->key().starts_with(prefix_);
    return;
  }
  Settle(last + '\0');  // the least key after it
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
// none. Steps are of the usual distance between keys at first, so that a sound block between two damaged ones is met,
// and grow.
std::string ResilientIterator::NextReadable(const std::string& from) {
  Number bad = AsNumber(from), step{}, good;
  step.back() = 1;
  bool known = UsualDistance(&step);
  for (int probe = 1;; ++probe) {
    good = Add(bad, step);
    if (Readable(AsKey(good))) break;
    // Beyond the prefix nothing is wanted: what lies there was looked at to see where the damage ends.
    if (good == bad || AsKey(good).compare(0, prefix_.size(), prefix_) > 0) return "";
    bad = good;
    if (!known || probe % kProbesPerStep == 0) step = Add(step, step);
  }
  for (Number middle = Middle(bad, good); middle != bad; middle = Middle(bad, good)) {
    if (Readable(AsKey(middle)))
      good = middle;
    else
      bad = middle;
  }
  return AsKey(good);
}

// The median distance between the last keys; false if there were too few.
bool ResilientIterator::UsualDistance(std::array<uint8_t, 48>* distance) const {
  size_t count = std::min(last_count_, last_keys_.size());
  if (count < last_keys_.size()) return false;
  std::vector<Number> gaps;
  for (size_t i = last_count_ - count; i + 1 < last_count_; ++i)
    gaps.push_back(Subtract(AsNumber(last_keys_[(i + 1) % count]), AsNumber(last_keys_[i % count])));
  std::nth_element(gaps.begin(), gaps.begin() + static_cast<ptrdiff_t>(gaps.size() / 2), gaps.end());
  const Number& median = gaps[gaps.size() / 2];
  if (median == Number{}) return false;
  *distance = median;
  return true;
}

}  // namespace hone
