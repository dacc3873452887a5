// A kernel that is about to be checked: its operands' memory with the test data in it, and the reference values of the
// elements that will be compared.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/runner/candidate_spec.h"
#include "backends/runner/guarded_arena.h"
#include "base/result.h"
#include "ir/graph/kernel.h"
#include "ir/manifest.h"
#include "ir/reference/check_output.h"
#include "ir/reference/interpret.h"

namespace hone {

enum class Placement : uint8_t {
  kAtGuards,  // every buffer ends where an inaccessible page begins: for checking
  kAligned,   // every buffer starts on a page, as large allocations do: for measuring
};

// Lives in an arena, which it has for itself. One thread.
class Workload {
 public:
  // Parses, lays out and fills. `sizes`: values of the dynamic sizes, in order; empty: the largest ones. kInvalid (a
  // value out of range, too), kLimit (memory, operands).
  static Result<std::unique_ptr<Workload>> Open(const std::string& kernel, const std::vector<int64_t>& sizes,
                                                Arena& arena, Placement placement);
  ~Workload();

  // Computes the sampled reference values. kLimit if that would take minutes.
  Result<void> ComputeReference(const SampleOptions& options);

  // Is an artifact's manifest the one of this kernel? kInvalid with what differs.
  Result<void> CheckManifest(const Manifest& manifest) const;

  // Makes the outputs unwritten again. To be called before every run.
  void BeforeRun();

  // After a run: kWrongResult if bytes beside an output were written.
  std::optional<Error> CheckEdges() const;
  Comparison Compare();

  const Kernel& kernel() const { return kernel_; }              // at its sizes
  const std::vector<int64_t>& sizes() const { return sizes_; }  // the dynamic ones, as hone_entry takes them
  const std::vector<BufferPlan>& plans() const { return plans_; }
  Placement placement() const { return placement_; }
  const std::string& text() const { return text_; }

 private:
  Workload(std::string text, Kernel asked, Kernel kernel, std::vector<int64_t> sizes, Arena& arena,
           Placement placement);
  Result<void> LayOut();
  Result<void> FillInputs();
  void FillOutputs();
  std::span<std::byte> FileBytes(size_t operand) const;  // slack and the rest of the last page included
  const Tensor& OperandTensor(size_t operand) const;

  const std::string text_;
  const Kernel asked_;  // with its ranges
  const Kernel kernel_;
  const std::vector<int64_t> sizes_;
  std::string canonical_;
  Arena& arena_;
  const Placement placement_;
  std::vector<BufferPlan> plans_;       // of the operands, in order
  std::vector<MappedBuffer> repeated_;  // large inputs as the interpreter sees them
  std::vector<OperandView> inputs_;
  std::unique_ptr<Interpreter> interpreter_;
  std::vector<Samples> samples_;
  bool outputs_are_fresh_ = false;
};

}  // namespace hone
