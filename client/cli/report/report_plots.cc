// The page's plots: rooflines and tuning curves, with the words around them.
#include <fmt/format.h>

#include <algorithm>

#include "client/cli/report/curve_plot.h"
#include "client/cli/report/kernel_markup.h"
#include "client/cli/report/report_sections.h"
#include "client/cli/report/roofline_plot.h"

namespace hone::cli {
namespace {

void LegendPoint(Markup& out, std::string_view css_class, std::string_view text) {
  out.Open("li").Open("svg",
                      {{"xmlns", "http://www.w3.org/2000/svg"}, {"viewBox", "0 0 12 12"}, {"aria-hidden", "true"}});
  out.Empty("circle", {{"cx", "6"}, {"cy", "6"}, {"r", "4"}, {"class", std::string(css_class)}});
  out.Close("svg").Text(text).Close("li");
}

}  // namespace

void WriteRooflines(Markup& out, const ReportData& data, const PageLimits& limits) {
  out.Element("h2", "Roofline", {{"id", "roofline"}});
  std::vector<RooflinePlotData> plots = RooflinesOf(data.kernels);
  size_t placed = 0, points_left_out = 0;
  for (RooflinePlotData& plot : plots) {
    placed += plot.kernels.size();
    if (plot.kernels.size() <= limits.points) continue;
    points_left_out += plot.kernels.size() - limits.points;
    plot.kernels.resize(limits.points);  // ranked: the heaviest stay
  }
  if (plots.empty()) {
    WriteProse(out,
               "No kernel has a time and stands under roofs that are known: they are measured on the machine of the "
               "record, for f32.");
    return;
  }
  WriteProse(
      out,
      "Roofs as measured on this machine: FMAs from registers, and sequential reads from the cache level that "
      "holds the kernel's operands, each of which counts once, as does every operation. What is beyond its roof has an "
      "algorithm with fewer operations, or operands that are nearer than their size says, or the roof was measured "
      "while others "
      "were using the machine. Numbers are those of the tables.",
      "note");
  out.Open("ul", {{"class", "legend"}});
  LegendPoint(out, "pt", "default");
  LegendPoint(out, "pt tuned", "tuned");
  LegendPoint(out, "pt other", "transferred or imported");
  LegendPoint(out, "pt pinned", "pinned");
  out.Close("ul");
  for (const RooflinePlotData& plot : plots) {
    out.Open("figure");
    std::string roofs =
        fmt::format("{}: peak {} GFLOP/s", Plural(size_t{plot.threads}, "thread"), PageNumber(plot.peak_gflops));
    for (const MemoryRoof& roof : plot.memory)
      roofs +=
          fmt::format("; {} {} GB/s", roof.level == "memory" ? "main memory" : roof.level, PageNumber(roof.read_gb_s));
    out.Element("figcaption", roofs);
    DrawRoofline(out, plot, 900, 440, "wide");
    DrawRoofline(out, plot, 372, 380, "narrow");
    out.Close("figure");
  }
  const auto there = static_cast<size_t>(
      std::count_if(data.kernels.begin(), data.kernels.end(), [](const ReportKernel& k) { return !k.is_removed; }));
  if (placed < there)
    WriteProse(out,
               fmt::format("{} cannot be placed: without arithmetic or a time, of other types than f32, or of another "
                           "machine.",
                           Plural(there - placed, "kernel")),
               "note");
  if (points_left_out > 0)
    WriteProse(out, fmt::format("{} with less to do are left out.", Plural(points_left_out, "kernel")), "note");
}

void WriteCurves(Markup& out, const ReportData& data, const PageLimits& limits) {
  std::vector<const ReportKernel*> searched;
  for (const ReportKernel& kernel : data.kernels)
    if (!kernel.is_removed && HasCurve(kernel)) searched.push_back(&kernel);
  if (searched.empty()) return;
  out.Element("h2", "Tuning curves", {{"id", "curves"}});
  WriteProse(
      out,
      "The best time so far over the trials of all searches of a kernel. The dashed line, equally high in every "
      "panel, is the default schedule's time. The best of many noisy times is served only if it also wins in turns "
      "against what is served.",
      "note");
  std::sort(searched.begin(), searched.end(), SavedMore);
  const size_t shown = std::min(searched.size(), limits.curves);
  std::sort(searched.begin(), searched.begin() + static_cast<ptrdiff_t>(shown),
            [](const ReportKernel* a, const ReportKernel* b) { return a->number < b->number; });
  out.Open("div", {{"class", "panels"}});
  for (size_t i = 0; i < shown; ++i) {
    const ReportKernel& kernel = *searched[i];
    out.Open("figure").Open("figcaption").Open("span", {{"class", "name"}, {"title", ShortKernel(kernel.row.kernel)}});
    out.Element("a", std::to_string(kernel.number), {{"href", "#" + AnchorOf(kernel)}}).Text(" ");
    WriteKernel(out, kernel.row.kernel);
    out.Close("span");
    const double best = kernel.history.back().best_us;
    out.Text(kernel.default_us > 0 ? PageTime(kernel.default_us) + " → " : "").Element("b", PageTime(best));
    if (kernel.default_us > best) out.Text(", " + PageRatio(kernel.default_us / best));
    out.Text(fmt::format(", {}", Plural(kernel.trials, "trial")));
    out.Close("figcaption");
    DrawCurve(out, kernel);
    out.Close("figure");
  }
  out.Close("div");
  if (shown < searched.size())
    WriteProse(out,
               fmt::format("{} that won less are left out here.", Plural(searched.size() - shown, "searched kernel")),
               "note");
}

}  // namespace hone::cli
