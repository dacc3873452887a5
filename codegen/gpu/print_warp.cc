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
    {"mma_m16n8k32_u8", "mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32"},
    {"mma_m16n8k32_u8_i8", "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32"},
    {"mma_m16n8k32_i8_u8", "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32"},
    {"mma_m16n8k8_tf32", "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"},
    {"wgmma_m64n64k16_f16", "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"},
    {"wgmma_m64n64k16_bf16", "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16"},
    {"wgmma_m64n128k16_f16", "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16"},
    {"wgmma_m64n128k16_bf16", "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16"},
    {"wgmma_m64n256k16_f16", "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16"},
    {"wgmma_m64n256k16_bf16", "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16"},
};

// A 64-bit matrix descriptor (PTX ISA, "Matrix Descriptor"): its address in bits 0 … 13, the distances of blocks along
// the steps in bits 16 … 29 and along the lines in bits 32 … 45, all in units of 16 bytes; in bits 62 and 63 a 1 for
// 128 bytes of swizzling. With it both distances change places where lines lie side by side, and the first is not used,
// but 1, where steps do. The rest is zero.
std::string DescriptorText(const straight::MatrixLayout& matrix, const std::string& first) {
  const int64_t leading = !matrix.is_swizzled ? matrix.step_bytes : matrix.is_transposed ? matrix.row_bytes : 16;
  const int64_t stride = matrix.is_swizzled && matrix.is_transposed ? matrix.step_bytes : matrix.row_bytes;
  const uint64_t apart = static_cast<uint64_t>(leading / 16) << 16 | static_cast<uint64_t>(stride / 16) << 32 |
                         static_cast<uint64_t>(matrix.is_swizzled) << 62;
  return fmt::format(
      "\"l\"((unsigned long long)(((unsigned)__cvta_generic_to_shared(&{}) & 0x3ffffu) >> 4) | {:#x}ull)", first,
      apart);
}

// As operands of a statement that may change them.
std::string SumOperands(std::span<const std::string> sums) {
  std::vector<std::string> operands;
  for (const std::string& sum : sums) operands.push_back(fmt::format("\"+f\"({})", sum));
  return fmt::format("{}", fmt::join(operands, ", "));
}

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

std::string MatricesName(int matrices, bool transposes) {
  return fmt::format("matrices{}{}", matrices, transposes ? "_transposed" : "");
}

std::string MatricesText(std::string_view function, const std::string& helper) {
  for (int matrices : {2, 4})
    for (bool transposes : {false, true}) {
      const bool is_transposed = helper.find("_transposed_") != std::string::npos;
      if (transposes != is_transposed || !helper.starts_with(MatricesName(matrices, transposes) + "_")) continue;
      const bool has_four = matrices == 4;
      return fmt::format(
          "{0}uint{1} hone_{2}(const void* row) {{ uint{1} w; asm "
          "volatile(\"ldmatrix.sync.aligned.m8n8.x{1}{3}.shared.b16 "
          "{{%0, %1{4}}}, [%{1}];\" : \"=r\"(w.x), \"=r\"(w.y){5} : \"r\"((unsigned)__cvta_generic_to_shared(row)) : "
          "\"memory\"); return w; }}\n",
          function, matrices, helper, transposes ? ".trans" : "", has_four ? ", %2, %3" : "",
          has_four ? ", \"=r\"(w.z), \"=r\"(w.w)" : "");
    }
  return "";
}

std::string ProductText(const straight::Node& product, std::span<const std::string> sums, const std::string& first,
                        const std::string& second) {
  std::vector<std::string> numbers;
  for (size_t i = 0; i < sums.size(); ++i) numbers.push_back(fmt::format("%{}", i));
  return fmt::format(
      "asm volatile(\"{{ .reg .pred adds; setp.eq.b32 adds, 0, 0; {} {{{}}}, %{}, %{}, adds, 1, 1, {:d}, {:d}; }}\" : "
      "{} : "
      "{}, {} : \"memory\");",
      PtxName(*product.instruction), fmt::join(numbers, ", "), sums.size(), sums.size() + 1,
      product.matrices[0].is_transposed, product.matrices[1].is_transposed, SumOperands(sums),
      DescriptorText(product.matrices[0], first), DescriptorText(product.matrices[1], second));
}

std::string OrderText(const straight::Node& node, std::span<const std::string> sums) {
  using Kind = straight::Node::Kind;
  const auto text = [&](std::string_view instruction) {
    return fmt::format("asm volatile(\"{};\" : {}{}: : \"memory\");", instruction, SumOperands(sums),
                       sums.empty() ? "" : " ");
  };
  switch (node.kind) {
    case Kind::kCommit: return text("cp.async.commit_group");
    case Kind::kAwait: return text(fmt::format("cp.async.wait_group {}", node.offset));
    case Kind::kCommitProducts: return text("wgmma.commit_group.sync.aligned");
    case Kind::kAwaitProducts: return text(fmt::format("wgmma.wait_group.sync.aligned {}", node.offset));
    case Kind::kFenceSums: return text("wgmma.fence.sync.aligned");
    case Kind::kFenceStorage: return text("fence.proxy.async.shared::cta");
    default: HONE_CHECK(!"a node that orders others"); return "";
  }
}

std::string CopyAheadText(int64_t bytes, const std::string& to, const std::string& from, const std::string& condition) {
  return fmt::format(
      "asm volatile(\"cp.async.{}.shared.global [%0], [%1], {}{};\" : : "
      "\"r\"((unsigned)__cvta_generic_to_shared(&{})), \"l\"(&{}){} : \"memory\");",
      bytes == 16 ? "cg" : "ca", bytes, condition.empty() ? "" : ", %2", to, from,
      condition.empty() ? "" : fmt::format(", \"r\"({} ? {} : 0)", condition, bytes));
}

}  // namespace hone
