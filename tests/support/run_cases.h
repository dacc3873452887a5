// Runs many cases in child processes, as many at once as there are cores, so that a crash or an endless loop costs one
// case and is reported like any other failure.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace hone {

// What a case says while it runs. Lives in the child.
class CaseLog {
 public:
  virtual ~CaseLog() = default;
  // What is being tried: shown with a failure, also if this process dies.
  virtual void Note(const std::string& text) = 0;
  virtual void Fail(const std::string& text) = 0;
  // Adds one to the number of `label`.
  virtual void Count(const std::string& label) = 0;
};

struct CaseFailure {
  int index = 0;
  std::string text;
  std::string note;  // the last
};

struct CaseReport {
  std::vector<CaseFailure> failures;      // by index
  std::map<std::string, int64_t> counts;  // by label, over all cases

  int64_t count(const std::string& label) const {
    auto known = counts.find(label);
    return known == counts.end() ? 0 : known->second;
  }
  std::string Text(size_t most = 5) const;  // the first failures
};

// Calls run(index, log) for 0 … count-1. A case that takes more than `seconds` of a processor fails. Stops after
// `max_failures`.
CaseReport RunCases(int count, const std::function<void(int index, CaseLog& log)>& run, int seconds = 60,
                    size_t max_failures = 20);

// The environment's HONE_SEED, or `usual`: other cases. Printed by whoever uses it.
uint64_t SeedFromEnvironment(uint64_t usual);
// usual × the environment's HONE_ROUNDS (1): more cases.
int RoundsFromEnvironment(int usual);

}  // namespace hone
