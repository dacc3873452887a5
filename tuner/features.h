// What a loop program looks like to the cost model: a vector of numbers of fixed length, computed from the loops, the
// accesses and the target before anything is unrolled or compiled. The groups follow the published models (Ansor's
// per-statement features, TenSet, MetaSchedule): arithmetic, lanes, register tile, accesses and their reuse, footprint
// and traffic per cache level, loop structure, parallelism; on devices blocks, threads, barriers, and what memory does
// for threads side by side; and a roofline of our own, so that trees learn what deviates from it instead of the
// machine.
//
// Invariants: every value is finite; magnitudes are log2(1 + x); ratios are per FLOP, per FMA or of a capacity, so that
// what was learnt on one kernel means the same on another.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "codegen/lower/program.h"
#include "ir/target.h"

namespace hone {

// Changes whenever a feature changes its meaning or place; models and stored vectors carry it.
inline constexpr uint32_t kFeatureVersion = 5;

// One per feature, in the order of ExtractFeatures: "hot.loads_per_fma".
std::span<const std::string_view> FeatureNames();

// FeatureNames().size() values. Deterministic; below 0.2 ms for usual programs (bench/model_bench). Dynamic sizes count
// as their upper bounds. Thread-safe.
std::vector<float> ExtractFeatures(const LoopProgram& program, const Target& target);

}  // namespace hone
