#include "ir/rewrites/online_reduction.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "ir/graph/dtype_traits.h"
#include "ir/graph/stage_graph.h"
#include "ir/rewrites/registry.h"
#include "ir/schedule/refuse.h"

namespace hone {
namespace {

const std::string& NameOf(const Kernel& kernel, const Stage& stage) { return kernel.tensors[stage.output].name; }

DType TypeOf(const Kernel& kernel, const Stage& stage) { return kernel.tensors[stage.output].dtype; }

// What an expression is made of, through element-wise stages that it is a load of. Only through plain indices:
// expressions do not grow.
Expr Resolved(const Kernel& kernel, Expr e) {
  while (e.op() == Op::kLoad) {
    const Stage* producer = ProducerOf(kernel, e.tensor());
    const bool plain = std::all_of(e.args().begin(), e.args().end(),
                                   [](const Expr& arg) { return arg.op() == Op::kAxis || arg.op() == Op::kInt; });
    if (!producer || producer->reduction != Reduction::kNone || !plain) break;
    e = SubstituteAxes(producer->body, e.args());
  }
  return e;
}

// The stage that a load reads, if its indices are the reader's leading axes in order; none otherwise. An axis of one
// element may be left out of its index.
StageId RowStage(const Kernel& kernel, const Expr& load, const Stage& reader) {
  if (load.op() != Op::kLoad || load.args().size() != reader.axes.size()) return {};
  for (size_t i = 0; i < load.args().size(); ++i) {
    const Expr& index = load.arg(i);
    const bool in_place = index.IsAxis(AxisId(i));
    const bool only_one = index.op() == Op::kInt && UpperExtent(kernel, reader.axes[i].extent) == 1;
    if (!in_place && !only_one) return {};
  }
  return FindStage(kernel, kernel.tensors[load.tensor()].name);
}

// A factor through which infinity stays infinity of the same sign.
bool IsPositive(const Kernel& kernel, const Expr& e) {
  if (e.op() == Op::kFloat) return e.float_value() > 0 && std::isfinite(e.float_value());
  if (e.op() != Op::kCast || !IsFloat(e.type())) return false;
  bool over_sizes = true;
  Walk(e.arg(0), [&](const Expr& part) { over_sizes &= part.op() != Op::kLoad && part.op() != Op::kAxis; });
  if (!over_sizes) return false;
  const std::optional<ExtentRange> range = CheckedExtent(kernel, e.arg(0));
  return range && range->lo > 0;
}

enum class Kind { kExponentials, kDeviations };

struct Pair {
  StageId first;
  Kind kind = Kind::kExponentials;
  Expr taken_off;  // T[o] or c·T[o], over the axes of S
};

// The stage T of c·T, where `e` is that.
StageId ScaledSum(const Kernel& kernel, const Expr& e, const Stage& reader) {
  auto stage_of = [&](const Expr& part) { return RowStage(kernel, Resolved(kernel, part), reader); };
  switch (e.op()) {
    case Op::kLoad: return RowStage(kernel, e, reader);
    case Op::kDiv: return IsPositive(kernel, e.arg(1)) ? stage_of(e.arg(0)) : StageId();
    case Op::kMul:
      if (IsPositive(kernel, e.arg(1))) return stage_of(e.arg(0));
      return IsPositive(kernel, e.arg(0)) ? stage_of(e.arg(1)) : StageId();
    default: return {};
  }
}

Result<Pair> FindPair(const Kernel& kernel, StageId index) {
  const Stage& second = kernel.stages[index];
  const std::string& name = NameOf(kernel, second);
  const DType type = TypeOf(kernel, second);
  if (second.reduction != Reduction::kSum || second.reduce_axes.size() != 1 ||
      (type != DType::kF32 && type != DType::kF64))
    return Refuse(fmt::format("{} is no sum of floats along one axis", name));
  const Expr body = Resolved(kernel, second.body);
  Pair pair;
  Expr difference;
  if (body.op() == Op::kExp) {
    difference = Resolved(kernel, body.arg(0));
  } else if (body.op() == Op::kMul) {
    pair.kind = Kind::kDeviations;
    difference = Resolved(kernel, body.arg(0));
    if (!SameExpr(difference, Resolved(kernel, body.arg(1)))) difference = Expr();
  }
  if (!difference || difference.op() != Op::kSub)
    return Refuse(fmt::format("{} sums neither exp(x - max x) nor (x - mean x) squared", name));
  pair.taken_off = Resolved(kernel, difference.arg(1));
  pair.first = pair.kind == Kind::kExponentials ? RowStage(kernel, pair.taken_off, second)
                                                : ScaledSum(kernel, pair.taken_off, second);
  if (!pair.first)
    return Refuse(fmt::format("what {} takes off x is no {} of the same row", name,
                              pair.kind == Kind::kExponentials ? "maximum" : "multiple of a sum"));
  const Stage& first = kernel.stages[pair.first];
  const bool is_maximum = first.reduction == Reduction::kMax || first.reduction == Reduction::kMaxOfNumbers;
  auto same = [](const std::vector<Axis>& a, const std::vector<Axis>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const Axis& x, const Axis& y) { return SameExpr(x.extent, y.extent); });
  };
  if ((pair.kind == Kind::kExponentials ? !is_maximum : first.reduction != Reduction::kSum) ||
      TypeOf(kernel, first) != type || !same(first.axes, second.axes) || !same(first.reduce_axes, second.reduce_axes) ||
      !SameExpr(Resolved(kernel, first.body), Resolved(kernel, difference.arg(0))))
    return Refuse(fmt::format("{} is no {} of the x that {} sums over", NameOf(kernel, first),
                              pair.kind == Kind::kExponentials ? "maximum" : "sum", name));
  return pair;
}

class Maker {
 public:
  Maker(Kernel kernel, StageId second, Pair pair, const std::string& base, int64_t block)
      : kernel_(std::move(kernel)),
        pair_(std::move(pair)),
        names_(base),
        second_id_(second),
        first_(kernel_.stages[pair_.first]),
        second_(kernel_.stages[second]),
        type_(TypeOf(kernel_, second_)),
        rank_(second_.axes.size()),
        extent_(second_.reduce_axes[0].extent),
        block_(block) {
    const int64_t length = UpperExtent(kernel_, extent_);
    if (LowerExtent(kernel_, extent_) == length) {
      extent_ = Int(length);
      block_ = std::min(block_, std::max<int64_t>(length, 1));
    }
    count_ = Binary(Op::kFloorDiv, extent_ + Int(block_ - 1), Int(block_));
    is_even_ = extent_.op() == Op::kInt && extent_.int_value() % block_ == 0;
    is_single_ = count_.op() == Op::kInt && count_.int_value() == 1;
    block_axis_ = FreshAxis({&first_, &second_}, "b");
  }

  Kernel Make() && {
    const TensorId first = AddTensor(names_.first, {count_}), second = AddTensor(names_.second, {count_}),
                   kept = AddTensor(names_.kept, {Int(2), count_});
    const Expr own = LoadOf(first, type_, Indices(nullptr, BlockAt(rank_)));
    Stage of_first = PerBlock(first_, first, ElementOfBlock(first_.body), first_.reduction);
    Stage of_second = PerBlock(second_, second, SecondOf(ElementOfBlock(first_.body), own), Reduction::kSum);

    Stage both;
    both.output = kept;
    both.axes = second_.axes;
    both.axes.push_back({FreshAxis({&first_, &second_}, "s"), Int(2)});
    both.axes.push_back({block_axis_, count_});
    const Expr block = BlockAt(rank_ + 1);
    both.body = SelectOf(Binary(Op::kEq, AxisRef(AxisId(rank_)), Int(0)), LoadOf(first, type_, Indices(nullptr, block)),
                         LoadOf(second, type_, Indices(nullptr, block)));

    auto statistic = [&](int64_t which) {
      const Expr index = Int(which);
      return LoadOf(kept, type_, Indices(&index, BlockAt(rank_)));
    };
    const IdVector<TensorId, bool> was_read = Read();
    Stage& merged_first = kernel_.stages[pair_.first];
    Stage& merged_second = kernel_.stages[second_id_];
    merged_first.body = statistic(0);
    merged_second.body = Merged(statistic(0), statistic(1));
    merged_first.reduce_axes = merged_second.reduce_axes = {{block_axis_, count_}};
    kernel_.stages.Insert(pair_.first, {std::move(of_first), std::move(of_second), std::move(both)});
    DropUnread(was_read);
    return std::move(kernel_);
  }

 private:
  TensorId AddTensor(const std::string& name, const std::vector<Expr>& inner) {
    Tensor tensor{name, type_, {}, {}, TensorKind::kIntermediate, false};
    for (const Axis& axis : second_.axes) tensor.shape.push_back(axis.extent);
    tensor.shape.insert(tensor.shape.end(), inner.begin(), inner.end());
    return kernel_.tensors.Add(std::move(tensor));
  }

  // The block's number, where it is the axis at `position`.
  Expr BlockAt(size_t position) const { return is_single_ ? Int(0) : AxisRef(AxisId(position)); }

  std::vector<Expr> Indices(const Expr* statistic, const Expr& block) const {
    std::vector<Expr> indices = AxisRefs(second_.spatial_ids());
    if (statistic) indices.push_back(*statistic);
    indices.push_back(block);
    return indices;
  }

  // Where an element of a block (axes o…, b; reduced i) is in its row.
  Expr Place() const {
    const Expr within = block_ == 1 ? Int(0) : AxisRef(AxisId(rank_ + 1));
    return BlockAt(rank_) * Int(block_) + within;
  }
  Expr ElementOfBlock(const Expr& body) const {
    std::vector<Expr> values = AxisRefs(second_.spatial_ids());
    values.push_back(Place());
    return SubstituteAxes(body, values);
  }

  // Elements in block number `block`, as a float.
  Expr ElementsIn(const Expr& block) const {
    if (is_even_) return Float(static_cast<double>(block_), type_);
    return CastTo(type_, Binary(Op::kMin, Int(block_), extent_ - block * Int(block_)));
  }

  Stage PerBlock(const Stage& whole, TensorId output, Expr body, Reduction reduction) const {
    Stage stage;
    stage.output = output;
    stage.axes = whole.axes;
    stage.axes.push_back({block_axis_, count_});
    stage.reduce_axes = {{whole.reduce_axes[0].name, Int(block_)}};
    stage.reduction = reduction;
    stage.body = std::move(body);
    if (!is_even_)
      stage.body =
          SelectOf(Binary(Op::kLt, Place(), extent_), std::move(stage.body), ReductionIdentity(reduction, type_));
    return stage;
  }

  // A term of the second reduction of a block, relative to `own`, the block's first.
  Expr SecondOf(const Expr& x, const Expr& own) const {
    if (pair_.kind == Kind::kExponentials) {
      // A block of nothing but −∞ adds nothing where another block has numbers: exp(−∞ − lowest) is 0, while
      // exp(−∞ − −∞) would be NaN.
      const double lowest = -TraitsOf(type_).largest;
      return Unary(Op::kExp, x - Binary(Op::kMax, own, Float(lowest, type_)));
    }
    const Expr deviation = x - Binary(Op::kDiv, own, ElementsIn(BlockAt(rank_)));
    return deviation * deviation;
  }

  // What a block (the reduction's axis, behind o…) adds to the second reduction of the row. taken_off is over o… alone:
  // it means the same here.
  Expr Merged(const Expr& own, const Expr& second) const {
    if (pair_.kind == Kind::kExponentials) return second * Unary(Op::kExp, own - pair_.taken_off);
    const Expr elements = ElementsIn(BlockAt(rank_));
    const Expr apart = Binary(Op::kDiv, own, elements) - pair_.taken_off;
    return second + elements * (apart * apart);
  }

  IdVector<TensorId, bool> Read() const {
    IdVector<TensorId, bool> read(kernel_.tensors.size());
    for (const Stage& stage : kernel_.stages)
      Walk(stage.body, [&](const Expr& e) {
        if (e.op() == Op::kLoad) read[e.tensor()] = true;
      });
    return read;
  }

  void DropUnread(const IdVector<TensorId, bool>& was_read) {
    for (bool changed = true; changed;) {
      const IdVector<TensorId, bool> read = Read();
      changed = kernel_.stages.EraseIf([&](const Stage& stage) {
        const TensorId id = stage.output;
        return kernel_.tensors[id].kind == TensorKind::kIntermediate && !read[id] && was_read.contains(id) &&
               was_read[id];
      });
    }
  }

  Kernel kernel_;
  const Pair pair_;
  const OnlineNames names_;
  const StageId second_id_;
  const Stage first_, second_;  // as they were
  const DType type_;
  const size_t rank_;
  Expr extent_;  // of the row
  int64_t block_;
  Expr count_;  // of blocks
  bool is_even_ = false;
  bool is_single_ = false;
  std::string block_axis_;
};

Result<Kernel> OnlineReduction(Kernel kernel, StageId stage, const RewriteStep& step) {
  const std::string& base = step.names[0];
  const int64_t block = step.numbers[0];
  if (block < 1) return Refuse("a block of a row has at least one element");
  const OnlineNames names(base);
  for (const std::string& name : {names.first, names.second, names.kept})
    if (FindTensor(kernel, name)) return Refuse(fmt::format("the name {} is taken", name));
  Pair pair = HONE_TRY(FindPair(kernel, stage));
  return Maker(std::move(kernel), stage, std::move(pair), base, block).Make();
}

// A block of a row is at most the row.
std::string FitOnlineReduction(RewriteStep& step, const FitContext& context) {
  const StageId index = FindStage(context.before.kernel, step.stage);
  if (step.numbers.size() != 1 || !index) return "";
  const Stage& stage = context.before.kernel.stages[index];
  if (stage.reduce_axes.size() != 1) return "";
  const int64_t length = UpperExtent(context.before.kernel, stage.reduce_axes[0].extent);
  if (length < 1 || step.numbers[0] <= length) return "";
  step.numbers[0] = length;
  return fmt::format("rows have {} elements", length);
}

}  // namespace

Result<StageId> FirstOfOnline(const Kernel& kernel, StageId stage) { return HONE_TRY(FindPair(kernel, stage)).first; }

namespace rewrites {

extern constinit const GraphRewrite kOnlineReduction = {
    .name = "online_reduction",
    .takes = "a name for the new stages and the number of elements in a block of a row",
    .names = 1,
    .numbers = 1,
    .rounding = Rounding::kReordered,
    .is_algorithm = true,
    .apply = OnlineReduction,
    .fit = FitOnlineReduction,
};

}  // namespace rewrites
}  // namespace hone
