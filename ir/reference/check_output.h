// Is an output the kernel's? Test data for the inputs, the elements whose reference is computed, and the comparison.
// Pure: whoever ran the kernel (the runner, `hone run`) brings the buffers. What is checked, and how surely a bug is
// caught:
//   every element: was it written at all (outputs are filled with a pattern before), and is a NaN or infinity wanted;
//   a few hundred elements, or all where that is cheap: |y − r| ≤ tolerance · A (ir/reference/accuracy.h);
//   the sum of all elements under random signs, where ir/reference/projection.h can tell what it should be.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/graph/kernel.h"
#include "ir/reference/interpret.h"
#include "ir/reference/projection.h"

namespace hone {

// Test data of operands larger than this repeat after as many bytes, so that they can be one small file mapped again
// and again. An odd number of pages: a wrong stride of any power of two meets other values.
inline constexpr int64_t kInputPeriod = int64_t{509} * 4096;

// Fills one operand (a position in Kernel::operands, an input) with values made from the seed. `data` is the operand,
// or its first kInputPeriod bytes. Floats in [-1, 1], with some zeros, ones and small values; near ±1 where the kernel
// multiplies them up (prod), lest every product vanish, and smaller where bytes are made of them
// (ir/reference/input_scale.h). Integers that index are just beyond the range they are clamped to. The same seed gives
// the same data on every machine.
void FillInput(const Kernel& kernel, int operand, uint64_t seed, std::span<std::byte> data);

// A seed of the kernel's own, so that a check can be repeated: a hash of its printed form.
uint64_t InputSeed(const Kernel& kernel);

// The pattern that outputs hold before a run (DTypeTraits::unwritten).
void FillUnwritten(DType type, std::span<std::byte> data);
// The same for workspace and packed operands: another NaN, of any float type, so that a result computed from it tells.
void FillScratch(std::span<std::byte> data);

struct SampleOptions {
  int64_t samples = 320;           // of each output, at most
  double budget = 6e6;             // multiply-adds for all samples together; at least kFewestSamples are taken
  double full_budget = 2e6;        // an output that costs less is compared whole
  bool full = false;               // compare everything
  double projection_budget = 8e6;  // multiply-adds for the signed sums
};
inline constexpr int64_t kFewestSamples = 48;

// The elements of one output that are compared, and what they should be.
struct Samples {
  int output = 0;                // counts outputs
  bool full = false;             // all elements
  std::vector<int64_t> indices;  // ascending row-major element numbers
  std::vector<Reference> references;
  std::optional<Projection> projection;  // of the whole output, unless all elements are compared
};

// Corners, both sides of the borders of tiles of any usual size, the tails, and random elements; then their references.
// `inputs` as for Interpreter; without them there are no projections.
std::vector<Samples> ComputeSamples(const Kernel& kernel, Interpreter& interpreter, const SampleOptions& options,
                                    uint64_t seed, std::span<const OperandView> inputs = {});

struct Comparison {
  std::optional<Error> failure;  // kWrongResult: how many elements are wrong, the worst of them, what was wanted
  double max_rel_err = 0;        // max |y − r| / A over the compared elements
  int64_t samples = 0;           // how many
  bool full = false;             // all there are
};

// Compares the outputs (in order; the whole buffers). The interpreter is asked about unexpected elements only.
Comparison CompareOutputs(const Kernel& kernel, Interpreter& interpreter, std::span<const Samples> samples,
                          std::span<const std::span<const std::byte>> outputs);

}  // namespace hone
