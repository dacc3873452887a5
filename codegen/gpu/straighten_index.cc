// Indices. Each is a linear form; what of it is known in an outer scope is computed there, once, and the constant part
// stays with the access. They are 32 bits wide, as places in a buffer are; what data come to before they are bounded
// may be more, and is computed in 64.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/arithmetic.h"
#include "codegen/gpu/launch_maker.h"

namespace hone::straight {
namespace {

int64_t RoundedDown(int64_t a, int64_t b) { return a >= 0 ? a / b : -CeilDiv(-a, b); }

bool FitsInt(const Interval& range) { return range.lo >= INT32_MIN && range.hi <= INT32_MAX; }

Do Meaning(VarKind kind) { return kind == VarKind::kMin ? Do::kMin : kind == VarKind::kMax ? Do::kMax : Do::kMul; }

}  // namespace

Linear LaunchMaker::Known(const Linear& form) {
  return out_.vars.Substitute(out_.vars.ExpandAxes(form), [&](VarId var, Linear* value) {
    if (const auto form = forms_.find(var); form != forms_.end()) {
      *value = form->second;
      return true;
    }
    const auto constant = constants_.find(var);
    if (constant == constants_.end()) return false;
    *value = Linear(constant->second);
    return true;
  });
}

// A multiple of the divisor makes it positive, so that C's division rounds down.
Result<ValueId> LaunchMaker::QuotientDown(const Linear& a, int64_t divisor) {
  const Interval range = out_.vars.Range(a);
  const int64_t lift = range.lo >= 0 ? 0 : CeilDiv(-range.lo, divisor);
  if (!FitsInt({lift, divisor}) || !FitsInt({range.lo, range.hi + lift * divisor}))
    return Narrow(HONE_TRY(WideQuotientDown(a, divisor)));
  const ValueId lifted = HONE_TRY(IndexValue(a + Linear(lift * divisor)));
  const ValueId quotient = builder_.Make(Do::kQuotient, DType::kI32, {lifted, builder_.Int(divisor)});
  return lift == 0 ? quotient : builder_.Make(Do::kSub, DType::kI32, {quotient, builder_.Int(lift)});
}

Result<ValueId> LaunchMaker::VarValue(VarId id) {
  const Var var = out_.vars[id];
  switch (var.kind) {
    case VarKind::kLoop: {
      const auto known = known_.find(id);
      if (known != known_.end()) return known->second;
      return Error{ErrorKind::kInvalid, fmt::format("{} is not known where it is needed", var.name), ""};
    }
    case VarKind::kSize:
      for (size_t size = 0; size < program_.size_vars.size(); ++size)
        if (program_.size_vars[size] == id)
          return builder_.Given({.what = Do::kSize, .type = DType::kI32, .number = static_cast<int64_t>(size)});
      break;
    case VarKind::kAxis: return IndexValue(var.a);
    case VarKind::kFloorDiv: return QuotientDown(var.a, var.divisor);
    case VarKind::kMin:
    case VarKind::kMax:
    case VarKind::kProduct: {
      if (!Fits(var.a) || !Fits(var.b) || !Fits(Linear::Of(id, 1))) return Narrow(HONE_TRY(WideVarValue(id)));
      const ValueId a = HONE_TRY(IndexValue(var.a)), b = HONE_TRY(IndexValue(var.b));
      return builder_.Make(Meaning(var.kind), DType::kI32, {a, b});
    }
    case VarKind::kOpaque: return Narrow(HONE_TRY(ValueOf(program_.OpaqueValue(var))));
  }
  return Error{ErrorKind::kUnsupported, fmt::format("{} in an index", var.name), ""};
}

Result<Address> LaunchMaker::AddressOf(const Linear& unresolved) {
  const Linear form = Known(unresolved);
  if (!FitsInParts(form)) return Address{Narrow(HONE_TRY(WideValue(form))), 0};
  // Outer values first: their sum is computed where they are.
  std::vector<std::pair<ValueId, int64_t>> terms;
  for (const Term& term : form.terms()) terms.emplace_back(HONE_TRY(VarValue(term.var)), term.coef);
  std::stable_sort(terms.begin(), terms.end(),
                   [&](const auto& a, const auto& b) { return builder_.DepthOf(a.first) < builder_.DepthOf(b.first); });
  Address address{{}, form.constant()};
  for (const auto& [value, coef] : terms) {
    int64_t number = 0;
    if (builder_.IsConstant(value, &number)) {
      address.offset += number * coef;
      continue;
    }
    const ValueId scaled = builder_.Make(Do::kMul, DType::kI32, {value, builder_.Int(coef)});
    address.base = address.base ? builder_.Make(Do::kAdd, DType::kI32, {address.base, scaled}) : scaled;
  }
  return address;
}

// What is a multiple of eight rows, or within a part of 16 bytes, stays outside of what is swizzled, so that accesses
// of a loop's body share that.
Result<Address> LaunchMaker::PlaceOfElement(BufferId buffer, const Linear& flat) {
  if (!program_.buffer(buffer).is_swizzled) return AddressOf(flat);
  const int64_t bytes = ByteSize(program_.buffer(buffer).dtype), row = 128 / bytes, block = 8 * row;
  const Linear form = Known(flat);
  const int64_t begin = RoundedDown(form.constant(), block) * block;
  Linear outside(begin), inside(form.constant() - begin);
  for (const Term& term : form.terms()) (term.coef % block == 0 ? outside : inside) += Linear::Of(term.var, term.coef);
  const int64_t part = 16 / bytes, low = inside.constant() % part;
  if (std::ranges::all_of(inside.terms(), [&](const Term& term) { return term.coef % part == 0; })) {
    outside += Linear(low);
    inside -= Linear(low);
  }
  Address address = HONE_TRY(AddressOf(outside));
  if (inside.IsConstant()) {
    address.offset += SwizzledPlace(inside.constant(), bytes);
    return address;
  }
  const ValueId element = HONE_TRY(IndexValue(inside));
  const ValueId row_number = builder_.Make(Do::kBitAnd, DType::kI32, {element, builder_.Int(7 * row)});
  const ValueId moved = builder_.Make(Do::kShiftRight, DType::kI32, {row_number, builder_.Int(3)});
  const ValueId place = builder_.Make(Do::kBitXor, DType::kI32, {element, moved});
  address.base = address.base ? builder_.Make(Do::kAdd, DType::kI32, {address.base, place}) : place;
  return address;
}

Result<ValueId> LaunchMaker::IndexValue(const Linear& form) {
  const Address address = HONE_TRY(AddressOf(form));
  const ValueId offset = builder_.Int(address.offset);
  return address.base ? builder_.Make(Do::kAdd, DType::kI32, {address.base, offset}) : offset;
}

bool LaunchMaker::FitsInParts(const Linear& known) const {
  // Not the smallest i32, whose negative is none.
  __int128 lo = std::min<int64_t>(known.constant(), 0), hi = std::max<int64_t>(known.constant(), 0);
  for (const Term& term : known.terms()) {
    const Interval range = out_.vars.Range(Linear::Of(term.var, 1));
    if (!FitsInt(range) || !FitsInt({term.coef, term.coef})) return false;
    const __int128 a = static_cast<__int128>(term.coef) * range.lo, b = static_cast<__int128>(term.coef) * range.hi;
    lo += std::min<__int128>({a, b, 0});
    hi += std::max<__int128>({a, b, 0});
  }
  return lo > INT32_MIN && hi <= INT32_MAX;
}

bool LaunchMaker::Fits(const Linear& form) { return FitsInt(out_.vars.Range(Known(form))); }

ValueId LaunchMaker::Narrow(ValueId index) {
  return builder_[index].type == DType::kI64 ? builder_.Make(Do::kConvert, DType::kI32, {index}) : index;
}

ValueId LaunchMaker::Widened(ValueId index) {
  return builder_[index].type == DType::kI32 ? builder_.Make(Do::kConvert, DType::kI64, {index}) : index;
}

Result<ValueId> LaunchMaker::WideValue(const Linear& unresolved) {
  const Linear form = Known(unresolved);
  ValueId sum;
  for (const Term& term : form.terms()) {
    ValueId scaled = HONE_TRY(WideVarValue(term.var));
    if (term.coef != 1) scaled = builder_.Make(Do::kMul, DType::kI64, {scaled, Wide(term.coef)});
    sum = sum ? builder_.Make(Do::kAdd, DType::kI64, {sum, scaled}) : scaled;
  }
  if (!sum) return Wide(form.constant());
  return form.constant() == 0 ? sum : builder_.Make(Do::kAdd, DType::kI64, {sum, Wide(form.constant())});
}

Result<ValueId> LaunchMaker::WideVarValue(VarId id) {
  const Var var = out_.vars[id];
  switch (var.kind) {
    case VarKind::kAxis: return WideValue(var.a);
    case VarKind::kFloorDiv: return WideQuotientDown(var.a, var.divisor);
    case VarKind::kMin:
    case VarKind::kMax:
    case VarKind::kProduct: {
      const ValueId a = HONE_TRY(WideValue(var.a)), b = HONE_TRY(WideValue(var.b));
      return builder_.Make(Meaning(var.kind), DType::kI64, {a, b});
    }
    case VarKind::kOpaque: return Widened(HONE_TRY(ValueOf(program_.OpaqueValue(var))));
    default: return Widened(HONE_TRY(VarValue(id)));
  }
}

Result<ValueId> LaunchMaker::WideQuotientDown(const Linear& a, int64_t divisor) {
  const ValueId value = HONE_TRY(WideValue(a)), by = Wide(divisor);
  const ValueId quotient = builder_.Make(Do::kQuotient, DType::kI64, {value, by});
  const ValueId product = builder_.Make(Do::kMul, DType::kI64, {quotient, by});
  const ValueId is_above = builder_.Make(Do::kLt, DType::kBool, {value, product});
  const ValueId below = builder_.Make(Do::kSub, DType::kI64, {quotient, Wide(1)});
  return builder_.Make(Do::kSelect, DType::kI64, {is_above, below, quotient});
}

Result<ValueId> LaunchMaker::Holds(const Linear& unresolved) {
  const Linear form = Known(unresolved);
  const Interval range = out_.vars.Range(form);
  if (range.lo >= 0) return builder_.Bool(true);
  if (range.hi < 0) return builder_.Bool(false);
  // k·e + c ≥ 0 where e ≥ −⌊c/k⌋: the same for all lanes of a vector that lies inside or outside as a whole.
  int64_t k = 0;
  for (const Term& term : form.terms()) k = std::gcd(k, term.coef);
  Linear reduced(RoundedDown(form.constant(), k));
  for (const Term& term : form.terms()) reduced += Linear::Of(term.var, term.coef / k);
  if (!FitsInParts(reduced)) return builder_.Make(Do::kLe, DType::kBool, {Wide(0), HONE_TRY(WideValue(reduced))});
  const Address address = HONE_TRY(AddressOf(reduced));
  if (!address.base) return builder_.Bool(address.offset >= 0);
  return builder_.Make(Do::kLe, DType::kBool, {builder_.Int(-address.offset), address.base});
}

Result<ValueId> LaunchMaker::AllHold(const std::vector<Linear>& forms) {
  ValueId all;
  for (const Linear& form : forms) {
    const ValueId holds = HONE_TRY(Holds(form));
    int64_t known = 0;
    if (builder_.IsConstant(holds, &known)) {
      if (known == 0) return holds;
      continue;
    }
    all = builder_.And(all, holds);
  }
  return all;
}

}  // namespace hone::straight
