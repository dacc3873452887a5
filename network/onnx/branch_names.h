// Names for what is in branches of Ifs: where a branch takes its node's place, another one may have the same names.
#pragma once

#include <set>
#include <string>

#include "network/onnx/onnx_model.h"

namespace hone {

class BranchNames {
 public:
  // REQUIRES: the model outlives it, and stays as it is.
  explicit BranchNames(const OnnxModel& model) : model_(model) {}

  // The branch, with its own values under names that the model has nowhere, nor any other branch.
  OnnxBody Apart(const OnnxBody& branch);

 private:
  void Note(const std::string& name);
  void NoteAll(const std::vector<OnnxNode>& nodes);
  std::string NextPrefix();

  const OnnxModel& model_;
  std::set<std::string> taken_;  // prefixes of the model's own names, from the first branch on
  int count_ = 0;
};

}  // namespace hone
