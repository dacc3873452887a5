// Floats of 16 bits, as contractions read them where no instruction multiplies them: an FMA takes f32. What is
// broadcast is read again by every vector, so its elements are converted once, by a copy, which a constant has ahead of
// time. Vectors that many rows read are converted once as well, so that nothing is left between the FMAs: constants
// ahead of time, others where they are copied anyway. Those that few rows read stay narrow, as it is memory that they
// wait for, and are converted as they are loaded.
#include "base/arithmetic.h"
#include "base/check.h"
#include "codegen/rules/contraction_rule.h"
#include "codegen/rules/schedule_rules.h"
#include "ir/graph/dtype_traits.h"
#include "ir/graph/stage_graph.h"

namespace hone {
namespace {

constexpr int64_t kManyRowTiles = 4;
constexpr int64_t kManyRows = 16;  // FMAs of one element that take as long as its four bytes do from memory, about

// An element-wise stage that the tensor's one reader may take in.
bool IsCopyOfItsReader(const SchedulePlanner& planner, TensorId tensor) {
  const Stage* stage = ProducerOf(planner.kernel(), tensor);
  return stage != nullptr && stage->reduction == Reduction::kNone && !planner.IsScheduled(planner.NameOf(*stage)) &&
         ReadersOf(planner.kernel(), tensor).size() == 1;
}

// Tiles of rows that pass over the same vectors.
int64_t RowTiles(const Contraction& c, const RegisterTile& tile) {
  int64_t tiles = 1;
  for (AxisId axis : c.only[1 - tile.vector_operand]) {
    const int64_t rows = axis == tile.row_axis[0] ? tile.rows[0] : axis == tile.row_axis[1] ? tile.rows[1] : 1;
    tiles *= CeilDiv(c.extents[axis], rows);
  }
  return tiles;
}

// Rows that read each vector.
int64_t Rows(const Contraction& c, const RegisterTile& tile) {
  int64_t rows = 1;
  for (AxisId axis : c.only[1 - tile.vector_operand]) rows *= c.extents[axis];
  return rows;
}

// Reads the operand through a stage of f32, into which goes what computes the operand; "": refused.
std::string WidenOperand(SchedulePlanner& planner, const Contraction& c, int operand) {
  const TensorId tensor = c.operands[operand].tensor;
  const std::string name = planner.kernel().tensors[tensor].name;
  const bool is_copy = IsCopyOfItsReader(planner, tensor);
  std::string wide = planner.FreshName(name + "_wide");
  if (!planner.Rewrite({"widen", c.stage, {name, wide}})) return "";
  if (is_copy) planner.Inline(name);
  return wide;
}

}  // namespace

Contraction WidenOperands(SchedulePlanner& planner, RegisterTile& tile, Contraction c) {
  const int vectors = tile.vector_operand, rows = 1 - vectors;
  auto is_narrow = [&](int operand) {
    return IsNarrowFloat(planner.kernel().tensors[c.operands[operand].tensor].dtype);
  };
  if (c.group > 1 || (!is_narrow(rows) && !is_narrow(vectors))) return c;
  if (!planner.ChooseIf(c.stage, {"widen", "floats of 16 bits are converted once, not wherever they are read"}, true))
    return c;
  const TensorId vector_tensor = c.operands[vectors].tensor;
  const bool is_const = planner.kernel().tensors[vector_tensor].is_const;
  // Read where they lie, vectors would be converted for each tile of rows.
  if (is_narrow(vectors) && !is_const && c.operands[vectors].IsPlain() && RowTiles(c, tile) >= kManyRowTiles)
    tile.direct = false;
  const bool is_packed = !tile.direct && !is_const;
  const bool is_copied =
      is_packed || (is_const ? Rows(c, tile) >= kManyRows : IsCopyOfItsReader(planner, vector_tensor));
  const std::string wide_rows = is_narrow(rows) ? WidenOperand(planner, c, rows) : "";
  const std::string wide_vectors = is_narrow(vectors) && is_copied ? WidenOperand(planner, c, vectors) : "";
  if (wide_rows.empty() && wide_vectors.empty()) return c;
  std::optional<Contraction> widened = AnalyzeContraction(planner, c.stage);
  HONE_CHECK(widened.has_value());
  widened->wide_rows = wide_rows;
  widened->wide_vectors = wide_vectors;
  if (is_packed && !wide_vectors.empty()) widened->widened = vectors;
  planner.Took("widen", c.stage, "no instruction multiplies its operands: the arithmetic is that of f32");
  return *std::move(widened);
}

bool IsOfAConstant(const SchedulePlanner& planner, TensorId tensor) {
  const Kernel& kernel = planner.kernel();
  const Stage* producer = ProducerOf(kernel, tensor);
  TensorId constant = tensor;
  if (producer != nullptr) {
    constant = OnlyInputOf(kernel, *producer);
    bool is_direct = producer->reduction == Reduction::kNone;
    Walk(producer->body,
         [&](const Expr& e) { is_direct = is_direct && (e.op() != Op::kLoad || e.tensor() == constant); });
    if (!constant || !is_direct) return false;
  }
  return kernel.tensors[constant].kind == TensorKind::kInput && kernel.tensors[constant].is_const;
}

// Where no copy took them in, stages of their own.
void ContractionRule::ScheduleWideOperands() {
  for (const std::string& name : {c_.wide_rows, c_.wide_vectors}) {
    if (name.empty() || !FindStage(planner_.kernel(), name) || planner_.IsScheduled(name)) continue;
    if (IsOfAConstant(planner_, FindTensor(planner_.kernel(), name))) {
      planner_.Store(name, Scope::kConst);
      planner_.MarkScheduled(name);
    } else {
      ScheduleElementwise(planner_, name);
    }
  }
}

}  // namespace hone
