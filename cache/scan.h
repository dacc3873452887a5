// Walks a family and steps over what cannot be read: a damaged block costs the entries in it and no more.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "cache/store.h"

namespace hone {

// An iterator over one prefix that never fails. Where the store cannot be read, it looks for the next key that can: in
// growing steps from the last key, then by bisection, seeing keys as large numbers.
class ResilientIterator {
 public:
  using Source = std::function<std::unique_ptr<StoreIterator>()>;

  // `source` is asked for another iterator after each failure: RocksDB's do not recover from a damaged block (its
  // read-ahead buffer goes on failing for sound blocks). `from`: the least key that is wanted, if not all with the
  // prefix are.
  ResilientIterator(Source source, std::string prefix, std::string from = {});
  bool Valid() const { return valid_; }
  void Next();
  std::string_view key() const { return iterator_->key(); }
  std::string_view value() const { return iterator_->value(); }
  uint64_t damaged_ranges() const { return damaged_ranges_; }

 private:
  // Settles on what the store's iterator shows; `from` is the least key that it may show.
  void Settle(std::string from);
  bool Readable(const std::string& from);
  std::string NextReadable(const std::string& from);
  bool UsualDistance(std::array<uint8_t, 48>* distance) const;

  const Source source_;
  std::unique_ptr<StoreIterator> iterator_;
  const std::string prefix_;
  std::array<std::string, 9> last_keys_;  // the last ones passed, in a ring
  size_t last_count_ = 0;
  uint64_t damaged_ranges_ = 0;
  bool valid_ = false;
};

}  // namespace hone
