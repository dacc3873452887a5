#include "client/cli/report/gather_report.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "base/bytes.h"
#include "base/unique_fd.h"
#include "tests/cli/report_samples.h"

namespace hone::cli {
namespace {

// A daemon that says what the test wants it to: frames in answer to each request.
class ScriptedDaemon {
 public:
  using Answer = std::function<std::string(const FrameHeader&, std::span<const std::byte>)>;  // "": it hangs up

  explicit ScriptedDaemon(Answer answer) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    client_ = UniqueFd(ends[0]);
    thread_ = std::thread([socket = std::make_shared<UniqueFd>(ends[1]), answer = std::move(answer)] {
      for (;;) {
        std::array<std::byte, kFrameHeaderBytes> bytes;
        if (!Fill(socket->get(), bytes)) return;
        Result<FrameHeader> header = DecodeHeader(bytes, kRequestLimit);
        if (!header) return;
        std::vector<std::byte> body(header->length);
        if (!Fill(socket->get(), body)) return;
        const std::string frames = answer(*header, body);
        if (frames.empty()) return;
        if (send(socket->get(), frames.data(), frames.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(frames.size()))
          return;
      }
    });
  }
  ~ScriptedDaemon() {
    if (client_) client_.Reset();
    thread_.join();
  }

  UniqueFd TakeClient() { return std::move(client_); }

 private:
  static bool Fill(int fd, std::span<std::byte> out) {
    while (!out.empty()) {
      const ssize_t count = read(fd, out.data(), out.size());
      if (count <= 0) return false;
      out = out.subspan(static_cast<size_t>(count));
    }
    return true;
  }

  UniqueFd client_;
  std::thread thread_;
};

Deadline Soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(20); }

std::string RefusalFrame(uint64_t id, ErrorKind kind, const std::string& message, uint32_t retry_after_ms = 0) {
  return EncodeFrame(id, ToReply(Error{kind, message, ""}, retry_after_ms));
}

// Four records in two parts: one to be explained after "busy", one that is gone, one that cannot be read, and one of
// another machine beside the first.
std::string FourKernels(const FrameHeader& header, std::span<const std::byte> body, int& busy) {
  const uint64_t id = header.request_id;
  switch (header.type) {
    case MessageType::kStatus: {
      StatusReply reply;
      reply.version = "7";
      return EncodeFrame(id, reply);
    }
    case MessageType::kTop: return EncodeFrame(id, TopReply{});
    case MessageType::kList: {
      ListReply first{.rows = {SampleRow(0), SampleRow(1)}, .more = true};
      ListReply last{.rows = {SampleRow(2), SampleRow(0)}, .more = false};
      last.rows[1].target = "avx512 cores=64";
      last.rows[1].requests = 1;
      return EncodeFrame(id, first) + EncodeFrame(id, last);
    }
    case MessageType::kExplain: {
      Result<ExplainRequest> request = DecodeBody<ExplainRequest>(body);
      EXPECT_TRUE(request && request->name.is_fingerprint);
      if (request->name.kernel == SampleRow(1).fingerprint) return RefusalFrame(id, ErrorKind::kNotFound, "gone");
      if (request->name.kernel == SampleRow(2).fingerprint) return RefusalFrame(id, ErrorKind::kCorrupt, "unreadable");
      if (busy-- > 0) return RefusalFrame(id, ErrorKind::kBusy, "later", 1);
      return EncodeFrame(id, SampleExplanation(0));
    }
    case MessageType::kPredict: {
      PredictReply reply;
      reply.fingerprint = SampleRow(0).fingerprint;
      reply.served = {11, 9, 13};
      reply.measured_us = 10;
      return EncodeFrame(id, reply);
    }
    default: return "";
  }
}

TEST(GatherReport, TellsEveryRecordOfTheListWhateverIsWrongWithIt) {
  int busy = 2;
  ScriptedDaemon daemon([&](const FrameHeader& header, auto body) { return FourKernels(header, body, busy); });
  Channel channel(daemon.TakeClient());
  Result<ReportData> data = GatherReport(channel, {}, Soon());
  ASSERT_TRUE(data) << data.error().Text();
  EXPECT_EQ(busy, -2);  // and was asked once for each of the two records of one kernel
  ASSERT_EQ(data->kernels.size(), 4u);
  EXPECT_EQ(data->status.version, "7");
  const ReportKernel& unreadable = data->kernels[0];  // the most calls × time
  EXPECT_EQ(unreadable.row.fingerprint, SampleRow(2).fingerprint);
  EXPECT_NE(unreadable.problem.find("unreadable"), std::string::npos);
  EXPECT_DOUBLE_EQ(unreadable.time_us, SampleRow(2).expected_us);
  const ReportKernel& explained = data->kernels[1];
  EXPECT_EQ(explained.row.fingerprint, SampleRow(0).fingerprint);
  EXPECT_EQ(explained.problem, "");
  EXPECT_EQ(explained.history.size(), 3u);
  EXPECT_DOUBLE_EQ(explained.won, 2);
  EXPECT_DOUBLE_EQ(explained.estimate.expected_us, 11);
  EXPECT_NE(data->kernels[2].problem.find("another machine"), std::string::npos);
  EXPECT_TRUE(data->kernels[2].history.empty());
  EXPECT_TRUE(data->kernels[3].is_removed);
  EXPECT_EQ(QualityOf(data->kernels).kernels, 1u);
}

TEST(GatherReport, WithoutAModelItSaysSo) {
  int busy = 0, predictions = 0;
  ScriptedDaemon daemon([&](const FrameHeader& header, auto body) {
    if (header.type != MessageType::kPredict) return FourKernels(header, body, busy);
    ++predictions;
    return RefusalFrame(header.request_id, ErrorKind::kNotFound, "no model yet");
  });
  Channel channel(daemon.TakeClient());
  Result<ReportData> data = GatherReport(channel, {}, Soon());
  ASSERT_TRUE(data) << data.error().Text();
  EXPECT_EQ(data->model_problem, "no model yet");
  EXPECT_EQ(predictions, 1);
}

TEST(GatherReport, ADaemonThatDiesIsAnErrorNotAPage) {
  for (MessageType last :
       {MessageType::kStatus, MessageType::kTop, MessageType::kList, MessageType::kExplain, MessageType::kPredict}) {
    int busy = 0;
    ScriptedDaemon daemon([&](const FrameHeader& header, auto body) {
      return header.type == last ? std::string() : FourKernels(header, body, busy);
    });
    Channel channel(daemon.TakeClient());
    EXPECT_FALSE(GatherReport(channel, {}, Soon())) << static_cast<int>(last);
  }
}

TEST(GatherReport, OneThatStaysBusyIsWaitedForUntilTheDeadline) {
  int busy = 1 << 30;
  ScriptedDaemon daemon([&](const FrameHeader& header, auto body) { return FourKernels(header, body, busy); });
  Channel channel(daemon.TakeClient());
  Result<ReportData> data =
      GatherReport(channel, {}, std::chrono::steady_clock::now() + std::chrono::milliseconds(100));
  EXPECT_FALSE(data);
}

}  // namespace
}  // namespace hone::cli
