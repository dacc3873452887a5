// The roofline plot: arithmetic intensity against GFLOP/s, both logarithmic, under the roofs that were measured on the
// machine. (Williams, Waterman, Patterson: Roofline, an insightful visual performance model, CACM 52(4), 2009.) The
// sloped roofs are one per cache level that holds some kernel's operands, since a kernel whose operands fit a cache is
// not bound by main memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/cli/report/markup.h"
#include "client/cli/report/report_data.h"

namespace hone::cli {

struct MemoryRoof {
  std::string level;  // "L1" … "memory"
  double read_gb_s = 0;
};
// What kernels of so many threads stand under.
struct RooflinePlotData {
  uint32_t threads = 0;
  double peak_gflops = 0;
  std::vector<MemoryRoof> memory;  // the fastest first
  std::vector<const ReportKernel*> kernels;
};

// One per number of threads, the one with most kernels first. Kernels that cannot be placed under the roofs are in
// none: without arithmetic, without a time, of other types than the peak's, or of another machine.
std::vector<RooflinePlotData> RooflinesOf(const std::vector<ReportKernel>& kernels);

// Where a point's kernel is told: "#k12".
std::string AnchorOf(const ReportKernel& kernel);

// An <svg>, `width` by `height` units.
void DrawRoofline(Markup& out, const RooflinePlotData& data, double width, double height, std::string_view css_class);

}  // namespace hone::cli
