// RNN, GRU and LSTM: what is not unrolled into kernels (unroll_recurrence.cc) runs on the host, a step after the other.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "network/graph/walk.h"
#include "network/onnx/recurrence.h"

namespace hone {
namespace {

using evaluating::Arguments;
using Computed = Result<std::vector<Numbers>>;

// Names, with what ONNX takes for their parameters where the file says nothing.
Result<std::vector<Activation>> ReadActivations(const OperatorCall& call, std::vector<std::string> standard,
                                                size_t directions) {
  struct Known {
    std::string_view name;
    double alpha, beta;
    int parameters;
  };
  static constexpr Known kKnown[] = {{"sigmoid", 0, 0, 0},      {"tanh", 0, 0, 0},
                                     {"relu", 0, 0, 0},         {"affine", 1, 0, 2},
                                     {"leakyrelu", 0.01, 0, 1}, {"thresholdedrelu", 1, 0, 1},
                                     {"scaledtanh", 1, 1, 2},   {"hardsigmoid", 0.2, 0.5, 2},
                                     {"elu", 1, 0, 1},          {"softsign", 0, 0, 0},
                                     {"softplus", 0, 0, 0}};
  std::vector<std::string> names;
  const OnnxAttribute* given = call.Find("activations");
  if (given != nullptr && !given->texts.empty()) {
    names = given->texts;
  } else {
    for (size_t d = 0; d < directions; ++d) names.insert(names.end(), standard.begin(), standard.end());
  }
  if (names.size() != standard.size() * directions)
    return call.build.Invalid(fmt::format("{} activations, wanted {}", names.size(), standard.size() * directions));
  const OnnxAttribute *alphas = call.Find("activation_alpha"), *betas = call.Find("activation_beta");
  size_t alpha = 0, beta = 0;
  std::vector<Activation> all;
  for (std::string& name : names) {
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    const Known* known =
        std::find_if(std::begin(kKnown), std::end(kKnown), [&](const Known& k) { return k.name == name; });
    if (known == std::end(kKnown)) return call.build.Unsupported("the activation " + name);
    Activation activation{name, known->alpha, known->beta};
    if (known->parameters > 0 && alphas != nullptr && alpha < alphas->reals.size())
      activation.alpha = alphas->reals[alpha++];
    if (known->parameters > 1 && betas != nullptr && beta < betas->reals.size()) activation.beta = betas->reals[beta++];
    all.push_back(std::move(activation));
  }
  return all;
}

// Which operand is which; nullptr: left out.
struct RecurrentOperands {
  const Numbers *x = nullptr, *w = nullptr, *r = nullptr, *bias = nullptr, *lengths = nullptr, *hidden = nullptr,
                *cell = nullptr, *peepholes = nullptr;
};

// One direction of one sequence, step by step.
class SequenceRun {
 public:
  SequenceRun(const Recurrence& of, const RecurrentOperands& in, int64_t direction)
      : of_(of),
        in_(in),
        direction_(direction),
        h_(Size(of.hidden)),
        c_(Size(of.hidden)),
        sums_(Size(of.hidden * of.gates)),
        recurrent_(Size(of.hidden * of.gates)) {}

  void Begin(int64_t batch) {
    auto take = [&](const Numbers* from, std::vector<double>& to) {
      for (int64_t i = 0; i < of_.hidden; ++i) to[Size(i)] = from == nullptr ? 0 : from->real[Size(State(batch) + i)];
    };
    take(in_.hidden, h_);
    take(in_.cell, c_);
  }

  // Where a batch's state lies in [directions, batch, hidden], or [batch, directions, hidden].
  int64_t State(int64_t batch) const {
    return (of_.batch_first ? batch * of_.directions + direction_ : direction_ * of_.batch + batch) * of_.hidden;
  }

  void Step(int64_t batch, int64_t step) {
    const int64_t rows = of_.gates * of_.hidden;
    const int64_t at = (of_.batch_first ? batch * of_.steps + step : step * of_.batch + batch) * of_.inputs;
    for (int64_t row = 0; row < rows; ++row) {
      double sum = 0, back = 0;
      for (int64_t i = 0; i < of_.inputs; ++i)
        sum += in_.w->real[Size((direction_ * rows + row) * of_.inputs + i)] * in_.x->real[Size(at + i)];
      for (int64_t i = 0; i < of_.hidden; ++i)
        back += in_.r->real[Size((direction_ * rows + row) * of_.hidden + i)] * h_[Size(i)];
      if (in_.bias != nullptr) {
        sum += in_.bias->real[Size(direction_ * 2 * rows + row)];
        back += in_.bias->real[Size(direction_ * 2 * rows + rows + row)];
      }
      sums_[Size(row)] = sum;
      recurrent_[Size(row)] = back;
    }
    switch (of_.cell) {
      case Cell::kRnn: StepRnn(); break;
      case Cell::kGru: StepGru(); break;
      case Cell::kLstm: StepLstm(); break;
    }
  }

  const std::vector<double>& hidden() const { return h_; }
  const std::vector<double>& cell() const { return c_; }

 private:
  static size_t Size(int64_t n) { return static_cast<size_t>(n); }
  double Clipped(double x) const { return of_.clip > 0 ? std::clamp(x, -of_.clip, of_.clip) : x; }
  double Activated(size_t which, double x) const {
    const size_t per_direction = of_.activations.size() / Size(of_.directions);
    return of_.activations[Size(direction_) * per_direction + which](Clipped(x));
  }
  double Gate(int64_t gate, int64_t i) const {
    return sums_[Size(gate * of_.hidden + i)] + recurrent_[Size(gate * of_.hidden + i)];
  }
  double Peephole(int64_t gate, int64_t i) const {
    if (in_.peepholes == nullptr) return 0;
    return in_.peepholes->real[Size((direction_ * 3 + gate) * of_.hidden + i)];
  }

  void StepRnn() {
    for (int64_t i = 0; i < of_.hidden; ++i) h_[Size(i)] = Activated(0, Gate(0, i));
  }

  // Gates: update, reset, hidden.
  void StepGru() {
    std::vector<double> update(h_.size()), reset(h_.size());
    for (int64_t i = 0; i < of_.hidden; ++i) {
      update[Size(i)] = Activated(0, Gate(0, i));
      reset[Size(i)] = Activated(0, Gate(1, i));
    }
    std::vector<double> next(h_.size());
    const int64_t rows = of_.gates * of_.hidden;
    for (int64_t i = 0; i < of_.hidden; ++i) {
      const int64_t row = 2 * of_.hidden + i;
      double back = 0;
      if (of_.linear_before_reset) {
        back = reset[Size(i)] * recurrent_[Size(row)];
      } else {
        for (int64_t k = 0; k < of_.hidden; ++k)
          back += in_.r->real[Size((direction_ * rows + row) * of_.hidden + k)] * reset[Size(k)] * h_[Size(k)];
        if (in_.bias != nullptr) back += in_.bias->real[Size(direction_ * 2 * rows + rows + row)];
      }
      const double proposed = Activated(1, sums_[Size(row)] + back);
      next[Size(i)] = (1 - update[Size(i)]) * proposed + update[Size(i)] * h_[Size(i)];
    }
    h_ = std::move(next);
  }

  // Gates: input, output, forget, cell; peepholes of the first three in that order.
  void StepLstm() {
    for (int64_t i = 0; i < of_.hidden; ++i) {
      const double old = c_[Size(i)];
      const double input = Activated(0, Gate(0, i) + Peephole(0, i) * old);
      const double forget = of_.input_forget ? 1 - input : Activated(0, Gate(2, i) + Peephole(2, i) * old);
      const double now = forget * old + input * Activated(1, Gate(3, i));
      const double output = Activated(0, Gate(1, i) + Peephole(1, i) * now);
      const size_t per_direction = of_.activations.size() / Size(of_.directions);
      c_[Size(i)] = now;
      next_.push_back(output * of_.activations[Size(direction_) * per_direction + 2](now));
    }
    h_ = std::move(next_);
    next_.clear();
  }

  const Recurrence& of_;
  const RecurrentOperands& in_;
  const int64_t direction_;
  std::vector<double> h_, c_, sums_, recurrent_, next_;
};

Computed RunRecurrence(const Recurrence& of, const RecurrentOperands& in, DType dtype, const Shape& y_shape,
                       const Shape& state_shape) {
  Numbers y = MakeNumbers(dtype, y_shape), last = MakeNumbers(dtype, state_shape), cell = last;
  for (int64_t direction = 0; direction < of.directions; ++direction) {
    SequenceRun run(of, in, direction);
    for (int64_t batch = 0; batch < of.batch; ++batch) {
      const int64_t length = in.lengths == nullptr ? of.steps : in.lengths->whole[static_cast<size_t>(batch)];
      if (length < 0 || length > of.steps)
        return Error{ErrorKind::kInvalid, fmt::format("a sequence of {} in {} steps", length, of.steps), ""};
      run.Begin(batch);
      for (int64_t i = 0; i < length; ++i) {
        const int64_t step = of.is_reverse[static_cast<size_t>(direction)] ? length - 1 - i : i;
        run.Step(batch, step);
        const int64_t at = of.batch_first ? (batch * of.steps + step) * of.directions + direction
                                          : (step * of.directions + direction) * of.batch + batch;
        std::copy(run.hidden().begin(), run.hidden().end(), y.real.begin() + at * of.hidden);
      }
      std::copy(run.hidden().begin(), run.hidden().end(), last.real.begin() + run.State(batch));
      std::copy(run.cell().begin(), run.cell().end(), cell.real.begin() + run.State(batch));
    }
  }
  std::vector<Numbers> results;
  results.push_back(std::move(y));
  results.push_back(std::move(last));
  if (of.cell == Cell::kLstm) results.push_back(std::move(cell));
  return results;
}

Result<Outputs> Recurrent(OperatorCall& call) {
  Recurrence of;
  const std::string& op = call.node().op;
  of.cell = op == "RNN" ? Cell::kRnn : op == "GRU" ? Cell::kGru : Cell::kLstm;
  of.gates = op == "RNN" ? 1 : op == "GRU" ? 3 : 4;
  const Shape x = call.shape(0), w = call.shape(1), r = call.shape(2);
  if (x.size() != 3 || w.size() != 3 || r.size() != 3)
    return call.build.Invalid("it wants three dimensions of x, w and r");
  of.batch_first = call.Whole("layout", 0) != 0;
  of.steps = x[of.batch_first ? 1 : 0];
  of.batch = x[of.batch_first ? 0 : 1];
  of.inputs = x[2];
  of.hidden = r[2];
  const std::string direction = call.Text("direction", "forward");
  of.directions = direction == "bidirectional" ? 2 : 1;
  of.is_reverse =
      direction == "bidirectional" ? std::vector<bool>{false, true} : std::vector<bool>{direction == "reverse"};
  const int64_t rows = of.gates * of.hidden;
  if (w != Shape{of.directions, rows, of.inputs} || r != Shape{of.directions, rows, of.hidden})
    return call.build.Invalid(
        fmt::format("weights of {} and {} for {} hidden elements", ShapeText(w), ShapeText(r), of.hidden));
  of.clip = call.Real("clip", 0);
  of.linear_before_reset = call.Whole("linear_before_reset", 0) != 0;
  of.input_forget = call.Whole("input_forget", 0) != 0;
  std::vector<std::string> standard = {"sigmoid", "tanh", "tanh"};
  if (of.cell == Cell::kRnn) standard = {"tanh"};
  if (of.cell == Cell::kGru) standard = {"sigmoid", "tanh"};
  of.activations = HONE_TRY(ReadActivations(call, standard, static_cast<size_t>(of.directions)));
  const Shape state =
      of.batch_first ? Shape{of.batch, of.directions, of.hidden} : Shape{of.directions, of.batch, of.hidden};
  const Shape y = of.batch_first ? Shape{of.batch, of.steps, of.directions, of.hidden}
                                 : Shape{of.steps, of.directions, of.batch, of.hidden};
  const Shape expected[] = {{of.directions, 2 * rows}, {of.batch}, state, state, {of.directions, 3 * of.hidden}};
  std::vector<ValueId> inputs = {call.In(0), call.In(1), call.In(2)};
  std::string takes = "r==";
  constexpr size_t kLengths = 1;
  int slots[5] = {-1, -1, -1, -1, -1};
  for (size_t i = 0; i < 5; ++i) {
    if (!call.Has(3 + i)) continue;
    if (call.shape(3 + i) != expected[i])
      return call.build.Invalid(
          fmt::format("operand {} is {}, wanted {}", 4 + i, ShapeText(call.shape(3 + i)), ShapeText(expected[i])));
    slots[i] = static_cast<int>(inputs.size());
    inputs.push_back(call.In(3 + i));
    takes += i == kLengths ? 'w' : '=';
  }
  const DType dtype = call.build.dtype(call.In(0));
  if (!IsFloat(dtype)) return call.build.Invalid("it wants floats");
  if (IsUnrolled(call, of)) return Unrolled(call, of);
  auto compute = [=, slots = std::vector<int>(slots, slots + 5)](Arguments in) -> Computed {
    auto operand = [&](size_t i) { return slots[i] < 0 ? nullptr : in[static_cast<size_t>(slots[i])]; };
    return RunRecurrence(of, {in[0], in[1], in[2], operand(0), operand(1), operand(2), operand(3), operand(4)}, dtype,
                         y, state);
  };
  std::vector<TensorType> types = {{dtype, y}, {dtype, state}};
  if (of.cell == Cell::kLstm) types.push_back({dtype, state});
  const double steps = static_cast<double>(of.steps) * static_cast<double>(of.batch) *
                       static_cast<double>(of.directions) * static_cast<double>(rows) *
                       static_cast<double>(of.inputs + of.hidden);
  return call.build.Host({op, takes, types, compute, steps}, inputs);
}

}  // namespace

std::vector<Operator> RecurrentOperators() {
  return {{"RNN", 3, Recurrent}, {"GRU", 3, Recurrent}, {"LSTM", 3, Recurrent}};
}

}  // namespace hone
