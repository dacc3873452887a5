// Lists that programs append to: what exporters make of `results.append(y)` in a loop whose steps are counted when the
// network runs. A list that grows by one tensor in each step is what the loop collects of that tensor.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "network/onnx/onnx_model.h"

namespace hone {

struct CollectedList {
  std::string list;       // the loop's output that was a list; "": nothing reads it
  std::string begin;      // the list that it was before the first step
  std::string collected;  // the tensor whose rows were appended; "": nothing was
};

// Takes states that are lists out of a Loop: those that its body appends one tensor to, in every step and behind the
// others, and reads nowhere else, and those that it hands on as they are. Others stay. `is_list`: of a name around it.
std::vector<CollectedList> TakeListsOut(OnnxNode& loop, const std::function<bool(const std::string&)>& is_list);

// Where both branches of an If append a tensor to the same list from around them, the tensor becomes the result of the
// If, and is appended behind it: by the nodes that are returned.
std::vector<OnnxNode> AppendBehind(OnnxNode& branches);

}  // namespace hone
