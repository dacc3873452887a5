// Register tiles: buffers whose elements are SSA values. A tile is written in vectors along one of its dimensions; read
// along another, it is transposed in registers, once per block of rows.
#include <llvm/IR/Constants.h>
#include <llvm/IR/InlineAsm.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/check.h"
#include "codegen/llvm/function_emitter.h"
#include "codegen/llvm/lanes.h"
#include "ir/schedule/refuse.h"

namespace hone {
namespace {

// The loops inside a loop and what they lead to, if that is one store.
struct Inside {
  std::vector<const Stmt*> loops;
  const Stmt* store = nullptr;
};

std::optional<Inside> OnlyStoreIn(const Stmt& loop) {
  Inside inside;
  const Stmt* at = &loop;
  while (at->body.size() == 1) {
    at = at->body[0].get();
    if (at->kind == Stmt::Kind::kStore) {
      inside.store = at;
      return inside;
    }
    if (at->kind == Stmt::Kind::kLoop) inside.loops.push_back(at);
  }
  return std::nullopt;
}

}  // namespace

BufferId FunctionEmitter::CrowdingWindow(const Stmt& loop) {
  const std::optional<Inside> inside = OnlyStoreIn(loop);
  if (!inside || inside->store->combine == Reduction::kNone) return {};
  const auto tile = tiles_.find(inside->store->buffer);
  if (tile == tiles_.end()) return {};
  auto moves = [&](VarId var, const Linear& form) { return vars_.ExpandAxes(form).CoefOf(var) != 0; };
  if (moves(loop.var, program_.FlatIndex(inside->store->buffer, inside->store->index))) return {};
  BufferId crowding;
  auto visit = [&](auto&& self, const ValueNode& value) -> void {
    for (const ValuePtr& arg : value.args) self(self, *arg);
    if (value.kind != ValueNode::Kind::kLoad || program_.InRegisters(value.buffer)) return;
    const Linear offset = program_.FlatIndex(value.buffer, value.index);
    if (!moves(loop.var, offset)) return;
    int64_t rows = 1;
    for (const Stmt* inner : inside->loops) {
      if (!moves(inner->var, offset)) continue;
      if (inner->loop != LoopKind::kUnrolled || !inner->extent.IsConstant()) return;
      rows *= inner->extent.constant();
    }
    const int64_t wanted = rows == 1 ? 0 : rows + loop.extent.constant() - 1;
    const auto accumulators = static_cast<int64_t>(tile->second.slots.size());
    if (wanted > 0 && accumulators + wanted + machine_.scheduling_registers > machine_.vector_registers)
      crowding = value.buffer;
  };
  visit(visit, *inside->store->value);
  return crowding;
}

llvm::Value* FunctionEmitter::Unknown(llvm::Value* pointer) {
  llvm::FunctionType* type = llvm::FunctionType::get(pointer->getType(), {pointer->getType()}, false);
  return builder_.CreateCall(llvm::InlineAsm::get(type, "", "=r,0", /*hasSideEffects=*/true), {pointer});
}

// Elements that the lanes read where they do not step evenly; empty if they depend on more than the lane.
std::vector<int64_t> FunctionEmitter::LaneOffsets(BufferId buffer, const std::vector<Linear>& index) {
  const Linear flat = program_.FlatIndex(buffer, index);
  std::vector<int64_t> offsets;
  for (int lane = 0; lane < active_; ++lane) {
    Linear at = AtLane(flat, lane);
    if (!at.IsConstant()) return {};
    offsets.push_back(at.constant());
  }
  return offsets;
}

Result<std::pair<int64_t, int64_t>> FunctionEmitter::TileOffset(BufferId buffer, const std::vector<Linear>& index) {
  Form form = Resolve(program_.FlatIndex(buffer, index));
  if (!form.runtime.IsConstant() || form.irregular)
    return Refuse(program_.buffer(buffer).name +
                  " is in registers, but a loop that is neither unrolled nor vectorised moves through it: " +
                  vars_.Text(form.runtime));
  return std::pair(form.runtime.constant(), form.lane);
}

Result<llvm::Value*> FunctionEmitter::ReadTile(BufferId buffer, const std::vector<Linear>& index) {
  std::vector<int64_t> uneven;
  if (lanes_ > 0 && Resolve(program_.FlatIndex(buffer, index)).irregular) uneven = LaneOffsets(buffer, index);
  int64_t offset = 0, step = 1;
  if (uneven.empty()) std::tie(offset, step) = HONE_TRY(TileOffset(buffer, index));
  Tile& tile = tiles_[buffer];
  auto undefined = [&] { return Refuse(program_.buffer(buffer).name + " is read before it is written"); };

  auto slot = tile.slots.find(offset);
  if (uneven.empty() && lanes_ > 0 && step != 0 && slot != tile.slots.end() && slot->second.lanes == lanes_ &&
      slot->second.stride == step && slot->second.count >= active_)
    return slot->second.value;

  // Where an element lives: its slot and the lane there (-1: a scalar).
  auto locate = [&](int64_t element) -> std::optional<Place> {
    auto owner = tile.owner.find(element);
    if (owner == tile.owner.end()) return std::nullopt;
    const Slot& s = tile.slots.at(owner->second);
    return std::pair(&s, s.lanes == 0 ? -1 : static_cast<int>((element - owner->second) / s.stride));
  };
  auto extract = [&](const Slot* s, int lane) {
    return lane < 0 ? s->value : builder_.CreateExtractElement(s->value, static_cast<uint64_t>(lane));
  };

  if (lanes_ == 0 || step == 0) {
    auto place = locate(offset);
    if (!place) return undefined();
    return extract(place->first, place->second);
  }
  std::vector<llvm::Value*> rows;
  std::vector<Place> places;
  bool one_column = true;
  for (int lane = 0; lane < active_; ++lane) {
    auto place = locate(uneven.empty() ? offset + step * lane : uneven[static_cast<size_t>(lane)]);
    if (!place) return undefined();
    places.push_back(*place);
    rows.push_back(place->first->value);
    one_column &=
        place->second >= 0 && place->second == places[0].second && place->first->value->getType() == rows[0]->getType();
  }
  if (one_column) {
    // The same lane of one vector a row: a column of the transposed block.
    std::vector<llvm::Value*> key = rows;
    key.push_back(builder_.getInt32(static_cast<uint32_t>(lanes_)));
    auto [columns, inserted] = transposed_.try_emplace(key);
    if (inserted) columns->second = EmitTranspose(builder_, rows, lanes_);
    return columns->second[static_cast<size_t>(places[0].second)];
  }
  // A few vectors whose lanes are picked: one two-operand shuffle for each vector after the first.
  std::vector<llvm::Value*> sources;
  bool are_vectors = true;
  for (size_t lane = 0; lane < places.size(); ++lane) {
    are_vectors &= places[lane].second >= 0 && places[lane].first->lanes == lanes_;
    if (std::find(sources.begin(), sources.end(), rows[lane]) == sources.end()) sources.push_back(rows[lane]);
  }
  if (are_vectors && 2 * sources.size() <= rows.size()) {
    llvm::Value* picked = llvm::PoisonValue::get(sources[0]->getType());
    for (llvm::Value* source : sources) {
      std::vector<int> mask(static_cast<size_t>(lanes_), -1);
      for (size_t lane = 0; lane < places.size(); ++lane) {
        bool is_here = rows[lane] == source;
        bool is_done =
            std::find(sources.begin(), sources.end(), rows[lane]) < std::find(sources.begin(), sources.end(), source);
        mask[lane] = is_here ? lanes_ + places[lane].second : is_done ? static_cast<int>(lane) : -1;
      }
      picked = builder_.CreateShuffleVector(picked, source, mask);
    }
    return picked;
  }
  if (llvm::Value* picked = PickFromNarrow(program_.buffer(buffer).dtype, sources, places)) return picked;
  llvm::Value* gathered = llvm::PoisonValue::get(
      llvm::FixedVectorType::get(rows[0]->getType()->getScalarType(), static_cast<unsigned>(lanes_)));
  for (int lane = 0; lane < active_; ++lane)
    gathered = builder_.CreateInsertElement(
        gathered, extract(places[static_cast<size_t>(lane)].first, places[static_cast<size_t>(lane)].second),
        static_cast<uint64_t>(lane));
  return gathered;
}

// A vector of the lanes' places in narrower vectors, as where rows are interleaved: these are put side by side, as
// memory holds them, and one shuffle picks. nullptr: they are not vectors of one kind, or too many for that.
llvm::Value* FunctionEmitter::PickFromNarrow(DType type, const std::vector<llvm::Value*>& sources,
                                             const std::vector<Place>& places) {
  const int narrow = places[0].first->lanes;
  bool are_alike = narrow > 0 && narrow < lanes_ && sources.size() * static_cast<size_t>(narrow) <= 2 * places.size();
  for (const auto& [slot, lane] : places) are_alike = are_alike && lane >= 0 && slot->lanes == narrow;
  if (!are_alike) return nullptr;
  std::vector<llvm::Value*> whole;
  for (llvm::Value* source : sources) whole.push_back(ToMemory(type, source));
  int width = narrow;
  while (whole.size() > 1) {
    if (whole.size() % 2 != 0) whole.push_back(llvm::PoisonValue::get(whole[0]->getType()));
    std::vector<int> both(static_cast<size_t>(2 * width));
    std::iota(both.begin(), both.end(), 0);
    std::vector<llvm::Value*> wider;
    for (size_t i = 0; i < whole.size(); i += 2)
      wider.push_back(builder_.CreateShuffleVector(whole[i], whole[i + 1], both));
    whole = std::move(wider);
    width *= 2;
  }
  std::vector<int> mask(static_cast<size_t>(lanes_), -1);
  for (size_t i = 0; i < places.size(); ++i) {
    const auto source = std::find(sources.begin(), sources.end(), places[i].first->value) - sources.begin();
    mask[i] = static_cast<int>(source) * narrow + places[i].second;
  }
  return FromMemory(type, builder_.CreateShuffleVector(whole[0], mask));
}

Result<void> FunctionEmitter::WriteTile(const Stmt& stmt, const Mask& mask) {
  auto [offset, step] = HONE_TRY(TileOffset(stmt.buffer, stmt.index));
  const Buffer& buffer = program_.buffer(stmt.buffer);
  Tile& tile = tiles_[stmt.buffer];
  const bool vector = lanes_ > 0 && step != 0;
  auto known = tile.slots.find(offset);
  llvm::Value* old = known == tile.slots.end() ? nullptr : known->second.value;
  if (known != tile.slots.end() &&
      (vector ? known->second.lanes != lanes_ || known->second.stride != step || known->second.count != active_
              : known->second.lanes != 0))
    return Refuse(buffer.name + " is written in vectors of different shapes: vectorise the same axis everywhere");
  if (!old) {
    if (stmt.combine != Reduction::kNone || !mask.always())
      return Refuse(buffer.name + " is read before it is written");
    for (int lane = 0; lane < (vector ? active_ : 1); ++lane)
      if (!tile.owner.emplace(offset + step * lane, offset).second)
        return Refuse(buffer.name + " is written in vectors that overlap");
  }
  llvm::Value* value = nullptr;
  if (lanes_ > 0 && step == 0) {
    if (stmt.combine == Reduction::kNone) return Refuse(buffer.name + " would be written by every lane at once");
    value = HONE_TRY(AccumulateLanes(stmt, old));
  } else {
    value = HONE_TRY(Accumulate(stmt, old));
    if (vector) value = Widen(value);
  }
  if (!mask.always()) {
    llvm::Value* condition = vector ? AllLanes(mask) : mask.scalar;
    value = builder_.CreateSelect(condition, value, old);
  }
  tile.slots[offset] = {value, vector ? step : 0, vector ? lanes_ : 0, vector ? active_ : 1};
  return {};
}

}  // namespace hone
