// Instructions on tiles (AMX) as code. The eight registers are ours to allocate, as LLVM's own allocation of them wants
// to know each tile's shape all along its way: fragments keep theirs from their first zero to the end of the register
// tile, what is left holds operands, the one that was used longest ago making room. A nest that uses them configures
// them when it begins and gives them back when it ends, whoever called it.
#include <llvm/IR/Constants.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <algorithm>

#include "base/check.h"
#include "codegen/instructions.h"
#include "codegen/llvm/function_emitter.h"
#include "ir/schedule/refuse.h"

namespace hone {
namespace {

constexpr int64_t kTileShape = int64_t{1} << 41;  // no shape of a load of elements, or of groups

constexpr std::pair<std::string_view, llvm::Intrinsic::ID> kFunctions[] = {
    {"tdpbssd", llvm::Intrinsic::x86_tdpbssd},     {"tdpbsud", llvm::Intrinsic::x86_tdpbsud},
    {"tdpbusd", llvm::Intrinsic::x86_tdpbusd},     {"tdpbuud", llvm::Intrinsic::x86_tdpbuud},
    {"tdpbf16ps", llvm::Intrinsic::x86_tdpbf16ps},
};

llvm::Intrinsic::ID FunctionOf(const Instruction& instruction) {
  for (const auto& [name, function] : kFunctions)
    if (name == instruction.name) return function;
  HONE_CHECK(!"an instruction that nothing emits");
  return {};
}

}  // namespace

int FunctionEmitter::FreeTile() {
  int oldest = -1;
  for (int i = 0; i < static_cast<int>(tile_registers_.size()); ++i) {
    const TileUse& tile = tile_registers_[static_cast<size_t>(i)];
    if (tile.fragment) continue;
    if (oldest < 0 || tile.used < tile_registers_[static_cast<size_t>(oldest)].used) oldest = i;
  }
  if (oldest < 0) return oldest;
  TileUse& tile = tile_registers_[static_cast<size_t>(oldest)];
  if (tile.buffer) loads_[tile.buffer].erase(tile.loaded);
  tile = {};
  tile.used = ++tile_clock_;
  return oldest;
}

// The register of a fragment, by its first element.
Result<int> FunctionEmitter::TileRegister(BufferId buffer, const std::vector<Linear>& index, bool begins) {
  const int64_t offset = HONE_TRY(TileOffset(buffer, index)).first;
  for (size_t i = 0; i < tile_registers_.size(); ++i)
    if (tile_registers_[i].buffer == buffer && tile_registers_[i].fragment == offset) return static_cast<int>(i);
  if (!begins) return Refuse(program_.buffer(buffer).name + " is read before it is written");
  const int number = FreeTile();
  const auto fragments = std::count_if(tile_registers_.begin(), tile_registers_.end(),
                                       [](const TileUse& tile) { return tile.fragment.has_value(); });
  if (number < 0 || fragments >= InstructionMeaning::kMostFragments)
    return Refuse(program_.buffer(buffer).name + " and what else is in tiles take more of them than there are");
  tile_registers_[static_cast<size_t>(number)].buffer = buffer;
  tile_registers_[static_cast<size_t>(number)].fragment = offset;
  return number;
}

Result<FunctionEmitter::TilePlace> FunctionEmitter::PlaceOf(BufferId buffer, const std::vector<Linear>& index,
                                                            VarId row) {
  const Linear offset = program_.FlatIndex(buffer, index);
  unrolled_[row] = 1;
  const Form second = Resolve(offset);
  unrolled_[row] = 0;
  const Form first = Resolve(offset);
  const Linear step = second.runtime - first.runtime;
  if (!step.IsConstant()) return Refuse(program_.buffer(buffer).name + " has rows here and there");
  const int64_t bytes = ByteSize(program_.buffer(buffer).dtype);
  TilePlace place;
  place.constant = first.runtime.constant();
  place.stride = step.constant() * bytes;
  bool uses_current = false;
  place.base = PointerTo(buffer, first.runtime - Linear(place.constant), &uses_current);
  place.address = place.constant == 0
                      ? place.base
                      : builder_.CreateGEP(builder_.getInt8Ty(), place.base,
                                           builder_.getInt64(static_cast<uint64_t>(place.constant * bytes)));
  return place;
}

// The register that a tile of memory is in: loaded now, unless it is there since a moment ago.
Result<int> FunctionEmitter::LoadedTile(const ValueNode& load, VarId row) {
  const TilePlace place = HONE_TRY(PlaceOf(load.buffer, load.index, row));
  const LoadKey key{place.base, place.constant, kTileShape + place.stride, nullptr};
  auto& loads = loads_[load.buffer];
  if (const auto known = loads.find(key); known != loads.end()) {
    const auto number = static_cast<int>(llvm::cast<llvm::ConstantInt>(known->second)->getZExtValue());
    tile_registers_[static_cast<size_t>(number)].used = ++tile_clock_;
    return number;
  }
  const int number = FreeTile();
  llvm::ConstantInt* tile = builder_.getInt8(static_cast<uint8_t>(number));
  if (load.prefetch > 0) EmitPrefetchOf(load, place.address);
  builder_.CreateIntrinsic(llvm::Intrinsic::x86_tileloadd64, {},
                           {tile, place.address, builder_.getInt64(static_cast<uint64_t>(place.stride))});
  TileUse& use = tile_registers_[static_cast<size_t>(number)];
  use.buffer = load.buffer;
  use.loaded = key;
  loads_[load.buffer][key] = tile;
  return number;
}

Result<void> FunctionEmitter::EmitOnTiles(const Stmt& stmt) {
  uses_tiles_ = true;
  // What the instruction does begins at the first trip of its loops.
  std::vector<VarId> loops;
  const Stmt* store = stmt.body[0].get();
  for (; store->kind != Stmt::Kind::kStore; store = store->body[0].get()) {
    loops.push_back(store->var);
    unrolled_[store->var] = 0;
  }
  auto number = [&](int tile) { return builder_.getInt8(static_cast<uint8_t>(tile)); };
  if (!stmt.operands.empty()) {
    const int sum = HONE_TRY(TileRegister(store->buffer, store->index, false));
    const int a = HONE_TRY(LoadedTile(*stmt.operands[0], loops[1]));
    const int b = HONE_TRY(LoadedTile(*stmt.operands[1], loops[0]));
    HONE_CHECK(a != b);
    builder_.CreateIntrinsic(FunctionOf(*stmt.instruction), {}, {number(sum), number(a), number(b)});
  } else if (program_.buffer(store->buffer).scope == Scope::kFragments) {
    builder_.CreateIntrinsic(llvm::Intrinsic::x86_tilezero, {},
                             {number(HONE_TRY(TileRegister(store->buffer, store->index, true)))});
  } else {
    const ValueNode& fragment = *store->value;
    HONE_CHECK(fragment.kind == ValueNode::Kind::kLoad);
    const int tile = HONE_TRY(TileRegister(fragment.buffer, fragment.index, false));
    const TilePlace place = HONE_TRY(PlaceOf(store->buffer, store->index, loops[0]));
    builder_.CreateIntrinsic(llvm::Intrinsic::x86_tilestored64, {},
                             {number(tile), place.address, builder_.getInt64(static_cast<uint64_t>(place.stride))});
    loads_.erase(store->buffer);
  }
  for (VarId loop : loops) unrolled_.erase(loop);
  return {};
}

// All eight of 16 rows of 64 bytes (Intel SDM volume 1, 18.3), before anything else, and free again at the end.
void FunctionEmitter::ConfigureTiles() {
  std::array<uint8_t, 64> config{};
  config[0] = 1;  // the palette
  for (size_t tile = 0; tile < tile_registers_.size(); ++tile) {
    config[16 + 2 * tile] = 64;  // bytes in a row
    config[48 + tile] = 16;      // rows
  }
  auto* data = llvm::ConstantDataArray::get(function_.getContext(), llvm::ArrayRef<uint8_t>(config));
  auto* global = new llvm::GlobalVariable(*function_.getParent(), data->getType(), true,
                                          llvm::GlobalValue::PrivateLinkage, data, "hone.tiles");
  llvm::IRBuilder<> first(&function_.getEntryBlock(), function_.getEntryBlock().begin());
  first.CreateIntrinsic(llvm::Intrinsic::x86_ldtilecfg, {}, {global});
  builder_.CreateIntrinsic(llvm::Intrinsic::x86_tilerelease, {}, {});
}

}  // namespace hone
