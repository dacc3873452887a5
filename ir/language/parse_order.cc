// Puts a resolved kernel in order, so that printing and parsing it again gives the same one.
#include "ir/language/parse_resolver.h"

namespace hone {

// Drops stages that nothing reads, then numbers sizes and intermediates in the order of the text.
Result<void> KernelResolver::Finish() {
  IdVector<TensorId, bool> needed(kernel_.tensors.size());
  for (TensorId id : kernel_.operands) needed[id] = true;
  for (StageId id = kernel_.stages.last(); id; --id) {
    if (!needed[kernel_.stages[id].output]) {
      kernel_.stages.Erase(id);
      map_.stages.Erase(id);
      continue;
    }
    Walk(kernel_.stages[id].body, [&](const Expr& e) {
      if (e.op() == Op::kLoad) needed[e.tensor()] = true;
    });
  }

  std::vector<int> size_order = SizesByFirstUse(kernel_), new_size(kernel_.sizes.size(), -1);
  for (size_t i = 0; i < size_order.size(); ++i) new_size[static_cast<size_t>(size_order[i])] = static_cast<int>(i);
  for (size_t i = 0; i < kernel_.sizes.size(); ++i) {
    const Size& size = kernel_.sizes[i];
    if (new_size[i] < 0 && !size.is_constant())
      return At(size_positions_[size.name],
                fmt::format("the range {} is never used; remove it or give it one value", size.name));
  }
  std::vector<TensorId> tensor_order = kernel_.operands;
  for (const Stage& stage : kernel_.stages)
    if (kernel_.tensors[stage.output].kind == TensorKind::kIntermediate) tensor_order.push_back(stage.output);

  IdVector<TensorId, TensorId> new_tensor(kernel_.tensors.size());
  for (int next = 0; TensorId id : tensor_order) new_tensor[id] = TensorId(next++);

  struct Renumbered {
    Expr from;  // kept alive: the table goes by address
    Expr to;
  };
  std::unordered_map<const ExprNode*, Renumbered> memo;
  auto renumber = [&](const Expr& expr, const auto& self) -> Expr {
    if (auto it = memo.find(expr.id()); it != memo.end()) return it->second.to;
    Expr made = expr;
    if (expr.op() == Op::kSize) {
      made = SizeRef(new_size[static_cast<size_t>(expr.int_value())]);
    } else if (expr.op() == Op::kLoad || !expr.args().empty()) {
      std::vector<Expr> args;
      for (const Expr& arg : expr.args()) args.push_back(self(arg, self));
      int64_t value = expr.op() == Op::kLoad ? new_tensor[expr.tensor()].value : expr.int_value();
      made = Expr(expr.op(), expr.type(), std::move(args), value, expr.float_value());
      if (auto it = map_.nodes.find(expr.id()); it != map_.nodes.end()) {
        Position position = it->second;
        map_.nodes[made.id()] = position;
      }
    }
    memo.emplace(expr.id(), Renumbered{expr, made});
    return made;
  };
  auto renumber_all = [&](std::vector<Expr>& exprs) {
    for (Expr& expr : exprs) expr = renumber(expr, renumber);
  };
  std::vector<Size> sizes;
  for (int index : size_order) sizes.push_back(kernel_.sizes[static_cast<size_t>(index)]);
  IdVector<TensorId, Tensor> tensors;
  IdVector<TensorId, Position> positions;
  for (TensorId id : tensor_order) {
    tensors.Add(std::move(TensorOf(id)));
    positions.Add(map_.tensors[id]);
    renumber_all(tensors.back().shape);
    renumber_all(tensors.back().declared);
  }
  for (Stage& stage : kernel_.stages) {
    stage.output = new_tensor[stage.output];
    for (Axis& axis : stage.axes) axis.extent = renumber(axis.extent, renumber);
    for (Axis& axis : stage.reduce_axes) axis.extent = renumber(axis.extent, renumber);
    stage.body = renumber(stage.body, renumber);
  }
  for (TensorId& id : kernel_.operands) id = new_tensor[id];
  kernel_.sizes = std::move(sizes);
  kernel_.tensors = std::move(tensors);
  map_.tensors = std::move(positions);
  return {};
}

}  // namespace hone
