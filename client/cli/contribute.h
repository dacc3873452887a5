// What of a record everybody may know.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cache/bundle/bundle.h"

namespace hone::cli {

// Kernels that somebody keeps to himself.
class Exclusions {
 public:
  // Each word: a kernel, which is meant with any number of threads and, if it is for a range of sizes, at each of them;
  // a file, a list or a model, with all of its kernels; or the beginning of a class's name or of a fingerprint. Errors
  // of ReadKernels and ParseKernel.
  static Result<Exclusions> Read(const std::vector<std::string>& words);
  bool Has(const Record& record) const;
  // Beginnings that none of them has: typing errors, most likely.
  std::vector<std::string> WithoutEffect(const std::vector<BundleEntry>& entries) const;

 private:
  std::vector<std::string> kernels_;  // canonical, without threads
  struct Range {
    Fingerprint class_fingerprint;  // at its least sizes
    std::string kernel;
  };
  std::vector<Range> ranges_;            // those of kernels_ that have open sizes, as models with open shapes do
  std::vector<std::string> beginnings_;  // of classes' names and fingerprints
};

// The entries that were tuned on this machine and are not excluded, each as somebody else would have written it: the
// kernel in its canonical form, without names that people gave; what a target is, and how fast the schedule was there;
// when, to the day. Neither code, nor how often it was used, nor whose schedule it came from.
std::vector<BundleEntry> ForEverybody(std::vector<BundleEntry> entries, const Exclusions& exclusions);

}  // namespace hone::cli
