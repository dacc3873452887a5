#include "client/cli/report/curve_plot.h"

#include <fmt/format.h>

#include <algorithm>

#include "client/cli/report/kernel_markup.h"
#include "client/cli/report/svg_plot.h"

namespace hone::cli {
namespace {

constexpr double kWidth = 250, kHeight = 122;
constexpr double kAboveDefault = 1.18;

// Times of one plot are in one unit: the one of its largest.
struct Unit {
  const char* name;
  double us;
};
Unit UnitFor(double us) {
  if (us < 1e3) return {"µs", 1};
  return us < 1e6 ? Unit{"ms", 1e3} : Unit{"s", 1e6};
}

}  // namespace

bool HasCurve(const ReportKernel& kernel) { return !kernel.history.empty() && kernel.history.front().best_us > 0; }

void DrawCurve(Markup& out, const ReportKernel& kernel) {
  const std::vector<HistoryPoint>& history = kernel.history;
  const double start_us = kernel.default_us > 0 ? kernel.default_us : history.front().best_us;
  const Unit unit = UnitFor(start_us);
  const Box frame{38, 8, kWidth - 8, kHeight - 20};
  const double last_trial = static_cast<double>(std::max({kernel.trials, history.back().trial, uint64_t{2}}));
  const Scale x = Scale::Linear(1, last_trial, frame.left, frame.right);
  const Scale y = Scale::Linear(0, start_us * kAboveDefault / unit.us, frame.bottom, frame.top);
  const HistoryPoint& best = history.back();
  SvgPlot plot(
      out, kWidth, kHeight,
      fmt::format("Best time over {} trials: {} to {}", kernel.trials, PageTime(start_us), PageTime(best.best_us)),
      "curve");
  plot.GridY(y, frame, LinearTicks(0, y.high(), 4));
  plot.Line(frame.left, frame.bottom, frame.right, frame.bottom, "axis");
  for (double trial : {1.0, last_trial}) {
    plot.Label(x(trial), frame.bottom + 14, trial > 1 ? Anchor::kEnd : Anchor::kStart, TickText(trial));
  }
  plot.Label((frame.left + frame.right) / 2, frame.bottom + 14, Anchor::kMiddle, fmt::format("trials · {}", unit.name));
  if (kernel.default_us > 0) {
    plot.Line(frame.left, y(start_us / unit.us), frame.right, y(start_us / unit.us), "default");
  }
  // Steps; a first trial that is slower than the default by more than the panel shows begins at its top.
  std::vector<std::pair<double, double>> places;
  auto at = [&](double us) { return std::max(frame.top, y(us / unit.us)); };
  for (const HistoryPoint& point : history) {
    const double px = x(static_cast<double>(point.trial));
    if (!places.empty()) places.emplace_back(px, places.back().second);
    places.emplace_back(px, at(point.best_us));
  }
  places.emplace_back(frame.right, places.back().second);
  plot.Path(places, "best");
  out.Open("circle", {{"cx", Coordinate(x(static_cast<double>(best.trial)))},
                      {"cy", Coordinate(at(best.best_us))},
                      {"r", "3"},
                      {"class", "found"}});
  out.Element("title", fmt::format("{} at trial {}, {}", PageTime(best.best_us), best.trial, PageDate(best.at_s)));
  out.Close("circle");
  plot.End();
}

}  // namespace hone::cli
