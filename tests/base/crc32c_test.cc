#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <string>

#include "base/rng.h"

namespace hone {
namespace {

std::string RandomText(Rng& rng, size_t size) {
  std::string text(size, '\0');
  for (char& byte : text) byte = static_cast<char>(rng.Next());
  return text;
}

// RFC 3720, appendix B.4.
TEST(Crc32c, IsTheStandardOne) {
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(Crc32c(""), 0u);
}

TEST(Crc32c, IsTheSameInPieces) {
  Rng rng(3);
  const std::string text = RandomText(rng, 1000);
  for (size_t cut = 0; cut <= text.size(); cut += 7)
    EXPECT_EQ(Crc32c(std::string_view(text).substr(cut), Crc32c(std::string_view(text).substr(0, cut))), Crc32c(text));
}

TEST(Crc32c, SaysWhichBitWasFlipped) {
  Rng rng(1);
  for (size_t size : {1, 2, 7, 8, 9, 100, 5000, 1 << 20}) {
    for (int round = 0; round < 20; ++round) {
      std::string text = RandomText(rng, size);
      const uint32_t wanted = Crc32c(text);
      const size_t byte = rng.Below(size);
      const uint8_t mask = static_cast<uint8_t>(1u << rng.Below(8));
      text[byte] = static_cast<char>(text[byte] ^ mask);
      std::optional<BitPosition> found = FindFlippedBit(wanted, Crc32c(text), size);
      ASSERT_TRUE(found.has_value());
      EXPECT_EQ(found->byte, byte);
      EXPECT_EQ(found->mask, mask);
    }
  }
}

TEST(Crc32c, OtherDamageIsNoFlippedBit) {
  Rng rng(2);
  for (int round = 0; round < 500; ++round) {
    std::string text = RandomText(rng, 200);
    const uint32_t wanted = Crc32c(text);
    text[rng.Below(100)] ^= 1;
    text[100 + rng.Below(100)] ^= 1;
    EXPECT_FALSE(FindFlippedBit(wanted, Crc32c(text), text.size()).has_value());
  }
  EXPECT_FALSE(FindFlippedBit(7, 7, 200).has_value());
}

}  // namespace
}  // namespace hone
