// Which stages belong to a row: what softmax, normalisations and row sums compute on their way to an output, row by
// row.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "codegen/rules/schedule_planner.h"

namespace hone {

// Stages that feed `out` and nothing else but each other, reading and read row by row: their leading axes are the
// `rows` leading axes of out. In the order in which they are computed; scheduled ones, and those that `admits` leaves
// out, are not among them.
std::vector<std::string> RowGroup(const SchedulePlanner& planner, const std::string& out, size_t rows,
                                  const std::function<bool(const Stage&)>& admits = {});

// Terms of each of a reduction's results; elements of a tensor along its `rows` leading axes.
int64_t TermsOf(const SchedulePlanner& planner, const Stage& stage);
int64_t RowsOf(const SchedulePlanner& planner, const Stage& stage, size_t rows);

// Whether a reduction's operands lie in memory along its last axis of more than a few elements, and not along what is
// reduced: lanes along that axis read whole vectors, lanes along the reduction would read a line for each element.
bool ReducesColumns(const SchedulePlanner& planner, const Stage& stage);

// How often an element of an operand is read for other outputs, of the operand for which that is least: 1 for a matrix
// times a vector. Of windows, which may overlap, it is not known, and counts as often.
int64_t LeastReuse(const SchedulePlanner& planner, const Stage& stage);
// Of what a reduction reads the operand of most elements: the matrix of a matrix times few vectors. None: it reads
// nothing.
std::optional<AccessPattern> LargestOperand(const SchedulePlanner& planner, const Stage& stage);
// Computes what the reduction alone reads, element by element, where it reads it: weights that are kept narrower, say.
void InlineFeeders(SchedulePlanner& planner, const std::string& reduction);
// Whether the operand that is read again least is so seldom that tiles of it do not pay.
bool IsMatrixTimesFewVectors(const SchedulePlanner& planner, const Stage& stage);
// So often or less: a copy in block storage does not pay.
inline constexpr int64_t kReusedTooLittle = 4;

}  // namespace hone
