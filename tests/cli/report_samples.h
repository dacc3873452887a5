// Kernels and caches made up for the tests of `hone report`.
#pragma once

#include <fmt/format.h>

#include "client/cli/report/report_data.h"

namespace hone::cli {

inline RecordRow SampleRow(int i, std::string kernel = "") {
  RecordRow row;
  row.fingerprint = fmt::format("{:032x}", i + 1);
  row.class_name = i % 3 == 0 ? "matmul" : i % 3 == 1 ? "conv2d+bias+relu" : "softmax";
  row.kernel = kernel.empty() ? fmt::format("{}(M={},N=64)", row.class_name, i + 1) : std::move(kernel);
  row.target = "avx2 cores=2";
  row.origin = i % 2 == 0 ? "tuned" : "default";
  row.expected_us = 10 + i;
  row.artifact_bytes = 4096;
  row.requests = static_cast<uint64_t>(1000 + 10 * i);
  return row;
}

// What honed would explain of it: tuned ones 2× as fast as before, 1.5× of that in idle time.
inline ExplainReply SampleExplanation(int i, std::string kernel = "") {
  ExplainReply reply;
  reply.row = SampleRow(i, std::move(kernel));
  reply.threads = 1;
  Roofline& roofline = reply.roofline;
  roofline.flops = 1e5 * (i + 1);
  roofline.operand_bytes = 2e4;
  roofline.time_us = 10 + i;
  roofline.time_from = "measured";
  roofline.peak_gflops = 100;
  roofline.read_gb_s = i % 4 == 0 ? 20 : 200;
  roofline.level = i % 4 == 0 ? "memory" : "L2";
  if (i % 2 != 0) return reply;
  reply.default_us = 21 + 2 * i;
  reply.won_ratio = 2;
  reply.idle_ratio = 1.5;
  reply.trials = 48;
  reply.verdicts = {{"timed", 40}, {"timed out", 6}, {"crashed", 2}};
  reply.history = {{1, 21.0 + 2 * i, 1'700'000'000}, {7, 15.0 + i, 1'700'000'010}, {33, 10.0 + i, 1'700'000'060}};
  return reply;
}

inline ReportKernel SampleKernel(int i, std::string kernel = "") {
  ReportKernel sample;
  AddExplanation(sample, SampleExplanation(i, std::move(kernel)));
  return sample;
}

// A cache of so many kernels, ranked.
inline ReportData SampleReport(int kernels) {
  ReportData data;
  data.written_s = 1'700'000'100;
  data.hone_version = data.status.version = "0.1.0";
  data.status.cache = "/home/user/.cache/hone";
  data.status.cache_bytes = 1 << 20;
  data.status.targets = {"avx2 cores=2"};
  data.activity.idle_state = "quiet";
  for (int i = 0; i < kernels; ++i) data.kernels.push_back(SampleKernel(i));
  RankKernels(data.kernels);
  return data;
}

}  // namespace hone::cli
