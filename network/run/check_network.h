// Is what a network computed through kernels what its file says? Two checks that fail differently:
//   each distinct kernel, on the values that flow through it, against the reference of its text
//   (ir/reference/check_output), within the accuracy that it promises: wrong code; the network's outputs against the
//   network by ONNX's definitions in double precision (network/graph/evaluate), before anything was simplified or
//   lowered: wrong import, wrong fusion, wrong memory. Where values are quantised or narrow floats, part by part
//   (network/run/follow_network).
//
// How far an output may be off. A kernel's error is at most (4 + √K) · 2⁻²⁴ of its magnitudes, K its longest reduction
// (ir/reference/accuracy.h). Networks keep what flows through them at one scale (that is what their normalisations, and
// weights scaled by the fan-in, are for), so each of L kernels in a row hands such an error on without enlarging it,
// and adds its own: the bound is L · (4 + √K) · 2⁻²⁴ of the largest output. Errors of different kernels are as good as
// independent, so real ones are far below; what is wrong in kind (an operand, an axis, an epilogue) is of the order
// of 1.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "network/graph/evaluate_network.h"
#include "network/run/executor.h"

namespace hone {

struct NetworkCheck {
  std::optional<Error> failure;  // kWrongResult
  double difference = 0;         // largest |y − r| over the largest |r|, of all outputs
  double tolerance = 0;          // for it
  int depth = 0;                 // L
  size_t quantized = 0;          // elements of quantised values
  size_t ties = 0;               // those among them that are off, because of a tie
  double max_rel_err = 0;        // of the kernels, by their own measure
  size_t kernels = 0;            // distinct ones that were checked
};

// Runs the network once, call by call. `plain` is the network before Simplify, with the same weights; `data` its
// inputs. kInvalid, kLimit, kRunFailed.
Result<NetworkCheck> CheckNetwork(Executor& executor, Graph& graph, const CallPlan& plan, Graph& plain,
                                  const std::vector<Numbers>& data);

// Writes data where the executor reads it.
void SetInputs(Executor& executor, const Graph& graph, const std::vector<Numbers>& data);

}  // namespace hone
