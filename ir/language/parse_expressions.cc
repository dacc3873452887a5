// Expressions: names, elements of tensors, functions; types are ir/language/parse_values.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>

#include "ir/graph/op_traits.h"
#include "ir/language/parse_resolver.h"

namespace hone {

Result<Value> KernelResolver::Name(const Tree& tree) {
  if (auto it = scope_.find(tree.name); it != scope_.end()) return build_.Leaf(AxisRef(it->second));
  if (auto it = sizes_.find(tree.name); it != sizes_.end()) return Value{it->second, false};
  if (tree.name == "inf") return build_.Leaf(Float(std::numeric_limits<double>::infinity()), true);
  if (tree.name == "nan") return build_.Leaf(Float(std::numeric_limits<double>::quiet_NaN()), true);
  if (tree.name == "true" || tree.name == "false") return build_.Leaf(Int(tree.name == "true", DType::kBool));
  if (tensors_.count(tree.name))
    return At(tree.position,
              fmt::format("{} is a tensor, wanted one of its elements, as in {}[…]", tree.name, tree.name));
  if (statement_.empty())
    return At(tree.position, fmt::format("unknown size \"{}\"; give its value, as in where {}=64{}", tree.name,
                                         tree.name, Suggestion(tree.name)));
  return At(tree.position,
            fmt::format("unknown name \"{}\", wanted an index variable or a size{}", tree.name, Suggestion(tree.name)));
}

Result<Value> KernelResolver::Load(const Tree& tree) {
  auto it = tensors_.find(tree.name);
  if (it == tensors_.end())
    return At(tree.position, fmt::format("unknown tensor \"{}\"{}", tree.name, Suggestion(tree.name)));
  const Tensor& tensor = TensorOf(it->second);
  if (!written_[it->second])
    return At(tree.position,
              fmt::format("{} is read before the statement that fills it; move that statement up", tree.name));
  if (tree.args.size() != tensor.shape.size())
    return At(tree.position, fmt::format("{} has {} dimension{}, saw {} ind{}", tree.name, tensor.shape.size(),
                                         tensor.shape.size() == 1 ? "" : "s", tree.args.size(),
                                         tree.args.size() == 1 ? "ex" : "ices"));
  DType dtype = tensor.dtype;
  std::vector<Expr> indices;
  for (const Tree& arg : tree.args) {
    Value index = HONE_TRY(Lower(arg, true));
    if (index.type() != DType::kI64)
      return At(arg.position, fmt::format("saw a value of type {}, wanted an index; convert it with int(…)",
                                          hone::Name(index.type())));
    indices.push_back(index.expr);
  }
  Value load = HONE_TRY(Place(build_.Make(LoadOf(it->second, dtype, std::move(indices))), tree.position));
  places_.try_emplace(load.expr.id(), tree.position);
  return load;
}

Result<Value> KernelResolver::Pad(const Tree& tree) {
  if (tree.args.size() != 2 || tree.args[0].kind != TreeKind::kLoad)
    return At(tree.position, "pad wants a tensor's element and what stands outside it, as in pad(x[i - 1], 0)");
  Value load = HONE_TRY(Load(tree.args[0]));
  Value fill = HONE_TRY(Lower(tree.args[1], false));
  fill = HONE_TRY(Place(build_.Adapt(fill, load.type()), tree.args[1].position));
  if (fill.expr.op() != Op::kInt && fill.expr.op() != Op::kFloat)
    return At(tree.args[1].position, "what pad puts outside a tensor must be a number");
  return Place(build_.Make(PadOf(load.expr, fill.expr)), tree.position);
}

Result<Value> KernelResolver::Lower(const Tree& tree, bool index) {
  Value value = HONE_TRY(LowerNode(tree, index));
  if (!statement_.empty() && !value.expr.args().empty()) places_.try_emplace(value.expr.id(), tree.position);
  return value;
}

Result<Value> KernelResolver::LowerNode(const Tree& tree, bool index) {
  switch (tree.kind) {
    case TreeKind::kInt: return build_.Leaf(Int(tree.int_value), true);
    case TreeKind::kFloat: return build_.Leaf(Float(tree.float_value), true);
    case TreeKind::kName: return Name(tree);
    case TreeKind::kLoad: {
      Value value = HONE_TRY(Load(tree));
      // Indices read from data are i32 or i8 in memory and i64 in arithmetic.
      return index && Contains(TypeSet::kIntegers, value.type()) ? Place(build_.Call("int", {value}), tree.position)
                                                                 : value;
    }
    case TreeKind::kReduce: {
      if (index) return At(tree.position, "a reduction cannot stand in an index; give it a tensor of its own first");
      return Hoist(tree, HONE_TRY(Reduce(tree)));
    }
    case TreeKind::kMinus: return Place(build_.Negate(HONE_TRY(Lower(tree.args[0], index)), index), tree.position);
    case TreeKind::kNot: return Place(build_.Not(HONE_TRY(Lower(tree.args[0], index))), tree.position);
    case TreeKind::kBinary: {
      Value a = HONE_TRY(Lower(tree.args[0], index)), b = HONE_TRY(Lower(tree.args[1], index));
      if (IsComparison(tree.op)) return Place(build_.Compare(tree.op, a, b), tree.position);
      if (tree.op == Op::kAnd || tree.op == Op::kOr) return Place(build_.Logic(tree.op, a, b), tree.position);
      return Place(build_.Arithmetic(tree.op, a, b, index), tree.position);
    }
    case TreeKind::kCall: break;
  }
  if (tree.name == "pad") return Pad(tree);
  std::vector<Value> args;
  for (const Tree& arg : tree.args) args.push_back(HONE_TRY(Lower(arg, index)));
  Result<Value> value = Place(build_.Call(tree.name, std::move(args)), tree.position);
  if (!value && value.error().kind == ErrorKind::kNotFound)
    return At(tree.position, fmt::format("{}; wanted one of pad {}, or a type", value.error().message,
                                         fmt::join(FunctionNames(), " ")));
  return value;
}

}  // namespace hone
