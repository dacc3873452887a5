// Recurrent layers as nodes: one product of matrices for what the inputs add to all steps, then for each step a product
// with the state before it and a few element-wise kernels. All steps use the same kernels and packed weights.
#include "network/onnx/recurrence.h"

namespace hone {
namespace {

constexpr int64_t kMostSteps = 512;
constexpr size_t kBias = 3, kLengths = 4, kHidden = 5, kCell = 6, kPeepholes = 7;  // operands

class Unroller {
 public:
  Unroller(OperatorCall& call, const Recurrence& of) : call_(call), build_(call.build), of_(of) {}

  Result<Outputs> Run() {
    std::vector<ValueId> rows, hidden, cells;
    for (int64_t direction = 0; direction < of_.directions; ++direction) {
      State state = HONE_TRY(RunDirection(direction));
      rows.push_back(state.all);
      hidden.push_back(state.hidden);
      cells.push_back(state.cell);
    }
    Outputs outputs = {HONE_TRY(build_.Concat(rows, 1)), HONE_TRY(build_.Concat(hidden, 0))};
    if (of_.cell == Cell::kLstm) outputs.push_back(HONE_TRY(build_.Concat(cells, 0)));
    return outputs;
  }

 private:
  struct State {
    ValueId hidden, cell;  // [1, batch, hidden]
    ValueId all;           // [steps, 1, batch, hidden]
  };

  // One direction's part of an operand, without that dimension.
  Result<ValueId> OfDirection(size_t operand, int64_t direction) {
    ValueId part = HONE_TRY(build_.Slice(call_.In(operand), 0, direction, 1));
    Shape shape = build_.shape(part);
    shape.erase(shape.begin());
    return build_.Reshape(part, shape);
  }

  // Gates `begin` to `end` of [batch, gates * hidden], or of a vector.
  Result<ValueId> Gates(ValueId x, int64_t begin, int64_t end) {
    return build_.Slice(x, build_.shape(x).size() - 1, begin * of_.hidden, (end - begin) * of_.hidden);
  }

  // x · wᵀ
  Result<ValueId> Times(ValueId x, ValueId w) {
    Node node;
    node.kind = NodeKind::kMatMul;
    node.flag = true;
    node.inputs = {x, w};
    return build_.Add(std::move(node));
  }

  Result<ValueId> Zeros(Shape shape) {
    return build_.Constant(MakeNumbers(build_.dtype(call_.In(0)), std::move(shape)));
  }

  Result<ValueId> Begin(size_t operand, int64_t direction) {
    if (call_.Has(operand)) return OfDirection(operand, direction);
    return Zeros({of_.batch, of_.hidden});
  }

  Result<ValueId> Activated(size_t which, ValueId x) { return build_.Unary(of_.activations[which].name, x); }

  Result<State> RunDirection(int64_t direction) {
    first_activation_ = static_cast<size_t>(direction) * of_.activations.size() / static_cast<size_t>(of_.directions);
    const int64_t rows = of_.gates * of_.hidden;
    r_ = HONE_TRY(OfDirection(2, direction));
    ValueId x = HONE_TRY(build_.Reshape(call_.In(0), {of_.steps * of_.batch, of_.inputs}));
    x = HONE_TRY(Times(x, HONE_TRY(OfDirection(1, direction))));
    inner_bias_ = {};
    if (call_.Has(kBias)) {
      const ValueId both = HONE_TRY(OfDirection(kBias, direction));
      ValueId bias = HONE_TRY(build_.Slice(both, 0, 0, rows)), recurrent = HONE_TRY(build_.Slice(both, 0, rows, rows));
      if (of_.cell == Cell::kGru && of_.linear_before_reset) {
        inner_bias_ = HONE_TRY(Gates(recurrent, 2, 3));  // the reset gate weighs it
        recurrent = HONE_TRY(build_.Concat({HONE_TRY(Gates(recurrent, 0, 2)), HONE_TRY(Zeros({of_.hidden}))}, 0));
      }
      x = HONE_TRY(build_.Binary("add", x, HONE_TRY(build_.Binary("add", bias, recurrent))));
    }
    x = HONE_TRY(build_.Reshape(x, {of_.steps, of_.batch, rows}));
    hidden_ = HONE_TRY(Begin(kHidden, direction));
    if (of_.cell == Cell::kLstm) cell_ = HONE_TRY(Begin(kCell, direction));
    std::vector<ValueId> all(static_cast<size_t>(of_.steps));
    for (int64_t i = 0; i < of_.steps; ++i) {
      const int64_t step = of_.is_reverse[static_cast<size_t>(direction)] ? of_.steps - 1 - i : i;
      const ValueId own = HONE_TRY(build_.Reshape(HONE_TRY(build_.Slice(x, 0, step, 1)), {of_.batch, rows}));
      switch (of_.cell) {
        case Cell::kRnn: HONE_TRY(StepRnn(own)); break;
        case Cell::kGru: HONE_TRY(StepGru(own)); break;
        case Cell::kLstm: HONE_TRY(StepLstm(own)); break;
      }
      all[static_cast<size_t>(step)] = hidden_;
    }
    State state;
    state.all = HONE_TRY(build_.Reshape(HONE_TRY(build_.Concat(all, 0)), {of_.steps, 1, of_.batch, of_.hidden}));
    state.hidden = HONE_TRY(build_.Reshape(hidden_, {1, of_.batch, of_.hidden}));
    if (of_.cell == Cell::kLstm) state.cell = HONE_TRY(build_.Reshape(cell_, {1, of_.batch, of_.hidden}));
    return state;
  }

  Result<void> StepRnn(ValueId own) {
    hidden_ = HONE_TRY(Activated(first_activation_, HONE_TRY(build_.Binary("add", HONE_TRY(Times(hidden_, r_)), own))));
    return {};
  }

  // Gates: input, output, forget, cell.
  Result<void> StepLstm(ValueId own) {
    const ValueId sums = HONE_TRY(build_.Binary("add", HONE_TRY(Times(hidden_, r_)), own));
    auto gate = [&](int64_t which, size_t activation) -> Result<ValueId> {
      return Activated(first_activation_ + activation, HONE_TRY(Gates(sums, which, which + 1)));
    };
    const ValueId kept = HONE_TRY(build_.Binary("mul", HONE_TRY(gate(2, 0)), cell_));
    const ValueId added = HONE_TRY(build_.Binary("mul", HONE_TRY(gate(0, 0)), HONE_TRY(gate(3, 1))));
    cell_ = HONE_TRY(build_.Binary("add", kept, added));
    hidden_ = HONE_TRY(build_.Binary("mul", HONE_TRY(gate(1, 0)), HONE_TRY(Activated(first_activation_ + 2, cell_))));
    return {};
  }

  // Gates: update, reset, hidden.
  Result<void> StepGru(ValueId own) {
    const ValueId open = HONE_TRY(Gates(own, 2, 3));
    ValueId proposed, update;
    auto gates_of = [&](ValueId recurrent, int64_t which) -> Result<ValueId> {
      const ValueId sum = HONE_TRY(
          build_.Binary("add", HONE_TRY(Gates(recurrent, which, which + 1)), HONE_TRY(Gates(own, which, which + 1))));
      return Activated(first_activation_, sum);
    };
    if (of_.linear_before_reset) {
      const ValueId recurrent = HONE_TRY(Times(hidden_, r_));
      update = HONE_TRY(gates_of(recurrent, 0));
      ValueId inner = HONE_TRY(Gates(recurrent, 2, 3));
      if (inner_bias_) inner = HONE_TRY(build_.Binary("add", inner, inner_bias_));
      proposed = HONE_TRY(build_.Binary("mul", HONE_TRY(gates_of(recurrent, 1)), inner));
    } else {
      const ValueId both = HONE_TRY(Times(hidden_, HONE_TRY(build_.Slice(r_, 0, 0, 2 * of_.hidden))));
      update = HONE_TRY(gates_of(both, 0));
      const ValueId reset = HONE_TRY(build_.Binary("mul", HONE_TRY(gates_of(both, 1)), hidden_));
      proposed = HONE_TRY(Times(reset, HONE_TRY(build_.Slice(r_, 0, 2 * of_.hidden, of_.hidden))));
    }
    proposed = HONE_TRY(Activated(first_activation_ + 1, HONE_TRY(build_.Binary("add", proposed, open))));
    const ValueId difference = HONE_TRY(build_.Binary("sub", hidden_, proposed));
    hidden_ = HONE_TRY(build_.Binary("add", proposed, HONE_TRY(build_.Binary("mul", update, difference))));
    return {};
  }

  OperatorCall& call_;
  Builder& build_;
  const Recurrence& of_;
  size_t first_activation_ = 0;
  ValueId r_, hidden_, cell_, inner_bias_;
};

}  // namespace

bool IsUnrolled(const OperatorCall& call, const Recurrence& of) {
  const DType dtype = call.build.dtype(call.In(0));
  for (const Activation& each : of.activations)
    if (each.name != "sigmoid" && each.name != "tanh" && each.name != "relu") return false;
  return (dtype == DType::kF32 || dtype == DType::kF64) && of.steps >= 1 && of.steps <= kMostSteps && of.batch >= 1 &&
         of.inputs >= 1 && of.hidden >= 1 && of.clip == 0 && !of.batch_first && !of.input_forget &&
         !call.Has(kLengths) && !call.Has(kPeepholes);
}

Result<Outputs> Unrolled(OperatorCall& call, const Recurrence& of) { return Unroller(call, of).Run(); }

}  // namespace hone
