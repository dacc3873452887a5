// The bounded reader: reads back what was written, refuses everything else, and says where.
#include "base/bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/rng.h"

namespace hone {
namespace {

using ::testing::HasSubstr;

TEST(Bytes, RoundTripsEveryKind) {
  ByteWriter out;
  out.U8(255);
  out.U16(0xbeef);
  out.U32(0xdeadbeef);
  out.U64(0x0123456789abcdef);
  out.I64(-5);
  out.F64(-0.0);
  out.Bool(true);
  out.Varint(300);
  out.SignedVarint(-300);
  out.String("a\0b");
  out.Raw(std::string_view("tail"));
  std::string bytes = out.Take();
  ByteReader in(bytes);
  EXPECT_EQ(*in.U8(), 255);
  EXPECT_EQ(*in.U16(), 0xbeef);
  EXPECT_EQ(*in.U32(), 0xdeadbeef);
  EXPECT_EQ(*in.U64(), 0x0123456789abcdefu);
  EXPECT_EQ(*in.I64(), -5);
  EXPECT_TRUE(std::signbit(*in.F64()));
  EXPECT_TRUE(*in.Bool());
  EXPECT_EQ(*in.Varint(), 300u);
  EXPECT_EQ(*in.SignedVarint(), -300);
  EXPECT_EQ(*in.String(10), "a");  // a C string ends at its zero
  EXPECT_EQ(*in.Raw(4), "tail");
  EXPECT_TRUE(in.Finish().has_value());
}

TEST(Bytes, IsLittleEndian) {
  ByteWriter out;
  out.U32(0x04030201);
  EXPECT_EQ(out.view(), std::string_view("\1\2\3\4"));
}

TEST(Bytes, VarintsAtTheirBorders) {
  for (uint64_t value : {uint64_t{0}, uint64_t{127}, uint64_t{128}, uint64_t{16383}, uint64_t{16384}, uint64_t{1} << 63,
                         std::numeric_limits<uint64_t>::max()}) {
    ByteWriter out;
    out.Varint(value);
    EXPECT_EQ(ByteReader(out.view()).Varint(), value);
  }
  for (int64_t value : {int64_t{0}, int64_t{-1}, int64_t{63}, int64_t{-64}, int64_t{64},
                        std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()}) {
    ByteWriter out;
    out.SignedVarint(value);
    EXPECT_EQ(ByteReader(out.view()).SignedVarint(), value);
  }
  ByteWriter small, large;
  small.Varint(127);
  large.Varint(std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(small.size(), 1u);
  EXPECT_EQ(large.size(), 10u);
}

TEST(Bytes, RefusesVarintsThatOverflowOrAreLongerThanNeeded) {
  std::string overflow(9, '\xff');
  EXPECT_EQ(ByteReader(overflow + '\x02').Varint().error().kind, ErrorKind::kCorrupt);
  EXPECT_EQ(ByteReader(overflow + "\xff\x01").Varint().error().kind, ErrorKind::kCorrupt);
  EXPECT_TRUE(ByteReader(overflow + '\x01').Varint().has_value());
  std::string_view padded("\x80\x00", 2);  // 0 in two bytes
  EXPECT_EQ(ByteReader(padded).Varint().error().kind, ErrorKind::kCorrupt);
}

TEST(Bytes, ShortReadsSayWhereAndHowMuch) {
  std::string bytes = "abc";
  ByteReader in(bytes);
  EXPECT_TRUE(in.U8().has_value());
  Result<uint32_t> read = in.U32();
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().kind, ErrorKind::kCorrupt);
  EXPECT_EQ(read.error().Text(), "byte 1: wanted 4 bytes, 2 left");
  EXPECT_EQ(in.position(), 1u);  // a failed read consumes nothing
}

TEST(Bytes, LengthsAreBoundedBeforeAnythingIsAllocated) {
  ByteWriter out;
  out.Varint(std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(ByteReader(out.view()).String(1 << 20).error().kind, ErrorKind::kCorrupt);
  EXPECT_EQ(ByteReader(out.view()).Count(1 << 20).error().kind, ErrorKind::kCorrupt);
  ByteWriter list;
  list.Varint(3);
  list.Raw(std::string_view("xxxx"));
  EXPECT_TRUE(ByteReader(list.view()).Count(10, 1).has_value());
  EXPECT_FALSE(ByteReader(list.view()).Count(10, 2).has_value());  // three of two bytes are not in four
  EXPECT_FALSE(ByteReader(list.view()).Count(2, 1).has_value());
  EXPECT_FALSE(ByteReader(list.view()).String(2).has_value());
}

TEST(Bytes, EnumsAndBoolsAreChecked) {
  std::string bytes = "\2\3";
  EXPECT_FALSE(ByteReader(bytes).Bool().has_value());
  EXPECT_EQ(*ByteReader(bytes).Enumerator(ErrorKind::kInvalid, ErrorKind::kUnsupported), ErrorKind::kNotFound);
  Result<ErrorKind> beyond = ByteReader(std::string_view("\x09")).Enumerator(ErrorKind::kInvalid, ErrorKind::kLimit);
  EXPECT_THAT(beyond.error().Text(), HasSubstr("saw 9, wanted 1 to 4"));
}

TEST(Bytes, FinishRefusesLeftovers) {
  std::string bytes = "ab";
  ByteReader in(bytes);
  EXPECT_TRUE(in.U8().has_value());
  EXPECT_FALSE(in.Finish().has_value());
  EXPECT_TRUE(in.U8().has_value());
  EXPECT_TRUE(in.Finish().has_value());
}

TEST(Bytes, RandomBytesNeverReadPastTheEnd) {
  Rng rng(1);
  for (int round = 0; round < 2000; ++round) {
    // On the heap and exact, so that the address sanitizer sees one byte too many.
    std::string bytes(rng.Below(40), '\0');
    for (char& byte : bytes) byte = static_cast<char>(rng.Next());
    bytes.shrink_to_fit();
    ByteReader in(bytes);
    for (bool going = true; going;) {
      switch (rng.Below(6)) {
        case 0: going = in.U64().has_value(); break;
        case 1: going = in.Varint().has_value(); break;
        case 2: going = in.String(100).has_value(); break;
        case 3: going = in.Array<5>().has_value(); break;
        case 4: going = in.SignedVarint().has_value(); break;
        case 5: going = in.U16().has_value(); break;
      }
      ASSERT_LE(in.position(), bytes.size());
    }
  }
}

}  // namespace
}  // namespace hone
