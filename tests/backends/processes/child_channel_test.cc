#include "backends/processes/child_channel.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/socket.h>

#include <limits>
#include <thread>

#include "backends/processes/child_messages.h"
#include "backends/runner/launcher.h"
#include "base/rng.h"
#include "tests/support/deadline.h"

namespace hone {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using testing::In;

struct Ends {
  ChildChannel ours, theirs;
};

Ends MakePair() {
  auto pair = ChildChannel::Pair();
  EXPECT_TRUE(pair);
  return {std::move(pair->first), ChildChannel(std::move(pair->second))};
}

TEST(ChildChannel, CarriesFramesBothWays) {
  Ends ends = MakePair();
  std::string large(5 << 20, 'x');  // more than any socket buffer
  std::thread other([&] {
    Result<ChildFrame> frame = ends.theirs.Receive(In(seconds(10)));
    ASSERT_TRUE(frame) << frame.error().Text();
    EXPECT_EQ(frame->body, large);
    EXPECT_TRUE(ends.theirs.Send(ChildMessage::kBuilt, frame->id, "answer", {}, In(seconds(10))));
  });
  ASSERT_TRUE(ends.ours.Send(ChildMessage::kBuild, 42, large, {}, In(seconds(10))));
  Result<ChildFrame> reply = ends.ours.Receive(In(seconds(10)));
  other.join();
  ASSERT_TRUE(reply) << reply.error().Text();
  EXPECT_EQ(reply->type, ChildMessage::kBuilt);
  EXPECT_EQ(reply->id, 42u);
  EXPECT_EQ(reply->body, "answer");
}

TEST(ChildChannel, CarriesDescriptorsAndKeepsFramesApart) {
  Ends ends = MakePair();
  UniqueFd file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(ends.ours.Send(ChildMessage::kCheck, 1, "one", {file.get(), file.get()}, In(seconds(1))));
  ASSERT_TRUE(ends.ours.Send(ChildMessage::kCheck, 2, "", {}, In(seconds(1))));
  ASSERT_TRUE(ends.ours.Send(ChildMessage::kCheck, 3, "three", {file.get()}, In(seconds(1))));
  for (auto [id, fds] : {std::pair(1u, 2u), std::pair(2u, 0u), std::pair(3u, 1u)}) {
    Result<ChildFrame> frame = ends.theirs.Receive(In(seconds(1)));
    ASSERT_TRUE(frame) << frame.error().Text();
    EXPECT_EQ(frame->id, id);
    EXPECT_EQ(frame->fds.size(), fds);
    for (const UniqueFd& fd : frame->fds) EXPECT_GE(::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC, 1);
  }
}

TEST(ChildChannel, SaysWhatIsWrong) {
  Ends ends = MakePair();
  EXPECT_EQ(ends.ours.Receive(In(milliseconds(20))).error().kind, ErrorKind::kTimeout);
  ASSERT_EQ(::send(ends.theirs.fd(), "hn", 2, 0), 2);
  EXPECT_EQ(ends.ours.Receive(In(milliseconds(20))).error().kind, ErrorKind::kTimeout);  // a part of a frame
  ends.theirs = ChildChannel();
  EXPECT_EQ(ends.ours.Receive(In(seconds(1))).error().kind, ErrorKind::kUnavailable);
  EXPECT_EQ(ends.ours.Send(ChildMessage::kBuild, 1, "x", {}, In(seconds(1))).error().kind, ErrorKind::kUnavailable);
}

TEST(ChildChannel, ASendThatNobodyTakesHasADeadline) {
  Ends ends = MakePair();
  Result<void> sent = ends.ours.Send(ChildMessage::kBuild, 1, std::string(8 << 20, 'x'), {}, In(milliseconds(50)));
  EXPECT_EQ(sent.error().kind, ErrorKind::kTimeout);
}

TEST(ChildChannel, RefusesDescriptorsThatWereNotAnnounced) {
  Ends ends = MakePair();
  std::array<char, kChildHeaderBytes> header = EncodeChildHeader({ChildMessage::kBuild, 0, 1, 0});
  struct iovec part{header.data(), header.size()};
  struct msghdr message{};
  message.msg_iov = &part, message.msg_iovlen = 1;
  alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  message.msg_control = control, message.msg_controllen = sizeof control;
  struct cmsghdr* rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET, rights->cmsg_type = SCM_RIGHTS, rights->cmsg_len = CMSG_LEN(sizeof(int));
  int zero = 0;
  __builtin_memcpy(CMSG_DATA(rights), &zero, sizeof zero);
  ASSERT_GT(::sendmsg(ends.theirs.fd(), &message, 0), 0);
  Result<ChildFrame> frame = ends.ours.Receive(In(seconds(1)));
  ASSERT_FALSE(frame);
  EXPECT_THAT(frame.error().message, HasSubstr("1 descriptors in a frame that announced 0"));
}

TEST(ChildChannel, HeadersRoundTripAndRefuseTheImpossible) {
  ChildHeader header{ChildMessage::kTimed, 3, 0x0123456789abcdef, 77};
  std::array<char, kChildHeaderBytes> bytes = EncodeChildHeader(header);
  Result<ChildHeader> decoded = DecodeChildHeader({bytes.data(), bytes.size()});
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->type, header.type);
  EXPECT_EQ(decoded->fds, header.fds);
  EXPECT_EQ(decoded->id, header.id);
  EXPECT_EQ(decoded->length, header.length);
  for (auto [at, value] : {std::pair(0, 'x'), std::pair(5, '\x7f'), std::pair(6, '\1'), std::pair(19, '\x7f')}) {
    std::array<char, kChildHeaderBytes> damaged = bytes;
    damaged[static_cast<size_t>(at)] = value;
    EXPECT_FALSE(DecodeChildHeader({damaged.data(), damaged.size()})) << at;
  }
}

// Every message: round trip, every truncation, random damage.
template <typename Message>
void TestCodec(const Message& message, std::string (*encode)(const Message&),
               Result<Message> (*decode)(std::string_view)) {
  std::string bytes = encode(message);
  Result<Message> back = decode(bytes);
  ASSERT_TRUE(back) << back.error().Text();
  EXPECT_EQ(encode(*back), bytes);
  for (size_t size = 0; size < bytes.size(); ++size) EXPECT_FALSE(decode(std::string(bytes.data(), size))) << size;
  EXPECT_FALSE(decode(bytes + "x"));
  Rng rng(5);
  for (int round = 0; round < 2000; ++round) {
    std::string damaged = bytes;
    damaged[rng.Below(damaged.size())] = static_cast<char>(rng.Below(256));
    Result<Message> result = decode(damaged);
    if (result) (void)encode(*result);
  }
}

TEST(ChildMessages, DecodeWhatWasEncodedAndNothingElse) {
  BuildRequest request{"matmul(M=2,N=3,K=4)", "split m 4",
                       *ParseTarget("avx2 cpu=haswell features=f16c l1=1 l2=2 l3=3 cores=4")};
  TestCodec(request, EncodeBuildRequest, DecodeBuildRequest);
  TestCodec(BuiltReply{"schedule", {1, 2, 3, 4, 5, 6, 7}}, EncodeBuilt, DecodeBuilt);
  TestCodec(CheckOptions{3, milliseconds(500), 2, true}, EncodeCheckOptions, DecodeCheckOptions);
  CheckReport report;
  report.max_rel_err = 1e-7, report.samples = 300, report.first_run_us = 12, report.prepare_us = 3;
  TestCodec(report, EncodeCheckReport, DecodeCheckReport);
  report.failure = Error{ErrorKind::kWrongResult, "y[3] is wrong", "here"};
  TestCodec(report, EncodeCheckReport, DecodeCheckReport);
  TestCodec(TimeOptions{}, EncodeTimeOptions, DecodeTimeOptions);
  TestCodec(RehearsalQuestion{3, {.run_limit = milliseconds(500)}}, EncodeRehearsalQuestion, DecodeRehearsalQuestion);
  TestCodec({std::nullopt, Error{ErrorKind::kRunFailed, "killed by signal 11", "here"}}, EncodeRehearsed,
            DecodeRehearsed);
  TestCodec({std::nullopt, Rehearsal{{.timed_out = true, .status = {.signal = 9}}, RunStage::kEntry, "why"}},
            EncodeRehearsals, DecodeRehearsals);
  RunTiming timing{1, 2, 3, 4, 5, 6, 7, "protocol"};
  TestCodec(timing, EncodeTiming, DecodeTiming);
}

// They are added up and made whole numbers of nanoseconds.
TEST(ChildMessages, TimesAreNumbersWithinADay) {
  for (double time : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), -1.0, 1e12}) {
    for (double BuildTimes::* field : {&BuildTimes::parse, &BuildTimes::codegen, &BuildTimes::link}) {
      BuildTimes times;
      EXPECT_TRUE(AreTimes(times));
      times.*field = time;
      EXPECT_FALSE(AreTimes(times)) << time;
    }
    for (double CheckReport::* field : {&CheckReport::first_run_us, &CheckReport::time_us, &CheckReport::pack_us,
                                        &CheckReport::check_us, &CheckReport::prepare_us}) {
      CheckReport report;
      EXPECT_TRUE(AreTimes(report));
      report.*field = time;
      EXPECT_FALSE(AreTimes(report)) << time;
    }
    for (double RunTiming::* field : {&RunTiming::median_us, &RunTiming::min_us, &RunTiming::spread_us}) {
      RunTiming timing;
      EXPECT_TRUE(AreTimes(timing));
      timing.*field = time;
      EXPECT_FALSE(AreTimes(timing)) << time;
    }
  }
}

TEST(ChildMessages, ErrorsRoundTrip) {
  Error error = DecodeError(EncodeError({ErrorKind::kLimit, "too large", "k:1:1"}));
  EXPECT_EQ(error.kind, ErrorKind::kLimit);
  EXPECT_EQ(error.Text(), "k:1:1: too large");
  EXPECT_EQ(DecodeError("garbage").kind, ErrorKind::kCorrupt);
}

}  // namespace
}  // namespace hone
