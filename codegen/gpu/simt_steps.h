// What a thread of the machine model goes through: nodes in a row, with jumps in place of loops and conditions.
#pragma once

#include <cstdint>
#include <vector>

#include "codegen/gpu/straight.h"

namespace hone::simt {

struct Step {
  enum class Kind : uint8_t { kNode, kLoopBegin, kLoopEnd, kSkipUnless };
  Kind kind = Kind::kNode;
  const straight::Node* node = nullptr;
  size_t target = 0;  // of the jump
};

// `nodes` outlive what is returned.
std::vector<Step> StepsOf(const std::vector<straight::Node>& nodes);

}  // namespace hone::simt
