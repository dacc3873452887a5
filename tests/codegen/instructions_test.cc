// The table of instructions: each row is found by its name, means what its text says, and is emitted by something.
#include "codegen/instructions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "ir/graph/dtype_traits.h"
#include "ir/language/parse.h"

namespace hone {
namespace {

using testing::HasSubstr;

TEST(Instructions, RowsAreWhole) {
  std::set<std::string_view> names;
  for (const Instruction& instruction : AllInstructions()) {
    EXPECT_TRUE(names.insert(instruction.name).second) << instruction.name << " is there twice";
    EXPECT_EQ(FindInstruction(instruction.name), &instruction);
    EXPECT_THAT(InstructionNames(), HasSubstr(std::string(instruction.name)));
    const InstructionMeaning& meaning = MeaningOf(instruction);
    EXPECT_EQ(meaning.kernel.name, instruction.name);
    if (meaning.is_of_warp) {
      if (meaning.is_of_group) {
        EXPECT_EQ(meaning.threads, 128);
        EXPECT_EQ(meaning.rows, 64);
        EXPECT_EQ(meaning.lanes % 8, 0);
      } else {
        EXPECT_EQ(meaning.rows * meaning.lanes, 4 * meaning.threads) << "four sums of a thread";
      }
      EXPECT_EQ(meaning.steps * meaning.step_bytes, 32);
      EXPECT_GE(instruction.sm, 80);
      for (Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kNeon}) {
        CpuTarget target;
        target.isa = isa;
        EXPECT_FALSE(HasInstruction(target, instruction));
      }
      continue;
    }
    EXPECT_EQ(meaning.steps * meaning.step_bytes, 4) << "groups of steps are as wide as sums";
    EXPECT_EQ(ByteSize(meaning.sum), 4);
    if (meaning.is_on_tiles()) {
      EXPECT_EQ(meaning.rows, 16);
      EXPECT_EQ(meaning.groups * meaning.steps * meaning.step_bytes, 64) << "the bytes of a row";
    }
    EXPECT_EQ(meaning.step_bytes, ByteSize(meaning.operands[1]));
    CpuTarget target;
    target.isa = instruction.isa;
    EXPECT_LE(meaning.lanes, target.Lanes(4));
    EXPECT_EQ(HasInstruction(target, instruction), instruction.feature.empty());
    if (!instruction.feature.empty()) target.features = {std::string(instruction.feature)};
    EXPECT_TRUE(HasInstruction(target, instruction));
    target.isa = Isa::kNeon;
    EXPECT_EQ(HasInstruction(target, instruction), instruction.isa == Isa::kNeon);
  }
  EXPECT_EQ(FindInstruction("vpmaddubsw"), nullptr) << "it saturates";
}

std::string Mismatch(const std::string& text, const char* instruction = "vpdpbusd_512") {
  const Kernel kernel = ParseKernel(text).value();
  const Result<std::vector<Expr>> match = MatchInstruction(kernel, kernel.stages.back(), *FindInstruction(instruction));
  return match ? "" : match.error().message;
}

TEST(Instructions, MatchInEitherOrder) {
  for (const char* product : {"u[k] * s[k]", "s[k] * u[k]"}) {
    const Kernel kernel =
        ParseKernel("kernel k(s: i8[8], u: u8[8]) -> y: i32[] { y[] = sum(k) " + std::string(product) + " }").value();
    const auto operands = MatchInstruction(kernel, kernel.stages.back(), *FindInstruction("vpdpbusd_512"));
    ASSERT_TRUE(operands) << operands.error().message;
    EXPECT_EQ((*operands)[0].type(), DType::kU8);
    EXPECT_EQ((*operands)[1].type(), DType::kI8);
  }
  EXPECT_EQ(Mismatch("kernel k(s: bf16[8], u: bf16[8]) -> y: f32[] { y[] = sum(k) s[k] * u[k] }", "vdpbf16ps_512"), "");
}

// Of the same class a kernel may be asked for more exactly, with the schedule of this one.
TEST(Instructions, ThatRoundFactorsAreForWhoAllowsIt) {
  const auto product = [](const char* accuracy) {
    return std::string("kernel k(a: f32[8], b: f32[8]) -> y: f32[] with accuracy=") + accuracy +
           " { y[] = sum(k) a[k] * b[k] }";
  };
  for (const char* accuracy : {"strict", "relaxed"})
    EXPECT_THAT(Mismatch(product(accuracy), "mma_m16n8k8_tf32"), HasSubstr("it wants accuracy=fast"));
  EXPECT_EQ(Mismatch(product("fast"), "mma_m16n8k8_tf32"), "");
}

TEST(Instructions, SayWhatDiffers) {
  EXPECT_THAT(Mismatch("kernel k(a: i8[8], b: i8[8]) -> y: i32[] { y[] = sum(k) a[k] * b[k] }"),
              HasSubstr("vpdpbusd_512 does something else: a is i8 where u8 is meant"));
  EXPECT_THAT(Mismatch("kernel k(a: u8[8], b: i8[8]) -> y: i32[] { y[] = max(k) a[k] * b[k] }"),
              HasSubstr("y is no sum"));
  EXPECT_THAT(Mismatch("kernel k(a: u8[8], b: i8[8]) -> y: i32[] { y[] = sum(k) (a[k] + b[k]) }"), HasSubstr("where"));
  EXPECT_THAT(Mismatch("kernel k(a: f32[8], b: f32[8]) -> y: f32[] { y[] = sum(k) a[k] * b[k] }"),
              HasSubstr("y is f32, the sum i32"));
  EXPECT_THAT(Mismatch("kernel k(a: u8[8], b: i8[8]) -> y: i32[] { y[] = sum(k) (a[k] * b[k] * 3) }"),
              HasSubstr("does something else"));
}

}  // namespace
}  // namespace hone
