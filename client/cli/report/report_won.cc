// What refining has won: the page's first section.
#include <fmt/format.h>

#include <algorithm>

#include "client/cli/report/kernel_markup.h"
#include "client/cli/report/report_sections.h"
#include "client/cli/report/roofline_plot.h"

namespace hone::cli {
namespace {

// Faults of the code stand out from what is merely slow, and from the machine's unrest.
std::string ColorOf(std::string_view verdict) {
  if (verdict == "timed") return "v-timed";
  if (verdict == "timed out") return "v-slow";
  if (verdict == "crashed" || verdict.starts_with("wrong")) return "v-bad";
  if (verdict == "not built") return "v-unbuilt";
  return verdict == "disturbed" ? "v-noise" : "v-other";
}

void TrialOutcomes(Markup& out, const Totals& totals) {
  double all = 0;
  for (const Stat& verdict : totals.verdicts) all += verdict.value;
  if (all <= 0) return;
  out.Element("h3", "Trials by outcome");
  out.Open("div", {{"class", "stack"}});
  for (size_t i = 0; i < totals.verdicts.size(); ++i) {
    out.Element("i", "",
                {{"class", ColorOf(totals.verdicts[i].name)},
                 {"style", fmt::format("width:{:.2f}%", 100 * totals.verdicts[i].value / all)}});
  }
  out.Close("div").Open("ul", {{"class", "legend"}});
  for (size_t i = 0; i < totals.verdicts.size(); ++i) {
    const Stat& verdict = totals.verdicts[i];
    out.Open("li").Element("i", "", {{"class", ColorOf(totals.verdicts[i].name)}});
    out.Text(fmt::format("{} {} ({:.1f} %)", verdict.name, PageCount(verdict.value), 100 * verdict.value / all));
    out.Close("li");
  }
  out.Close("ul");
}

void ModelSection(Markup& out, const ReportData& data) {
  const ModelQuality quality = QualityOf(data.kernels);
  out.Element("h3", "Cost model");
  if (quality.kernels == 0) {
    WriteProse(out, data.model_problem.empty() ? "No kernel has both an estimate and a measured time."
                                               : "No estimates: " + data.model_problem + ".");
    return;
  }
  std::string words = fmt::format(
      "Of {} with a measured time, the heaviest first, {} lay within the range of the model's estimate (80 % are "
      "expected); the estimate is typically off by {:.2f}×",
      Plural(quality.kernels, "kernel"), quality.within, quality.typical_factor);
  if (quality.kernels >= 3) words += fmt::format("; rank correlation {:.2f}", quality.rank_correlation);
  WriteProse(out, words + ". Kernels that it has learnt from are among them.");
}

}  // namespace

void WriteWon(Markup& out, const ReportData& data, const Totals& totals, const PageLimits& limits) {
  out.Element("h2", "What refining has won", {{"id", "won"}});
  std::vector<const ReportKernel*> won;
  for (const ReportKernel& kernel : data.kernels)
    if (!kernel.is_removed && kernel.won >= kLeastRatio) won.push_back(&kernel);
  if (won.empty()) {
    WriteProse(out, totals.trials > 0
                        ? "No search has found anything better than the default schedules yet, beyond the noise."
                        : "Nothing has been searched yet: `hone tune` does it now, idle time later.");
  } else {
    std::sort(won.begin(), won.end(), SavedMore);
    WriteProse(
        out,
        "All calls so far at the speed of the code now, against that of the code before its first search. A gain is a "
        "ratio measured in turns, old code against new; “before” is the present time times the gain.",
        "note");
    out.Open("table", {{"class", "rows"}});
    WriteHead(out, {{"no."},
                    {"kernel", "k"},
                    {"calls"},
                    {"before"},
                    {"now"},
                    {"gain"},
                    {"in idle time"},
                    {"saved"},
                    {"of all saved"}});
    out.Open("tbody");
    const double saved = totals.before_us - totals.now_us;
    const size_t shown = std::min(won.size(), limits.gains);
    for (size_t i = 0; i < shown; ++i) {
      const ReportKernel& kernel = *won[i];
      out.Open("tr")
          .Open("td")
          .Element("a", std::to_string(kernel.number), {{"href", "#" + AnchorOf(kernel)}})
          .Close("td");
      WriteKernelCell(out, kernel);
      WriteCell(out, PageCount(kernel.calls()), "calls");
      WriteCell(out, PageTime(kernel.time_us * kernel.won), "before");
      WriteCell(out, PageTime(kernel.time_us), "now");
      WriteCell(out, PageRatio(kernel.won), "gain", "gain");
      WriteCell(out, PageRatio(kernel.idle_won), "idle");
      WriteCell(out, PageTime(kernel.saved_us()), "saved");
      WriteShareCell(out, saved > 0 ? kernel.saved_us() / saved : 0, "of all");
      out.Close("tr");
    }
    out.Close("tbody").Close("table");
    if (shown < won.size())
      WriteProse(out, fmt::format("{} more that won less are left out here.", Plural(won.size() - shown, "kernel")),
                 "note");
  }
  TrialOutcomes(out, totals);
  ModelSection(out, data);
}

}  // namespace hone::cli
