// Walks a family and steps over what cannot be read: a damaged block costs the entries in it and no more.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "cache/store.h"

namespace hone {

// An iterator over one prefix that never fails. Where the store cannot be read, it looks for the next key that can: by
// doubling the distance from the last key, then by bisection, seeing keys as large numbers.
class ResilientIterator {
 public:
  ResilientIterator(std::unique_ptr<StoreIterator> iterator, std::string prefix);
  bool Valid() const { return valid_; }
  void Next();
  std::string_view key() const { return iterator_->key(); }
  std::string_view value() const { return iterator_->value(); }
  uint64_t damaged_ranges() const { return damaged_ranges_; }

 private:
  // Settles on what the store's iterator shows; `from` is the least key that it may show.
  void Settle(std::string from);
  bool Readable(const std::string& from);  // Seek(from) neither failed nor …
  std::string NextReadable(const std::string& from);

  std::unique_ptr<StoreIterator> iterator_;
  const std::string prefix_;
  std::string last_key_;
  uint64_t damaged_ranges_ = 0;
  bool valid_ = false;
};

}  // namespace hone
