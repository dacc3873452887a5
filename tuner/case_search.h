// The search for a kernel with dynamic sizes: each of its cases (ir/schedule/schedule_cases.h) has a search of its own,
// over code for all sizes of the case, timed at one of them in the middle.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/graph/kernel.h"
#include "ir/schedule/schedule_cases.h"
#include "ir/target.h"
#include "tuner/search.h"

namespace hone {

// Asks another evaluator, always at the same sizes.
class EvaluatorAtSizes : public Evaluator {
 public:
  EvaluatorAtSizes(Evaluator& evaluator, std::vector<int64_t> sizes)
      : evaluator_(evaluator), sizes_(std::move(sizes)) {}
  int builders() const override { return evaluator_.builders(); }
  void RunInParallel(size_t count, const std::function<void(size_t index)>& work) override {
    evaluator_.RunInParallel(count, work);
  }
  Result<BuiltArtifact> Build(const std::string& schedule) override { return evaluator_.Build(schedule); }
  Result<CheckReport> Check(const SealedMemfd& artifact, const CheckOptions& options) override;
  Result<RunTiming> Time(const SealedMemfd& artifact, const TimeOptions& options) override;

 private:
  Evaluator& evaluator_;
  const std::vector<int64_t> sizes_;
};

// What a case stands for in a comparison of whole kernels.
struct CaseSample {
  std::vector<int64_t> sizes;  // of the kernel's dynamic sizes, in order: where the case is timed
  double share = 0;            // of all values of the size that tells the cases apart
};
// One for each case. REQUIRES: `size` is FindCaseSize's answer.
std::vector<CaseSample> SampleCases(const Kernel& kernel, int size, const ScheduleCases& cases);

struct CasesFound {
  ScheduleCases cases;       // with what the searches found in place of what was served
  std::vector<bool> is_new;  // by case
  SearchResult search;       // of all together; times are means over the sizes, `top` is empty
};

// What an interrupted search has measured, found and still to do. Empty before it begins. Not thread-safe.
struct CasesState {
  std::shared_ptr<struct CasesMemory> memory;
};

using EvaluatorMaker = std::function<Result<std::unique_ptr<Evaluator>>(const std::string& kernel)>;

// `served`: the schedule's text that is served now. options.trials are shared out among the measuring of register tiles
// and the cases, those for most sizes first; a case that is left without keeps what it has. options.known and
// options.seeds, of the whole kernel, play no part. A case changes only if its new schedule is faster beyond the noise,
// in turns with the old one. All cases go on reading one packed copy of a constant. Errors as Search; what was found
// before one is in `state`, which is as Search's, or lost.
Result<CasesFound> SearchCases(const Kernel& kernel, const Target& target, const std::string& served,
                               const EvaluatorMaker& make_rig, CostModel* model, const SearchOptions& options,
                               const SearchWatcher& watcher, std::stop_token stop, CasesState* state = nullptr);

}  // namespace hone
