// The envelope of stored values: any change to any byte is seen; a newer version is told from damage.
#include "base/envelope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/bytes.h"
#include "base/hash.h"

namespace hone {
namespace {

using ::testing::HasSubstr;

TEST(Envelope, RoundTrips) {
  for (size_t size : {0u, 1u, 127u, 128u, 70'000u}) {
    std::string body(size, 'x');
    std::string value = Seal(ValueType::kRecord, 1, body);
    EXPECT_EQ(Unseal(ValueType::kRecord, 1, value), body);
    EXPECT_EQ(*SealedType(value), ValueType::kRecord);
    EXPECT_LE(value.size(), body.size() + 18);
  }
}

TEST(Envelope, RefusesEveryTruncationAndExtension) {
  std::string value = Seal(ValueType::kRecord, 1, "a body");
  for (size_t size = 0; size < value.size(); ++size) {
    EXPECT_EQ(Unseal(ValueType::kRecord, 1, value.substr(0, size)).error().kind, ErrorKind::kCorrupt) << size;
    EXPECT_FALSE(UnsealUnchecked(ValueType::kRecord, 1, value.substr(0, size)).has_value()) << size;
  }
  EXPECT_EQ(Unseal(ValueType::kRecord, 1, value + "x").error().kind, ErrorKind::kCorrupt);
}

TEST(Envelope, SeesEveryFlippedBit) {
  std::string value = Seal(ValueType::kRecord, 1, "a body");
  for (size_t bit = 0; bit < value.size() * 8; ++bit) {
    std::string damaged = value;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    Result<std::string_view> body = Unseal(ValueType::kRecord, 1, damaged);
    ASSERT_FALSE(body.has_value()) << bit;
    EXPECT_EQ(body.error().kind, ErrorKind::kCorrupt) << "bit " << bit << " looks like a newer version";
  }
}

TEST(Envelope, NewerVersionIsNotDamage) {
  std::string value = Seal(ValueType::kRecord, 3, "of the future");
  Result<std::string_view> body = Unseal(ValueType::kRecord, 2, value);
  ASSERT_FALSE(body.has_value());
  EXPECT_EQ(body.error().kind, ErrorKind::kUnsupported);
  EXPECT_THAT(body.error().message, HasSubstr("newer hone (version 3, this one reads up to 2)"));
  EXPECT_TRUE(Unseal(ValueType::kRecord, 3, value).has_value());
}

TEST(Envelope, AnotherTypeIsRefused) {
  std::string value = Seal(ValueType::kRecord, 1, "body");
  EXPECT_EQ(Unseal(ValueType::kArtifact, 1, value).error().kind, ErrorKind::kCorrupt);
}

}  // namespace
}  // namespace hone
