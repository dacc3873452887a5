// Builds a kernel with a schedule in this process, runs it, and compares every element of every output with the
// reference. Runs twice: alone and on several workers, each time with other memory around the buffers, another pattern
// in everything that must be written before it is read, and the parallel ranges in another order; both must give the
// same bits. Reading or writing outside a buffer, or writing an input, ends the process: call it in a child
// (tests/support/run_cases.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backends/processes/build_request.h"
#include "base/generated_code.h"
#include "ir/graph/kernel.h"
#include "ir/reference/interpret.h"
#include "tests/support/kernel_inputs.h"

namespace hone {

// A kernel at its sizes with random inputs and the reference of every output element.
class KernelCase {
 public:
  // slack: how many times the tolerance of the kernel's accuracy class is allowed. change: puts other numbers into the
  // random inputs. REQUIRES: the text parses; the kernel is static.
  KernelCase(std::string text, uint64_t seed, double slack = 1,
             const std::function<void(const Kernel& kernel, KernelInputs& inputs)>& change = {});

  const std::string& text() const { return text_; }
  const Kernel& kernel() const { return kernel_; }
  double slack() const { return slack_; }
  KernelInputs& inputs() { return *inputs_; }
  const std::vector<Reference>& references(size_t output) const { return references_[output]; }

 private:
  std::string text_;
  double slack_;
  Kernel kernel_;
  std::unique_ptr<KernelInputs> inputs_;
  std::vector<std::vector<Reference>> references_;
};

struct RunOutcome {
  std::string refusal;   // the schedule was refused, for this reason
  std::string failure;   // something is wrong, namely this
  std::string schedule;  // as used, also when it was the default
  double worst = 0;      // largest error over what is allowed

  bool ran() const { return refusal.empty() && failure.empty(); }
};

// schedule: "" is the default one, which must not be refused.
RunOutcome BuildAndRun(KernelCase& kernel, std::string_view schedule, const Target& target);

// Runs what was built, perhaps for a range of sizes, at the sizes of `kernel`: `sizes` as hone_entry takes them.
RunOutcome RunBuilt(const BuildOutput& built, KernelCase& kernel, const std::vector<int64_t>& sizes = {});

// This machine; with AVX-512 also as if it had AVX2 only; each also with small caches, so that small kernels are
// blocked like large ones.
std::vector<Target> TestTargets();

}  // namespace hone
