#include "client/cli/text_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "client/cli/print_values.h"
#include "client/cli/text_layout.h"

namespace hone::cli {

std::string CurveText(const std::vector<HistoryPoint>& history, uint64_t trials, size_t columns, size_t rows) {
  if (history.empty() || trials < 2 || rows < 2 || columns < 30) return "";
  const double highest = history.front().best_us, lowest = history.back().best_us;
  const std::string top = TimeText(highest), bottom = TimeText(lowest);
  const size_t margin = std::max(Width(top), Width(bottom)) + 1;
  const size_t width = columns - margin - 1;
  const uint64_t first = history.front().trial, last = std::max(trials, history.back().trial);
  if (last <= first) return "";
  // A row for each column: of the best at the column's last trial.
  std::vector<size_t> row_of(width);
  size_t point = 0;
  for (size_t c = 0; c < width; ++c) {
    const double share = static_cast<double>(c) / static_cast<double>(width - 1);
    const double trial = static_cast<double>(first) + share * static_cast<double>(last - first);
    while (point + 1 < history.size() && static_cast<double>(history[point + 1].trial) <= trial + 1e-9) ++point;
    const double height = highest > lowest ? (history[point].best_us - lowest) / (highest - lowest) : 0;
    row_of[c] = rows - 1 - static_cast<size_t>(std::lround(height * static_cast<double>(rows - 1)));
  }
  std::string text;
  for (size_t r = 0; r < rows; ++r) {
    const std::string label = r == 0 ? top : r + 1 == rows ? bottom : "";
    std::string line = std::string(margin - 1 - Width(label), ' ') + label + " |";
    for (size_t c = 0; c < width; ++c) {
      const bool falls_through = c > 0 && row_of[c - 1] < r && r < row_of[c];
      line += row_of[c] == r ? '*' : falls_through ? ':' : ' ';
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  text += std::string(margin, ' ') + "+" + std::string(width, '-') + "\n";
  const std::string from = fmt::format("trial {}", first), to = std::to_string(last);
  text += std::string(margin + 1, ' ') + from + std::string(width - from.size() - to.size(), ' ') + to + "\n";
  return text;
}

}  // namespace hone::cli
