// Walking past what cannot be read: exactly the unreadable keys are missing.
#include "cache/scan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "base/rng.h"

namespace hone {
namespace {

// A store's iterator over `entries` in blocks; touching a damaged block fails until the next Seek elsewhere. As
// RocksDB's do, it stays broken after a failure if `sticky`.
class BlockIterator : public StoreIterator {
 public:
  using Entries = std::vector<std::pair<std::string, std::string>>;  // sorted
  BlockIterator(const Entries& entries, const std::set<size_t>& damaged, size_t block, bool sticky)
      : entries_(entries), damaged_(damaged), block_(block), sticky_(sticky) {}
  void Seek(std::string_view key) override {
    if (sticky_ && failed_) return;
    at_ = std::lower_bound(entries_.begin(), entries_.end(), key, [](const auto& a, auto b) { return a.first < b; });
    Look();
  }
  void Next() override {
    ++at_;
    Look();
  }
  bool Valid() const override { return !failed_ && at_ != entries_.end(); }
  std::string_view key() const override { return at_->first; }
  std::string_view value() const override { return at_->second; }
  Result<void> status() const override {
    if (failed_) return Error{ErrorKind::kCorrupt, "damaged block", ""};
    return {};
  }

 private:
  void Look() {
    size_t index = static_cast<size_t>(std::distance(entries_.begin(), at_));
    failed_ = at_ != entries_.end() && damaged_.contains(index / block_);
  }
  const Entries& entries_;
  const std::set<size_t>& damaged_;
  const size_t block_;
  const bool sticky_;
  Entries::const_iterator at_;
  bool failed_ = false;
};

class ScanTest : public ::testing::Test {
 protected:
  std::set<std::string> Walk(const std::string& prefix) {
    BlockIterator::Entries sorted(entries_.begin(), entries_.end());
    ResilientIterator entries([&] { return std::make_unique<BlockIterator>(sorted, damaged_, block_, sticky_); },
                              prefix);
    std::set<std::string> seen;
    for (; entries.Valid(); entries.Next()) {
      EXPECT_TRUE(entries.key().starts_with(prefix));
      EXPECT_TRUE(seen.insert(std::string(entries.key())).second) << "twice: " << entries.key();
    }
    ranges_ = entries.damaged_ranges();
    return seen;
  }
  std::set<std::string> Readable(const std::string& prefix) {
    std::set<std::string> keys;
    size_t index = 0;
    for (const auto& [key, value] : entries_)
      if (!damaged_.contains(index++ / block_) && key.starts_with(prefix)) keys.insert(key);
    return keys;
  }

  std::map<std::string, std::string> entries_;
  std::set<size_t> damaged_;
  size_t block_ = 4;
  bool sticky_ = true;
  uint64_t ranges_ = 0;
};

TEST_F(ScanTest, WholeAndEmpty) {
  EXPECT_TRUE(Walk("").empty());
  for (int i = 0; i < 100; ++i) entries_[fmt::format("{:03}", i)] = "v";
  EXPECT_EQ(Walk("").size(), 100u);
  EXPECT_EQ(Walk("04").size(), 10u);
  EXPECT_EQ(Walk("x").size(), 0u);
  EXPECT_EQ(ranges_, 0u);
}

TEST_F(ScanTest, OneDamagedBlockCostsItsKeysWherever) {
  for (int i = 0; i < 100; ++i) entries_[fmt::format("key{:03}", i)] = "v";
  for (bool sticky : {false, true}) {
    sticky_ = sticky;
    for (size_t block = 0; block < 25; ++block) {
      damaged_ = {block};
      EXPECT_EQ(Walk(""), Readable("")) << "block " << block;
      EXPECT_EQ(ranges_, 1u);
    }
  }
}

TEST_F(ScanTest, KeysOfHashesWithClassesInFront) {
  Rng rng(2);
  for (int i = 0; i < 3000; ++i) {
    std::string key(40, static_cast<char>("\x00\x7f\xff"[i % 3]));
    for (size_t at = 16; at < key.size(); ++at) key[at] = static_cast<char>(rng.Next());
    entries_[key] = "v";
  }
  size_t readable = 0, missed = 0;
  for (int round = 0; round < 60; ++round) {
    damaged_ = {rng.Below(750), rng.Below(750), rng.Below(750)};
    uint64_t first = rng.Below(740);
    if (round % 2 == 0) damaged_ = {first, first + 2, first + 4, first + 6};  // sound blocks between damaged ones
    for (const std::string& prefix :
         {std::string(), std::string(16, '\0'), std::string(16, '\x7f'), std::string(16, '\xff')}) {
      std::set<std::string> wanted = Readable(prefix), seen = Walk(prefix);
      EXPECT_TRUE(std::includes(wanted.begin(), wanted.end(), seen.begin(), seen.end()));
      readable += wanted.size();
      missed += wanted.size() - seen.size();
    }
  }
  // A sound block that happens to be narrower than the usual distance of keys may be stepped over.
  EXPECT_LT(missed, 60u);
  EXPECT_GT(readable, 300'000u);
}

TEST_F(ScanTest, EverythingDamaged) {
  for (int i = 0; i < 100; ++i) entries_[fmt::format("{:03}", i)] = "v";
  for (size_t block = 0; block < 25; ++block) damaged_.insert(block);
  EXPECT_TRUE(Walk("").empty());
  EXPECT_GE(ranges_, 1u);
}

}  // namespace
}  // namespace hone
