// The cache by class: the page's last section.
#include <fmt/format.h>

#include <algorithm>

#include "client/cli/report/kernel_markup.h"
#include "client/cli/report/report_sections.h"
#include "client/cli/report/roofline_plot.h"

namespace hone::cli {
namespace {

void ClassOverview(Markup& out, const std::vector<ReportClass>& classes, const Totals& totals) {
  out.Open("table", {{"class", "rows overview"}});
  WriteHead(out, {{"class", "k"},
                  {"kernels"},
                  {"tuned"},
                  {"calls × time"},
                  {"before"},
                  {"gain"},
                  {"of the roofline"},
                  {"of all time"}});
  out.Open("tbody");
  for (const ReportClass& one : classes) {
    const Totals& sums = one.totals;
    out.Open("tr").Open("td", {{"class", "k"}}).Element("code", one.name).Close("td");
    WriteCell(out, PageCount(static_cast<double>(sums.kernels)), "kernels");
    WriteCell(out, PageCount(static_cast<double>(sums.tuned)), "tuned");
    WriteCell(out, PageTime(sums.now_us), "calls × time");
    WriteCell(out, PageTime(sums.before_us), "before");
    WriteCell(out, PageRatio(RatioOf(sums.before_us, sums.now_us)), "gain", "gain");
    WriteCell(out, PagePercent(sums.median_reached), "of the roofline");
    WriteShareCell(out, totals.now_us > 0 ? sums.now_us / totals.now_us : 0, "of all time");
    out.Close("tr");
  }
  out.Close("tbody").Close("table");
}

void KernelRow(Markup& out, const ReportKernel& kernel) {
  if (kernel.is_removed) {
    out.Open("tr", {{"id", AnchorOf(kernel)}, {"class", "gone"}});
  } else {
    out.Open("tr", {{"id", AnchorOf(kernel)}});
  }
  WriteCell(out, std::to_string(kernel.number));
  WriteKernelCell(out, kernel);
  if (kernel.problem.empty()) {
    WriteCell(out, StateText(kernel), "", kernel.row.origin == "tuned" && !kernel.is_removed ? "s tuned" : "s");
  } else {
    out.Element("td", StateText(kernel), {{"class", "s"}, {"title", kernel.problem}});
  }
  WriteCell(out, PageCount(kernel.calls()), "calls");
  WriteCell(out, PageTime(kernel.time_us), "now");
  // What is served is the default where nothing else was found: its time is the default's.
  const bool is_default = kernel.default_us <= 0 && kernel.row.origin == "default";
  WriteCell(out, PageTime(is_default ? kernel.time_us : kernel.default_us), "default");
  WriteCell(out, PageRatio(kernel.won), "gain", "gain");
  WriteShareCell(out, kernel.reached(), "of the roofline");
  out.Close("tr");
}

}  // namespace

void WriteCache(Markup& out, const ReportData& data, const Totals& totals, const PageLimits& limits) {
  out.Open("section", {{"class", "cache"}}).Element("h2", "The cache by class", {{"id", "cache"}});
  const std::vector<ReportClass> classes = ClassesOf(data.kernels);
  ClassOverview(out, classes, totals);
  const bool is_open = data.kernels.size() <= limits.open_rows;
  size_t left_out = 0;
  for (const ReportClass& one : classes) {
    // Ranked: a number beyond the limit is that of a kernel with less to do.
    const auto shown =
        static_cast<size_t>(std::count_if(one.kernels.begin(), one.kernels.end(), [&](const ReportKernel* kernel) {
          return static_cast<size_t>(kernel->number) <= limits.kernels;
        }));
    left_out += one.kernels.size() - shown;
    if (shown == 0) continue;
    if (is_open) {
      out.Open("details", {{"open", "open"}});
    } else {
      out.Open("details");
    }
    out.Open("summary").Element("code", one.name).Text(" ");
    out.Element("span",
                Plural(one.kernels.size(), "kernel") + ", calls × time " + PageTime(one.totals.now_us) +
                    (shown < one.kernels.size() ? fmt::format(", {} shown", PageCount(static_cast<double>(shown)))
                                                : std::string()));
    out.Close("summary").Open("table", {{"class", "rows"}}).Open("colgroup");
    for (const char* column : {"c-n", "c-k", "c-s", "c-calls", "c-t", "c-t", "c-g", "c-r"})
      out.Empty("col", {{"class", column}});
    out.Close("colgroup");
    WriteHead(
        out,
        {{"no."}, {"kernel", "k"}, {"state", "s"}, {"calls"}, {"now"}, {"default"}, {"gain"}, {"of the roofline"}});
    out.Open("tbody");
    for (size_t i = 0; i < shown; ++i) KernelRow(out, *one.kernels[i]);
    out.Close("tbody").Close("table").Close("details");
  }
  if (left_out > 0)
    WriteProse(out,
               fmt::format("{} with less to do are left out; `hone ls` lists them all.", Plural(left_out, "kernel")),
               "note");
  out.Close("section");
}

}  // namespace hone::cli
