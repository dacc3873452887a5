#include "ir/reference/projection_terms.h"

#include <algorithm>
#include <map>

namespace hone {
namespace {

constexpr size_t kMaxTerms = 16;
constexpr size_t kMaxFactors = 4;
constexpr size_t kMaxAxes = 32;

using Terms = std::vector<ProductTerm>;

class TermFinder {
 public:
  explicit TermFinder(const Kernel& kernel) : kernel_(kernel) {}

  std::optional<SumOfProducts> Run(TensorId output) {
    const Stage* stage = ProducerOf(kernel_, output);
    std::vector<AxisForm> axes;
    for (const Axis& axis : stage->axes) axes.push_back(NewAxis(EvalExtent(kernel_, axis.extent)));
    found_.outputs = axes.size();
    std::optional<Terms> terms = OfStage(*stage, std::move(axes));
    if (!terms || found_.extents.size() > kMaxAxes) return std::nullopt;
    found_.terms = *std::move(terms);
    return std::move(found_);
  }

 private:
  AxisForm NewAxis(int64_t extent) { return AxisForm{{{found_.extents.Add(extent), 1}}, 0}; }

  // The stage's element at the given indices.
  std::optional<Terms> OfStage(const Stage& stage, std::vector<AxisForm> axes) {
    if (stage.reduction != Reduction::kNone && stage.reduction != Reduction::kSum) return std::nullopt;
    std::vector<SumAxisId> summed;
    for (const Axis& axis : stage.reduce_axes) {
      axes.push_back(NewAxis(EvalExtent(kernel_, axis.extent)));
      summed.push_back(found_.extents.last());
    }
    if (found_.extents.size() > kMaxAxes) return std::nullopt;
    std::optional<Terms> terms = OfExpr(stage.body, axes);
    if (terms)
      for (ProductTerm& term : *terms) term.summed.insert(term.summed.end(), summed.begin(), summed.end());
    return terms;
  }

  std::optional<Terms> OfExpr(const Expr& e, const std::vector<AxisForm>& axes) {
    if (!IsFloat(e.type())) return std::nullopt;
    switch (e.op()) {
      case Op::kFloat: return Terms{ProductTerm{e.float_value(), {}, {}}};
      case Op::kCast:
        if (IsFloat(e.arg(0).type())) return OfExpr(e.arg(0), axes);
        if (std::optional<AxisForm> form = FormOf(e.arg(0), axes); form && form->terms.empty())
          return Terms{ProductTerm{static_cast<double>(form->constant), {}, {}}};
        return std::nullopt;
      case Op::kLoad: return OfLoad(e, axes, false);
      case Op::kPad:
        if (e.arg(1).op() != Op::kFloat || e.arg(1).float_value() != 0) return std::nullopt;
        return OfLoad(e.arg(0), axes, true);
      case Op::kAdd:
      case Op::kSub: {
        std::optional<Terms> a = OfExpr(e.arg(0), axes), b = OfExpr(e.arg(1), axes);
        if (!a || !b || a->size() + b->size() > kMaxTerms) return std::nullopt;
        for (ProductTerm& term : *b) {
          if (e.op() == Op::kSub) term.coefficient = -term.coefficient;
          a->push_back(std::move(term));
        }
        return a;
      }
      case Op::kMul: {
        std::optional<Terms> a = OfExpr(e.arg(0), axes), b = OfExpr(e.arg(1), axes);
        if (!a || !b || a->size() * b->size() > kMaxTerms) return std::nullopt;
        Terms product;
        for (const ProductTerm& x : *a)
          for (const ProductTerm& y : *b) {
            // Two sums multiplied keep their own axes: each load of a reduced stage made fresh ones.
            ProductTerm term{x.coefficient * y.coefficient, x.factors, x.summed};
            term.factors.insert(term.factors.end(), y.factors.begin(), y.factors.end());
            term.summed.insert(term.summed.end(), y.summed.begin(), y.summed.end());
            if (term.factors.size() > kMaxFactors) return std::nullopt;
            product.push_back(std::move(term));
          }
        return product;
      }
      case Op::kDiv: {
        std::optional<Terms> a = OfExpr(e.arg(0), axes), b = OfExpr(e.arg(1), axes);
        bool constant = b && b->size() == 1 && (*b)[0].factors.empty() && (*b)[0].summed.empty();
        if (!a || !constant) return std::nullopt;
        for (ProductTerm& term : *a) term.coefficient /= (*b)[0].coefficient;
        return a;
      }
      default: return std::nullopt;
    }
  }

  std::optional<Terms> OfLoad(const Expr& load, const std::vector<AxisForm>& axes, bool padded) {
    TensorId tensor = load.tensor();
    std::vector<AxisForm> indices;
    for (const Expr& arg : load.args()) {
      std::optional<AxisForm> form = FormOf(arg, axes);
      if (!form) return std::nullopt;
      indices.push_back(*std::move(form));
    }
    const Stage* stage = ProducerOf(kernel_, tensor);
    if (!stage) return Terms{ProductTerm{1, {ProductFactor{tensor, std::move(indices)}}, {}}};
    // Outside a computed tensor its own inputs may still be in range.
    return padded ? std::nullopt : OfStage(*stage, std::move(indices));
  }

  std::optional<AxisForm> FormOf(const Expr& e, const std::vector<AxisForm>& axes) {
    switch (e.op()) {
      case Op::kInt: return AxisForm{{}, e.int_value()};
      case Op::kSize: return AxisForm{{}, EvalExtent(kernel_, e)};
      case Op::kAxis: return axes[e.axis().index()];
      case Op::kAdd:
      case Op::kSub:
      case Op::kMul: break;
      default: return std::nullopt;
    }
    std::optional<AxisForm> a = FormOf(e.arg(0), axes), b = FormOf(e.arg(1), axes);
    if (!a || !b) return std::nullopt;
    if (e.op() != Op::kMul) return Sum(*a, *b, e.op() == Op::kAdd ? 1 : -1);
    if (a->terms.empty()) std::swap(a, b);
    if (!b->terms.empty()) return std::nullopt;
    return Sum(AxisForm{}, *a, b->constant);
  }

  static AxisForm Sum(const AxisForm& a, const AxisForm& b, int64_t factor) {
    std::map<SumAxisId, int64_t> coefficients(a.terms.begin(), a.terms.end());
    for (auto [axis, coef] : b.terms) coefficients[axis] += coef * factor;
    AxisForm sum{{}, a.constant + b.constant * factor};
    for (auto [axis, coef] : coefficients)
      if (coef != 0) sum.terms.emplace_back(axis, coef);
    return sum;
  }

  const Kernel& kernel_;
  SumOfProducts found_;
};

}  // namespace

std::optional<SumOfProducts> FindSumOfProducts(const Kernel& kernel, TensorId output) {
  return TermFinder(kernel).Run(output);
}

}  // namespace hone
