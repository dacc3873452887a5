// A window that is not read where it lies, through a copy in which it is.
//
// `y[i] = sum(r) x[clamp(i + r - 2, 0, N - 1)]` becomes `xi[t] = x[clamp(t - 2, 0, N - 1)]`, `y[i] = sum(r) xi[i + r]`:
// what the function around the sum of axes costs is paid once for each element of the copy, not once for each read of
// it, and the reader's rows lie side by side. It may be any function of such a sum: borders that repeat, mirror or wrap
// around, the division of an image that is scaled up.
//
// All loads of the tensor by such indices move to the copy; they may differ by constants. Dimensions that are indexed
// by sums alone stay as they are. (ReIndex in TVM's MetaSchedule; BoundaryConditions in Halide are the same idea.)
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ir/graph/affine.h"
#include "ir/graph/stage_graph.h"
#include "ir/rewrites/in_bounds.h"
#include "ir/rewrites/registry.h"
#include "ir/rewrites/split_clamp.h"
#include "ir/schedule/refuse.h"

namespace hone {
namespace {

// An index as function(sum): the sum of axes in it, and the rest with axis 0 in its place.
struct Split {
  Linear sum;
  Expr sum_text;  // the same, as it was written
  Expr function;
};

// The factor c of form = c · sum + a constant; nullopt: there is none.
std::optional<int64_t> FactorOf(const Linear& form, const Linear& sum) {
  const std::vector<Term>&a = form.terms(), &b = sum.terms();
  if (a.size() != b.size() || a[0].coef % b[0].coef != 0) return std::nullopt;
  const int64_t factor = a[0].coef / b[0].coef;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].var != b[i].var || a[i].coef != factor * b[i].coef) return std::nullopt;
  return factor;
}

// nullopt if axes come in through different sums, or through anything but sums.
std::optional<Split> SplitIndex(const Kernel& kernel, const Expr& index) {
  Split split;
  bool works = true;
  auto visit = [&](auto&& self, const Expr& e) -> Expr {
    if (AxesOf(e).empty()) return e;
    if (std::optional<Linear> form = AffineIndex(kernel, e); form && !form->IsConstant()) {
      if (!split.sum_text) split.sum = *form, split.sum_text = e;
      std::optional<int64_t> factor = FactorOf(*form, split.sum);
      works &= factor.has_value();
      if (!factor) return e;
      return AxisRef(AxisId(0)) * Int(*factor) + Int(form->constant() - *factor * split.sum.constant());
    }
    if (e.op() == Op::kAxis || e.op() == Op::kLoad) {
      works = false;
      return e;
    }
    std::vector<Expr> args;
    for (const Expr& arg : e.args()) args.push_back(self(self, arg));
    return Expr(e.op(), e.type(), std::move(args), e.int_value(), e.float_value());
  };
  split.function = visit(visit, index);
  if (!works || !split.sum_text) return std::nullopt;
  return split;
}

bool IsAffine(const Kernel& kernel, const Expr& index) { return AffineIndex(kernel, index).has_value(); }

bool HasRange(const Kernel& kernel, const Expr& e) {
  bool found = false;
  Walk(e, [&](const Expr& part) {
    found |= part.op() == Op::kSize && !kernel.sizes[static_cast<size_t>(part.int_value())].is_constant();
  });
  return found;
}

// One dimension of the tensor, as all loads index it.
struct Dimension {
  bool is_plain = true;
  Expr function;                // of the sum, where it is not plain
  std::vector<Term> terms;      // of the sum
  int64_t least = 0, most = 0;  // constants of the sums
};

class Reindexing {
 public:
  Reindexing(Kernel kernel, StageId reader, TensorId tensor)
      : kernel_(std::move(kernel)), reader_(reader), tensor_(tensor) {}

  Result<Kernel> Run(const std::string& result) && {
    HONE_TRY(Look());
    Stage copy;
    Tensor copied;
    copied.name = result;
    copied.dtype = Source().dtype;
    copied.kind = TensorKind::kIntermediate;
    std::vector<Expr> indices;
    for (size_t d = 0; d < dimensions_.size(); ++d) {
      const Dimension& dimension = dimensions_[d];
      const Expr axis = AxisRef(AxisId(d));
      Expr extent = dimension.is_plain ? Source().shape[d] : Most(dimension) - Least(dimension) + Int(1);
      if (dimension.is_plain)
        indices.push_back(axis);
      else
        indices.push_back(SubstituteAxes(dimension.function, {axis + Least(dimension)}));
      copied.shape.push_back(extent);
      copy.axes.push_back({fmt::format("i{}", d), std::move(extent)});
    }
    copy.output = kernel_.tensors.Add(std::move(copied));
    copy.body = LoadOf(tensor_, Source().dtype, std::move(indices));
    if (!AlwaysInBounds(kernel_, copy))
      return Refuse(fmt::format("{} reads {} under a condition", ReaderName(), Source().name));
    copy.body = SplitClamp(kernel_, copy.body);
    Stage& reader = kernel_.stages[reader_];
    reader.body = Replaced(reader.body, copy.output);
    kernel_.stages.Insert(reader_, std::move(copy));
    return std::move(kernel_);
  }

 private:
  const Tensor& Source() const { return kernel_.tensors[tensor_]; }
  const Stage& Reader() const { return kernel_.stages[reader_]; }
  const std::string& ReaderName() const { return kernel_.tensors[Reader().output].name; }

  // By more than sums in some dimension.
  bool Moves(const Expr& load) const {
    return load.Loads(tensor_) && std::any_of(load.args().begin(), load.args().end(),
                                              [&](const Expr& index) { return !IsAffine(kernel_, index); });
  }

  // What all loads that move have in common.
  Result<void> Look() {
    std::vector<Expr> loads;
    auto visit = [&](auto&& self, const Expr& e) -> void {
      if (e.op() == Op::kPad) return;
      if (Moves(e)) loads.push_back(e);
      for (const Expr& arg : e.args()) self(self, arg);
    };
    visit(visit, Reader().body);
    if (loads.empty())
      return Refuse(fmt::format("{} reads {} by nothing but sums of axes", ReaderName(), Source().name));
    dimensions_.resize(Source().shape.size());
    for (size_t d = 0; d < dimensions_.size(); ++d) {
      Dimension& dimension = dimensions_[d];
      for (const Expr& load : loads) {
        const bool is_first = &load == &loads.front(), is_plain = IsAffine(kernel_, load.arg(d));
        if (is_first) dimension.is_plain = is_plain;
        if (is_plain != dimension.is_plain) return DifferentWays();
        if (is_plain) continue;
        if (HasRange(kernel_, load.arg(d)))
          return Refuse(fmt::format("an index of {} is over a size that is a range", Source().name));
        std::optional<Split> split = SplitIndex(kernel_, load.arg(d));
        if (!split) return Refuse(fmt::format("an index of {} is no function of one sum of axes", Source().name));
        const int64_t constant = split->sum.constant();
        if (is_first) {
          dimension.function = split->function;
          dimension.terms = split->sum.terms();
          dimension.least = dimension.most = constant;
        } else if (split->sum.terms() != dimension.terms || !SameExpr(split->function, dimension.function)) {
          return DifferentWays();
        }
        dimension.least = std::min(dimension.least, constant);
        dimension.most = std::max(dimension.most, constant);
      }
    }
    return {};
  }

  Error DifferentWays() const {
    return Refuse(fmt::format("{} reads {} in more than one way", ReaderName(), Source().name));
  }

  // The least and the most that the sums come to.
  Expr Least(const Dimension& dimension) const { return End(dimension, dimension.least, false); }
  Expr Most(const Dimension& dimension) const { return End(dimension, dimension.most, true); }
  Expr End(const Dimension& dimension, int64_t constant, bool upper) const {
    Expr end = Int(constant);
    for (const Term& term : dimension.terms)
      if ((term.coef > 0) == upper) end = end + (Reader().axis(AxisOf(term.var)).extent - Int(1)) * Int(term.coef);
    return end;
  }

  Expr Replaced(const Expr& e, TensorId copy) const {
    if (e.op() == Op::kPad) return e;
    if (Moves(e)) {
      std::vector<Expr> indices;
      for (size_t d = 0; d < dimensions_.size(); ++d)
        indices.push_back(dimensions_[d].is_plain ? e.arg(d)
                                                  : SplitIndex(kernel_, e.arg(d))->sum_text - Least(dimensions_[d]));
      return LoadOf(copy, e.type(), std::move(indices));
    }
    std::vector<Expr> args;
    for (const Expr& arg : e.args()) args.push_back(Replaced(arg, copy));
    return Expr(e.op(), e.type(), std::move(args), e.int_value(), e.float_value());
  }

  Kernel kernel_;
  const StageId reader_;
  const TensorId tensor_;
  std::vector<Dimension> dimensions_;
};

Result<Kernel> Reindex(Kernel kernel, StageId index, const RewriteStep& step) {
  const TensorId tensor = FindTensor(kernel, step.names[0]);
  if (!tensor) return Refuse("there is no tensor " + step.names[0]);
  if (FindTensor(kernel, step.names[1])) return Refuse(fmt::format("the name {} is taken", step.names[1]));
  return Reindexing(std::move(kernel), index, tensor).Run(step.names[1]);
}

}  // namespace

namespace rewrites {

extern constinit const GraphRewrite kReindex = {
    .name = "reindex",
    .takes = "a tensor and a name for the new stage",
    .names = 2,
    .is_algorithm = true,
    .apply = Reindex,
};

}  // namespace rewrites
}  // namespace hone
