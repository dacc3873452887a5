#include "codegen/gpu/straight_builder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "ir/graph/element.h"

namespace hone::straight {
namespace {

bool IsInteger(const Value& value) { return value.type == DType::kI32 || value.type == DType::kBool; }

int64_t Wrapped(uint64_t value) { return static_cast<int32_t>(static_cast<uint32_t>(value)); }

}  // namespace

std::string Builder::KeyOf(const Value& value) const {
  std::string key =
      fmt::format("{} {} {} {} {} {} {} {}", static_cast<int>(value.what), static_cast<int>(value.type), value.lanes,
                  value.number, std::bit_cast<uint64_t>(value.real), value.buffer.value, value.wraps, value.transposes);
  for (ValueId arg : value.args) {
    key += fmt::format(" {}", arg.value);
    if (arg && code_.values[arg].what == Do::kRegister) {
      const auto version = register_versions_.find(arg);
      key += fmt::format("v{}", version == register_versions_.end() ? 0 : version->second);
    }
  }
  if (value.what == Do::kLoad || value.what == Do::kMatrices) {
    const auto version = versions_.find(value.buffer);
    key += fmt::format(" v{}", version == versions_.end() ? 0 : version->second);
  }
  return key;
}

ValueId Builder::Add(Value value, size_t depth) {
  const std::string key = KeyOf(value);
  const ValueId id = code_.values.Add(std::move(value));
  depths_.resize(code_.values.size(), 0);
  depths_[id.index()] = depth;
  scopes_[depth].known[key] = id;
  return id;
}

bool Builder::IsConstant(ValueId id, int64_t* number) const {
  if (!id || code_.values[id].what != Do::kConstant) return false;
  if (number != nullptr) *number = code_.values[id].number;
  return true;
}

ValueId Builder::Constant(DType type, int64_t number, double real) {
  Value value{.what = Do::kConstant, .type = type};
  if (IsFloat(type))
    value.real = type == DType::kF64 ? real : RoundedTo(type, real);
  else
    value.number = number;
  return Make(std::move(value));
}

ValueId Builder::Given(Value value) {
  const std::string key = KeyOf(value);
  if (auto known = scopes_[0].known.find(key); known != scopes_[0].known.end()) return known->second;
  return Add(std::move(value), 0);
}

ValueId Builder::And(ValueId a, ValueId b) {
  if (!a || a == b) return b;
  if (!b) return a;
  return Make(Do::kAnd, DType::kBool, {a, b});
}

ValueId Builder::Make(Do what, DType type, std::vector<ValueId> args, int64_t number) {
  Value value{.what = what, .type = type};
  value.args = std::move(args);
  value.number = number;
  if (what == Do::kPack) value.lanes = static_cast<int>(value.args.size());
  return Make(std::move(value));
}

ValueId Builder::MakeWrapping(Do what, DType type, std::vector<ValueId> args) {
  Value value{.what = what, .type = type};
  value.args = std::move(args);
  value.wraps = type == DType::kI32;
  return Make(std::move(value));
}

ValueId Builder::Load(BufferId buffer, DType type, int lanes, ValueId base, int64_t offset, ValueId condition,
                      ValueId fill) {
  Value value{.what = Do::kLoad, .type = type, .lanes = lanes};
  value.args = {base};
  if (condition) value.args = {base, condition, fill};
  value.number = offset;
  value.buffer = buffer;
  value.varies = true;
  return Make(std::move(value));
}

std::vector<ValueId> Builder::LoadMatrices(BufferId buffer, DType type, int matrices, bool transposes, ValueId base,
                                           int64_t offset) {
  Value value{.what = Do::kMatrices, .type = type, .lanes = matrices};
  value.args = {base};
  value.number = offset;
  value.buffer = buffer;
  value.varies = true;
  value.transposes = transposes;
  const ValueId loaded = Make(std::move(value));
  std::vector<ValueId> words;
  for (int64_t i = 0; i < matrices; ++i) {
    Value word{.what = Do::kWord, .type = type, .lanes = static_cast<int>(4 / ByteSize(type))};
    word.args = {loaded};
    word.number = i;
    words.push_back(Make(std::move(word)));
  }
  return words;
}

// Of integers and conditions; none: there is nothing to fold.
ValueId Builder::Folded(const Value& v) {
  if (v.args.empty() || v.what == Do::kLoad || v.what == Do::kMatrices || v.what == Do::kPack || v.what == Do::kLane ||
      v.what == Do::kEverySecond || v.what == Do::kPart || v.what == Do::kCall)
    return {};
  if (v.what == Do::kSelect) {
    int64_t condition = 0;
    if (IsConstant(v.args[0], &condition)) return v.args[condition != 0 ? 1 : 2];
    return v.args[1] == v.args[2] ? v.args[1] : ValueId();
  }
  if (!IsInteger(v) || !IsInteger(code_.values[v.args[0]])) return {};
  int64_t a = 0, b = 0;
  const bool has_a = IsConstant(v.args[0], &a), has_b = v.args.size() > 1 && IsConstant(v.args[1], &b);
  if (v.what == Do::kNot && has_a) return Bool(a == 0);
  if (v.args.size() != 2) return {};
  const ValueId x = v.args[0], y = v.args[1];
  if (has_a && has_b) {
    const auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
    switch (v.what) {
      case Do::kAdd: return Int(Wrapped(ua + ub));
      case Do::kSub: return Int(Wrapped(ua - ub));
      case Do::kMul: return Int(Wrapped(ua * ub));
      case Do::kQuotient: return Int(a / b);
      case Do::kMin: return v.type == DType::kBool ? Bool(a != 0 && b != 0) : Int(std::min(a, b));
      case Do::kMax: return v.type == DType::kBool ? Bool(a != 0 || b != 0) : Int(std::max(a, b));
      case Do::kEq: return Bool(a == b);
      case Do::kNe: return Bool(a != b);
      case Do::kLt: return Bool(a < b);
      case Do::kLe: return Bool(a <= b);
      case Do::kAnd: return Bool(a != 0 && b != 0);
      case Do::kOr: return Bool(a != 0 || b != 0);
      default: return {};
    }
  }
  switch (v.what) {
    case Do::kAdd: return has_a && a == 0 ? y : has_b && b == 0 ? x : ValueId();
    case Do::kSub: return has_b && b == 0 ? x : ValueId();
    case Do::kMul:
      if ((has_a && a == 0) || (has_b && b == 0)) return Int(0);
      return has_a && a == 1 ? y : has_b && b == 1 ? x : ValueId();
    case Do::kQuotient: return has_b && b == 1 ? x : ValueId();
    case Do::kAnd:
      if ((has_a && a == 0) || (has_b && b == 0)) return Bool(false);
      return has_a ? y : has_b || x == y ? x : ValueId();
    case Do::kOr:
      if ((has_a && a != 0) || (has_b && b != 0)) return Bool(true);
      return has_a ? y : has_b || x == y ? x : ValueId();
    case Do::kMin:
    case Do::kMax: return x == y ? x : ValueId();
    default: return {};
  }
}

ValueId Builder::Make(Value value) {
  if (const ValueId folded = Folded(value)) return folded;
  for (ValueId arg : value.args)
    if (arg) value.varies |= code_.values[arg].varies;
  const std::string key = KeyOf(value);
  for (size_t depth = scopes_.size(); depth-- > 0;)
    if (auto known = scopes_[depth].known.find(key); known != scopes_[depth].known.end()) return known->second;
  if (value.what == Do::kConstant) return Add(std::move(value), 0);
  size_t depth = scopes_.size() - 1;
  if (IsInteger(value) && value.what != Do::kLoad) {
    size_t deepest = 0;
    bool is_movable = true;
    for (ValueId arg : value.args) {
      deepest = std::max(deepest, DepthOf(arg));
      is_movable &= code_.values[arg].what != Do::kRegister;
    }
    if (is_movable) depth = deepest;
  }
  const ValueId id = Add(std::move(value), depth);
  scopes_[depth].nodes.push_back({.kind = Node::Kind::kLet, .value = id});
  return id;
}

ValueId Builder::Declare(Value of) {
  of.varies = true;
  const ValueId id = code_.values.Add(std::move(of));
  depths_.resize(code_.values.size(), 0);
  depths_[id.index()] = scopes_.size() - 1;
  scopes_.back().nodes.push_back({.kind = Node::Kind::kDeclare, .value = id});
  return id;
}

void Builder::Assign(ValueId reg, ValueId value) {
  scopes_.back().nodes.push_back({.kind = Node::Kind::kAssign, .value = reg, .a = value});
  ++register_versions_[reg];
}

void Builder::Store(BufferId buffer, ValueId base, int64_t offset, ValueId value) {
  scopes_.back().nodes.push_back(
      {.kind = Node::Kind::kStore, .a = base, .b = value, .offset = offset, .buffer = buffer});
  Forget(buffer);
}

void Builder::Barrier() { scopes_.back().nodes.push_back({.kind = Node::Kind::kBarrier}); }

void Builder::Multiply(const Instruction& instruction, std::vector<ValueId> args) {
  Node node{.kind = Node::Kind::kMultiply};
  node.instruction = &instruction;
  node.args = std::move(args);
  AppendChanging(std::move(node));
}

void Builder::AppendChanging(Node node) {
  for (ValueId arg : node.args)
    if (code_.values[arg].what == Do::kRegister) ++register_versions_[arg];
  Append(std::move(node));
}

ValueId Builder::OpenFor(std::string name, bool varies) {
  Value value{.what = Do::kCounter, .type = DType::kI32};
  value.name = std::move(name);
  value.varies = varies;
  const ValueId counter = code_.values.Add(std::move(value));
  scopes_.emplace_back();
  depths_.resize(code_.values.size(), 0);
  depths_[counter.index()] = scopes_.size() - 1;
  // Registers that the body assigns are read afresh in each trip: their versions before the loop are not those inside.
  for (auto& [reg, version] : register_versions_) ++version;
  return counter;
}

void Builder::CloseFor(ValueId counter, ValueId begin, ValueId end) {
  Node node{.kind = Node::Kind::kFor, .value = counter, .a = begin, .b = end};
  node.body = std::move(scopes_.back().nodes);
  scopes_.pop_back();
  for (auto& [reg, version] : register_versions_) ++version;
  if (!node.body.empty()) scopes_.back().nodes.push_back(std::move(node));
}

void Builder::OpenIf() { scopes_.emplace_back(); }

void Builder::CloseIf(ValueId condition) {
  std::vector<Node> body = std::move(scopes_.back().nodes);
  scopes_.pop_back();
  for (auto& [reg, version] : register_versions_) ++version;
  if (body.empty()) return;
  std::vector<Node>& nodes = scopes_.back().nodes;
  int64_t known = 0;
  if (IsConstant(condition, &known)) {
    if (known != 0)
      nodes.insert(nodes.end(), std::make_move_iterator(body.begin()), std::make_move_iterator(body.end()));
    return;
  }
  if (!nodes.empty() && nodes.back().kind == Node::Kind::kIf && nodes.back().a == condition) {
    std::vector<Node>& before = nodes.back().body;
    before.insert(before.end(), std::make_move_iterator(body.begin()), std::make_move_iterator(body.end()));
    return;
  }
  Node node{.kind = Node::Kind::kIf, .a = condition};
  node.body = std::move(body);
  nodes.push_back(std::move(node));
}

void Builder::Finish() {
  HONE_CHECK(scopes_.size() == 1);
  code_.nodes = std::move(scopes_[0].nodes);
}

}  // namespace hone::straight
