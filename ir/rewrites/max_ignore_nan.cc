// A maximum that may overlook NaN, because what is made of it becomes NaN all the same.
//
// Makes a float maximum T[o] = max(r) x[o, r] one of the numbers among x alone (Reduction::kMaxOfNumbers), which takes
// one instruction where keeping NaN takes three or four. As in a softmax: there is a sum S[o] of exp(x[o, r] − T[o])
// over all r, with the exponentials in a stage E of their own or without, and every other use of T and E lies under
// operations on S. Where some x[o, r] is NaN, so are S[o] and everything under it, whatever T[o] is. Refuses everywhere
// else.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "ir/graph/op_traits.h"
#include "ir/graph/stage_graph.h"
#include "ir/rewrites/registry.h"
#include "ir/schedule/refuse.h"

namespace hone {
namespace {

using Axes = std::vector<AxisId>;  // of a load: the reader's axis at each dimension

// The load's indices, if each is an axis of its own.
std::optional<Axes> PlainAxes(const Expr& load) {
  Axes axes;
  for (const Expr& index : load.args()) {
    if (index.op() != Op::kAxis) return std::nullopt;
    const AxisId axis = index.axis();
    if (std::find(axes.begin(), axes.end(), axis) != axes.end()) return std::nullopt;
    axes.push_back(axis);
  }
  return axes;
}

class Proof {
 public:
  Proof(const Kernel& kernel, StageId stage) : kernel_(kernel), top_(kernel.stages[stage]), rank_(top_.axes.size()) {}

  // Why not, or "".
  std::string Refusal() {
    if (kernel_.tensors[top_.output].kind == TensorKind::kOutput) return "it is an output";
    for (const Stage& stage : kernel_.stages) FindShifted(stage);
    for (const Stage& stage : kernel_.stages) FindTotal(stage);
    if (!total_) return "nothing sums exp(x - max x) over all of x";
    for (const Stage& stage : kernel_.stages) {
      const bool exempt = stage.output == shifted_ || stage.output == total_;
      if (!exempt && !Covered(stage.body)) return "some use of it does not depend on the sum of exp(x - max x)";
    }
    return "";
  }

 private:
  // The axes of T, its own and the reduced ones, among the stage's axes `all`, where `e` is exp(x − T) over these.
  std::optional<Axes> MatchShifted(const Expr& e, IdRange<AxisId> all) const {
    if (e.op() != Op::kExp || e.arg(0).op() != Op::kSub || !e.arg(0).arg(1).Loads(top_.output)) return std::nullopt;
    std::optional<Axes> places = PlainAxes(e.arg(0).arg(1));
    if (!places || all.size() != top_.axis_count()) return std::nullopt;
    for (AxisId axis : all)
      if (std::find(places->begin(), places->begin() + static_cast<ptrdiff_t>(rank_), axis) ==
          places->begin() + static_cast<ptrdiff_t>(rank_))
        places->push_back(axis);
    std::vector<Expr> values;
    for (AxisId place : *places) values.push_back(AxisRef(place));
    return SameExpr(SubstituteAxes(top_.body, values), e.arg(0).arg(0)) ? places : std::nullopt;
  }

  // Whether the axes of a stage run over all that T's do.
  bool HasSameExtents(const Stage& stage, const Axes& places) const {
    for (size_t i = 0; i < places.size(); ++i)
      if (!SameExpr(top_.axis(AxisId(i)).extent, stage.axis(places[i]).extent)) return false;
    return true;
  }

  // E, where the exponentials are a stage of their own.
  void FindShifted(const Stage& stage) {
    if (shifted_ || stage.reduction != Reduction::kNone) return;
    if (kernel_.tensors[stage.output].kind == TensorKind::kOutput) return;
    std::optional<Axes> places = MatchShifted(stage.body, stage.spatial_ids());
    if (!places || !HasSameExtents(stage, *places)) return;
    shifted_ = stage.output;
    places_ = *std::move(places);
  }

  // S, of E or of exp(x − T) itself: summed over what T is the maximum of, kept apart where T is.
  void FindTotal(const Stage& stage) {
    if (total_ || stage.reduction != Reduction::kSum || stage.axes.size() != rank_) return;
    std::optional<Axes> places = MatchShifted(stage.body, stage.axis_ids());
    if (stage.body.Loads(shifted_)) {
      if (std::optional<Axes> axes = PlainAxes(stage.body)) {
        places.emplace();
        for (AxisId place : places_) places->push_back((*axes)[place.index()]);
      }
    }
    if (!places || places->size() != rank_ + stage.reduce_axes.size() || !HasSameExtents(stage, *places)) return;
    for (size_t i = 0; i < places->size(); ++i)
      if (stage.Reduces((*places)[i]) != (i >= rank_)) return;
    total_ = stage.output;
    total_axes_.assign(places->begin(), places->begin() + static_cast<ptrdiff_t>(rank_));
  }

  // The row (indices of T) that a load is about.
  std::vector<Expr> RowOf(const Expr& load) const {
    std::vector<Expr> row(rank_);
    for (size_t i = 0; i < rank_; ++i) {
      if (load.tensor() == top_.output) row[i] = load.arg(i);
      if (load.tensor() == shifted_) row[i] = load.arg(places_[i].index());
      if (load.tensor() == total_) row[i] = load.arg(total_axes_[i].index());
    }
    return row;
  }

  static bool SameRow(const std::vector<Expr>& a, const std::vector<Expr>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const Expr& x, const Expr& y) { return SameExpr(x, y); });
  }

  // Whether `e` is NaN wherever the sum of that row is, by itself or by the stages that it reads.
  bool FollowsTotal(const Expr& e, const std::vector<Expr>& row) const {
    if (e.Loads(total_)) return SameRow(RowOf(e), row);
    if (e.op() == Op::kLoad) {
      const StageId source = FindStage(kernel_, kernel_.tensors[e.tensor()].name);
      if (!source || kernel_.stages[source].reduction != Reduction::kNone) return false;
      return FollowsTotal(SubstituteAxes(kernel_.stages[source].body, e.args()), row);
    }
    return TraitsOf(e.op()).keeps_nan &&
           std::any_of(e.args().begin(), e.args().end(), [&](const Expr& arg) { return FollowsTotal(arg, row); });
  }

  // Whether each use of T and E within `e` is under something that follows the sum of its row.
  bool Covered(const Expr& e) const {
    std::vector<std::vector<Expr>> rows;
    Walk(e, [&](const Expr& part) {
      if (!part.Loads(top_.output) && !part.Loads(shifted_)) return;
      const std::vector<Expr> row = RowOf(part);
      if (std::none_of(rows.begin(), rows.end(), [&](const auto& known) { return SameRow(known, row); }))
        rows.push_back(row);
    });
    if (rows.empty()) return true;
    if (rows.size() == 1 && FollowsTotal(e, rows[0])) return true;
    if (e.Loads(top_.output) || e.Loads(shifted_)) return false;
    return std::all_of(e.args().begin(), e.args().end(), [&](const Expr& arg) { return Covered(arg); });
  }

  const Kernel& kernel_;
  const Stage& top_;
  const size_t rank_;
  TensorId shifted_, total_;
  Axes places_;      // E's dimension that is T's axis i, its own, then the reduced ones
  Axes total_axes_;  // S's dimension that is T's axis i
};

Result<Kernel> MaxIgnoreNan(Kernel kernel, StageId index, const RewriteStep&) {
  Stage& stage = kernel.stages[index];
  const Tensor& tensor = kernel.tensors[stage.output];
  if (stage.reduction != Reduction::kMax || !IsFloat(tensor.dtype))
    return Refuse(fmt::format("{} is no maximum of floats", tensor.name));
  if (std::string why = Proof(kernel, index).Refusal(); !why.empty())
    return Refuse(fmt::format("{} must keep NaN: {}", tensor.name, why));
  stage.reduction = Reduction::kMaxOfNumbers;
  return kernel;
}

}  // namespace

namespace rewrites {

extern constinit const GraphRewrite kMaxIgnoreNan = {
    .name = "max_ignore_nan",
    .takes = "nothing but the stage",
    .apply = MaxIgnoreNan,
};

}  // namespace rewrites
}  // namespace hone
