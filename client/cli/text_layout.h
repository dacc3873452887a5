// Text that fits: widths as a terminal counts them, lines broken or cut to so many columns.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hone::cli {

size_t Width(std::string_view text);  // columns that a text takes: one a code point

std::string First(std::string_view text, size_t columns);  // as much of it

// A kernel as it was asked for, on one line: without comments, runs of blanks as one.
std::string OneLine(std::string_view kernel);

// On one line, the middle left out if it is longer: "conv2d(C=64,H … stride=1)+bias".
std::string Cut(std::string text, size_t columns);
// Cut, then blanks up to so many columns.
std::string Pad(std::string text, size_t columns);

// Lines of at most so many columns, broken at blanks; all but the first begin with `indent` blanks, and the first at
// column `begin`. Words that are longer are broken after a comma, or anywhere if there is none.
std::string Wrap(std::string_view text, size_t columns, size_t indent, size_t begin = 0);

// "name   value" lines, values wrapped under themselves.
std::string WrappedFacts(const std::vector<std::pair<std::string, std::string>>& facts, size_t columns,
                         size_t indent = 0);

// [#####-----], `columns` in all; `share` beyond 0 … 1 is as 0 or 1.
std::string Bar(double share, size_t columns);

// Blocks of lines side by side, each left one padded to `columns`, with a gap of `gap`.
std::string SideBySide(std::string_view left, std::string_view right, size_t columns, size_t gap);

}  // namespace hone::cli
