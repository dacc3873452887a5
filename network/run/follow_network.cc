#include "network/run/follow_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ir/graph/dtype_traits.h"
#include "network/graph/evaluate_network.h"
#include "network/graph/quantization.h"

namespace hone {
namespace {

constexpr int64_t kMostStepsOfATie = 4;  // that one tie is worth, where a step is quantised again to smaller ones
constexpr double kMostKernels = 8;       // between two values that are followed, to say how near to a tie is near

bool IsDrawn(const Node& node) { return node.host != nullptr && node.host->is_random; }

double LargestOf(const Numbers& numbers) {
  double largest = 0;
  for (double value : numbers.real)
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  return largest;
}

class Follower {
 public:
  Follower(Graph& graph, const std::map<ValueId, Numbers>& seen, double tolerance)
      : graph_(graph),
        seen_(seen),
        tolerance_(tolerance),
        roundings_(graph.values.size()),
        readers_(CountReaders(graph)) {}

  Result<Followed> Run(const std::vector<Numbers>& data) {
    followed_.outputs = HONE_TRY(EvaluateNetwork(
        graph_, data, [&](const Node& node, std::span<const Numbers* const> arguments, Numbers& value) -> Result<void> {
          for (ValueId input : node.inputs)
            roundings_[node.output] = std::max(roundings_[node.output], roundings_[input]);
          if (IsNarrowFloat(value.dtype)) ++roundings_[node.output];
          if (node.kind == NodeKind::kUnary && node.function == "round") before_rounding_ = *arguments[0];
          HONE_TRY(FindUnsure(node));
          Follow(node, value);
          for (ValueId input : node.inputs)
            if (--readers_[input] == 0) unsure_.erase(input);
          return {};
        }));
    return std::move(followed_);
  }

 private:
  double Near() const { return kMostKernels * tolerance_ * std::max(LargestOf(before_rounding_), 1.0); }
  static double FromTie(double value) { return std::abs(value - std::floor(value) - 0.5); }

  // Elements that may have fallen to either side of a tie within a kernel, which shows what came of it alone: those of
  // what is quantised, what is computed of them one by one, and where they are moved. As truth values, by the nodes
  // themselves.
  Result<void> FindUnsure(const Node& node) {
    const bool is_elementwise =
        node.kind == NodeKind::kUnary || node.kind == NodeKind::kBinary || node.kind == NodeKind::kCast;
    const bool moves = node.kind == NodeKind::kTranspose || node.kind == NodeKind::kReshape ||
                       node.kind == NodeKind::kSlice || node.kind == NodeKind::kConcat ||
                       node.kind == NodeKind::kExpand;
    std::vector<Numbers> unsure;
    bool any = false;
    for (ValueId input : node.inputs) {
      const auto found = unsure_.find(input);
      any = any || found != unsure_.end();
      unsure.push_back(found != unsure_.end() ? found->second : MakeNumbers(DType::kBool, graph_.shape(input)));
    }
    Numbers result = MakeNumbers(DType::kBool, graph_.shape(node.output));
    if (any && moves) {
      std::vector<const Numbers*> arguments;
      for (const Numbers& each : unsure) arguments.push_back(&each);
      result = HONE_TRY(Evaluate(node, arguments, {DType::kBool, graph_.shape(node.output)}));
    } else if (any && is_elementwise) {
      for (const Numbers& each : unsure)
        for (size_t i = 0; each.shape == result.shape && i < result.whole.size(); ++i) result.whole[i] |= each.whole[i];
    } else {
      any = false;
    }
    if (node.kind == NodeKind::kUnary && node.function == "round") {
      const double near = Near();
      for (size_t i = 0; i < before_rounding_.real.size(); ++i)
        if (FromTie(before_rounding_.real[i]) <= near) result.whole[i] = any = true;
    }
    if (any) unsure_[node.output] = std::move(result);
    return {};
  }

  void Follow(const Node& node, Numbers& expected) {
    const auto found = seen_.find(node.output);
    if (found == seen_.end()) return;
    if (!IsDrawn(node)) Compare(node, expected, found->second);
    expected = found->second;
    unsure_.erase(node.output);
    roundings_[node.output] = 0;
  }

  void Compare(const Node& node, const Numbers& expected, const Numbers& seen) {
    if (IsNarrowFloat(expected.dtype))
      CompareFloats(node, expected, seen);
    else if (expected.is_real())
      CompareDequantized(node, expected, seen);
    else
      CompareWholes(node, expected, seen);
  }

  void Fail(const Node& node, std::string message) {
    if (!followed_.failure)
      followed_.failure = Error{ErrorKind::kWrongResult, std::move(message), "node " + node.origin};
  }

  // Each of the definition's operations rounds; kernels round less often.
  void CompareFloats(const Node& node, const Numbers& expected, const Numbers& seen) {
    const double largest = std::max(LargestOf(expected), 1e-30);
    const double allowed = tolerance_ + (1 + roundings_[node.output]) * TraitsOf(expected.dtype).unit_roundoff;
    followed_.tolerance = std::max(followed_.tolerance, allowed);
    for (size_t i = 0; i < expected.real.size(); ++i) {
      const double r = expected.real[i], y = seen.real[i];
      double share = y == r || (std::isnan(y) && std::isnan(r)) ? 0 : std::abs(y - r) / largest;
      if (std::isnan(share)) share = INFINITY;
      if (!std::isfinite(r) && std::isfinite(y)) continue;  // it grew too large on the way, where kernels have f32
      followed_.difference = std::max(followed_.difference, share);
      if (share > allowed)
        return Fail(node,
                    fmt::format("element {} of {} is {:.9g}, wanted {:.9g}; off by {:.3g} of the largest, at most "
                                "{:.3g} is rounding",
                                i, expected.real.size(), y, r, share, allowed));
    }
  }

  bool IsUnsure(ValueId value, size_t i) const {
    const auto found = unsure_.find(value);
    return found != unsure_.end() && found->second.whole[i] != 0;
  }

  // What is quantised and dequantised at once.
  void CompareDequantized(const Node& node, const Numbers& expected, const Numbers& seen) {
    const double rounding = kMostKernels * tolerance_ * LargestOf(expected);
    followed_.quantized += expected.real.size();
    for (size_t i = 0; i < expected.real.size(); ++i) {
      if (std::abs(expected.real[i] - seen.real[i]) <= rounding) continue;
      if (!IsUnsure(node.output, i))
        return Fail(node, fmt::format("element {} of {} is {:.9g}, wanted {:.9g}", i, expected.real.size(),
                                      seen.real[i], expected.real[i]));
      ++followed_.ties;
    }
  }

  void CompareWholes(const Node& node, const Numbers& expected, const Numbers& seen) {
    followed_.quantized += expected.whole.size();
    for (size_t i = 0; i < expected.whole.size(); ++i) {
      const int64_t off = std::abs(expected.whole[i] - seen.whole[i]);
      if (off == 0) continue;
      if (off > kMostStepsOfATie || !IsUnsure(node.output, i))
        return Fail(node, fmt::format("element {} of {} is {}, wanted {}", i, expected.whole.size(), seen.whole[i],
                                      expected.whole[i]));
      ++followed_.ties;
    }
  }

  Graph& graph_;
  const std::map<ValueId, Numbers>& seen_;
  const double tolerance_;
  IdVector<ValueId, int> roundings_;  // to narrow floats, since values were followed
  IdVector<ValueId, int> readers_;
  std::map<ValueId, Numbers> unsure_;
  Numbers before_rounding_;  // by the last node that rounds
  Followed followed_;
};

}  // namespace

bool IsFollowed(const Graph& graph, ValueId value) {
  const NodeId producer = graph.values[value].producer;
  if (producer && IsDrawn(graph.nodes[producer])) return true;
  if (IsNarrowFloat(graph.dtype(value)) || FindQuantize(graph, value)) return true;
  const std::optional<Quantized> q = FindDequantize(graph, value);
  return q && FindQuantize(graph, q->value);
}

Result<Followed> FollowNetwork(Graph& graph, const std::vector<Numbers>& data, const std::map<ValueId, Numbers>& seen,
                               double tolerance) {
  return Follower(graph, seen, tolerance).Run(data);
}

}  // namespace hone
