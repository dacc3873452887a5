#include "client/cli/report/gather_report.h"

#include <ctime>
#include <thread>

namespace hone::cli {
namespace {

// Asks again for as long as honed has too much to do.
template <typename Reply, typename Request>
Result<Reply> CallPatiently(Channel& channel, const Request& request, Deadline deadline) {
  for (;;) {
    uint32_t retry_after_ms = 0;
    const uint64_t id = HONE_TRY(channel.Ask(request, deadline));
    Result<Reply> reply = channel.Await<Reply>(id, deadline, nullptr, &retry_after_ms);
    if (reply || reply.error().kind != ErrorKind::kBusy || !channel.clean()) return reply;
    const auto pause = std::chrono::milliseconds(std::max<uint32_t>(retry_after_ms, 10));
    if (std::chrono::steady_clock::now() + pause >= deadline) return reply;
    std::this_thread::sleep_for(pause);
  }
}

Result<std::vector<ReportKernel>> ListKernels(Channel& channel, Deadline deadline) {
  std::vector<ReportKernel> kernels;
  const uint64_t id = HONE_TRY(channel.Ask(ListRequest{}, deadline));
  for (bool more = true; more;) {
    ListReply part = HONE_TRY(channel.Await<ListReply>(id, deadline));
    more = part.more;
    for (RecordRow& row : part.rows) {
      ReportKernel& kernel = kernels.emplace_back();
      kernel.time_us = row.expected_us;
      kernel.row = std::move(row);
    }
  }
  return kernels;
}

Result<void> ExplainOne(Channel& channel, ReportKernel& kernel, Deadline deadline) {
  Result<ExplainReply> reply =
      CallPatiently<ExplainReply>(channel, ExplainRequest{{kernel.row.fingerprint, true}}, deadline);
  if (reply) {
    // A kernel may have records of several machines, and is explained by this machine's.
    if (reply->row.target == kernel.row.target) {
      AddExplanation(kernel, *std::move(reply));
    } else {
      kernel.problem = "a record of another machine, beside this machine's";
    }
    return {};
  }
  if (!channel.clean() || reply.error().kind == ErrorKind::kBusy) return reply.error();
  kernel.is_removed = reply.error().kind == ErrorKind::kNotFound;
  if (!kernel.is_removed) kernel.problem = reply.error().Text();
  return {};
}

// Fails only if the daemon is gone: without a model, or without a daemon to ask it, there are no estimates.
Result<void> AddEstimates(Channel& channel, ReportData& data, size_t most, Deadline deadline) {
  for (ReportKernel& kernel : data.kernels) {
    if (most == 0) break;
    if (kernel.is_removed || kernel.roofline.time_from != "measured") continue;
    --most;
    Result<PredictReply> reply =
        CallPatiently<PredictReply>(channel, PredictRequest{kernel.row.kernel, kernel.threads}, deadline);
    if (reply) {
      if (reply->fingerprint != kernel.row.fingerprint || reply->measured_us <= 0) continue;
      kernel.estimate = reply->served;
      kernel.measured_us = reply->measured_us;
      if (!reply->why_none.empty()) data.model_problem = reply->why_none;
      continue;
    }
    if (!channel.clean()) return reply.error();
    if (reply.error().kind != ErrorKind::kNotFound && reply.error().kind != ErrorKind::kUnsupported) continue;
    data.model_problem = reply.error().message;
    break;
  }
  return {};
}

}  // namespace

Result<ReportData> GatherReport(Channel& channel, const GatherOptions& options, Deadline deadline) {
  ReportData data;
  data.hone_version = HONE_VERSION;
  data.written_s = time(nullptr);
  data.status = HONE_TRY(CallPatiently<StatusReply>(channel, StatusRequest{}, deadline));
  data.activity = HONE_TRY(CallPatiently<TopReply>(channel, TopRequest{}, deadline));
  data.kernels = HONE_TRY(ListKernels(channel, deadline));
  for (size_t i = 0; i < data.kernels.size(); ++i) {
    options.on_progress(i, data.kernels.size());
    HONE_TRY(ExplainOne(channel, data.kernels[i], deadline));
  }
  RankKernels(data.kernels);
  HONE_TRY(AddEstimates(channel, data, options.most_estimates, deadline));
  return data;
}

}  // namespace hone::cli
