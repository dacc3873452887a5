// BLAKE2b against its published vectors; pieces equal the whole.
#include "base/hash.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace hone {
namespace {

TEST(Hash, MatchesTheReferenceImplementation) {
  // b2sum -l N, and Python's hashlib.blake2b(digest_size=N/8).
  EXPECT_EQ(HexOf(Hash256("abc")), "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
  EXPECT_EQ(HexOf(Hash128("abc")), "cf4ab791c62b8d2b2109c90275287816");
  EXPECT_EQ(HexOf(Hash128("")), "cae66941d9efbd404e4d88758ea67670");
  EXPECT_EQ(HexOf(Hash64("abc")), "d8bb14d833d59559");
}

TEST(Hash, KeyedMatchesTheReferenceImplementation) {
  // Python's hashlib.blake2b(b"abc", digest_size=32, key=bytes(range(32))).
  std::array<uint8_t, 32> key;
  for (size_t i = 0; i < key.size(); ++i) key[i] = static_cast<uint8_t>(i);
  EXPECT_EQ(HexOf(Mac256(key, "abc")), "d63a32d3e44738d7907f964316c241adaba0abfeabc32349677578a15a203f7f");
  key[31] ^= 1;
  EXPECT_NE(HexOf(Mac256(key, "abc")), "d63a32d3e44738d7907f964316c241adaba0abfeabc32349677578a15a203f7f");
}

TEST(Hash, PiecesEqualTheWhole) {
  Rng rng(3);
  std::string text(1000, '\0');
  for (char& byte : text) byte = static_cast<char>(rng.Next());
  for (int round = 0; round < 50; ++round) {
    Hasher256 hasher;
    std::string_view rest = text;
    while (!rest.empty()) {
      size_t piece = rng.Below(rest.size() + 1);
      hasher.Update(rest.substr(0, piece));
      rest.remove_prefix(piece);
    }
    EXPECT_EQ(hasher.Finish(), Hash256(text));
  }
}

TEST(Hash, HexRoundTripsAndRefusesTheRest) {
  std::array<uint8_t, 4> bytes{};
  ASSERT_TRUE(ParseHex("00ffA09c", bytes));
  EXPECT_EQ(HexOf(bytes), "00ffa09c");
  EXPECT_FALSE(ParseHex("00ffA09", bytes));
  EXPECT_FALSE(ParseHex("00ffA09cc", bytes));
  EXPECT_FALSE(ParseHex("00ffA0g9", bytes));
  EXPECT_FALSE(ParseHex("", bytes));
}

}  // namespace
}  // namespace hone
