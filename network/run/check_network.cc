#include "network/run/check_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "ir/language/parse.h"
#include "ir/reference/accuracy.h"
#include "ir/reference/check_output.h"
#include "network/graph/quantization.h"
#include "network/run/follow_network.h"

namespace hone {
namespace {

// Enough to meet every tile border and tail; networks have many kernels.
constexpr SampleOptions kSamples{
    .samples = 160, .budget = 2e6, .full_budget = 5e5, .full = false, .projection_budget = 0};

Result<void> CheckKernel(Executor& executor, const Graph& graph, const CallPlan& plan, size_t call,
                         NetworkCheck* check) {
  Kernel kernel = HONE_TRY(ParseKernel(plan.calls[call].kernel));
  std::span<void* const> operands = HONE_TRY(executor.Operands(call));
  const auto bytes = static_cast<size_t>(KernelBytes(graph, plan.calls[call].output));
  FillUnwritten(executor.manifest(call).operands.back().dtype, {static_cast<std::byte*>(operands.back()), bytes});
  HONE_TRY(executor.SetOutput(call));
  HONE_TRY(executor.RunCalls(call, call + 1));
  operands = HONE_TRY(executor.Operands(call));
  std::vector<OperandView> inputs;
  for (void* operand : operands.first(operands.size() - 1)) inputs.push_back({operand});
  const std::span<const std::byte> written{static_cast<const std::byte*>(operands.back()), bytes};
  Interpreter interpreter(kernel, inputs);
  std::vector<Samples> samples = ComputeSamples(kernel, interpreter, kSamples, InputSeed(kernel));
  std::span<const std::byte> outputs[] = {written};
  Comparison comparison = CompareOutputs(kernel, interpreter, samples, outputs);
  ++check->kernels;
  check->max_rel_err = std::max(check->max_rel_err, comparison.max_rel_err);
  if (comparison.failure && !check->failure) {
    check->failure = *comparison.failure;
    check->failure->where = fmt::format("{} (node {}): {}", plan.calls[call].label, plan.calls[call].nodes.front(),
                                        comparison.failure->where);
  }
  return {};
}

// Kernels in the longest chain, and the tolerance of the one with the longest reduction, which is returned.
Result<double> FindTolerance(const Graph& graph, const CallPlan& plan, NetworkCheck* check) {
  IdVector<ValueId, int> depth(graph.values.size());
  double worst = 0;
  std::set<std::string> seen;
  for (const KernelCall& call : plan.calls) {
    int deepest = 0;
    for (ValueId input : call.inputs) deepest = std::max(deepest, depth[plan.place[input].root]);
    for (ValueId output : OutputsOf(graph, call)) {
      int& own = depth[plan.place[output].root];
      own = std::max(own, deepest + 1);
      check->depth = std::max(check->depth, own);
    }
    if (call.is_host()) continue;
    if (!seen.insert(call.kernel).second) continue;
    Kernel kernel = HONE_TRY(ParseKernel(call.kernel));
    worst = std::max(worst, FloatTolerance(kernel, kernel.options.accuracy, DType::kF32));
  }
  check->tolerance = check->depth * worst;
  return worst;
}

// In the order of the value's dimensions, however a kernel left them.
Result<Numbers> ElementsAt(const Graph& graph, const CallPlan& plan, ValueId value, const void* data) {
  const auto bytes = static_cast<size_t>(KernelBytes(graph, value));
  Shape shape = graph.shape(value);
  const bool is_last = plan.channels_last.contains(value);
  if (is_last) std::rotate(shape.begin() + 1, shape.begin() + 2, shape.end());
  Numbers elements = ToNumbers({graph.dtype(value), shape, std::string(static_cast<const char*>(data), bytes)});
  if (!is_last) return elements;
  Node back;
  back.kind = NodeKind::kTranspose;
  back.axes = {0, 3, 1, 2};
  const Numbers* whole = &elements;
  return Evaluate(back, std::span(&whole, 1), graph.values[value].type);
}

// Adds what a call computed, if the definition is to go on with it.
Result<void> KeepFollowed(Executor& executor, const Graph& graph, const CallPlan& plan, size_t call, const Graph& plain,
                          std::map<ValueId, Numbers>* seen) {
  const std::vector<ValueId> outputs = OutputsOf(graph, plan.calls[call]);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::optional<Node> inner = FindSurrounded(graph, outputs[i]);
    const ValueId own = inner ? inner->output : outputs[i];
    const ValueId replaced = graph.values[own].replaces, value = replaced ? replaced : own;
    if (!plain.values.contains(value) || plain.is_constant(value) || !plain.values[value].producer) continue;
    if (plain.shape(value) != graph.shape(own) || plain.dtype(value) != graph.dtype(own)) continue;
    if (!IsFollowed(plain, value)) continue;
    const std::span<void* const> operands = HONE_TRY(executor.Operands(call));
    Numbers elements = HONE_TRY(ElementsAt(graph, plan, outputs[i], operands[operands.size() - outputs.size() + i]));
    if (inner) {
      const Numbers* whole = &elements;
      elements = HONE_TRY(Evaluate(*inner, std::span(&whole, 1), graph.values[own].type));
    }
    seen->emplace(value, std::move(elements));
  }
  return {};
}

}  // namespace

void SetInputs(Executor& executor, const Graph& graph, const std::vector<Numbers>& data) {
  for (size_t i = 0; i < data.size(); ++i) {
    HostTensor tensor = ToHost(data[i], graph.dtype(graph.inputs[i]));
    std::memcpy(executor.Input(i).data(), tensor.data.data(), tensor.data.size());
  }
}

Result<NetworkCheck> CheckNetwork(Executor& executor, Graph& graph, const CallPlan& plan, Graph& plain,
                                  const std::vector<Numbers>& data) {
  NetworkCheck check;
  const double tolerance = HONE_TRY(FindTolerance(graph, plan, &check));
  std::map<ValueId, Numbers> followed;
  SetInputs(executor, graph, data);
  std::set<std::string> seen;
  for (size_t i = 0; i < executor.call_count(); ++i) {
    if (!executor.is_host(i) && seen.insert(plan.calls[i].kernel).second) {
      HONE_TRY(CheckKernel(executor, graph, plan, i, &check));
    } else {
      HONE_TRY(executor.RunCalls(i, i + 1));
    }
    HONE_TRY(KeepFollowed(executor, graph, plan, i, plain, &followed));
  }
  Followed definition = HONE_TRY(FollowNetwork(plain, data, followed, tolerance));
  const std::vector<Numbers>& expected = definition.outputs;
  if (!check.failure) check.failure = definition.failure;
  check.difference = definition.difference;
  check.tolerance = std::max(check.tolerance, definition.tolerance);
  check.quantized = definition.quantized;
  check.ties = definition.ties;
  for (size_t o = 0; o < expected.size(); ++o) {
    ValueId output = graph.outputs[o];
    const std::span<const std::byte> bytes = HONE_TRY(executor.Output(o));
    Numbers seen_values = HONE_TRY(ElementsAt(graph, plan, output, bytes.data()));
    double largest = 0, off = 0;
    size_t count = expected[o].real.size() + expected[o].whole.size(), worst = 0;
    for (size_t i = 0; i < count; ++i) {
      double r = expected[o].RealAt(i), y = seen_values.RealAt(i);
      if (std::isfinite(r)) largest = std::max(largest, std::abs(r));
      double difference = y == r || (std::isnan(y) && std::isnan(r)) ? 0 : std::abs(y - r);
      if (std::isnan(difference)) difference = INFINITY;
      if (difference > off) {
        off = difference;
        worst = i;
      }
    }
    double share = off == 0 ? 0 : off / std::max(largest, 1e-30);
    check.difference = std::max(check.difference, share);
    bool is_exact = !expected[o].is_real();
    if (!check.failure && (is_exact ? off > 0 : !(share <= check.tolerance))) {
      check.failure = Error{
          ErrorKind::kWrongResult,
          fmt::format("element {} of {} is {:.9g}, wanted {:.9g}; off by {:.3g} of the largest, at most {:.3g} is "
                      "rounding",
                      worst, count, seen_values.RealAt(worst), expected[o].RealAt(worst), share, check.tolerance),
          "output " + graph.values[output].name};
    }
  }
  return check;
}

}  // namespace hone
