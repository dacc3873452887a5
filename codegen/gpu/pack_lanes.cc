#include "codegen/gpu/pack_lanes.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/check.h"
#include "codegen/gpu/straight_builder.h"
#include "codegen/gpu/wide_function.h"
#include "ir/graph/dtype_traits.h"

namespace hone::straight {
namespace {

constexpr size_t kFewest = 4;

// Registers side by side, which may become one.
using Row = std::vector<ValueId>;

// An element of memory that a value loads.
struct Element {
  BufferId buffer;
  ValueId base, condition, fill;
  int64_t offset = 0;
  ValueId load;  // the value that has it
};

bool IsOfWarps(const std::vector<Node>& nodes) {
  return std::ranges::any_of(nodes, [](const Node& node) {
    switch (node.kind) {
      case Node::Kind::kLet:
      case Node::Kind::kDeclare:
      case Node::Kind::kAssign:
      case Node::Kind::kStore:
      case Node::Kind::kBarrier: return false;
      case Node::Kind::kFor:
      case Node::Kind::kIf: return IsOfWarps(node.body);
      default: return true;
    }
  });
}

bool IsComparison(Do what) { return what == Do::kEq || what == Do::kNe || what == Do::kLt || what == Do::kLe; }
bool IsLogic(Do what) { return what == Do::kAnd || what == Do::kOr || what == Do::kNot; }

// Copies code, and packs what it can on the way.
class Packer {
 public:
  // `rows`: to become registers of vectors.
  Packer(const Code& code, Program& program, int lanes, const std::vector<Row>& rows)
      : code_(code), program_(program), most_(static_cast<size_t>(lanes)), rows_(rows), builder_(packed_) {
    for (size_t row = 0; row < rows.size(); ++row)
      for (size_t lane = 0; lane < rows[row].size(); ++lane) lanes_[rows[row][lane]] = {row, lane};
    registers_.resize(rows.size());
  }

  // Rows that have to be narrower are added to `failed`; if there are any, the code is of no use.
  Code Pack(std::set<size_t>* failed) {
    failed_ = failed;
    CopyAll(code_.nodes);
    builder_.Finish();
    DropUnused(packed_);
    return std::move(packed_);
  }

 private:
  struct LaneOf {
    size_t row, lane;
  };

  const Value& Old(ValueId id) const { return code_.values[id]; }
  const LaneOf* LaneAt(ValueId id) const {
    const auto found = lanes_.find(id);
    return found == lanes_.end() ? nullptr : &found->second;
  }
  // A value of the packed code, as it is at this point.
  ValueId Get(ValueId old);
  ValueId Copied(const Value& old);

  void CopyAll(const std::vector<Node>& nodes);
  void Copy(const Node& node);
  // What the body writes is not what was read before.
  void Change(const std::vector<Node>& body);
  // Assignments to all lanes of the row that nodes[at] assigns to, or stores side by side from there on; the node
  // behind.
  size_t CopyAssignments(const std::vector<Node>& nodes, size_t at);
  size_t CopyStores(const std::vector<Node>& nodes, size_t at);

  // One value of all of these; none: they have nothing in common.
  ValueId Packed(const std::vector<ValueId>& olds);
  ValueId PackedLoad(const std::vector<ValueId>& olds);
  ValueId PackedOperation(const std::vector<ValueId>& olds);
  std::optional<Element> ElementOf(ValueId old) const;
  ValueId Splat(ValueId value, size_t lanes) {
    return builder_.Make(Do::kPack, builder_[value].type, std::vector<ValueId>(lanes, value));
  }
  size_t MostLanes(DType type) const { return ByteSize(type) == 8 ? most_ / 2 : most_; }
  // Whether what the value read then is what it would read now.
  bool IsAsItWas(ValueId old) const;
  bool HasChanged(ValueId reg, ValueId since) const {
    const auto changed = changed_.find(reg);
    return changed != changed_.end() && changed->second > computed_.at(since);
  }

  const Code& code_;
  Program& program_;
  const size_t most_;
  const std::vector<Row>& rows_;
  std::map<ValueId, LaneOf> lanes_;
  std::vector<ValueId> registers_;  // of rows
  std::set<size_t>* failed_ = nullptr;
  Code packed_;
  Builder builder_;
  std::map<ValueId, ValueId> now_;
  // When a value was computed, and a register and a buffer changed for the last time.
  int64_t time_ = 0;
  std::map<ValueId, int64_t> computed_, changed_;
  std::map<BufferId, int64_t> written_;
};

ValueId Packer::Get(ValueId old) {
  if (!old) return {};
  if (const LaneOf* lane = LaneAt(old))
    return builder_.Make(Do::kLane, Old(old).type, {registers_[lane->row]}, static_cast<int64_t>(lane->lane));
  if (const auto now = now_.find(old); now != now_.end()) return now->second;
  const Value& value = Old(old);
  return now_[old] = value.what == Do::kConstant ? builder_.Make(value) : builder_.Given(value);
}

ValueId Packer::Copied(const Value& old) {
  Value value = old;
  for (ValueId& arg : value.args) arg = Get(arg);
  value.varies = value.what == Do::kLoad;
  return builder_.Make(std::move(value));
}

void Packer::CopyAll(const std::vector<Node>& nodes) {
  for (size_t at = 0; at < nodes.size();) {
    const Node& node = nodes[at];
    if (node.kind == Node::Kind::kAssign && LaneAt(node.value) != nullptr) {
      at = CopyAssignments(nodes, at);
    } else if (node.kind == Node::Kind::kStore) {
      at = CopyStores(nodes, at);
    } else {
      Copy(node);
      ++at;
    }
  }
}

void Packer::Change(const std::vector<Node>& body) {
  ++time_;
  for (const Node& node : body) {
    if (node.kind == Node::Kind::kAssign) changed_[node.value] = time_;
    if (node.kind == Node::Kind::kStore) {
      written_[node.buffer] = time_;
      builder_.Forget(node.buffer);
    }
    Change(node.body);
  }
}

void Packer::Copy(const Node& node) {
  switch (node.kind) {
    case Node::Kind::kLet:
      now_[node.value] = Copied(Old(node.value));
      computed_[node.value] = ++time_;
      return;
    case Node::Kind::kDeclare: {
      const LaneOf* lane = LaneAt(node.value);
      Value reg = Old(node.value);
      if (lane == nullptr) {
        now_[node.value] = builder_.Declare(std::move(reg));
      } else if (lane->lane == 0) {
        reg.lanes = static_cast<int>(rows_[lane->row].size());
        registers_[lane->row] = builder_.Declare(std::move(reg));
      }
      return;
    }
    case Node::Kind::kAssign:
      builder_.Assign(now_.at(node.value), Get(node.a));
      changed_[node.value] = ++time_;
      return;
    case Node::Kind::kStore:
      builder_.Store(node.buffer, Get(node.a), node.offset, Get(node.b));
      written_[node.buffer] = ++time_;
      return;
    case Node::Kind::kBarrier:
      builder_.Barrier();
      ++time_;
      for (BufferId id : program_.buffers.ids()) {
        builder_.Forget(id);
        written_[id] = time_;
      }
      return;
    case Node::Kind::kFor: {
      const ValueId begin = Get(node.a), end = Get(node.b);
      Change(node.body);
      const ValueId counter = builder_.OpenFor(Old(node.value).name, Old(node.value).varies);
      now_[node.value] = counter;
      CopyAll(node.body);
      builder_.CloseFor(counter, begin, end);
      return Change(node.body);
    }
    case Node::Kind::kIf: {
      const ValueId condition = Get(node.a);
      builder_.OpenIf();
      CopyAll(node.body);
      builder_.CloseIf(condition);
      return Change(node.body);
    }
    default: HONE_CHECK(!"a node of code without warps");
  }
}

size_t Packer::CopyAssignments(const std::vector<Node>& nodes, size_t at) {
  const size_t row = LaneAt(nodes[at].value)->row;
  const Row& registers = rows_[row];
  std::vector<ValueId> values(registers.size());
  size_t count = 0, next = at;
  const auto fail = [&] {
    failed_->insert(row);
    return at + 1;
  };
  for (; count < registers.size(); ++next) {
    if (next == nodes.size()) return fail();
    const Node& node = nodes[next];
    if (node.kind == Node::Kind::kLet) {
      // It comes before the assignments now.
      for (ValueId arg : Old(node.value).args)
        if (const LaneOf* lane = arg ? LaneAt(arg) : nullptr; lane != nullptr && lane->row == row && values[lane->lane])
          return fail();
      Copy(node);
      continue;
    }
    const LaneOf* lane = node.kind == Node::Kind::kAssign ? LaneAt(node.value) : nullptr;
    if (lane == nullptr || lane->row != row || values[lane->lane]) return fail();
    // Registers are read when they are assigned, and so is this one's value if it is a register itself.
    values[lane->lane] = node.a;
    ++count;
  }
  const ValueId packed = Packed(values);
  if (!packed) return fail();
  builder_.Assign(registers_[row], packed);
  ++time_;
  for (ValueId reg : registers) changed_[reg] = time_;
  return next;
}

size_t Packer::CopyStores(const std::vector<Node>& nodes, size_t at) {
  const Node& first = nodes[at];
  struct Part {
    size_t begin, count;
  };
  std::vector<ValueId> elements;
  std::vector<Part> parts;  // what is stored at once, in the order of its elements
  size_t end = at;
  for (size_t next = at; next < nodes.size(); ++next) {
    const Node& node = nodes[next];
    if (node.kind == Node::Kind::kLet && !(Old(node.value).what == Do::kLoad && Old(node.value).buffer == first.buffer))
      continue;
    if (node.kind != Node::Kind::kStore || node.buffer != first.buffer || node.a != first.a ||
        node.offset != first.offset + static_cast<int64_t>(elements.size()))
      break;
    const Value& stored = Old(node.b);
    if (stored.lanes > 1 && stored.what != Do::kPack) break;
    parts.push_back({elements.size(), static_cast<size_t>(stored.lanes)});
    if (stored.lanes == 1)
      elements.push_back(node.b);
    else
      elements.insert(elements.end(), stored.args.begin(), stored.args.end());
    end = next + 1;
  }
  // A condition is a number in memory, and integers of as many bits as what was compared in a vector.
  if (elements.size() < kFewest || Old(elements[0]).type == DType::kBool) {
    Copy(first);
    return at + 1;
  }
  for (size_t i = at; i < end; ++i)
    if (nodes[i].kind == Node::Kind::kLet) Copy(nodes[i]);
  const ValueId base = Get(first.a);
  size_t part = 0;
  for (size_t begin = 0; begin < elements.size();) {
    ValueId stored;
    size_t count = MostLanes(Old(elements[0]).type);
    for (; count >= kFewest && !stored; count /= 2)
      if (begin + count <= elements.size())
        stored = Packed(
            {elements.begin() + static_cast<int64_t>(begin), elements.begin() + static_cast<int64_t>(begin + count)});
    count *= 2;
    if (!stored) {
      // As it was, or what is left of that.
      while (parts[part].begin + parts[part].count <= begin) ++part;
      count = parts[part].begin + parts[part].count - begin;
      if (count != parts[part].count) count = 1;
      std::vector<ValueId> values;
      for (size_t i = 0; i < count; ++i) values.push_back(Get(elements[begin + i]));
      stored = count == 1 ? values[0] : builder_.Make(Do::kPack, Old(elements[0]).type, std::move(values));
    }
    builder_.Store(first.buffer, base, first.offset + static_cast<int64_t>(begin), stored);
    begin += count;
  }
  written_[first.buffer] = ++time_;
  return end;
}

bool Packer::IsAsItWas(ValueId old) const {
  return std::ranges::all_of(
      Old(old).args, [&](ValueId arg) { return !arg || Old(arg).what != Do::kRegister || !HasChanged(arg, old); });
}

ValueId Packer::Packed(const std::vector<ValueId>& olds) {
  const Value& first = Old(olds[0]);
  if (olds.size() > MostLanes(first.type) || first.type == DType::kI64) return {};
  if (std::ranges::all_of(olds, [&](ValueId id) { return id == olds[0]; })) return Splat(Get(olds[0]), olds.size());
  if (std::ranges::any_of(olds, [&](ValueId id) { return Old(id).type != first.type || Old(id).lanes != 1; }))
    return {};
  if (first.what == Do::kConstant) {
    if (!std::ranges::all_of(olds, [&](ValueId id) { return Old(id).what == Do::kConstant; })) return {};
    std::vector<ValueId> values;
    for (ValueId id : olds) values.push_back(Get(id));
    return builder_.Make(Do::kPack, first.type, std::move(values));
  }
  if (first.what == Do::kRegister) {
    const LaneOf* lane = LaneAt(olds[0]);
    if (lane == nullptr) return {};
    const Row& row = rows_[lane->row];
    if (row == olds) return registers_[lane->row];
    if (lane->lane + olds.size() > row.size() ||
        !std::equal(olds.begin(), olds.end(), row.begin() + static_cast<int64_t>(lane->lane)))
      return {};
    Value part{.what = Do::kPart, .type = first.type, .lanes = static_cast<int>(olds.size())};
    part.args = {registers_[lane->row]};
    part.number = static_cast<int64_t>(lane->lane);
    return builder_.Make(std::move(part));
  }
  if (const ValueId load = PackedLoad(olds)) return load;
  return PackedOperation(olds);
}

std::optional<Element> Packer::ElementOf(ValueId old) const {
  const Value& value = Old(old);
  const bool is_lane = value.what == Do::kLane;
  const ValueId id = is_lane ? value.args[0] : old;
  const Value& load = Old(id);
  if (load.what != Do::kLoad || is_lane != (load.lanes > 1)) return std::nullopt;
  Element element{load.buffer, load.args[0], {}, {}, load.number + (is_lane ? value.number : 0), id};
  if (load.args.size() > 1) {
    element.condition = load.args[1];
    element.fill = load.args[2];
  }
  return element;
}

ValueId Packer::PackedLoad(const std::vector<ValueId>& olds) {
  const std::optional<Element> first = ElementOf(olds[0]), second = ElementOf(olds[1]);
  if (!first || !second || Old(olds[0]).type == DType::kBool) return {};
  const int64_t step = second->offset - first->offset;
  // What lies between is nobody's business where it may be written.
  if (step != 1 && (step != 2 || first->condition || !IsInGlobalMemory(program_.buffers[first->buffer]) ||
                    Stores(code_.nodes, first->buffer)))
    return {};
  for (size_t lane = 0; lane < olds.size(); ++lane) {
    const std::optional<Element> element = ElementOf(olds[lane]);
    if (!element || element->buffer != first->buffer || element->base != first->base ||
        element->condition != first->condition || element->fill != first->fill ||
        element->offset != first->offset + step * static_cast<int64_t>(lane))
      return {};
    const auto written = written_.find(element->buffer);
    if (written != written_.end() && written->second > computed_.at(element->load)) return {};
    if (!IsAsItWas(element->load)) return {};
  }
  const int lanes = static_cast<int>(olds.size());
  const auto load = [&](int64_t offset) {
    return builder_.Load(first->buffer, Old(olds[0]).type, lanes, Get(first->base), offset, Get(first->condition),
                         Get(first->fill));
  };
  const ValueId from_first = load(first->offset);
  if (step == 1) return from_first;
  Value every_second{.what = Do::kEverySecond, .type = Old(olds[0]).type, .lanes = lanes};
  every_second.args = {from_first, load(first->offset + lanes - 1)};  // which ends where the last element does
  return builder_.Make(std::move(every_second));
}

ValueId Packer::PackedOperation(const std::vector<ValueId>& olds) {
  const Value& first = Old(olds[0]);
  const bool compares = IsComparison(first.what), is_logic = IsLogic(first.what);
  if (first.args.empty() || (first.type == DType::kBool && !compares && !is_logic)) return {};
  const Value& arg = Old(first.args.back());
  switch (first.what) {
    case Do::kLoad:
    case Do::kLane:
    case Do::kPack:
    case Do::kShuffle:
    case Do::kQuotient: return {};
    case Do::kMin:
    case Do::kMax:
    case Do::kLargerNumber: break;
    case Do::kAbs:
      if (!IsFloat(first.type)) return {};
      break;
    case Do::kConvert:
      if (first.type == DType::kBool || arg.type == DType::kBool || ByteSize(first.type) == 8 ||
          ByteSize(arg.type) == 8)
        return {};
      break;
    case Do::kBits:
    case Do::kCall:
      if (ByteSize(first.type) != 4 || ByteSize(arg.type) != 4) return {};
      break;
    default: break;
  }
  const bool is_byte = first.type == DType::kI8;  // whose arithmetic is that of ints, cut back
  if ((is_byte && (first.what < Do::kMin || first.what > Do::kLargerNumber) && first.what != Do::kConvert) ||
      (compares && ByteSize(arg.type) != 4))
    return {};
  std::vector<ValueId> args;
  for (size_t i = 0; i < first.args.size(); ++i) {
    std::vector<ValueId> of;
    for (ValueId id : olds) {
      const Value& value = Old(id);
      if (value.what != first.what || value.args.size() != first.args.size() || value.number != first.number ||
          value.wraps != first.wraps || !IsAsItWas(id))
        return {};
      of.push_back(value.args[i]);
    }
    const bool is_condition = first.what == Do::kSelect && i == 0;
    if (is_condition && std::ranges::all_of(of, [&](ValueId id) { return id == of[0]; }))
      args.push_back(Get(of[0]));
    else if (is_condition && ByteSize(first.type) != 4)
      return {};
    else
      args.push_back(Packed(of));
    if (!args.back()) return {};
  }
  Value value = first;
  value.args = std::move(args);
  value.lanes = static_cast<int>(olds.size());
  value.varies = false;
  if (value.what == Do::kCall) value.number = WideFunction(program_, value.number, value.lanes);
  return builder_.Make(std::move(value));
}

// Rows of tiles, as wide as they may be.
std::vector<Row> RowsOf(const Code& code, const IdVector<BufferId, Buffer>& buffers, int lanes) {
  std::map<BufferId, std::map<int64_t, ValueId>> tiles;
  for (ValueId id : code.values.ids())
    if (const Value& value = code.values[id]; value.what == Do::kRegister && value.buffer)
      tiles[value.buffer][value.number] = id;
  std::vector<Row> rows;
  for (const auto& [buffer, elements] : tiles) {
    const DType type = code.values[elements.begin()->second].type;
    if (type == DType::kBool) continue;
    const auto& extents = buffers[buffer].extents;
    const auto inner = std::find_if(extents.rbegin(), extents.rend(), [](int64_t extent) { return extent > 1; });
    const int64_t length = inner == extents.rend() ? 1 : *inner;
    for (int64_t begin = 0; begin + length <= static_cast<int64_t>(elements.size()); begin += length)
      for (int64_t at = 0, count = ByteSize(type) == 8 ? lanes / 2 : lanes; count >= static_cast<int64_t>(kFewest);) {
        if (at + count > length) {
          count /= 2;
          continue;
        }
        Row row;
        for (int64_t i = 0; i < count; ++i) row.push_back(elements.at(begin + at + i));
        rows.push_back(std::move(row));
        at += count;
      }
  }
  return rows;
}

}  // namespace

Code PackLanes(const Code& code, Program& program, int lanes) {
  if (IsOfWarps(code.nodes)) return code;
  std::vector<Row> rows = RowsOf(code, program.buffers, lanes);
  for (;;) {
    std::set<size_t> failed;
    Code packed = Packer(code, program, lanes, rows).Pack(&failed);
    if (failed.empty()) return packed;
    std::vector<Row> narrower;
    for (size_t row = 0; row < rows.size(); ++row) {
      const auto middle = rows[row].begin() + static_cast<int64_t>(rows[row].size() / 2);
      if (!failed.contains(row)) {
        narrower.push_back(std::move(rows[row]));
      } else if (rows[row].size() / 2 >= kFewest) {
        narrower.emplace_back(rows[row].begin(), middle);
        narrower.emplace_back(middle, rows[row].end());
      }
    }
    rows = std::move(narrower);
  }
}

}  // namespace hone::straight
