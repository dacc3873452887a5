#include "client/cli/report/report_page.h"

#include <fmt/format.h>

#include "client/cli/print_values.h"
#include "client/cli/report/kernel_markup.h"
#include "client/cli/report/markup.h"
#include "client/cli/report/report_sections.h"
#include "client/cli/report/report_style.h"

namespace hone::cli {
namespace {

std::vector<const ReportKernel*> All(const ReportData& data) {
  std::vector<const ReportKernel*> all;
  for (const ReportKernel& kernel : data.kernels) all.push_back(&kernel);
  return all;
}

void Fact(Markup& out, std::string_view name, std::string_view value) { out.Element("dt", name).Element("dd", value); }

void Header(Markup& out, const ReportData& data, const Totals& totals) {
  const StatusReply& status = data.status;
  out.Open("header").Element("h1", "hone report").Open("dl", {{"class", "facts"}});
  Fact(out, "written", PageDate(data.written_s));
  Fact(out, "machine", status.targets.empty() ? "unknown" : status.targets[0]);
  const std::string version = status.version == data.hone_version
                                  ? data.hone_version
                                  : fmt::format("{}, honed {}", data.hone_version, status.version);
  Fact(out, "hone", version);
  Fact(out, "cache", fmt::format("{}, {}", status.cache, BytesText(static_cast<double>(status.cache_bytes))));
  if (!status.cache_problem.empty()) Fact(out, "problem", status.cache_problem);
  Fact(out, "kernels",
       Plural(totals.kernels, "kernel") +
           (totals.pinned > 0 ? fmt::format(", {} pinned", totals.pinned) : std::string()));
  const TopReply& activity = data.activity;
  std::string idle = activity.idle_state.empty() ? "off" : activity.idle_state;
  if (activity.refinable > 0)
    idle += fmt::format("; {} of {} kernels of this machine still to be refined", activity.waiting, activity.refinable);
  Fact(out, "idle time", idle);
  out.Close("dl").Close("header");
}

void Figure(Markup& out, std::string_view name, std::string_view value, std::string_view more) {
  out.Open("li").Element("span", name).Element("b", value);
  out.Element("i", more).Close("li");
}

double CountOf(const Totals& totals, std::string_view verdict) {
  for (const Stat& stat : totals.verdicts)
    if (stat.name == verdict) return stat.value;
  return 0;
}

void Figures(Markup& out, const Totals& totals) {
  out.Open("ul", {{"class", "figures"}});
  Figure(out, "calls × time, now", PageTime(totals.now_us), "before refining " + PageTime(totals.before_us));
  const double idle = RatioOf(totals.without_idle_us, totals.now_us);
  Figure(out, "won by refining", PageRatio(RatioOf(totals.before_us, totals.now_us)),
         idle >= kLeastRatio ? PageRatio(idle) + " of it in idle time" : "nothing of it in idle time");
  Figure(out, "tuned kernels", PageCount(static_cast<double>(totals.tuned)),
         "of " + PageCount(static_cast<double>(totals.kernels)));
  Figure(out, "of the roofline", PagePercent(totals.median_reached), "reached, in the median");
  const double trials = static_cast<double>(totals.trials);
  Figure(out, "trials", PageCount(trials),
         trials > 0 ? PagePercent(CountOf(totals, "timed") / trials) + " timed" : "none yet");
  out.Close("ul");
}

}  // namespace

std::string ReportPage(const ReportData& data, const PageLimits& limits) {
  const Totals totals = SumOf(All(data));
  Markup out;
  out.Raw("<!DOCTYPE html>\n");
  out.Open("html", {{"xmlns", "http://www.w3.org/1999/xhtml"}, {"lang", "en"}}).Open("head");
  out.Empty("meta", {{"charset", "utf-8"}});
  out.Empty("meta",
            {{"http-equiv", "Content-Security-Policy"}, {"content", "default-src 'none'; style-src 'unsafe-inline'"}});
  out.Empty("meta", {{"name", "viewport"}, {"content", "width=device-width, initial-scale=1"}});
  out.Element("title", fmt::format("hone report, {}", PageDate(data.written_s)));
  out.Open("style").Raw(kReportStyle).Close("style").Close("head").Raw("\n").Open("body");
  Header(out, data, totals);
  if (data.kernels.empty()) {
    WriteProse(out,
               "The cache holds no kernels yet: `hone warm LIST.kernels` puts some there, as does every program that "
               "asks for one.");
  } else {
    Figures(out, totals);
    WriteWon(out.Raw("\n"), data, totals, limits);
    WriteRooflines(out.Raw("\n"), data, limits);
    WriteCurves(out.Raw("\n"), data, limits);
    WriteCache(out.Raw("\n"), data, totals, limits);
  }
  out.Element("footer",
              "“before” and “gain” compare code in turns on the machine; “default” is the default schedule's time in "
              "its search; “of the roofline” is the least time that the roofs allow over the time of a call. The page "
              "is complete: it loads "
              "nothing and runs nothing.");
  out.Close("body").Close("html").Raw("\n");
  return std::move(out).Take();
}

}  // namespace hone::cli
