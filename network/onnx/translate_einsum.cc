// Einstein sums: products of matrices in the batches and the order that an equation says, operand by operand. What that
// does not cover (a diagonal, whole numbers) runs on the host.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "network/graph/walk.h"
#include "network/onnx/translate.h"

namespace hone {
namespace {

using evaluating::Arguments;
using Computed = Result<std::vector<Numbers>>;
using Labels = std::vector<int>;
using Extents = std::map<int, int64_t>;

// Labels of the operands' dimensions and of the result's. A dimension of "..." has a label below zero, counted from the
// last.
struct Equation {
  std::vector<Labels> operands;
  Labels result;
};

Result<Equation> ReadEquation(const OperatorCall& call, std::string text) {
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  const size_t arrow = text.find("->");
  const std::string left = text.substr(0, arrow);
  Equation equation;
  size_t dots = 0;  // dimensions of the longest "..."
  size_t operand = 0;
  auto read = [&](const std::string& term, int64_t rank) -> Result<Labels> {
    Labels labels;
    const auto letters = static_cast<int64_t>(std::count_if(term.begin(), term.end(), [](char c) { return c != '.'; }));
    for (size_t i = 0; i < term.size(); ++i) {
      if (term[i] != '.') {
        if (std::isalpha(static_cast<unsigned char>(term[i])) == 0) return call.build.Invalid("the equation " + text);
        labels.push_back(term[i]);
        continue;
      }
      if (term.compare(i, 3, "...") != 0) return call.build.Invalid("the equation " + text);
      i += 2;
      const int64_t hidden = rank < 0 ? static_cast<int64_t>(dots) : rank - letters;
      if (hidden < 0) return call.build.Invalid(fmt::format("{} for {} dimensions", term, rank));
      dots = std::max(dots, static_cast<size_t>(hidden));
      for (int64_t d = hidden; d > 0; --d) labels.push_back(static_cast<int>(-d));
    }
    if (rank >= 0 && static_cast<int64_t>(labels.size()) != rank)
      return call.build.Invalid(fmt::format("{} for {} dimensions", term, rank));
    return labels;
  };
  for (size_t begin = 0; begin <= left.size(); ++operand) {
    const size_t end = std::min(left.find(',', begin), left.size());
    if (!call.Has(operand)) return call.build.Invalid("the equation has more operands than the node");
    equation.operands.push_back(HONE_TRY(read(left.substr(begin, end - begin), call.rank(operand))));
    begin = end + 1;
  }
  if (operand != call.input_count()) return call.build.Invalid("the equation has fewer operands than the node");
  if (arrow != std::string::npos) {
    equation.result = HONE_TRY(read(text.substr(arrow + 2), -1));
    return equation;
  }
  // Without an arrow: what stands once, in the alphabet's order.
  std::map<int, int> times;
  for (const auto& labels : equation.operands)
    for (int label : labels) ++times[label];
  for (const auto& [label, count] : times)
    if (label < 0 || count == 1) equation.result.push_back(label);
  return equation;
}

Result<Extents> ExtentsOf(const OperatorCall& call, const Equation& equation) {
  Extents extents;
  for (size_t i = 0; i < equation.operands.size(); ++i) {
    for (size_t d = 0; d < equation.operands[i].size(); ++d) {
      int64_t& extent = extents.emplace(equation.operands[i][d], 1).first->second;
      const int64_t own = call.shape(i)[d];
      if (extent != 1 && own != 1 && extent != own)
        return call.build.Invalid(fmt::format("a dimension is {} and {}", extent, own));
      if (extent == 1) extent = own;
    }
  }
  for (int label : equation.result)
    if (extents.count(label) == 0) return call.build.Invalid("the result has a dimension that no operand has");
  return extents;
}

bool Has(const Labels& labels, int label) { return std::find(labels.begin(), labels.end(), label) != labels.end(); }

bool IsDiagonal(Labels labels) {
  std::sort(labels.begin(), labels.end());
  return std::adjacent_find(labels.begin(), labels.end()) != labels.end();
}

// A value with a label a dimension.
struct Term {
  ValueId value;
  Labels labels;
};

class Contraction {
 public:
  Contraction(Builder& build, const Extents& extents) : build_(build), extents_(extents) {}

  // Without the dimensions that broadcast, and summed over those that are not wanted.
  Result<Term> Prepared(Term term, const Labels& wanted) {
    Term kept;
    Shape shape;
    std::vector<int64_t> summed;
    for (size_t d = 0; d < term.labels.size(); ++d) {
      const int64_t own = build_.shape(term.value)[d];
      if (own == 1 && extents_.at(term.labels[d]) != 1) continue;
      if (Has(wanted, term.labels[d])) {
        kept.labels.push_back(term.labels[d]);
        shape.push_back(own);
      } else {
        summed.push_back(static_cast<int64_t>(d));
      }
    }
    kept.value = HONE_TRY(build_.Reshape(HONE_TRY(build_.Reduce("sum", term.value, summed)), shape));
    return kept;
  }

  Result<Term> Ordered(const Term& term, const Labels& order) {
    std::vector<int64_t> axes;
    for (int label : order)
      axes.push_back(std::find(term.labels.begin(), term.labels.end(), label) - term.labels.begin());
    return Term{HONE_TRY(build_.Transpose(term.value, std::move(axes))), order};
  }

  // Σ a·b over the labels that are not wanted any more.
  Result<Term> Multiplied(const Term& left, const Term& right, const Labels& wanted) {
    Labels of_both, wanted_of(wanted);
    wanted_of.insert(wanted_of.end(), right.labels.begin(), right.labels.end());
    const Term a = HONE_TRY(Prepared(left, wanted_of));
    wanted_of = wanted;
    wanted_of.insert(wanted_of.end(), a.labels.begin(), a.labels.end());
    const Term b = HONE_TRY(Prepared(right, wanted_of));
    Labels batch, rows, columns, summed;
    for (int label : a.labels) {
      if (!Has(b.labels, label))
        rows.push_back(label);
      else if (Has(wanted, label))
        batch.push_back(label);
      else
        summed.push_back(label);
    }
    for (int label : b.labels)
      if (!Has(a.labels, label)) columns.push_back(label);
    const int64_t count = Count(batch), m = Count(rows), n = Count(columns), k = Count(summed);
    const Term x = HONE_TRY(Ordered(a, Joined(batch, rows, summed)));
    // As it lies, if its summed dimensions are last.
    const bool is_last = !summed.empty() && !b.labels.empty() && Has(summed, b.labels.back());
    const Term y = HONE_TRY(Ordered(b, is_last ? Joined(batch, columns, summed) : Joined(batch, summed, columns)));
    Node node;
    node.kind = summed.empty() ? NodeKind::kBinary : NodeKind::kMatMul;
    node.function = summed.empty() ? "mul" : "";
    node.flag = is_last;
    const Shape batched = count == 1 ? Shape{} : Shape{count};
    node.inputs = {HONE_TRY(build_.Reshape(x.value, With(batched, m, k))),
                   HONE_TRY(build_.Reshape(y.value, is_last ? With(batched, n, k) : With(batched, k, n)))};
    Term product;
    product.labels = Joined(batch, rows, columns);
    Shape shape;
    for (int label : product.labels) shape.push_back(extents_.at(label));
    product.value = HONE_TRY(build_.Reshape(HONE_TRY(build_.Add(std::move(node))), shape));
    return product;
  }

 private:
  int64_t Count(const Labels& labels) const {
    int64_t count = 1;
    for (int label : labels) count *= extents_.at(label);
    return count;
  }
  static Labels Joined(Labels first, const Labels& second, const Labels& third) {
    first.insert(first.end(), second.begin(), second.end());
    first.insert(first.end(), third.begin(), third.end());
    return first;
  }
  static Shape With(Shape shape, int64_t rows, int64_t columns) {
    shape.push_back(rows);
    shape.push_back(columns);
    return shape;
  }

  Builder& build_;
  const Extents& extents_;
};

Result<Outputs> ByMatrices(OperatorCall& call, const Equation& equation, const Extents& extents) {
  Contraction contraction(call.build, extents);
  Term all{call.In(0), equation.operands[0]};
  for (size_t i = 1; i < equation.operands.size(); ++i) {
    Labels wanted = equation.result;
    for (size_t later = i + 1; later < equation.operands.size(); ++later)
      wanted.insert(wanted.end(), equation.operands[later].begin(), equation.operands[later].end());
    all = HONE_TRY(contraction.Multiplied(all, {call.In(i), equation.operands[i]}, wanted));
  }
  all = HONE_TRY(contraction.Prepared(all, equation.result));
  return Outputs{HONE_TRY(contraction.Ordered(all, equation.result)).value};
}

Result<Outputs> OnHost(OperatorCall& call, const Equation& equation, const Extents& extents) {
  Shape shape, all;
  Labels order = equation.result;
  for (int label : order) shape.push_back(extents.at(label));
  for (const auto& [label, _] : extents)
    if (!Has(order, label)) order.push_back(label);
  for (int label : order) all.push_back(extents.at(label));
  HONE_TRY(CheckShape(all));
  std::vector<std::vector<int64_t>> strides;  // of each operand, over all labels
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < equation.operands.size(); ++i) {
    const std::vector<int64_t> own = evaluating::StridesOf(call.shape(i));
    std::vector<int64_t> over(order.size(), 0);
    for (size_t d = 0; d < own.size(); ++d) {
      if (call.shape(i)[d] == 1) continue;
      over[static_cast<size_t>(std::find(order.begin(), order.end(), equation.operands[i][d]) - order.begin())] +=
          own[d];
    }
    strides.push_back(std::move(over));
    inputs.push_back(call.In(i));
  }
  const DType dtype = call.build.dtype(call.In(0));
  const int64_t summed = CountOf(Shape(all.begin() + static_cast<int64_t>(shape.size()), all.end()));
  auto compute = [=](Arguments in) -> Computed {
    Numbers out = MakeNumbers(dtype, shape);
    const int64_t count = CountOf(all);
    std::vector<int64_t> index(all.size(), 0), at(in.size(), 0);
    for (int64_t i = 0; i < count; ++i) {
      const auto to = static_cast<size_t>(i / std::max<int64_t>(summed, 1));
      if (out.is_real()) {
        double product = 1;
        for (size_t k = 0; k < in.size(); ++k) product *= in[k]->real[static_cast<size_t>(at[k])];
        out.real[to] += product;
      } else {
        int64_t product = 1;
        for (size_t k = 0; k < in.size(); ++k) product *= in[k]->whole[static_cast<size_t>(at[k])];
        out.whole[to] += product;
      }
      for (size_t d = all.size(); d-- > 0;) {
        for (size_t k = 0; k < in.size(); ++k) at[k] += strides[k][d];
        if (++index[d] < all[d]) break;
        for (size_t k = 0; k < in.size(); ++k) at[k] -= strides[k][d] * all[d];
        index[d] = 0;
      }
    }
    return std::vector{std::move(out)};
  };
  return call.build.Host(
      {"Einsum", std::string(inputs.size(), '='), {{dtype, shape}}, compute, static_cast<double>(CountOf(all))},
      inputs);
}

}  // namespace

Result<Outputs> Einsum(OperatorCall& call) {
  const Equation equation = HONE_TRY(ReadEquation(call, call.Text("equation", "")));
  const Extents extents = HONE_TRY(ExtentsOf(call, equation));
  bool is_plain = IsFloat(call.build.dtype(call.In(0))) && !IsDiagonal(equation.result);
  for (size_t i = 0; i < equation.operands.size(); ++i) {
    is_plain = is_plain && !IsDiagonal(equation.operands[i]) && CountOf(call.shape(i)) > 0;
    if (call.build.dtype(call.In(i)) != call.build.dtype(call.In(0)))
      return call.build.Invalid("its operands are of different types");
  }
  return is_plain ? ByMatrices(call, equation, extents) : OnHost(call, equation, extents);
}

}  // namespace hone
