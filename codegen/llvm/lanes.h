// Data movement inside registers, as LLVM IR: transposes, strided loads, tails and horizontal reductions. Shuffles are
// written so that LLVM maps each to one instruction on AVX2, AVX-512 and NEON.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/target.h"

namespace llvm {
class IRBuilderBase;
class Type;
class Value;
}  // namespace llvm

namespace hone {

// rows: R vectors of C lanes of one type. Returns C vectors of `lanes` elements, the element of row r in lane r; lanes
// R … are undefined. lanes = 0: the smallest power of two ≥ R. Costs log2 stages of two-operand shuffles.
// REQUIRES: 1 ≤ R ≤ lanes ≤ 64, 1 ≤ C ≤ 64.
std::vector<llvm::Value*> EmitTranspose(llvm::IRBuilderBase& builder, std::span<llvm::Value* const> rows,
                                        int lanes = 0);

// A vector of `lanes` elements ptr[0], ptr[stride], … Reads exactly the bytes from ptr[0] to ptr[(lanes-1)·stride]
// (wide loads that overlap at the end, then shuffles), nothing outside. `alignment` in bytes holds for ptr[0].
// REQUIRES: stride ≥ 1. Above 4 it becomes one load per element.
llvm::Value* EmitDeinterleavedLoad(llvm::IRBuilderBase& builder, llvm::Type* element, llvm::Value* ptr, int stride,
                                   int lanes, int64_t alignment);

// All `phases` interleaved vectors of such a load at once, which costs little more than one: result[p] holds
// ptr[p], ptr[p+stride], … Reads exactly ptr[0] … ptr[(lanes-1)·stride + phases - 1]. REQUIRES: 1 ≤ phases ≤ stride.
std::vector<llvm::Value*> EmitDeinterleavedLoads(llvm::IRBuilderBase& builder, llvm::Type* element, llvm::Value* ptr,
                                                 int stride, int phases, int lanes, int64_t alignment);

// The same for the lanes of a constant mask, and all of them only where `condition` (i1; nullptr: always) holds: other
// lanes are zero, their memory is not touched. REQUIRES: stride ≥ 1, a lane is on.
llvm::Value* EmitMaskedDeinterleavedLoad(llvm::IRBuilderBase& builder, llvm::Type* element, llvm::Value* ptr,
                                         int stride, const std::vector<bool>& on, llvm::Value* condition,
                                         int64_t alignment);

// Horizontal reduction of a vector to a scalar by halving: lane i with lane i + n/2, then n/4, … (odd n: the last lane
// joins at the end). The order is fixed, so the result does not depend on the target. Works on floats and integers.
// kMax, kMin: NaN if any lane is NaN; integers signed.
enum class ReduceOp { kSum, kProd, kMax, kMin, kMaxOfNumbers };
llvm::Value* EmitReduce(llvm::IRBuilderBase& builder, ReduceOp op, llvm::Value* vector);

// max and min with the reference's NaN rule (a NaN on either side gives NaN), scalar or vector, float or signed
// integer.
llvm::Value* EmitMax(llvm::IRBuilderBase& builder, llvm::Value* a, llvm::Value* b);
llvm::Value* EmitMin(llvm::IRBuilderBase& builder, llvm::Value* a, llvm::Value* b);
// The larger of a and b, a where b is NaN. One instruction on x86.
llvm::Value* EmitMaxOfNumbers(llvm::IRBuilderBase& builder, llvm::Value* a, llvm::Value* b);

// Floats as integers of 32 bits: cut towards zero or to the nearest, ties to even; what lies outside [lowest, highest]
// becomes its end and NaN 0. REQUIRES: lowest ≤ 0 < highest.
enum class ToInteger : uint8_t { kTruncate, kNearest };
llvm::Value* EmitInteger(llvm::IRBuilderBase& builder, const CpuTarget& target, ToInteger how, llvm::Value* x,
                         int32_t lowest, int32_t highest);

// <lanes x i1>: lane i is on if i < count. `count` is any integer value; ≤ 0 gives none, ≥ lanes all. A constant count
// gives a constant mask. `element_bits` is the width of the data it will mask: on AVX2 the comparison is made in it.
llvm::Value* EmitTailMask(llvm::IRBuilderBase& builder, llvm::Value* count, int lanes, int element_bits = 32);

// Loads and stores of the first `count` elements of a vector; lanes beyond are zero, memory beyond is not touched.
// Constant counts become plain loads and stores of parts; others masked ones where the target has them (AVX2: 32 and 64
// bit, AVX-512: all), else a short run of branches: the builder's insertion point then moves to a new block.
llvm::Value* EmitLoadPrefix(llvm::IRBuilderBase& builder, const CpuTarget& target, llvm::Type* vector_type,
                            llvm::Value* ptr, llvm::Value* count, int64_t alignment);
void EmitStorePrefix(llvm::IRBuilderBase& builder, const CpuTarget& target, llvm::Value* vector, llvm::Value* ptr,
                     llvm::Value* count, int64_t alignment);

// Whether the target has masked loads and stores of such vectors.
bool HasMaskedMemory(const CpuTarget& target, llvm::Type* vector_type);

// A load of all lanes, or of none, without a branch: where `condition` (i1) does not hold, zeros are read from memory
// of the code's own, so that `ptr` is not touched. `alignment`: of `ptr`, in bytes, at most 8.
llvm::Value* EmitGuardedLoad(llvm::IRBuilderBase& builder, llvm::Type* type, llvm::Value* ptr, llvm::Value* condition,
                             int64_t alignment);

// The same under any mask (lanes off: zero, memory not touched). For 8-bit data below AVX-512 and all data on NEON LLVM
// expands them to a branch per lane: prefer the prefix form there. `active`: lanes from there on are off whatever the
// mask.
llvm::Value* EmitMaskedLoad(llvm::IRBuilderBase& builder, const CpuTarget& target, llvm::Type* vector_type,
                            llvm::Value* ptr, llvm::Value* mask, int64_t alignment, int active);
void EmitMaskedStore(llvm::IRBuilderBase& builder, llvm::Value* vector, llvm::Value* ptr, llvm::Value* mask,
                     int64_t alignment);

}  // namespace hone
