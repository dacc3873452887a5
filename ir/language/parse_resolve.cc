#include "ir/language/parse_resolve.h"

#include <algorithm>

#include "base/check.h"
#include "ir/graph/print.h"
#include "ir/language/parse_resolver.h"

namespace hone {

// Renumbers variables to the stage's axes; equal nodes stay one node.
Expr KernelResolver::Renumber(const Expr& expr, const std::vector<AxisId>& order,
                              std::unordered_map<const ExprNode*, Expr>& memo) {
  if (auto it = memo.find(expr.id()); it != memo.end()) return it->second;
  Expr placed = expr;
  if (expr.op() == Op::kAxis) {
    auto it = std::find(order.begin(), order.end(), expr.axis());
    HONE_CHECK(it != order.end());
    placed = AxisRef(AxisId(static_cast<int>(it - order.begin())));
  } else if (!expr.args().empty()) {
    std::vector<Expr> args;
    for (const Expr& arg : expr.args()) args.push_back(Renumber(arg, order, memo));
    placed = Expr(expr.op(), expr.type(), std::move(args), expr.int_value(), expr.float_value());
    if (auto it = places_.find(expr.id()); it != places_.end()) map_.nodes[placed.id()] = it->second;
  }
  memo.emplace(expr.id(), placed);
  return placed;
}

Stage KernelResolver::MakeStage(TensorId output, const std::vector<AxisId>& axes, const ReductionParts& parts,
                                const Expr& body) {
  Stage stage;
  stage.output = output;
  stage.reduction = parts.reduction;
  auto axis = [&](AxisId v) {
    const StatementVariable& variable = variables_[v];
    return Axis{std::string(variable.name), variable.extent};
  };
  std::vector<AxisId> order = axes;
  for (AxisId v : axes) stage.axes.push_back(axis(v));
  for (AxisId v : parts.variables) stage.reduce_axes.push_back(axis(v)), order.push_back(v);
  std::unordered_map<const ExprNode*, Expr> memo;
  stage.body = Renumber(body, order, memo);
  return stage;
}

Result<void> KernelResolver::Count(const Expr& expr, Position position) {
  nodes_ += expr.nodes();
  if (nodes_ > limits_.nodes)
    return At(position, fmt::format("more than {} operands and operators in one kernel", limits_.nodes),
              ErrorKind::kLimit);
  // What prints in brackets deeper than they are read would have no canonical text.
  if (BracketsOf(expr) > limits_.nesting)
    return At(position,
              fmt::format("nested more than {} deep; split the expression into several statements", limits_.nesting),
              ErrorKind::kLimit);
  return {};
}

Result<void> KernelResolver::Count(const Tensor& tensor, Position position) {
  for (const std::vector<Expr>* dims : {&tensor.declared, &tensor.shape})
    for (const Expr& dim : *dims) HONE_TRY(Count(dim, position));
  return {};
}

// REQUIRES: the body is counted.
Result<void> KernelResolver::AddStage(Stage stage, Position position) {
  if (static_cast<int>(kernel_.stages.size()) >= limits_.stages)
    return At(position, fmt::format("more than {} stages in one kernel", limits_.stages), ErrorKind::kLimit);
  for (const std::vector<Axis>* axes : {&stage.axes, &stage.reduce_axes})
    for (const Axis& axis : *axes) HONE_TRY(Count(axis.extent, position));
  kernel_.stages.Add(std::move(stage));
  map_.stages.Add(position);
  return {};
}

Result<void> KernelResolver::Statement(const StatementTree& tree) {
  auto it = tensors_.find(tree.name);
  if (it == tensors_.end())
    return At(tree.position, fmt::format("unknown tensor \"{}\"; declare it on a line before: {}: f32[…]{}", tree.name,
                                         tree.name, Suggestion(tree.name)));
  TensorId output = it->second;
  if (TensorOf(output).kind == TensorKind::kInput)
    return At(tree.position,
              fmt::format("{} is an input and cannot be written; write an output or an intermediate", tree.name));
  if (written_[output])
    return At(tree.position, fmt::format("{} is written twice; each tensor is filled by one statement", tree.name));
  const std::vector<Expr> shape = TensorOf(output).shape;
  if (tree.indices.size() != shape.size())
    return At(tree.position,
              fmt::format("{} has {} dimension{}, saw {} ind{}", tree.name, shape.size(), shape.size() == 1 ? "" : "s",
                          tree.indices.size(), tree.indices.size() == 1 ? "ex" : "ices"));
  statement_ = tree.name;
  target_ = TensorOf(output).dtype;
  variables_.clear();
  scope_.clear();
  hoisted_.clear();
  places_.clear();
  std::vector<AxisId> axes;
  for (size_t d = 0; d < tree.indices.size(); ++d) {
    const NameTree& name = tree.indices[d];
    if (sizes_.count(name.name) || tensors_.count(name.name))
      return At(name.position, fmt::format("{} is already {}, wanted an index variable of its own", name.name,
                                           sizes_.count(name.name) ? "a size" : "a tensor"));
    if (!scope_.try_emplace(name.name, AxisId(d)).second)
      return At(name.position,
                fmt::format("{} indexes two dimensions of {}, wanted another variable", name.name, tree.name));
    axes.push_back(variables_.Add({name.name, shape[d]}));
  }

  ReductionParts parts;
  if (tree.value.kind == TreeKind::kReduce) {
    parts = HONE_TRY(Reduce(tree.value));
    if (!parts.multiplied.empty() || !parts.divided.empty()) {
      Value value = HONE_TRY(Hoist(tree.value, parts));
      parts = ReductionParts{};
      parts.body = value;
    }
  } else {
    parts.body = HONE_TRY(Lower(tree.value, false));
  }
  Value body = HONE_TRY(Place(build_.Adapt(parts.body, target_), tree.value.position));
  HONE_TRY(Count(body.expr, tree.value.position));
  HONE_TRY(AddStage(MakeStage(output, axes, parts, body.expr), tree.position));
  written_[output] = true;
  return {};
}

Result<Kernel> KernelResolver::Run() {
  kernel_.name = tree_.name;
  HONE_TRY(Sizes());
  HONE_TRY(Options());
  auto reserve = [&](const TensorTree& tensor) { names_.insert(std::string(tensor.name)); };
  for (const TensorTree& tensor : tree_.inputs) reserve(tensor);
  for (const TensorTree& tensor : tree_.outputs) reserve(tensor);
  for (const auto& item : tree_.body)
    if (auto* tensor = std::get_if<TensorTree>(&item)) reserve(*tensor);
  for (const SizeTree& size : tree_.sizes) names_.insert(std::string(size.name));
  for (const auto& item : tree_.body)
    if (auto* statement = std::get_if<StatementTree>(&item))
      for (const NameTree& index : statement->indices) names_.insert(std::string(index.name));

  for (const TensorTree& tensor : tree_.inputs) HONE_TRY(Declare(tensor, TensorKind::kInput));
  for (const TensorTree& tensor : tree_.outputs) HONE_TRY(Declare(tensor, TensorKind::kOutput));
  for (const auto& item : tree_.body) {
    if (auto* tensor = std::get_if<TensorTree>(&item))
      HONE_TRY(Declare(*tensor, TensorKind::kIntermediate));
    else
      HONE_TRY(Statement(std::get<StatementTree>(item)));
  }
  for (TensorId id : kernel_.tensors.ids())
    if (!written_[id])
      return At(map_.tensors[id],
                fmt::format("{} is never filled; write {}[…] = …", TensorOf(id).name, TensorOf(id).name));
  HONE_TRY(Finish());
  return std::move(kernel_);
}

Result<Kernel> ResolveKernel(const KernelTree& tree, std::string_view file, const ParseLimits& limits, SourceMap* map) {
  return KernelResolver(tree, file, limits, map).Run();
}

}  // namespace hone
