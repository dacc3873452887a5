// A network by its definition, beside values that were computed by kernels. Where values are rounded to few digits, to
// whole numbers or to narrow floats, two right computations go apart: of numbers next to a tie one becomes a step more
// and the other a step less, and every layer after it makes more of that. So the definition goes on with the kernels'
// values wherever they were rounded so, once it has compared them, and each part of the network between such values is
// checked by itself. Numbers that were drawn at random are other ones every time: it goes on with those, too.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "base/result.h"
#include "network/graph/graph.h"

namespace hone {

// Whether the definition goes on with what kernels made of a value.
bool IsFollowed(const Graph& graph, ValueId value);

struct Followed {
  std::vector<Numbers> outputs;  // the network's, by definition since the last values that were followed
  std::optional<Error> failure;  // kWrongResult
  double difference = 0;         // largest |y − r| of a narrow float over the largest |r| of its tensor
  double tolerance = 0;          // for it
  size_t quantized = 0;          // elements that were compared
  size_t ties = 0;               // of these, the ones that are off, all of them because of a tie
};

// `seen`: what kernels computed, for values that are followed; others may be missing. `tolerance`: of a kernel that
// rounds to nothing narrower than f32, of the largest element. Errors of Evaluate.
Result<Followed> FollowNetwork(Graph& graph, const std::vector<Numbers>& data, const std::map<ValueId, Numbers>& seen,
                               double tolerance);

}  // namespace hone
