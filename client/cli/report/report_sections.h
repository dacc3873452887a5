// The sections of `hone report`'s page, and the cells of their tables.
#pragma once

#include <initializer_list>
#include <string_view>

#include "client/cli/report/markup.h"
#include "client/cli/report/report_data.h"
#include "client/cli/report/report_page.h"

namespace hone::cli {

// Gains kernel by kernel, trials by outcome, how good the cost model is.
void WriteWon(Markup& out, const ReportData& data, const Totals& totals, const PageLimits& limits);
void WriteRooflines(Markup& out, const ReportData& data, const PageLimits& limits);
// Nothing if no kernel was searched.
void WriteCurves(Markup& out, const ReportData& data, const PageLimits& limits);
// Classes, then every kernel of each.
void WriteCache(Markup& out, const ReportData& data, const Totals& totals, const PageLimits& limits);

// Tables: a head, then rows of cells. On narrow screens, where there is no head, `label` is before a cell's text.
struct HeadCell {
  std::string_view text;
  std::string_view css_class = "";
};
void WriteHead(Markup& out, std::initializer_list<HeadCell> cells);
void WriteCell(Markup& out, std::string_view text, std::string_view label = "", std::string_view css_class = "");
void WriteShareCell(Markup& out, double share, std::string_view label);  // as a number and a bar
void WriteKernelCell(Markup& out, const ReportKernel& kernel);

double RatioOf(double before, double after);  // 1 if there is nothing to compare

}  // namespace hone::cli
