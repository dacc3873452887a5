// Reductions: their ranges, the factors that leave them, and stages for those inside larger expressions.
#include <algorithm>

#include "ir/graph/dtype_traits.h"
#include "ir/language/parse_resolver.h"

namespace hone {

std::optional<ExtentRange> KernelResolver::RangeOf(const Expr& extent) {
  auto [it, added] = ranges_.try_emplace(extent.id());
  if (added) it->second = CheckedExtent(kernel_, extent);
  return it->second;
}

// The dimensions that the reduction's variables index alone, by variable. Loads inside pad() count last: they may reach
// over the edge.
std::vector<KernelResolver::IndexedDims> KernelResolver::DimsOf(const Tree& reduction) const {
  std::vector<IndexedDims> found(reduction.vars.size());
  auto consider = [&](const Tree& load, bool padded) {
    auto it = tensors_.find(load.name);
    if (it == tensors_.end()) return;
    const std::vector<Expr>& shape = kernel_.tensors[it->second].shape;
    for (size_t d = 0; d < std::min(load.args.size(), shape.size()); ++d) {
      if (load.args[d].kind != TreeKind::kName) continue;
      for (size_t v = 0; v < reduction.vars.size(); ++v) {
        if (load.args[d].name != reduction.vars[v].name) continue;
        IndexedDims& dims = found[v];
        // Equal extents are one node: the first of each is enough.
        if ((padded ? dims.seen_padded : dims.seen).insert(shape[d].id()).second)
          (padded ? dims.padded : dims.inside).push_back({load.name, d, shape[d]});
      }
    }
  };
  auto visit = [&](const Tree& tree, bool padded, const auto& self) -> void {
    if (tree.kind == TreeKind::kLoad) consider(tree, padded);
    bool pads = tree.kind == TreeKind::kCall && tree.name == "pad";
    for (const Tree& arg : tree.args) self(arg, pads, self);
  };
  auto is_given = [](const ReduceVar& var) { return var.extent >= 0; };
  if (!std::all_of(reduction.vars.begin(), reduction.vars.end(), is_given)) visit(reduction.args[0], false, visit);
  return found;
}

// As given, or that of the dimensions that the variable indexes.
Result<Expr> KernelResolver::ReductionExtent(const Tree& reduction, const ReduceVar& var, const IndexedDims& dims) {
  if (var.extent >= 0) return Extent(reduction.args[static_cast<size_t>(var.extent)]);
  const std::vector<IndexedDim>& candidates = dims.inside.empty() ? dims.padded : dims.inside;
  if (candidates.empty())
    return At(var.position, fmt::format("{} indexes no dimension alone, so its range is unknown; write {}({} < …)",
                                        var.name, reduction.name, var.name));
  const IndexedDim& first = candidates[0];
  for (const IndexedDim& other : candidates) {
    if (first.extent.id() == other.extent.id()) continue;
    std::optional<ExtentRange> a = RangeOf(first.extent), b = RangeOf(other.extent);
    if (a && b && a->lo == a->hi && b->lo == b->hi && a->lo == b->lo) continue;
    auto dim = [](const IndexedDim& d) { return fmt::format("dimension {} of {}", d.dim + 1, d.tensor); };
    auto text = [](const std::optional<ExtentRange>& r) {
      return !r ? std::string("?") : r->lo == r->hi ? fmt::format("{}", r->lo) : fmt::format("{}..{}", r->lo, r->hi);
    };
    return At(var.position, fmt::format("{} ranges over {} ({}) and over {} ({}), wanted one extent; or write {} < …",
                                        var.name, dim(first), text(a), dim(other), text(b), var.name));
  }
  return first.extent;
}

bool KernelResolver::Uses(const Expr& expr, const std::vector<AxisId>& variables) const {
  const std::vector<AxisId> axes = AxesOf(expr);
  return std::any_of(variables.begin(), variables.end(),
                     [&](AxisId v) { return std::binary_search(axes.begin(), axes.end(), v); });
}

// Reads the operand of a sum. Factors of its product that do not depend on the reduction's variables are taken out:
// c·Σ a·b needs one multiplication and leaves a plain contraction. Parentheses keep them inside.
Result<void> KernelResolver::Factor(const Tree& product, ReductionParts& parts) {
  struct Part {
    Value value;
    Op op;
    Position position;
    bool varies;
  };
  std::vector<Part> spine;
  const Tree* node = &product;
  auto splits = [](const Tree& tree) {
    return tree.kind == TreeKind::kBinary && !tree.parenthesised && (tree.op == Op::kMul || tree.op == Op::kDiv);
  };
  std::vector<const Tree*> chain;
  if (parts.reduction == Reduction::kSum)
    for (; splits(*node); node = &node->args[0]) chain.push_back(node);
  spine.push_back({HONE_TRY(Lower(*node, false)), Op::kMul, node->position, false});
  for (auto it = chain.rbegin(); it != chain.rend(); ++it)
    spine.push_back({HONE_TRY(Lower((*it)->args[1], false)), (*it)->op, (*it)->position, false});

  bool can_move = true, any_fixed = false, any_varying = false;
  for (Part& part : spine) {
    part.varies = Uses(part.value.expr, parts.variables);
    bool whole = !part.value.weak && !IsFloat(part.value.type());
    if (whole) can_move &= std::none_of(spine.begin(), spine.end(), [](const Part& p) { return p.op == Op::kDiv; });
    any_fixed |= !part.varies;
    any_varying |= part.varies && part.op == Op::kMul;
  }
  std::optional<Value> body;
  auto fold = [&](const Part& part) -> Result<void> {
    if (!body) {
      body = part.value;
      return {};
    }
    body = HONE_TRY(Place(build_.Arithmetic(part.op, *body, part.value, false), part.position));
    return {};
  };
  if (!can_move || !any_fixed || !any_varying) {
    for (const Part& part : spine) HONE_TRY(fold(part));
  } else {
    for (Op op : {Op::kMul, Op::kDiv})
      for (const Part& part : spine) {
        if (part.op != op) continue;
        if (part.varies)
          HONE_TRY(fold(part));
        else
          (op == Op::kMul ? parts.multiplied : parts.divided).push_back(part.value);
      }
  }
  parts.body = *body;
  return {};
}

Result<ReductionParts> KernelResolver::Reduce(const Tree& tree) {
  ReductionParts parts;
  parts.reduction = tree.name == "sum"   ? Reduction::kSum
                    : tree.name == "max" ? Reduction::kMax
                    : tree.name == "min" ? Reduction::kMin
                                         : Reduction::kProd;
  if (tree.vars.size() > static_cast<size_t>(limits_.rank))
    return At(tree.position, fmt::format("more than {} variables in one {}", limits_.rank, tree.name),
              ErrorKind::kLimit);
  const std::vector<IndexedDims> dims = DimsOf(tree);
  for (size_t v = 0; v < tree.vars.size(); ++v) {
    const ReduceVar& var = tree.vars[v];
    if (scope_.count(var.name) || sizes_.count(var.name) || tensors_.count(var.name))
      return At(var.position, fmt::format("{} is already {}; choose another reduction variable", var.name,
                                          scope_.count(var.name)   ? "an index variable"
                                          : sizes_.count(var.name) ? "a size"
                                                                   : "a tensor"));
    Expr extent = HONE_TRY(ReductionExtent(tree, var, dims[v]));
    parts.variables.push_back(variables_.Add({var.name, extent}));
    scope_[var.name] = parts.variables.back();
  }
  HONE_TRY(Factor(tree.args[0], parts));
  for (const ReduceVar& var : tree.vars) scope_.erase(var.name);

  Value& body = parts.body;
  bool folds_in_i32 = parts.reduction == Reduction::kSum || parts.reduction == Reduction::kProd;
  if (folds_in_i32) body = HONE_TRY(Place(build_.Widen(body), tree.position));
  if (body.type() == DType::kBool)
    return At(tree.position,
              fmt::format("saw a {} of conditions, wanted numbers; write {}(…) i32(a < b)", tree.name, tree.name));
  if (body.type() == DType::kI64 && !body.weak)
    return At(tree.position,
              fmt::format("saw a {} of indices, wanted values; convert them with float(i) or i32(i)", tree.name));
  return parts;
}

// A reduction that is not the whole right-hand side gets a stage of its own over the variables that it uses; the same
// reduction written twice in a statement gets one.
Result<Value> KernelResolver::Hoist(const Tree& tree, const ReductionParts& parts) {
  Value body = parts.body;
  if (body.weak) {
    bool whole = body.type() == DType::kI64;
    DType type = IsFloat(target_) ? TraitsOf(target_).accumulator : whole ? DType::kI32 : DType::kF32;
    body = HONE_TRY(Place(build_.Adapt(body, type), tree.position));
  }
  HONE_TRY(Count(body.expr, tree.position));
  std::vector<AxisId> axes;
  for (AxisId v : AxesOf(body.expr))
    if (std::find(parts.variables.begin(), parts.variables.end(), v) == parts.variables.end()) axes.push_back(v);
  if (axes.size() > static_cast<size_t>(limits_.rank))
    return At(tree.position,
              fmt::format("a {} that uses more than {} variables from outside, each a dimension of its result",
                          tree.name, limits_.rank),
              ErrorKind::kLimit);
  Stage stage = MakeStage(TensorId(), axes, parts, body.expr);
  TensorId id;
  for (StageId known : hoisted_) {
    const Stage& other = kernel_.stages[known];
    auto same_extent = [](const Axis& a, const Axis& b) { return SameExpr(a.extent, b.extent); };
    if (other.reduction == stage.reduction && SameExpr(other.body, stage.body) &&
        std::equal(other.axes.begin(), other.axes.end(), stage.axes.begin(), stage.axes.end(), same_extent) &&
        std::equal(other.reduce_axes.begin(), other.reduce_axes.end(), stage.reduce_axes.begin(),
                   stage.reduce_axes.end(), same_extent))
      id = other.output;
  }
  if (!id) {
    Tensor tensor{
        FreshName(fmt::format("{}_{}", statement_, tree.name)), body.type(), {}, {}, TensorKind::kIntermediate, false};
    for (AxisId v : axes) tensor.shape.push_back(variables_[v].extent);
    HONE_TRY(Count(tensor, tree.position));
    id = stage.output = AddTensor(std::move(tensor), tree.position, true);
    HONE_TRY(AddStage(std::move(stage), tree.position));
    hoisted_.push_back(kernel_.stages.last());
  }
  std::vector<Expr> indices;
  for (AxisId v : axes) indices.push_back(build_.Leaf(AxisRef(v)).expr);
  Value value = HONE_TRY(Place(build_.Make(LoadOf(id, body.type(), std::move(indices))), tree.position));
  places_.try_emplace(value.expr.id(), tree.position);
  for (const Value& factor : parts.multiplied)
    value = HONE_TRY(Place(build_.Arithmetic(Op::kMul, value, factor, false), tree.position));
  for (const Value& factor : parts.divided)
    value = HONE_TRY(Place(build_.Arithmetic(Op::kDiv, value, factor, false), tree.position));
  return value;
}

}  // namespace hone
