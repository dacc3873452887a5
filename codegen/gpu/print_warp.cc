#include "codegen/gpu/print_warp.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"

namespace hone {
namespace {

struct Row {
  std::string_view name, ptx;
};
constexpr Row kPtx[] = {
    {"mma_m16n8k16_f16", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"},
    {"mma_m16n8k16_bf16", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"},
    {"mma_m16n8k32_i8", "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"},
};

}  // namespace

std::string_view PtxName(const Instruction& instruction) {
  for (const Row& row : kPtx)
    if (row.name == instruction.name) return row.ptx;
  HONE_CHECK(!"a warp's instruction that PTX has");
  return "";
}

std::string MultiplyText(const Instruction& instruction, std::span<const std::string> args) {
  HONE_CHECK(args.size() == 10);
  const char sum = IsFloat(MeaningOf(instruction).sum) ? 'f' : 'r';
  std::vector<std::string> sums, words;
  for (size_t i = 0; i < args.size(); ++i)
    (i < 4 ? sums : words).push_back(fmt::format("\"{}\"({})", i < 4 ? fmt::format("+{}", sum) : "r", args[i]));
  return fmt::format(
      "asm volatile(\"{} {{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};\" : {} : "
      "{});",
      PtxName(instruction), fmt::join(sums, ", "), fmt::join(words, ", "));
}

std::string CopyAheadText(int64_t bytes, const std::string& to, const std::string& from, const std::string& condition) {
  return fmt::format(
      "asm volatile(\"cp.async.{}.shared.global [%0], [%1], {}{};\" : : "
      "\"r\"((unsigned)__cvta_generic_to_shared(&{})), \"l\"(&{}){} : \"memory\");",
      bytes == 16 ? "cg" : "ca", bytes, condition.empty() ? "" : ", %2", to, from,
      condition.empty() ? "" : fmt::format(", \"r\"({} ? {} : 0)", condition, bytes));
}

std::string CommitText() { return "asm volatile(\"cp.async.commit_group;\" : : : \"memory\");"; }

std::string AwaitText(int64_t groups) {
  return fmt::format("asm volatile(\"cp.async.wait_group {};\" : : : \"memory\");", groups);
}

}  // namespace hone
