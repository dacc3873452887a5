#include "cache/log_file.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"

namespace hone {
namespace {

std::vector<std::string> SomeRecords(Rng& rng, size_t count) {
  std::vector<std::string> records(count);
  for (std::string& record : records) {
    record.resize(rng.Chance(0.1) ? rng.Below(100'000) : rng.Below(3000));
    for (char& byte : record) byte = static_cast<char>(rng.Next());
  }
  return records;
}

TEST(LogFile, RoundTripsAcrossBlockBounds) {
  Rng rng(5);
  for (size_t count : {0, 1, 2, 50, 200}) {
    std::vector<std::string> records = SomeRecords(rng, count);
    LogContents contents = ReadLog(WriteLog(records));
    EXPECT_EQ(contents.records, records);
    EXPECT_TRUE(contents.sound());
    EXPECT_FALSE(contents.torn);
  }
  // Records that end where no other fragment fits into the block, and where exactly an empty one does.
  for (size_t left = 0; left < 20; ++left) {
    std::vector<std::string> records = {std::string((32 << 10) - 7 - left, 'a'), "b", "c"};
    EXPECT_EQ(ReadLog(WriteLog(records)).records, records) << left;
  }
}

TEST(LogFile, EveryTruncationIsTornAndNoDamage) {
  Rng rng(6);
  std::vector<std::string> records = SomeRecords(rng, 12);
  const std::string file = WriteLog(records);
  for (size_t size = 0; size < file.size(); size += size < 9000 ? 1 : 97) {
    LogContents contents = ReadLog(std::string_view(file).substr(0, size));
    EXPECT_TRUE(contents.sound()) << size;
    ASSERT_LE(contents.records.size(), records.size());
    EXPECT_TRUE(std::equal(contents.records.begin(), contents.records.end(), records.begin())) << size;
  }
  LogContents zeros = ReadLog(file + std::string(5000, '\0'));
  EXPECT_EQ(zeros.records, records);
  EXPECT_TRUE(zeros.sound());
  EXPECT_TRUE(zeros.torn);
}

TEST(LogFile, AFlippedBitIsSetRight) {
  Rng rng(7);
  std::vector<std::string> records = SomeRecords(rng, 60);
  const std::string file = WriteLog(records);
  int mended = 0;
  for (int round = 0; round < 500; ++round) {
    std::string flipped = file;
    const size_t at = rng.Below(file.size());
    flipped[at] = static_cast<char>(flipped[at] ^ 1 << rng.Below(8));
    LogContents contents = ReadLog(flipped);
    EXPECT_EQ(contents.records, records) << "byte " << at;
    EXPECT_EQ(contents.damaged, 0u);
    mended += contents.mended > 0 ? 1 : 0;
  }
  EXPECT_GT(mended, 490);  // a few hit the zeros at a block's end
}

// Also in headers, whose length then leads astray.
TEST(LogFile, OtherDamageCostsTheRecordsThatItHits) {
  Rng rng(8);
  std::vector<std::string> records = SomeRecords(rng, 60);
  const std::string file = WriteLog(records);
  for (int round = 0; round < 200; ++round) {
    std::string damaged = file;
    const size_t at = rng.Below(file.size() - 64);
    for (size_t i = 0; i < 16; ++i) damaged[at + i] = static_cast<char>(~damaged[at + i]);
    LogContents contents = ReadLog(damaged);
    EXPECT_GE(contents.records.size() + 3, records.size()) << "byte " << at;
    EXPECT_TRUE(contents.records.size() == records.size() || contents.damaged > 0) << "byte " << at;
    EXPECT_FALSE(contents.torn);
    // What is there is right, and in order.
    auto from = records.begin();
    for (const std::string& record : contents.records) {
      from = std::find(from, records.end(), record);
      ASSERT_NE(from, records.end()) << "byte " << at;
      ++from;
    }
  }
}

TEST(LogFile, ZeroedPagesCostWhatTheyHeld) {
  Rng rng(9);
  std::vector<std::string> records(400, std::string(1500, 'x'));
  for (size_t i = 0; i < records.size(); ++i) records[i] += std::to_string(i);
  const std::string file = WriteLog(records);
  for (int round = 0; round < 50; ++round) {
    std::string damaged = file;
    const size_t at = rng.Below(file.size() / 4096 - 1) * 4096;
    damaged.replace(at, 4096, 4096, '\0');
    LogContents contents = ReadLog(damaged);
    EXPECT_GE(contents.records.size() + 5, records.size());
    EXPECT_LT(contents.records.size(), records.size());
    EXPECT_GT(contents.damaged, 0u);
  }
}

TEST(LogFile, ReadsWhateverTheBytes) {
  Rng rng(10);
  for (int round = 0; round < 300; ++round) {
    std::string file(rng.Below(3000), '\0');
    for (char& byte : file) byte = static_cast<char>(rng.Chance(0.5) ? rng.Below(5) : rng.Next());
    LogContents contents = ReadLog(file);
    EXPECT_EQ(contents.sound(), contents.damaged == 0 && contents.mended == 0 && !contents.foreign);
    EXPECT_LE(contents.records.size(), file.size() / 7);
  }
}

}  // namespace
}  // namespace hone
