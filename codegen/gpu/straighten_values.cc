// Values and accesses.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "codegen/gpu/launch_maker.h"
#include "ir/graph/op_traits.h"

namespace hone::straight {

ValueId LaunchMaker::FromMemory(ValueId element) {
  const DType type = builder_[element].type;
  return IsInMemoryAlone(type) ? builder_.Make(Do::kConvert, TypeInCode(type), {element}) : element;
}

ValueId LaunchMaker::ToMemory(ValueId value, BufferId buffer) { return Narrowed(value, program_.buffer(buffer).dtype); }

// As memory holds it, where registers hold more bits; of what was that already, nothing is left to round.
ValueId LaunchMaker::Narrowed(ValueId value, DType type) {
  if (!IsInMemoryAlone(type)) return value;
  const Value& made = builder_[value];
  if (made.what == Do::kConstant) return builder_.Constant(type, made.number, made.real);
  if (made.what == Do::kConvert && builder_[made.args[0]].type == type) return made.args[0];
  return builder_.Make(Do::kConvert, type, {value});
}

Result<ValueId> LaunchMaker::ValueOf(const ValueNode& node) {
  switch (node.kind) {
    case ValueNode::Kind::kConstant: return builder_.Constant(TypeInCode(node.type), node.int_value, node.float_value);
    case ValueNode::Kind::kIndex: return Fits(node.index[0]) ? IndexValue(node.index[0]) : WideValue(node.index[0]);
    case ValueNode::Kind::kGuard: return Holds(node.index[0]);
    case ValueNode::Kind::kLoad: return LoadOf(node);
    case ValueNode::Kind::kOperation: return OperationOf(node);
  }
  return ValueId();
}

// Rounded down, whatever the signs.
Result<ValueId> LaunchMaker::FloorDivision(const ValueNode& node, ValueId a, ValueId b) {
  const DType type = TypeInCode(node.type);
  if (IsFloat(type)) return builder_.Make(Do::kFloor, type, {builder_.Make(Do::kDiv, type, {a, b})});
  const ValueId quotient = builder_.Make(Do::kQuotient, type, {a, b});
  const ValueId product = builder_.Make(Do::kMul, type, {quotient, b});
  const ValueId below = builder_.Make(Do::kLt, DType::kBool, {a, product});
  const ValueId one = builder_.Constant(type, 1, 1);
  const ValueId down =
      builder_.Make(Do::kSelect, type, {below, builder_.Make(Do::kSub, type, {quotient, one}), quotient});
  if (node.op != Op::kMod) return down;
  return builder_.Make(Do::kSub, type, {a, builder_.Make(Do::kMul, type, {down, b})});
}

// A u8 is an i32 in code: the lowest eight bits of an integer, a float cut towards zero and to its range.
ValueId LaunchMaker::Byte(ValueId value) {
  const DType from = builder_[value].type;
  if (IsFloat(from)) {
    const ValueId whole = builder_.Make(Do::kConvert, DType::kI32, {value});
    return builder_.Make(Do::kMin, DType::kI32,
                         {builder_.Make(Do::kMax, DType::kI32, {whole, builder_.Int(0)}), builder_.Int(255)});
  }
  const ValueId whole = from == DType::kI32 ? value : builder_.Make(Do::kConvert, DType::kI32, {value});
  return builder_.Make(Do::kBitAnd, DType::kI32, {whole, builder_.Int(255)});
}

// The nearest number of a float of 16 bits, as an f32.
Result<ValueId> LaunchMaker::RoundedTo(DType type, DType from, ValueId value) {
  if (from == type) return value;
  if (from == DType::kF64 || (TypeInCode(from) == DType::kI32 && from != DType::kU8))
    return Error{ErrorKind::kUnsupported,
                 fmt::format("{} to {} in code for a GPU, which would round twice", Name(from), Name(type)), ""};
  if (!IsFloat(from)) value = builder_.Make(Do::kConvert, DType::kF32, {value});
  return FromMemory(Narrowed(value, type));
}

// Indices of 32 bits beside one of 64 become such, too.
DType LaunchMaker::OneWidth(std::vector<ValueId>& values) {
  const auto is_wide = [&](ValueId value) { return builder_[value].type == DType::kI64; };
  if (std::ranges::any_of(values, is_wide))
    for (ValueId& value : values) value = Widened(value);
  return builder_[values[0]].type;
}

// Mesa's drivers for processors take x · 0, 0 / x and x − x for 0 whatever x is, and x + 0 for x, though modules ask
// them not to: what these come to is chosen. None: it is no such operation.
ValueId LaunchMaker::WithZero(Do what, DType type, ValueId x, ValueId y) {
  const auto constant = [&](double value) { return builder_.Constant(type, 0, value); };
  const auto is_zero = [&](ValueId value) { return builder_.IsConstant(value) && builder_[value].real == 0; };
  const auto if_less = [&](ValueId a, ValueId b, ValueId then) {
    return builder_.Make(Do::kSelect, type, {builder_.Make(Do::kLt, DType::kBool, {a, b}), then, constant(NAN)});
  };
  if (what == Do::kSub && x == y) return if_less(builder_.Make(Do::kAbs, type, {x}), constant(HUGE_VAL), constant(0));
  if (what == Do::kDiv ? true : what != Do::kSub && is_zero(x)) std::swap(x, y);
  if (!is_zero(y)) return {};
  const bool is_negative = std::signbit(builder_[y].real);
  if (what == Do::kAdd || what == Do::kSub) {
    if ((what == Do::kAdd) == is_negative) return x;
    const ValueId is_same = builder_.Make(Do::kEq, DType::kBool, {x, constant(0)});
    return builder_.Make(Do::kSelect, type, {is_same, constant(0), x});
  }
  const ValueId zero =
      builder_.Make(Do::kCopySign, type, {constant(0), is_negative ? builder_.Make(Do::kNeg, type, {x}) : x});
  const ValueId magnitude = builder_.Make(Do::kAbs, type, {x});
  return what == Do::kMul ? if_less(magnitude, constant(HUGE_VAL), zero) : if_less(constant(0), magnitude, zero);
}

// Of two numbers.
ValueId LaunchMaker::Arithmetic(Do what, DType type, const std::vector<ValueId>& args) {
  if (IsFloat(type))
    if (const ValueId chosen = WithZero(what, type, args[0], args[1])) return chosen;
  return builder_.MakeWrapping(what, type, args);
}

Result<ValueId> LaunchMaker::OperationOf(const ValueNode& node) {
  const DType type = TypeInCode(node.type);
  if (node.op == Op::kSelect) {
    const ValueId condition = HONE_TRY(ValueOf(*node.args[0]));
    int64_t known = 0;
    if (builder_.IsConstant(condition, &known)) return ValueOf(*node.args[known != 0 ? 1 : 2]);
    std::vector<ValueId> values = {HONE_TRY(ValueOf(*node.args[1])), HONE_TRY(ValueOf(*node.args[2]))};
    const DType of = OneWidth(values);
    return builder_.Make(Do::kSelect, of, {condition, values[0], values[1]});
  }
  std::vector<ValueId> args;
  for (const ValuePtr& arg : node.args) args.push_back(HONE_TRY(ValueOf(*arg)));
  const DType of = OneWidth(args);
  switch (node.op) {
    case Op::kAdd: return Arithmetic(Do::kAdd, type, args);
    case Op::kSub: return Arithmetic(Do::kSub, type, args);
    case Op::kMul: return Arithmetic(Do::kMul, type, args);
    case Op::kDiv:
      if (IsFloat(type)) return Arithmetic(Do::kDiv, type, args);
      return FloorDivision(node, args[0], args[1]);
    case Op::kFloorDiv:
    case Op::kMod: return FloorDivision(node, args[0], args[1]);
    case Op::kMin: return builder_.Make(type == DType::kBool ? Do::kAnd : Do::kMin, type, args);
    case Op::kMax: return builder_.Make(type == DType::kBool ? Do::kOr : Do::kMax, type, args);
    case Op::kEq: return builder_.Make(Do::kEq, DType::kBool, args);
    case Op::kNe: return builder_.Make(Do::kNe, DType::kBool, args);
    case Op::kLt: return builder_.Make(Do::kLt, DType::kBool, args);
    case Op::kLe: return builder_.Make(Do::kLe, DType::kBool, args);
    case Op::kAnd: return builder_.Make(Do::kAnd, DType::kBool, args);
    case Op::kOr: return builder_.Make(Do::kOr, DType::kBool, args);
    case Op::kNot: return builder_.Make(Do::kNot, DType::kBool, args);
    case Op::kAbs: return builder_.MakeWrapping(Do::kAbs, type, args);
    case Op::kSqrt: return builder_.Make(Do::kSqrt, type, args);
    case Op::kFloor: return builder_.Make(Do::kFloor, type, args);
    case Op::kRound: return builder_.Make(Do::kRound, type, args);
    case Op::kRsqrt:
      return builder_.Make(Do::kDiv, type, {builder_.Constant(type, 1, 1), builder_.Make(Do::kSqrt, type, {args[0]})});
    case Op::kCast:
      if (IsNarrowFloat(node.type)) return RoundedTo(node.type, node.args[0]->type, args[0]);
      if (node.type == DType::kU8) return Byte(args[0]);
      return of == type ? args[0] : builder_.Make(Do::kConvert, type, args);
    default: break;
  }
  if (IsElementary(node.op)) return builder_.Make(Do::kCall, type, args, HONE_TRY(FunctionFor(out_, node.op, type)));
  return Error{ErrorKind::kUnsupported, std::string(OpName(node.op)) + " in code for a GPU", ""};
}

Result<ValueId> LaunchMaker::TileElement(BufferId buffer, const std::vector<Linear>& index) {
  const Linear flat = Known(program_.FlatIndex(buffer, index));
  const auto tile = tiles_.find(buffer);
  const std::string& name = program_.buffer(buffer).name;
  if (tile == tiles_.end())
    return Error{ErrorKind::kInvalid, name + " is in registers and used where they are not there yet", ""};
  if (!flat.IsConstant())
    return Error{ErrorKind::kInvalid,
                 fmt::format("{} is in registers, but which element is used depends on {}: unroll that loop", name,
                             out_.vars[flat.terms()[0].var].name),
                 ""};
  const int64_t position = flat.constant();
  HONE_CHECK(position >= 0 && position < static_cast<int64_t>(tile->second.size()));
  return tile->second[static_cast<size_t>(position)];
}

int LaunchMaker::VectorWidth(BufferId id, const Linear& flat, int64_t lane, int64_t end, int64_t* first) {
  const Buffer& buffer = program_.buffer(id);
  *first = lane;
  if (!vector_ || buffer.dtype == DType::kBool) return 1;
  SetLane(lane);
  const Linear here = Known(flat);
  for (int width = ByteSize(buffer.dtype) == 8 ? 2 : 4; width > 1; width /= 2) {
    const int64_t start = lane / width * width;
    if (start + width > end) continue;
    SetLane(start);
    const Linear at = Known(flat);
    SetLane(start + width - 1);
    const Linear last = Known(flat);
    SetLane(lane);
    const bool is_aligned =
        at.constant() % width == 0 &&
        std::all_of(at.terms().begin(), at.terms().end(), [&](const Term& term) { return term.coef % width == 0; });
    if (!is_aligned || !(last - at == Linear(width - 1)) || !(here - at == Linear(lane - start))) continue;
    *first = start;
    return width;
  }
  return 1;
}

Result<ValueId> LaunchMaker::LoadOf(const ValueNode& node) {
  ValueId condition = HONE_TRY(AllHold(node.guard));
  int64_t known = 1;
  if (condition && builder_.IsConstant(condition, &known)) {
    if (known == 0) return ValueOf(*node.args[0]);
    condition = {};
  }
  DType type = TypeInCode(node.type);
  ValueId fill;
  if (condition) fill = HONE_TRY(ValueOf(*node.args[0]));
  const bool is_fragment = program_.buffer(node.buffer).scope == Scope::kFragments;
  if (program_.InRegisters(node.buffer) || is_fragment) {
    const ValueId element =
        HONE_TRY(is_fragment ? FragmentElement(node.buffer, node.index) : TileElement(node.buffer, node.index));
    return condition ? builder_.Make(Do::kSelect, type, {condition, element, fill}) : element;
  }
  type = TypeInMemory(node.type);
  if (condition) fill = Narrowed(fill, type);
  const Linear flat = program_.FlatIndex(node.buffer, node.index);
  const auto lane = constants_.find(vector_);
  if (vector_ && lane != constants_.end()) {
    const int64_t here = lane->second;
    int64_t first = here;
    int width = VectorWidth(node.buffer, flat, here, lanes_, &first);
    // One condition for all of the vector, and a fill that is the same in every lane.
    for (int64_t other = first; other < first + width && width > 1 && !node.guard.empty(); ++other) {
      SetLane(other);
      const ValueId there = HONE_TRY(AllHold(node.guard));
      if (there != condition || (condition && !builder_.IsConstant(fill))) width = 1;
    }
    if (width > 1) {
      SetLane(first);
      const Address at = HONE_TRY(PlaceOfElement(node.buffer, flat));
      SetLane(here);
      const ValueId vector = builder_.Load(node.buffer, type, width, at.base, at.offset, condition, fill);
      return FromMemory(builder_.Make(Do::kLane, type, {vector}, here - first));
    }
    SetLane(here);
  }
  const Address at = HONE_TRY(PlaceOfElement(node.buffer, flat));
  return FromMemory(builder_.Load(node.buffer, type, 1, at.base, at.offset, condition, fill));
}

}  // namespace hone::straight
