// Small plots out of characters, for terminals and pipes.
#pragma once

#include <string>
#include <vector>

#include "client/protocol/protocol.h"

namespace hone::cli {

// The best time so far over the trials, as a curve of `rows` lines with its scale, at most `columns` wide. "" if there
// is nothing to draw.
std::string CurveText(const std::vector<HistoryPoint>& history, uint64_t trials, size_t columns, size_t rows);

}  // namespace hone::cli
