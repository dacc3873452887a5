// Declarations: sizes and their abbreviations, options, tensors and their views.
#include <algorithm>

#include "ir/graph/dtype_traits.h"
#include "ir/language/parse_resolver.h"

namespace hone {

Result<void> KernelResolver::Sizes() {
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
    if (lo != hi && ++dynamic_sizes_ > limits_.ranges)
      return At(size.position, fmt::format("more than {} sizes that are ranges", limits_.ranges), ErrorKind::kLimit);
    sizes_[size.name] = SizeRef(static_cast<int>(kernel_.sizes.size()));
    size_positions_[size.name] = size.position;
    kernel_.sizes.push_back(Size{std::string(size.name), lo, hi});
  }
  return {};
}

Result<void> KernelResolver::Options() {
  std::set<std::string_view> seen;
  for (const OptionTree& option : tree_.options) {
    if (!seen.insert(option.name).second)
      return At(option.position, fmt::format("option {} is given twice", option.name));
    const Token& value = option.value;
    if (option.name == "accuracy") {
      const std::optional<Accuracy> accuracy = ParseAccuracy(value.text);
      if (!accuracy)
        return At(value.position, fmt::format("saw accuracy={}, wanted strict, relaxed or fast", value.Shown()));
      kernel_.options.accuracy = *accuracy;
    } else if (option.name == "threads") {
      if (value.kind != TokenKind::kInt || value.int_value > limits_.threads)
        return At(value.position,
                  fmt::format("saw threads={}, wanted a number from 0 to {}", value.Shown(), limits_.threads));
      kernel_.options.threads = static_cast<int>(value.int_value);
    } else {
      return At(option.position, fmt::format("unknown option \"{}\", wanted accuracy or threads", option.name));
    }
  }
  return {};
}

Result<Expr> KernelResolver::Extent(const Tree& tree) {
  Value value = HONE_TRY(Lower(tree, true));
  if (value.type() != DType::kI64) return At(tree.position, "wanted a whole number or an expression over sizes");
  constexpr uint64_t kAllowed = OpBit(Op::kInt) | OpBit(Op::kSize) | OpBit(Op::kAdd) | OpBit(Op::kSub) |
                                OpBit(Op::kMul) | OpBit(Op::kFloorDiv) | OpBit(Op::kMod) | OpBit(Op::kMin) |
                                OpBit(Op::kMax);
  if ((value.expr.ops() & ~kAllowed) != 0)
    return At(tree.position, "an extent is made of numbers and sizes with + - * / % min and max");
  return value.expr;
}

// Element counts are compared as products: constants are multiplied out, the rest must be the same factors.
Result<void> KernelResolver::CheckView(const TensorTree& tree, const Tensor& tensor) {
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

Result<void> KernelResolver::Declare(const TensorTree& tree, TensorKind kind) {
  if (tensors_.count(tree.name)) return At(tree.position, fmt::format("tensor {} is declared twice", tree.name));
  if (sizes_.count(tree.name))
    return At(tree.position, fmt::format("{} is a size already; choose another name", tree.name));
  std::optional<DType> dtype = ParseDType(tree.dtype.name);
  if (!dtype)
    return At(tree.dtype.position,
              fmt::format("unknown element type \"{}\", wanted {}", tree.dtype.name, ElementTypes()));
  if (!TraitsOf(*dtype).is_computed || *dtype == DType::kI64)
    return At(tree.dtype.position,
              fmt::format("{} tensors are not on this target yet; use {}", tree.dtype.name, ElementTypes()),
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
  HONE_TRY(Count(tensor, tree.position));
  const TensorId id = AddTensor(std::move(tensor), tree.position, kind == TensorKind::kInput);
  tensors_[TensorOf(id).name] = id;
  if (kind != TensorKind::kIntermediate) kernel_.operands.push_back(id);
  return {};
}

TensorId KernelResolver::AddTensor(Tensor tensor, Position position, bool is_written) {
  map_.tensors.Add(position);
  written_.Add(is_written);
  return kernel_.tensors.Add(std::move(tensor));
}

std::string KernelResolver::FreshName(std::string_view stem) {
  std::string name(stem);
  // Numbers that were tried for a stem are not tried again: the text may hold thousands of such names.
  int& next = next_fresh_.try_emplace(name, 2).first->second;
  while (names_.count(name) || IsReservedWord(name)) name = fmt::format("{}{}", stem, next++);
  names_.insert(name);
  return name;
}

// A declared name that is one edit away, to put at the end of an error.
std::string KernelResolver::Suggestion(std::string_view name) const {
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

}  // namespace hone
