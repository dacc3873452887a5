// Instructions of the table in codegen/instructions.cc as code. Each has a function here that calls it; the rest, its
// operands and its sum, is the same for all.
#include <llvm/IR/IntrinsicsAArch64.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <bit>

#include "base/arithmetic.h"
#include "base/check.h"
#include "codegen/instructions.h"
#include "codegen/llvm/function_emitter.h"
#include "ir/schedule/refuse.h"

namespace hone {
namespace {

// sum + the instruction's dot products, lane by lane. `a`, `b`: its operands, in each lane an i32 with the lane's
// steps.
using EmitFunction = llvm::Value* (*)(llvm::IRBuilderBase& builder, llvm::Value* sum, llvm::Value* a, llvm::Value* b);

llvm::Value* EmitVpdpbusd512(llvm::IRBuilderBase& builder, llvm::Value* sum, llvm::Value* a, llvm::Value* b) {
  return builder.CreateIntrinsic(llvm::Intrinsic::x86_avx512_vpdpbusd_512, {}, {sum, a, b});
}

llvm::Value* EmitVpdpbusd256(llvm::IRBuilderBase& builder, llvm::Value* sum, llvm::Value* a, llvm::Value* b) {
  return builder.CreateIntrinsic(llvm::Intrinsic::x86_avx512_vpdpbusd_256, {}, {sum, a, b});
}

llvm::Value* EmitVdpbf16ps512(llvm::IRBuilderBase& builder, llvm::Value* sum, llvm::Value* a, llvm::Value* b) {
  llvm::Type* pairs = llvm::FixedVectorType::get(builder.getBFloatTy(), 32);
  return builder.CreateIntrinsic(llvm::Intrinsic::x86_avx512bf16_dpbf16ps_512, {},
                                 {sum, builder.CreateBitCast(a, pairs), builder.CreateBitCast(b, pairs)});
}

// Bytes 0 and 2 of each lane, then 1 and 3, as 16 bits.
std::pair<llvm::Value*, llvm::Value*> WidenBytes(llvm::IRBuilderBase& builder, llvm::Value* bytes, bool is_signed) {
  const unsigned lanes = llvm::cast<llvm::FixedVectorType>(bytes->getType())->getNumElements();
  llvm::Value* pairs = builder.CreateBitCast(bytes, llvm::FixedVectorType::get(builder.getInt16Ty(), 2 * lanes));
  llvm::Value* even = builder.CreateShl(pairs, 8);
  return {is_signed ? builder.CreateAShr(even, 8) : builder.CreateLShr(even, 8),
          is_signed ? builder.CreateAShr(pairs, 8) : builder.CreateLShr(pairs, 8)};
}

template <llvm::Intrinsic::ID kMultiplyAdd, bool kIsFirstSigned>
llvm::Value* EmitVpmaddwd(llvm::IRBuilderBase& builder, llvm::Value* sum, llvm::Value* a, llvm::Value* b) {
  const auto [a_even, a_odd] = WidenBytes(builder, a, kIsFirstSigned);
  const auto [b_even, b_odd] = WidenBytes(builder, b, true);
  llvm::Value* even = builder.CreateIntrinsic(kMultiplyAdd, {}, {a_even, b_even});
  llvm::Value* odd = builder.CreateIntrinsic(kMultiplyAdd, {}, {a_odd, b_odd});
  return builder.CreateAdd(sum, builder.CreateAdd(even, odd));
}

template <llvm::Intrinsic::ID kDot>
llvm::Value* EmitDot128(llvm::IRBuilderBase& builder, llvm::Value* sum, llvm::Value* a, llvm::Value* b) {
  llvm::Type* bytes = llvm::FixedVectorType::get(builder.getInt8Ty(), 16);
  return builder.CreateIntrinsic(kDot, {sum->getType(), bytes},
                                 {sum, builder.CreateBitCast(a, bytes), builder.CreateBitCast(b, bytes)});
}

// The even elements of each pair, then the odd ones.
llvm::Value* EmitBfmlal128(llvm::IRBuilderBase& builder, llvm::Value* sum, llvm::Value* a, llvm::Value* b) {
  llvm::Type* pairs = llvm::FixedVectorType::get(builder.getBFloatTy(), 8);
  a = builder.CreateBitCast(a, pairs), b = builder.CreateBitCast(b, pairs);
  for (llvm::Intrinsic::ID half : {llvm::Intrinsic::aarch64_neon_bfmlalb, llvm::Intrinsic::aarch64_neon_bfmlalt})
    sum = builder.CreateIntrinsic(half, {}, {sum, a, b});
  return sum;
}

constexpr std::pair<std::string_view, EmitFunction> kFunctions[] = {
    {"vpdpbusd_512", EmitVpdpbusd512},
    {"vdpbf16ps_512", EmitVdpbf16ps512},
    {"vpdpbusd_256", EmitVpdpbusd256},
    {"vpmaddwd_i8_512", EmitVpmaddwd<llvm::Intrinsic::x86_avx512_pmaddw_d_512, true>},
    {"vpmaddwd_u8_512", EmitVpmaddwd<llvm::Intrinsic::x86_avx512_pmaddw_d_512, false>},
    {"vpmaddwd_i8_256", EmitVpmaddwd<llvm::Intrinsic::x86_avx2_pmadd_wd, true>},
    {"vpmaddwd_u8_256", EmitVpmaddwd<llvm::Intrinsic::x86_avx2_pmadd_wd, false>},
    {"sdot_128", EmitDot128<llvm::Intrinsic::aarch64_neon_sdot>},
    {"udot_128", EmitDot128<llvm::Intrinsic::aarch64_neon_udot>},
    {"usdot_128", EmitDot128<llvm::Intrinsic::aarch64_neon_usdot>},
    {"bfmlal_128", EmitBfmlal128},
};

EmitFunction FunctionOf(const Instruction& instruction) {
  for (const auto& [name, function] : kFunctions)
    if (name == instruction.name) return function;
  HONE_CHECK(!"an instruction that nothing emits");
  return nullptr;
}

}  // namespace

// Lanes of four bytes, each `stride` bytes after the one before: of two loads that overlap, to read nothing beyond.
llvm::Value* FunctionEmitter::LoadOverlapping(llvm::Value* address, int64_t stride) {
  const int64_t span = (lanes_ - 1) * stride + 4;
  const auto half = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(CeilDiv(span, 2))));
  llvm::Type* bytes = llvm::FixedVectorType::get(builder_.getInt8Ty(), static_cast<unsigned>(half));
  llvm::Value* last =
      builder_.CreateGEP(builder_.getInt8Ty(), address, builder_.getInt64(static_cast<uint64_t>(span - half)));
  llvm::Value* first_bytes = builder_.CreateAlignedLoad(bytes, address, llvm::Align(1));
  llvm::Value* last_bytes = builder_.CreateAlignedLoad(bytes, last, llvm::Align(1));
  std::vector<int> places;
  for (int64_t lane = 0; lane < lanes_; ++lane)
    for (int64_t k = lane * stride; k < lane * stride + 4; ++k)
      places.push_back(static_cast<int>(k < half ? k : k - (span - half) + half));
  return builder_.CreateBitCast(builder_.CreateShuffleVector(first_bytes, last_bytes, places),
                                llvm::FixedVectorType::get(builder_.getInt32Ty(), static_cast<unsigned>(lanes_)));
}

// The elements of all lanes of one trip: a vector, or what all lanes have, in each of them. Where the guard is off they
// are zero.
Result<llvm::Value*> FunctionEmitter::EmitOperand(const ValueNode& load, int64_t steps) {
  const Buffer& buffer = program_.buffer(load.buffer);
  const int64_t bytes = ByteSize(buffer.dtype);
  HONE_CHECK(steps * bytes == 4);
  const Mask mask = ResolveGuard(load.guard);
  HONE_CHECK(!mask.lanes);
  llvm::Type* group = builder_.getInt32Ty();
  llvm::Type* vector = llvm::FixedVectorType::get(group, static_cast<unsigned>(lanes_));
  if (mask.never) return llvm::Constant::getNullValue(vector);
  const Form form = Resolve(program_.FlatIndex(load.buffer, load.index));
  HONE_CHECK(!form.irregular && form.lane >= 0 && form.lane <= steps);
  const bool is_vector = form.lane != 0, overlaps = is_vector && form.lane < steps;
  const int64_t constant = form.runtime.constant();
  bool uses_current = false;
  llvm::Value* base = PointerTo(load.buffer, form.runtime - Linear(constant), &uses_current);
  constexpr int64_t kGroups = int64_t{1} << 40;  // no shape of an element-wise load
  llvm::Value*& known = loads_[load.buffer][{base, constant, kGroups + form.lane * kGroups + lanes_, mask.scalar}];
  if (!known) {
    llvm::Value* address = base;
    if (constant != 0)
      address =
          builder_.CreateGEP(builder_.getInt8Ty(), base, builder_.getInt64(static_cast<uint64_t>(constant * bytes)));
    int64_t alignment = AlignmentOf(load.buffer, form.runtime);
    if (mask.scalar) {
      // Where it is off, zeros of our own are read instead.
      const uint64_t room = static_cast<uint64_t>(is_vector ? lanes_ : 1);
      llvm::Type* zeros = llvm::FixedVectorType::get(group, static_cast<unsigned>(room));
      auto* zero = new llvm::GlobalVariable(*function_.getParent(), zeros, true, llvm::GlobalValue::PrivateLinkage,
                                            llvm::Constant::getNullValue(zeros), "hone.zeros");
      address = builder_.CreateSelect(mask.scalar, address, zero);
      alignment = bytes;
    }
    if (is_vector && load.prefetch > 0) EmitPrefetchOf(load, address);
    known = overlaps ? LoadOverlapping(address, form.lane * bytes)
                     : builder_.CreateAlignedLoad(is_vector ? vector : group, address,
                                                  llvm::Align(static_cast<uint64_t>(alignment)));
  }
  return is_vector ? known : Splat(known);
}

Result<void> FunctionEmitter::EmitInstruction(const Stmt& stmt) {
  if (!HasInstruction(target_, *stmt.instruction)) {
    for (const StmtPtr& child : stmt.body) HONE_TRY(EmitStmt(*child));
    return {};
  }
  const InstructionMeaning& meaning = MeaningOf(*stmt.instruction);
  if (meaning.is_on_tiles()) return EmitOnTiles(stmt);
  const Stmt &steps = *stmt.body[0], &lanes = *steps.body[0], &store = *lanes.body[0];
  if (lane_var_) return Refuse(vars_[lanes.var].name + " is vectorised inside a vectorised loop");
  unrolled_[steps.var] = 0;
  lane_var_ = lanes.var;
  lanes_ = active_ = static_cast<int>(meaning.lanes);
  const auto [offset, step] = HONE_TRY(TileOffset(store.buffer, store.index));
  Tile& tile = tiles_[store.buffer];
  const auto slot = tile.slots.find(offset);
  if (slot == tile.slots.end() || slot->second.lanes != lanes_ || slot->second.stride != step)
    return Refuse(program_.buffer(store.buffer).name + " is read before it is written in such vectors");
  llvm::Value* a = HONE_TRY(EmitOperand(*stmt.operands[0], meaning.steps));
  llvm::Value* b = HONE_TRY(EmitOperand(*stmt.operands[1], meaning.steps));
  slot->second.value = FunctionOf(*stmt.instruction)(builder_, slot->second.value, a, b);
  lane_var_ = {};
  lanes_ = active_ = 0;
  unrolled_.erase(steps.var);
  return {};
}

}  // namespace hone
