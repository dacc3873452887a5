// Contractions of f32 by instructions that multiply bf16 and sum in f32: one product of factors rounded to bf16 where
// the kernel says accuracy=fast, three of their pieces where it says relaxed. Weights are brought into that form by
// hone_pack, the other factor as it is copied.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "codegen/instructions.h"
#include "codegen/rules/contraction_rule.h"
#include "ir/graph/stage_graph.h"

namespace hone {
namespace {

constexpr double kPays = 1.5;      // times as many products at once: the other factor is converted for it,
constexpr double kManyTimes = 16;  // each of its elements for so many products at least
constexpr double kPieces = 3;      // products of pieces for one of f32

bool IsProductOfF32(const SchedulePlanner& planner, const Contraction& c) {
  const Expr& body = planner.StageNamed(c.stage).body;
  return body.op() == Op::kMul && body.type() == DType::kF32 &&
         std::ranges::all_of(body.args(), [](const Expr& factor) {
           return factor.op() == Op::kLoad || (factor.op() == Op::kPad && factor.arg(0).op() == Op::kLoad);
         });
}

}  // namespace

double Bf16Gain(const SchedulePlanner& planner, const Contraction& c) {
  const bool is_rounded = planner.Admits("bf16_factors");
  const bool has_constant = std::ranges::any_of(
      c.operands, [&](const AccessPattern& access) { return IsOfAConstant(planner, access.tensor); });
  if ((!is_rounded && !planner.Admits("bf16_pieces")) || !has_constant || !IsProductOfF32(planner, c)) return 0;
  double rate = 0;
  for (const Instruction* instruction : planner.machine().instructions) {
    const InstructionMeaning& meaning = MeaningOf(*instruction);
    if (meaning.operands[0] != DType::kBF16 || meaning.operands[1] != DType::kBF16 || meaning.sum != DType::kF32)
      continue;
    if (GroupedAxis(planner, c, meaning.depth())) rate = std::max(rate, RateOf(*instruction));
  }
  return rate / planner.machine().Lanes(ByteSize(DType::kF32)) / (is_rounded ? 1 : kPieces);
}

Contraction NarrowFactors(SchedulePlanner& planner, Contraction c) {
  const double gain = Bf16Gain(planner, c);
  if (gain <= 1) return c;
  const int constant = IsOfAConstant(planner, c.operands[0].tensor) ? 0 : 1;
  double times = 1;
  for (AxisId axis : c.only[constant]) times *= static_cast<double>(c.extents[axis]);
  if (!planner.ChooseIf(c.stage, {"bf16", "its factors are rounded to bf16, or taken apart into pieces of it"},
                        gain >= kPays && times >= kManyTimes))
    return c;
  const bool is_rounded = planner.Admits("bf16_factors");
  const std::string name = c.stage, other = planner.kernel().tensors[c.operands[1 - constant].tensor].name;
  std::vector<std::string> names;
  for (const AccessPattern& access : c.operands)
    names.push_back(planner.FreshName(planner.kernel().tensors[access.tensor].name + "_bf16"));
  if (!planner.Rewrite({is_rounded ? "bf16_factors" : "bf16_pieces", name, std::move(names)})) return c;
  // What computes it, such as its margin of zeros, goes into the copy.
  const Stage* producer = ProducerOf(planner.kernel(), FindTensor(planner.kernel(), other));
  if (producer != nullptr && producer->reduction == Reduction::kNone && !planner.IsScheduled(other) &&
      ReadersOf(planner.kernel(), producer->output).size() == 1)
    planner.Inline(other);
  std::optional<Contraction> narrow = AnalyzeContraction(planner, name);
  HONE_CHECK(narrow.has_value());
  planner.Took("bf16", name,
               is_rounded ? "accuracy=fast allows factors of bf16" : "accuracy=relaxed allows pieces of bf16");
  return *std::move(narrow);
}

}  // namespace hone
