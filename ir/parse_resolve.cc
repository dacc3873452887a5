#include "ir/parse_resolve.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "ir/parse_values.h"

namespace hone {
namespace {

// An index variable of the statement at hand. Expressions name it by its number until the stage is made.
struct Variable {
  std::string_view name;
  Expr extent;
};

// A reduction whose operand is known: outer factors do not depend on the reduction's variables.
struct ReductionParts {
  Reduction reduction = Reduction::kNone;
  std::vector<int> variables;
  Value body;
  std::vector<Value> multiplied;
  std::vector<Value> divided;
};

class Resolver {
 public:
  Resolver(const KernelTree& tree, std::string_view file, const ParseLimits& limits, SourceMap* map)
      : tree_(tree), file_(file), limits_(limits), map_(*map), build_(limits.nodes) {}

  Result<Kernel> Run();

 private:
  Error At(Position position, std::string message, ErrorKind kind = ErrorKind::kInvalid) const {
    return Error{kind, std::move(message), WhereText(file_, position)};
  }
  // Gives an error without a place the place of what was being read.
  template <typename T>
  Result<T> Place(Result<T> result, Position position) const {
    if (result || !result.error().where.empty()) return result;
    Error error = std::move(result).error();
    error.where = WhereText(file_, position);
    return error;
  }

  Result<void> Sizes();
  Result<void> Options();
  Result<Expr> Extent(const Tree& tree);
  Result<void> Declare(const TensorTree& tree, TensorKind kind);
  Result<void> CheckView(const TensorTree& tree, const Tensor& tensor);
  Result<void> Statement(const StatementTree& tree);
  Result<void> Finish();

  Result<Value> Lower(const Tree& tree, bool index);
  Result<Value> Name(const Tree& tree);
  Result<Value> Load(const Tree& tree);
  Result<Value> Pad(const Tree& tree);
  Result<ReductionParts> Reduce(const Tree& tree);
  Result<Expr> ReductionExtent(const Tree& reduction, const ReduceVar& var);
  Result<void> Factor(const Tree& product, ReductionParts& parts);
  Result<Value> Hoist(const Tree& tree, const ReductionParts& parts);

  bool Uses(const Expr& expr, const std::vector<int>& variables) const;
  Expr Renumber(const Expr& body, const std::vector<int>& order, std::unordered_map<const ExprNode*, Expr>& memo);
  Stage MakeStage(TensorId output, const std::vector<int>& axes, const ReductionParts& parts, const Expr& body);
  Result<void> AddStage(Stage stage, Position position);
  std::string FreshName(std::string_view stem);
  std::string Suggestion(std::string_view name) const;

  Tensor& TensorOf(TensorId id) { return kernel_.tensors[static_cast<size_t>(id)]; }

  const KernelTree& tree_;
  std::string_view file_;
  const ParseLimits& limits_;
  SourceMap& map_;
  ValueBuilder build_;
  Kernel kernel_;

  std::map<std::string_view, Expr> sizes_;  // a SizeRef, or the expression that the name abbreviates
  std::map<std::string_view, Position> size_positions_;
  std::map<std::string, TensorId, std::less<>> tensors_;
  std::vector<bool> written_;                 // by tensor
  std::set<std::string, std::less<>> names_;  // of tensors, taken
  int nodes_ = 0;

  // Of the statement at hand.
  std::string_view statement_;
  DType target_ = DType::kF32;
  std::vector<Variable> variables_;
  std::map<std::string_view, int> scope_;
  std::vector<size_t> hoisted_;  // stages made for this statement
};

// ---- declarations

Result<void> Resolver::Sizes() {
  for (const SizeTree& size : tree_.sizes) {
    if (sizes_.count(size.name)) return At(size.position, fmt::format("size {} is given twice", size.name));
    auto bound = [&](const Tree& tree) -> Result<int64_t> {
      Expr value = HONE_TRY(Extent(tree));
      if (value.op() != Op::kInt) return At(tree.position, "a range wants whole numbers, as in M=1..512");
      return value.int_value();
    };
    auto check = [&](int64_t value) -> Result<void> {
      if (value < 0) return At(size.value.position, fmt::format("saw {}={}, wanted at least 0", size.name, value));
      if (value > limits_.size)
        return At(size.value.position,
                  fmt::format("saw {}={}, hone's limit for a size is {}", size.name, value, limits_.size),
                  ErrorKind::kLimit);
      return {};
    };
    Expr value = HONE_TRY(Extent(size.value));
    if (!size.hi && value.op() != Op::kInt) {
      sizes_[size.name] = value;  // an abbreviation
      continue;
    }
    int64_t lo = HONE_TRY(bound(size.value)), hi = size.hi ? HONE_TRY(bound(*size.hi)) : lo;
    HONE_TRY(check(lo));
    HONE_TRY(check(hi));
    if (hi < lo) return At(size.position, fmt::format("saw {}={}..{}, wanted a range that goes up", size.name, lo, hi));
    sizes_[size.name] = SizeRef(static_cast<int>(kernel_.sizes.size()));
    size_positions_[size.name] = size.position;
    kernel_.sizes.push_back(Size{std::string(size.name), lo, hi});
  }
  return {};
}

Result<void> Resolver::Options() {
  std::set<std::string_view> seen;
  for (const OptionTree& option : tree_.options) {
    if (!seen.insert(option.name).second)
      return At(option.position, fmt::format("option {} is given twice", option.name));
    const Token& value = option.value;
    if (option.name == "accuracy") {
      if (value.text == "strict")
        kernel_.options.accuracy = Accuracy::kStrict;
      else if (value.text == "relaxed")
        kernel_.options.accuracy = Accuracy::kRelaxed;
      else if (value.text == "fast")
        kernel_.options.accuracy = Accuracy::kFast;
      else
        return At(value.position, fmt::format("saw accuracy={}, wanted strict, relaxed or fast", value.text));
    } else if (option.name == "threads") {
      if (value.kind != TokenKind::kInt || value.int_value > limits_.threads)
        return At(value.position,
                  fmt::format("saw threads={}, wanted a number from 0 to {}", value.text, limits_.threads));
      kernel_.options.threads = static_cast<int>(value.int_value);
    } else {
      return At(option.position, fmt::format("unknown option \"{}\", wanted accuracy or threads", option.name));
    }
  }
  return {};
}

Result<Expr> Resolver::Extent(const Tree& tree) {
  Value value = HONE_TRY(Lower(tree, true));
  if (value.type() != DType::kI64) return At(tree.position, "wanted a whole number or an expression over sizes");
  bool over_sizes = true;
  Walk(value.expr, [&](const Expr& e) {
    over_sizes &= e.op() == Op::kInt || e.op() == Op::kSize || (e.op() >= Op::kAdd && e.op() <= Op::kMax);
  });
  if (!over_sizes) return At(tree.position, "an extent is made of numbers and sizes with + - * / % min and max");
  return value.expr;
}

// Element counts are compared as products: constants are multiplied out, the rest must be the same factors.
Result<void> Resolver::CheckView(const TensorTree& tree, const Tensor& tensor) {
  auto product = [&](const std::vector<Expr>& dims, std::vector<Expr>& factors) -> std::optional<int64_t> {
    int64_t constant = 1;
    for (const Expr& dim : dims) {
      std::optional<ExtentRange> range = CheckedExtent(kernel_, dim);
      if (!range) return std::nullopt;
      if (range->lo != range->hi)
        factors.push_back(dim);
      else if (__builtin_mul_overflow(constant, range->lo, &constant))
        return std::nullopt;
    }
    return constant;
  };
  std::vector<Expr> declared, viewed;
  std::optional<int64_t> a = product(tensor.declared, declared), b = product(tensor.shape, viewed);
  bool same = a && b && *a == *b && declared.size() == viewed.size();
  for (const Expr& factor : declared) {
    auto it = std::find_if(viewed.begin(), viewed.end(), [&](const Expr& e) { return SameExpr(e, factor); });
    if (it == viewed.end())
      same = false;
    else
      viewed.erase(it);
  }
  if (same) return {};
  if (a && b && declared.empty() && viewed.empty())
    return At(tree.position,
              fmt::format("{} has {} elements and its view {}; a view must keep their number", tensor.name, *a, *b));
  return At(tree.position, fmt::format("the view of {} cannot be shown to keep the number of elements", tensor.name));
}

Result<void> Resolver::Declare(const TensorTree& tree, TensorKind kind) {
  if (tensors_.count(tree.name)) return At(tree.position, fmt::format("tensor {} is declared twice", tree.name));
  if (sizes_.count(tree.name))
    return At(tree.position, fmt::format("{} is a size already; choose another name", tree.name));
  std::optional<DType> dtype = ParseDType(tree.dtype.name);
  if (!dtype)
    return At(tree.dtype.position,
              fmt::format("unknown element type \"{}\", wanted f32, f64, i32, i8 or bool", tree.dtype.name));
  if (*dtype == DType::kF16 || *dtype == DType::kBF16 || *dtype == DType::kI64)
    return At(tree.dtype.position,
              fmt::format("{} tensors are not on this target yet; use f32, f64, i32, i8 or bool", tree.dtype.name),
              ErrorKind::kUnsupported);
  if (std::max(tree.dims.size(), tree.view ? tree.view->size() : 0) > static_cast<size_t>(limits_.rank))
    return At(tree.position, fmt::format("{} has more than {} dimensions", tree.name, limits_.rank), ErrorKind::kLimit);
  Tensor tensor{std::string(tree.name), *dtype, {}, {}, kind, tree.is_const};
  for (const Tree& dim : tree.dims) tensor.shape.push_back(HONE_TRY(Extent(dim)));
  if (tree.view) {
    tensor.declared = std::move(tensor.shape);
    tensor.shape.clear();
    for (const Tree& dim : *tree.view) tensor.shape.push_back(HONE_TRY(Extent(dim)));
    HONE_TRY(CheckView(tree, tensor));
  }
  TensorId id = static_cast<TensorId>(kernel_.tensors.size());
  tensors_[tensor.name] = id;
  kernel_.tensors.push_back(std::move(tensor));
  map_.tensors.push_back(tree.position);
  written_.push_back(kind == TensorKind::kInput);
  if (kind != TensorKind::kIntermediate) kernel_.operands.push_back(id);
  return {};
}

std::string Resolver::FreshName(std::string_view stem) {
  std::string name(stem);
  for (int i = 2; names_.count(name) || IsReservedWord(name); ++i) name = fmt::format("{}{}", stem, i);
  names_.insert(name);
  return name;
}

// A declared name that is one edit away, to put at the end of an error.
std::string Resolver::Suggestion(std::string_view name) const {
  auto close = [&](std::string_view other) {
    if (other.size() > name.size() + 1 || name.size() > other.size() + 1 || name.size() < 3) return false;
    size_t front = 0, back = 0, shorter = std::min(name.size(), other.size());
    while (front < shorter && name[front] == other[front]) ++front;
    while (back < shorter - front && name[name.size() - 1 - back] == other[other.size() - 1 - back]) ++back;
    return front + back + 1 >= std::max(name.size(), other.size());
  };
  for (auto& [other, unused] : tensors_)
    if (close(other)) return fmt::format("; did you mean {}?", other);
  for (auto& [other, unused] : sizes_)
    if (close(other)) return fmt::format("; did you mean {}?", other);
  return "";
}

// ---- values

Result<Value> Resolver::Name(const Tree& tree) {
  if (auto it = scope_.find(tree.name); it != scope_.end()) return build_.Leaf(AxisRef(it->second));
  if (auto it = sizes_.find(tree.name); it != sizes_.end()) {
    Value value = build_.Leaf(it->second);
    Walk(it->second, [&](const Expr&) { ++value.nodes; });
    return value;
  }
  if (tree.name == "inf") return build_.Leaf(Float(std::numeric_limits<double>::infinity()), true);
  if (tree.name == "nan") return build_.Leaf(Float(std::numeric_limits<double>::quiet_NaN()), true);
  if (tree.name == "true" || tree.name == "false") return build_.Leaf(Int(tree.name == "true", DType::kBool));
  if (tensors_.count(tree.name))
    return At(tree.position,
              fmt::format("{} is a tensor, wanted one of its elements, as in {}[…]", tree.name, tree.name));
  return At(tree.position,
            fmt::format("unknown name \"{}\", wanted an index variable or a size{}", tree.name, Suggestion(tree.name)));
}

Result<Value> Resolver::Load(const Tree& tree) {
  auto it = tensors_.find(tree.name);
  if (it == tensors_.end())
    return At(tree.position, fmt::format("unknown tensor \"{}\"{}", tree.name, Suggestion(tree.name)));
  const Tensor& tensor = TensorOf(it->second);
  if (!written_[static_cast<size_t>(it->second)])
    return At(tree.position,
              fmt::format("{} is read before the statement that fills it; move that statement up", tree.name));
  if (tree.args.size() != tensor.shape.size())
    return At(tree.position, fmt::format("{} has {} dimension{}, saw {} ind{}", tree.name, tensor.shape.size(),
                                         tensor.shape.size() == 1 ? "" : "s", tree.args.size(),
                                         tree.args.size() == 1 ? "ex" : "ices"));
  DType dtype = tensor.dtype;
  std::vector<Value> args;
  std::vector<Expr> indices;
  for (const Tree& arg : tree.args) {
    Value index = HONE_TRY(Lower(arg, true));
    if (index.type() != DType::kI64)
      return At(arg.position, fmt::format("saw a value of type {}, wanted an index; convert it with int(…)",
                                          hone::Name(index.type())));
    index.weak = false;
    indices.push_back(index.expr);
    args.push_back(std::move(index));
  }
  Value load =
      HONE_TRY(Place(build_.Make(LoadOf(it->second, dtype, std::move(indices)), std::move(args)), tree.position));
  map_.loads.try_emplace(load.expr.id(), tree.position);
  return load;
}

Result<Value> Resolver::Pad(const Tree& tree) {
  if (tree.args.size() != 2 || tree.args[0].kind != TreeKind::kLoad)
    return At(tree.position, "pad wants a tensor's element and what stands outside it, as in pad(x[i - 1], 0)");
  Value load = HONE_TRY(Load(tree.args[0]));
  Value fill = HONE_TRY(Lower(tree.args[1], false));
  fill = HONE_TRY(Place(build_.Adapt(fill, load.type()), tree.args[1].position));
  if (fill.expr.op() != Op::kInt && fill.expr.op() != Op::kFloat)
    return At(tree.args[1].position, "what pad puts outside a tensor must be a number");
  return Place(build_.Make(PadOf(load.expr, fill.expr), {load, fill}), tree.position);
}

Result<Value> Resolver::Lower(const Tree& tree, bool index) {
  switch (tree.kind) {
    case TreeKind::kInt: return build_.Leaf(Int(tree.int_value), true);
    case TreeKind::kFloat: return build_.Leaf(Float(tree.float_value), true);
    case TreeKind::kName: return Name(tree);
    case TreeKind::kLoad: {
      Value value = HONE_TRY(Load(tree));
      // Indices read from data are i32 or i8 in memory and i64 in arithmetic.
      bool whole = value.type() == DType::kI32 || value.type() == DType::kI8;
      return index && whole ? Place(build_.Call("int", {value}), tree.position) : value;
    }
    case TreeKind::kReduce: {
      if (index) return At(tree.position, "a reduction cannot stand in an index; give it a tensor of its own first");
      return Hoist(tree, HONE_TRY(Reduce(tree)));
    }
    case TreeKind::kMinus: return Place(build_.Negate(HONE_TRY(Lower(tree.args[0], index)), index), tree.position);
    case TreeKind::kNot: return Place(build_.Not(HONE_TRY(Lower(tree.args[0], index))), tree.position);
    case TreeKind::kBinary: {
      Value a = HONE_TRY(Lower(tree.args[0], index)), b = HONE_TRY(Lower(tree.args[1], index));
      if (tree.op >= Op::kEq && tree.op <= Op::kLe) return Place(build_.Compare(tree.op, a, b), tree.position);
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
    return At(tree.position,
              value.error().message +
                  "; wanted one of abs exp log sqrt rsqrt tanh erf pow floor min max clamp if float int pad "
                  "relu relu6 gelu gelu_tanh silu sigmoid hardswish, or a type");
  return value;
}

// ---- reductions

// The dimension that the variable indexes alone. Loads inside pad() count last: they may reach over the edge.
Result<Expr> Resolver::ReductionExtent(const Tree& reduction, const ReduceVar& var) {
  if (var.extent >= 0) return Extent(reduction.args[static_cast<size_t>(var.extent)]);
  struct Candidate {
    Expr extent;
    std::string text;
  };
  std::optional<Candidate> found;
  std::optional<Error> conflict;
  auto consider = [&](const Tree& load) {
    auto it = tensors_.find(load.name);
    if (it == tensors_.end()) return;
    const Tensor& tensor = TensorOf(it->second);
    for (size_t d = 0; d < std::min(load.args.size(), tensor.shape.size()); ++d) {
      if (load.args[d].kind != TreeKind::kName || load.args[d].name != var.name) continue;
      Candidate candidate{tensor.shape[d], fmt::format("dimension {} of {}", d + 1, load.name)};
      if (!found) {
        found = candidate;
        continue;
      }
      auto a = CheckedExtent(kernel_, found->extent), b = CheckedExtent(kernel_, candidate.extent);
      bool same =
          SameExpr(found->extent, candidate.extent) || (a && b && a->lo == a->hi && b->lo == b->hi && a->lo == b->lo);
      if (!same && !conflict) {
        auto text = [](const std::optional<ExtentRange>& r) {
          return !r               ? std::string("?")
                 : r->lo == r->hi ? fmt::format("{}", r->lo)
                                  : fmt::format("{}..{}", r->lo, r->hi);
        };
        conflict =
            At(var.position, fmt::format("{} ranges over {} ({}) and over {} ({}), wanted one extent; or write {} < …",
                                         var.name, found->text, text(a), candidate.text, text(b), var.name));
      }
    }
  };
  auto visit = [&](const Tree& tree, bool padded, const auto& self) -> void {
    if (tree.kind == TreeKind::kLoad && !padded) consider(tree);
    bool pads = tree.kind == TreeKind::kCall && tree.name == "pad";
    for (const Tree& arg : tree.args) self(arg, pads, self);
  };
  visit(reduction.args[0], false, visit);
  if (conflict) return *conflict;
  if (found) return found->extent;
  auto visit_padded = [&](const Tree& tree, const auto& self) -> void {
    if (tree.kind == TreeKind::kLoad) consider(tree);
    for (const Tree& arg : tree.args) self(arg, self);
  };
  visit_padded(reduction.args[0], visit_padded);
  if (conflict) return *conflict;
  if (found) return found->extent;
  return At(var.position, fmt::format("{} indexes no dimension alone, so its range is unknown; write {}({} < …)",
                                      var.name, reduction.name, var.name));
}

bool Resolver::Uses(const Expr& expr, const std::vector<int>& variables) const {
  bool uses = false;
  Walk(expr, [&](const Expr& e) {
    uses |= e.op() == Op::kAxis && std::find(variables.begin(), variables.end(), e.int_value()) != variables.end();
  });
  return uses;
}

// Reads the operand of a sum. Factors of its product that do not depend on the reduction's variables are taken out:
// c·Σ a·b needs one multiplication and leaves a plain contraction. Parentheses keep them inside.
Result<void> Resolver::Factor(const Tree& product, ReductionParts& parts) {
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

Result<ReductionParts> Resolver::Reduce(const Tree& tree) {
  ReductionParts parts;
  parts.reduction = tree.name == "sum"   ? Reduction::kSum
                    : tree.name == "max" ? Reduction::kMax
                    : tree.name == "min" ? Reduction::kMin
                                         : Reduction::kProd;
  for (const ReduceVar& var : tree.vars) {
    if (scope_.count(var.name) || sizes_.count(var.name) || tensors_.count(var.name))
      return At(var.position, fmt::format("{} is already {}; choose another reduction variable", var.name,
                                          scope_.count(var.name)   ? "an index variable"
                                          : sizes_.count(var.name) ? "a size"
                                                                   : "a tensor"));
    Expr extent = HONE_TRY(ReductionExtent(tree, var));
    int id = static_cast<int>(variables_.size());
    variables_.push_back({var.name, extent});
    scope_[var.name] = id;
    parts.variables.push_back(id);
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
Result<Value> Resolver::Hoist(const Tree& tree, const ReductionParts& parts) {
  Value body = parts.body;
  if (body.weak) {
    bool whole = body.type() == DType::kI64;
    DType type = whole ? (IsFloat(target_) ? target_ : DType::kI32) : (IsFloat(target_) ? target_ : DType::kF32);
    body = HONE_TRY(Place(build_.Adapt(body, type), tree.position));
  }
  std::vector<int> axes;
  for (int v = 0; v < static_cast<int>(variables_.size()); ++v) {
    bool own = std::find(parts.variables.begin(), parts.variables.end(), v) != parts.variables.end();
    if (!own && Uses(body.expr, {v})) axes.push_back(v);
  }
  Stage stage = MakeStage(-1, axes, parts, body.expr);
  TensorId id = -1;
  for (size_t index : hoisted_) {
    const Stage& other = kernel_.stages[index];
    auto same_extent = [](const Axis& a, const Axis& b) { return SameExpr(a.extent, b.extent); };
    if (other.reduction == stage.reduction && SameExpr(other.body, stage.body) &&
        std::equal(other.axes.begin(), other.axes.end(), stage.axes.begin(), stage.axes.end(), same_extent) &&
        std::equal(other.reduce_axes.begin(), other.reduce_axes.end(), stage.reduce_axes.begin(),
                   stage.reduce_axes.end(), same_extent))
      id = other.output;
  }
  if (id < 0) {
    id = static_cast<TensorId>(kernel_.tensors.size());
    Tensor tensor{
        FreshName(fmt::format("{}_{}", statement_, tree.name)), body.type(), {}, {}, TensorKind::kIntermediate, false};
    for (int v : axes) tensor.shape.push_back(variables_[static_cast<size_t>(v)].extent);
    kernel_.tensors.push_back(std::move(tensor));
    map_.tensors.push_back(tree.position);
    written_.push_back(true);
    stage.output = id;
    hoisted_.push_back(kernel_.stages.size());
    HONE_TRY(AddStage(std::move(stage), tree.position));
  }
  std::vector<Expr> indices;
  std::vector<Value> counted;
  for (int v : axes) {
    counted.push_back(build_.Leaf(AxisRef(v)));
    indices.push_back(counted.back().expr);
  }
  Value value = HONE_TRY(Place(build_.Make(LoadOf(id, body.type(), std::move(indices)), counted), tree.position));
  map_.loads.try_emplace(value.expr.id(), tree.position);
  for (const Value& factor : parts.multiplied)
    value = HONE_TRY(Place(build_.Arithmetic(Op::kMul, value, factor, false), tree.position));
  for (const Value& factor : parts.divided)
    value = HONE_TRY(Place(build_.Arithmetic(Op::kDiv, value, factor, false), tree.position));
  return value;
}

// ---- stages

// Renumbers variables to the stage's positions; equal nodes stay one node.
Expr Resolver::Renumber(const Expr& expr, const std::vector<int>& order,
                        std::unordered_map<const ExprNode*, Expr>& memo) {
  if (auto it = memo.find(expr.id()); it != memo.end()) return it->second;
  Expr placed = expr;
  if (expr.op() == Op::kAxis) {
    auto it = std::find(order.begin(), order.end(), static_cast<int>(expr.int_value()));
    HONE_CHECK(it != order.end());
    placed = AxisRef(static_cast<int>(it - order.begin()));
  } else if (!expr.args().empty()) {
    std::vector<Expr> args;
    for (const Expr& arg : expr.args()) args.push_back(Renumber(arg, order, memo));
    placed = Expr(expr.op(), expr.type(), std::move(args), expr.int_value(), expr.float_value());
    if (auto it = map_.loads.find(expr.id()); it != map_.loads.end()) {
      Position position = it->second;
      map_.loads[placed.id()] = position;
    }
  }
  memo.emplace(expr.id(), placed);
  return placed;
}

Stage Resolver::MakeStage(TensorId output, const std::vector<int>& axes, const ReductionParts& parts,
                          const Expr& body) {
  Stage stage;
  stage.output = output;
  stage.reduction = parts.reduction;
  auto axis = [&](int v) {
    const Variable& variable = variables_[static_cast<size_t>(v)];
    return Axis{std::string(variable.name), variable.extent};
  };
  std::vector<int> order = axes;
  for (int v : axes) stage.axes.push_back(axis(v));
  for (int v : parts.variables) stage.reduce_axes.push_back(axis(v)), order.push_back(v);
  std::unordered_map<const ExprNode*, Expr> memo;
  stage.body = Renumber(body, order, memo);
  return stage;
}

Result<void> Resolver::AddStage(Stage stage, Position position) {
  if (static_cast<int>(kernel_.stages.size()) >= limits_.stages)
    return At(position, fmt::format("more than {} stages in one kernel", limits_.stages), ErrorKind::kLimit);
  Walk(stage.body, [&](const Expr&) { ++nodes_; });
  if (nodes_ > limits_.nodes)
    return At(position, fmt::format("more than {} operands and operators in one kernel", limits_.nodes),
              ErrorKind::kLimit);
  kernel_.stages.push_back(std::move(stage));
  map_.stages.push_back(position);
  return {};
}

Result<void> Resolver::Statement(const StatementTree& tree) {
  auto it = tensors_.find(tree.name);
  if (it == tensors_.end())
    return At(tree.position, fmt::format("unknown tensor \"{}\"; declare it on a line before: {}: f32[…]{}", tree.name,
                                         tree.name, Suggestion(tree.name)));
  TensorId output = it->second;
  if (TensorOf(output).kind == TensorKind::kInput)
    return At(tree.position,
              fmt::format("{} is an input and cannot be written; write an output or an intermediate", tree.name));
  if (written_[static_cast<size_t>(output)])
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
  std::vector<int> axes;
  for (size_t d = 0; d < tree.indices.size(); ++d) {
    const NameTree& name = tree.indices[d];
    if (sizes_.count(name.name) || tensors_.count(name.name))
      return At(name.position, fmt::format("{} is already {}, wanted an index variable of its own", name.name,
                                           sizes_.count(name.name) ? "a size" : "a tensor"));
    if (!scope_.try_emplace(name.name, static_cast<int>(d)).second)
      return At(name.position,
                fmt::format("{} indexes two dimensions of {}, wanted another variable", name.name, tree.name));
    axes.push_back(static_cast<int>(d));
    variables_.push_back({name.name, shape[d]});
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
  HONE_TRY(AddStage(MakeStage(output, axes, parts, body.expr), tree.position));
  written_[static_cast<size_t>(output)] = true;
  return {};
}

// ---- the whole

// Drops stages that nothing reads, then numbers sizes and intermediates in the order of the text.
Result<void> Resolver::Finish() {
  std::vector<bool> needed(kernel_.tensors.size(), false);
  for (TensorId id : kernel_.operands) needed[static_cast<size_t>(id)] = true;
  for (size_t i = kernel_.stages.size(); i-- > 0;) {
    if (!needed[static_cast<size_t>(kernel_.stages[i].output)]) {
      kernel_.stages.erase(kernel_.stages.begin() + static_cast<ptrdiff_t>(i));
      map_.stages.erase(map_.stages.begin() + static_cast<ptrdiff_t>(i));
      continue;
    }
    Walk(kernel_.stages[i].body, [&](const Expr& e) {
      if (e.op() == Op::kLoad) needed[static_cast<size_t>(e.int_value())] = true;
    });
  }

  std::vector<int> size_order = SizesByFirstUse(kernel_);
  for (size_t i = 0; i < kernel_.sizes.size(); ++i) {
    const Size& size = kernel_.sizes[i];
    bool used = std::find(size_order.begin(), size_order.end(), static_cast<int>(i)) != size_order.end();
    if (!used && !size.is_constant())
      return At(size_positions_[size.name],
                fmt::format("the range {} is never used; remove it or give it one value", size.name));
  }
  std::vector<TensorId> tensor_order = kernel_.operands;
  for (const Stage& stage : kernel_.stages)
    if (kernel_.tensors[static_cast<size_t>(stage.output)].kind == TensorKind::kIntermediate)
      tensor_order.push_back(stage.output);

  std::vector<int> new_size(kernel_.sizes.size(), -1), new_tensor(kernel_.tensors.size(), -1);
  for (size_t i = 0; i < size_order.size(); ++i) new_size[static_cast<size_t>(size_order[i])] = static_cast<int>(i);
  for (size_t i = 0; i < tensor_order.size(); ++i)
    new_tensor[static_cast<size_t>(tensor_order[i])] = static_cast<int>(i);

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
      int64_t value = expr.op() == Op::kLoad ? new_tensor[static_cast<size_t>(expr.int_value())] : expr.int_value();
      made = Expr(expr.op(), expr.type(), std::move(args), value, expr.float_value());
      if (auto it = map_.loads.find(expr.id()); it != map_.loads.end()) {
        Position position = it->second;
        map_.loads[made.id()] = position;
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
  std::vector<Tensor> tensors;
  std::vector<Position> positions;
  for (TensorId id : tensor_order) {
    tensors.push_back(std::move(TensorOf(id)));
    positions.push_back(map_.tensors[static_cast<size_t>(id)]);
    renumber_all(tensors.back().shape);
    renumber_all(tensors.back().declared);
  }
  for (Stage& stage : kernel_.stages) {
    stage.output = new_tensor[static_cast<size_t>(stage.output)];
    for (Axis& axis : stage.axes) axis.extent = renumber(axis.extent, renumber);
    for (Axis& axis : stage.reduce_axes) axis.extent = renumber(axis.extent, renumber);
    stage.body = renumber(stage.body, renumber);
  }
  for (TensorId& id : kernel_.operands) id = new_tensor[static_cast<size_t>(id)];
  kernel_.sizes = std::move(sizes);
  kernel_.tensors = std::move(tensors);
  map_.tensors = std::move(positions);
  return {};
}

Result<Kernel> Resolver::Run() {
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
  if (kernel_.operands.size() > static_cast<size_t>(limits_.operands))
    return At(tree_.position, fmt::format("more than {} operands", limits_.operands), ErrorKind::kLimit);
  for (const auto& item : tree_.body) {
    if (auto* tensor = std::get_if<TensorTree>(&item))
      HONE_TRY(Declare(*tensor, TensorKind::kIntermediate));
    else
      HONE_TRY(Statement(std::get<StatementTree>(item)));
  }
  for (size_t i = 0; i < kernel_.tensors.size(); ++i)
    if (!written_[i])
      return At(map_.tensors[i],
                fmt::format("{} is never filled; write {}[…] = …", kernel_.tensors[i].name, kernel_.tensors[i].name));
  HONE_TRY(Finish());
  return std::move(kernel_);
}

}  // namespace

Result<Kernel> ResolveKernel(const KernelTree& tree, std::string_view file, const ParseLimits& limits, SourceMap* map) {
  return Resolver(tree, file, limits, map).Run();
}

}  // namespace hone
