// `hone report`'s page: one file that needs nothing else. It has no scripts, loads nothing (its content policy says
// so), follows the light or dark scheme of who reads it, and reads as HTML and as XML.
#pragma once

#include <string>

#include "client/cli/report/report_data.h"

namespace hone::cli {

// How much of a large cache is shown; what is left out is counted on the page.
struct PageLimits {
  size_t curves = 48;      // those that won most
  size_t gains = 15;       // rows of what was won
  size_t kernels = 5'000;  // rows of the cache, the heaviest of them
  size_t open_rows = 300;  // classes are folded if there are more
  size_t points = 2'000;   // of a roofline plot, the heaviest
};

// REQUIRES: data.kernels are ranked.
std::string ReportPage(const ReportData& data, const PageLimits& limits = {});

}  // namespace hone::cli
