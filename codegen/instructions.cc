#include "codegen/instructions.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "base/check.h"
#include "ir/graph/dtype_traits.h"
#include "ir/graph/print.h"
#include "ir/language/parse.h"

namespace hone {
namespace {

constexpr Isa kNoIsa{};
constexpr double kOnTiles = 1.0 / 32;
constexpr int kThreadsOfOneWarp = 32, kThreadsOfGroup = 128;
constexpr double kWidened = 0.25;    // two multiplications and two additions,
constexpr double kBytesWidened = 3;  // of bytes that shifts widen: one for odd ones, two for even ones

// Sums of integers wrap around in all of them: vpdpbusds and vpmaddubsw, which saturate, mean something else. So do
// ARM's bfdot and bfmmla: they round to odd, whatever a program has set, and so err by twice as much as a sum of f32.
constexpr Instruction kInstructions[] = {
    {"vpdpbusd_512", Isa::kAvx512, "avx512vnni",
     "kernel vpdpbusd_512(a: u8[16, 4], b: i8[16, 4]) -> y: i32[16] { y[l] = sum(j) a[l, j] * b[l, j] }"},
    {"vdpbf16ps_512", Isa::kAvx512, "avx512bf16",
     "kernel vdpbf16ps_512(a: bf16[16, 2], b: bf16[16, 2]) -> y: f32[16] { y[l] = sum(j) a[l, j] * b[l, j] }"},
    {"vpdpbusd_256", Isa::kAvx2, "avxvnni",
     "kernel vpdpbusd_256(a: u8[8, 4], b: i8[8, 4]) -> y: i32[8] { y[l] = sum(j) a[l, j] * b[l, j] }"},
    // Products of bytes widened to 16 bits, which sums of two of them cannot leave: what every processor has.
    {"vpmaddwd_i8_512", Isa::kAvx512, "",
     "kernel vpmaddwd_i8_512(a: i8[16, 4], b: i8[16, 4]) -> y: i32[16] { y[l] = sum(j) a[l, j] * b[l, j] }", kWidened,
     kBytesWidened},
    {"vpmaddwd_u8_512", Isa::kAvx512, "",
     "kernel vpmaddwd_u8_512(a: u8[16, 4], b: i8[16, 4]) -> y: i32[16] { y[l] = sum(j) a[l, j] * b[l, j] }", kWidened,
     kBytesWidened},
    {"vpmaddwd_i8_256", Isa::kAvx2, "",
     "kernel vpmaddwd_i8_256(a: i8[8, 4], b: i8[8, 4]) -> y: i32[8] { y[l] = sum(j) a[l, j] * b[l, j] }", kWidened,
     kBytesWidened},
    {"vpmaddwd_u8_256", Isa::kAvx2, "",
     "kernel vpmaddwd_u8_256(a: u8[8, 4], b: i8[8, 4]) -> y: i32[8] { y[l] = sum(j) a[l, j] * b[l, j] }", kWidened,
     kBytesWidened},
    // AMX: tiles of 16 rows of 64 bytes. per_fma: one starts in 16 cycles, and is 16 rows of 16 groups.
    {"tdpbssd", Isa::kAvx512, "amx-int8",
     "kernel tdpbssd(a: i8[16, 16, 4], b: i8[16, 16, 4]) -> y: i32[16, 16] "
     "{ y[m, n] = sum(g, j) a[m, g, j] * b[g, n, j] }",
     kOnTiles},
    {"tdpbsud", Isa::kAvx512, "amx-int8",
     "kernel tdpbsud(a: i8[16, 16, 4], b: u8[16, 16, 4]) -> y: i32[16, 16] "
     "{ y[m, n] = sum(g, j) a[m, g, j] * b[g, n, j] }",
     kOnTiles},
    {"tdpbusd", Isa::kAvx512, "amx-int8",
     "kernel tdpbusd(a: u8[16, 16, 4], b: i8[16, 16, 4]) -> y: i32[16, 16] "
     "{ y[m, n] = sum(g, j) a[m, g, j] * b[g, n, j] }",
     kOnTiles},
    {"tdpbuud", Isa::kAvx512, "amx-int8",
     "kernel tdpbuud(a: u8[16, 16, 4], b: u8[16, 16, 4]) -> y: i32[16, 16] "
     "{ y[m, n] = sum(g, j) a[m, g, j] * b[g, n, j] }",
     kOnTiles},
    {"tdpbf16ps", Isa::kAvx512, "amx-bf16",
     "kernel tdpbf16ps(a: bf16[16, 16, 2], b: bf16[16, 16, 2]) -> y: f32[16, 16] "
     "{ y[m, n] = sum(g, j) a[m, g, j] * b[g, n, j] }",
     kOnTiles},
    {"sdot_128", Isa::kNeon, "dotprod",
     "kernel sdot_128(a: i8[4, 4], b: i8[4, 4]) -> y: i32[4] { y[l] = sum(j) a[l, j] * b[l, j] }"},
    {"udot_128", Isa::kNeon, "dotprod",
     "kernel udot_128(a: u8[4, 4], b: u8[4, 4]) -> y: i32[4] { y[l] = sum(j) a[l, j] * b[l, j] }"},
    {"usdot_128", Isa::kNeon, "i8mm",
     "kernel usdot_128(a: u8[4, 4], b: i8[4, 4]) -> y: i32[4] { y[l] = sum(j) a[l, j] * b[l, j] }"},
    // Two instructions, bfmlalb and bfmlalt, each of which is an FMA of f32.
    {"bfmlal_128", Isa::kNeon, "bf16",
     "kernel bfmlal_128(a: bf16[4, 2], b: bf16[4, 2]) -> y: f32[4] { y[l] = sum(j) a[l, j] * b[l, j] }", 0.5},
    // Tensor cores, by PTX's mma.sync. Their sums of floats are cut off, not rounded: docs/schedules.md.
    {"mma_m16n8k16_f16", kNoIsa, "",
     "kernel mma_m16n8k16_f16(a: f16[16, 16], b: f16[16, 8]) -> y: f32[16, 8] { y[m, n] = sum(k) a[m, k] * b[k, n] }",
     1, 0, 80},
    {"mma_m16n8k16_bf16", kNoIsa, "",
     "kernel mma_m16n8k16_bf16(a: bf16[16, 16], b: bf16[16, 8]) -> y: f32[16, 8] "
     "{ y[m, n] = sum(k) a[m, k] * b[k, n] }",
     1, 0, 80},
    {"mma_m16n8k32_i8", kNoIsa, "",
     "kernel mma_m16n8k32_i8(a: i8[16, 32], b: i8[32, 8]) -> y: i32[16, 8] { y[m, n] = sum(k) a[m, k] * b[k, n] }", 1,
     0, 80},
    {"mma_m16n8k32_u8", kNoIsa, "",
     "kernel mma_m16n8k32_u8(a: u8[16, 32], b: u8[32, 8]) -> y: i32[16, 8] { y[m, n] = sum(k) a[m, k] * b[k, n] }", 1,
     0, 80},
    {"mma_m16n8k32_u8_i8", kNoIsa, "",
     "kernel mma_m16n8k32_u8_i8(a: u8[16, 32], b: i8[32, 8]) -> y: i32[16, 8] { y[m, n] = sum(k) a[m, k] * b[k, n] }",
     1, 0, 80},
    {"mma_m16n8k32_i8_u8", kNoIsa, "",
     "kernel mma_m16n8k32_i8_u8(a: i8[16, 32], b: u8[32, 8]) -> y: i32[16, 8] { y[m, n] = sum(k) a[m, k] * b[k, n] }",
     1, 0, 80},
    // Of f32, rounded to 11 bits: a product is off by 2⁻¹⁰ of itself at most, where fast allows 10⁻².
    {"mma_m16n8k8_tf32", kNoIsa, "",
     "kernel mma_m16n8k8_tf32(a: f32[16, 8], b: f32[8, 8]) -> y: f32[16, 8] { y[m, n] = sum(k) a[m, k] * b[k, n] }", 1,
     0, 80, kThreadsOfOneWarp, Accuracy::kFast},
    // Of a group of warps, by PTX's wgmma.
    {"wgmma_m64n64k16_f16", kNoIsa, "",
     "kernel wgmma_m64n64k16_f16(a: f16[64, 16], b: f16[16, 64]) -> y: f32[64, 64] "
     "{ y[m, n] = sum(k) a[m, k] * b[k, n] }",
     1, 0, 90, kThreadsOfGroup},
    {"wgmma_m64n64k16_bf16", kNoIsa, "",
     "kernel wgmma_m64n64k16_bf16(a: bf16[64, 16], b: bf16[16, 64]) -> y: f32[64, 64] "
     "{ y[m, n] = sum(k) a[m, k] * b[k, n] }",
     1, 0, 90, kThreadsOfGroup},
    {"wgmma_m64n128k16_f16", kNoIsa, "",
     "kernel wgmma_m64n128k16_f16(a: f16[64, 16], b: f16[16, 128]) -> y: f32[64, 128] "
     "{ y[m, n] = sum(k) a[m, k] * b[k, n] }",
     1, 0, 90, kThreadsOfGroup},
    {"wgmma_m64n128k16_bf16", kNoIsa, "",
     "kernel wgmma_m64n128k16_bf16(a: bf16[64, 16], b: bf16[16, 128]) -> y: f32[64, 128] "
     "{ y[m, n] = sum(k) a[m, k] * b[k, n] }",
     1, 0, 90, kThreadsOfGroup},
    {"wgmma_m64n256k16_f16", kNoIsa, "",
     "kernel wgmma_m64n256k16_f16(a: f16[64, 16], b: f16[16, 256]) -> y: f32[64, 256] "
     "{ y[m, n] = sum(k) a[m, k] * b[k, n] }",
     1, 0, 90, kThreadsOfGroup},
    {"wgmma_m64n256k16_bf16", kNoIsa, "",
     "kernel wgmma_m64n256k16_bf16(a: bf16[64, 16], b: bf16[16, 256]) -> y: f32[64, 256] "
     "{ y[m, n] = sum(k) a[m, k] * b[k, n] }",
     1, 0, 90, kThreadsOfGroup},
};
constexpr size_t kCount = std::size(kInstructions);

InstructionMeaning Read(const Instruction& instruction) {
  Result<Kernel> kernel = ParseKernel(instruction.meaning, instruction.name);
  HONE_CHECK(kernel.has_value());
  InstructionMeaning meaning;
  meaning.kernel = *std::move(kernel);
  const Stage& stage = meaning.stage();
  meaning.is_of_warp = instruction.sm > 0;
  meaning.is_of_group = meaning.is_of_warp && instruction.threads == kThreadsOfGroup;
  meaning.threads = meaning.is_of_warp ? instruction.threads : 1;
  HONE_CHECK(stage.axes.size() == stage.reduce_axes.size() + (meaning.is_of_warp ? 1 : 0) && stage.axes.size() <= 2);
  meaning.lanes = EvalExtent(meaning.kernel, stage.axes.back().extent);
  meaning.steps = EvalExtent(meaning.kernel, stage.reduce_axes.back().extent);
  if (stage.axes.size() == 2) {
    meaning.rows = EvalExtent(meaning.kernel, stage.axes[0].extent);
    if (!meaning.is_of_warp) meaning.groups = EvalExtent(meaning.kernel, stage.reduce_axes[0].extent);
  }
  for (size_t i = 0; i < 2; ++i) meaning.operands[i] = meaning.kernel.tensors[meaning.kernel.operands[i]].dtype;
  meaning.step_bytes = ByteSize(meaning.operands[0]);
  meaning.sum = meaning.kernel.tensors[stage.output].dtype;
  return meaning;
}

// Finds what stands for the meaning's operands in a body; says what differs.
class Matcher {
 public:
  Matcher(const Kernel& meaning, const Kernel& kernel, const Stage& stage)
      : meaning_(meaning), kernel_(kernel), stage_(stage), found_(meaning.tensors.size()) {}

  bool Match(const Expr& meant, const Expr& seen) {
    if (meant.op() == Op::kLoad) return Bind(meant, seen);
    if (meant.op() != seen.op() || meant.args().size() != seen.args().size())
      return Differs(fmt::format("{} where {} is meant", PrintExpr(kernel_, stage_, seen), OpName(meant.op())));
    if (meant.type() != seen.type())
      return Differs(
          fmt::format("{} is {}, not {}", PrintExpr(kernel_, stage_, seen), Name(seen.type()), Name(meant.type())));
    if (meant.args().size() == 2 && IsCommutative(meant.op())) {
      const Matcher before = *this;
      if (Match(meant.arg(0), seen.arg(0)) && Match(meant.arg(1), seen.arg(1))) return true;
      const std::string first = std::exchange(why_, "");
      found_ = before.found_;
      if (Match(meant.arg(0), seen.arg(1)) && Match(meant.arg(1), seen.arg(0))) return true;
      return Differs(first);
    }
    for (size_t i = 0; i < meant.args().size(); ++i)
      if (!Match(meant.arg(i), seen.arg(i))) return false;
    return true;
  }

  const Expr& Operand(size_t position) const { return found_[meaning_.operands[position]]; }
  const std::string& why() const { return why_; }

 private:
  bool Differs(std::string why) {
    why_ = std::move(why);
    return false;
  }
  bool Bind(const Expr& meant, const Expr& seen) {
    if (seen.op() != Op::kLoad)
      return Differs(fmt::format("{} is no element of a tensor", PrintExpr(kernel_, stage_, seen)));
    if (seen.type() != meant.type())
      return Differs(fmt::format("{} is {} where {} is meant", kernel_.tensors[seen.tensor()].name, Name(seen.type()),
                                 Name(meant.type())));
    Expr& bound = found_[meant.tensor()];
    if (bound && !SameExpr(bound, seen)) return Differs("two elements where one is meant");
    bound = seen;
    return true;
  }

  const Kernel& meaning_;
  const Kernel& kernel_;
  const Stage& stage_;
  IdVector<TensorId, Expr> found_;
  std::string why_;
};

}  // namespace

std::span<const Instruction> AllInstructions() { return kInstructions; }

const Instruction* FindInstruction(std::string_view name) {
  for (const Instruction& instruction : kInstructions)
    if (instruction.name == name) return &instruction;
  return nullptr;
}

std::string InstructionNames() {
  std::string names;
  for (const Instruction& instruction : kInstructions) names.append(names.empty() ? "" : ", ").append(instruction.name);
  return names;
}

const InstructionMeaning& MeaningOf(const Instruction& instruction) {
  static const std::array<InstructionMeaning, kCount> meanings = [] {
    std::array<InstructionMeaning, kCount> all;
    std::transform(std::begin(kInstructions), std::end(kInstructions), all.begin(), Read);
    return all;
  }();
  return meanings[static_cast<size_t>(&instruction - kInstructions)];
}

bool HasInstruction(const CpuTarget& target, const Instruction& instruction) {
  return instruction.sm == 0 && target.isa == instruction.isa &&
         (instruction.feature.empty() ||
          std::find(target.features.begin(), target.features.end(), instruction.feature) != target.features.end());
}

bool HasInstruction(const DeviceTarget& target, const Instruction& instruction) {
  const int sm = ComputeCapability(target);
  return instruction.sm > 0 && (MeaningOf(instruction).is_of_group ? sm == instruction.sm : sm >= instruction.sm);
}

int ComputeCapability(const DeviceTarget& target) {
  const auto arch = target.facts.find("arch");
  int sm = 0;
  if (target.kind != kCudaKind || arch == target.facts.end()) return 0;
  constexpr std::string_view kBefore = "sm_";
  const std::string& text = arch->second;
  if (!text.starts_with(kBefore)) return 0;
  std::from_chars(text.data() + kBefore.size(), text.data() + text.size(), sm);  // sm_90a has what sm_90 has
  return sm;
}

Result<std::vector<Expr>> MatchInstruction(const Kernel& kernel, const Stage& stage, const Instruction& instruction) {
  const InstructionMeaning& meaning = MeaningOf(instruction);
  auto refuse = [&](const std::string& why) {
    return Error{ErrorKind::kInvalid, fmt::format("{} does something else: {}", instruction.name, why), ""};
  };
  if (kernel.options.accuracy < instruction.accuracy)
    return Error{ErrorKind::kInvalid,
                 fmt::format("{} rounds its factors as the kernel's accuracy does not allow: it wants accuracy={}",
                             instruction.name, AccuracyName(instruction.accuracy)),
                 ""};
  if (stage.reduction != meaning.stage().reduction)
    return refuse(fmt::format("{} is no sum", kernel.tensors[stage.output].name));
  if (const DType type = kernel.tensors[stage.output].dtype; type != meaning.sum)
    return refuse(
        fmt::format("{} is {}, the sum {}", kernel.tensors[stage.output].name, Name(type), Name(meaning.sum)));
  Matcher matcher(meaning.kernel, kernel, stage);
  if (!matcher.Match(meaning.stage().body, stage.body)) return refuse(matcher.why());
  return std::vector<Expr>{matcher.Operand(0), matcher.Operand(1)};
}

}  // namespace hone
