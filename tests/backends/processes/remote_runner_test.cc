// A device on another machine, played by this test: what it may say, and what becomes of one that lies, hangs, hangs up
// or sends garbage.
#include "backends/processes/remote_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cmath>
#include <functional>
#include <limits>
#include <thread>

#include "backends/processes/child_messages.h"
#include "backends/processes/remote_pools.h"
#include "base/bytes.h"

namespace hone {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr char kKernel[] = "matmul(M=64,N=64,K=64)";  // 524,288 operations

Target SomeTarget() {
  CpuTarget target;
  target.cpu = "generic";
  return target;
}

RunTiming GoodTiming() {
  RunTiming timing;
  timing.median_us = timing.min_us = 1;
  timing.samples = 5;
  timing.calls_per_sample = 1;
  timing.workers = 1;
  timing.protocol = "warm";
  return timing;
}

CheckReport GoodReport() {
  CheckReport report;
  report.samples = 10;
  report.full = true;
  return report;
}

// The device's side. Answers as told, once for each question.
class Device {
 public:
  using Answer = std::function<void(ChildChannel& channel, const ChildFrame& frame)>;

  explicit Device(Answer answer = Honest) : answer_(std::move(answer)) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    ours = UniqueFd(ends[0]);
    channel_ = ChildChannel(UniqueFd(ends[1]));
  }
  ~Device() { Join(); }
  void Join() {  // once its other end is gone
    if (thread_.joinable()) thread_.join();
  }

  static MonotonicTime Soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(20); }

  static void Say(ChildChannel& channel, ChildMessage type, uint64_t id, const std::string& body) {
    (void)channel.Send(type, id, body, {}, Soon());
  }
  static void Honest(ChildChannel& channel, const ChildFrame& frame) {
    switch (frame.type) {
      case ChildMessage::kPrepare: return Say(channel, ChildMessage::kPrepared, frame.id, "");
      case ChildMessage::kCheck: return Say(channel, ChildMessage::kChecked, frame.id, EncodeCheckReport(GoodReport()));
      case ChildMessage::kTime: return Say(channel, ChildMessage::kTimed, frame.id, EncodeTiming(GoodTiming()));
      default: return;
    }
  }
  // Honest but for what is asked by `type`.
  static Answer But(ChildMessage type, Answer answer) {
    return [type, answer = std::move(answer)](ChildChannel& channel, const ChildFrame& frame) {
      frame.type == type ? answer(channel, frame) : Honest(channel, frame);
    };
  }
  static Answer But(ChildMessage type, ChildMessage reply, std::string body) {
    return But(type, [=](ChildChannel& channel, const ChildFrame& frame) { Say(channel, reply, frame.id, body); });
  }

  // Speaks until its other end is gone; `first` are its first words.
  void Serve(std::string first = EncodeHello({"hone-runner 1", SomeTarget()})) {
    thread_ = std::thread([this, first = std::move(first)] {
      Say(channel_, ChildMessage::kHello, 0, first);
      while (true) {
        Result<ChildFrame> frame = channel_.Receive(Soon());
        if (!frame) return;
        questions.push_back(frame->type);
        answer_(channel_, *frame);
      }
    });
  }
  // Only these bytes, then nothing.
  void Send(std::string_view bytes) {
    ASSERT_EQ(::send(channel_.fd(), bytes.data(), bytes.size(), 0), ssize_t(bytes.size()));
  }
  void HangUp() { channel_ = ChildChannel(); }

  UniqueFd ours;
  std::vector<ChildMessage> questions;

 private:
  Answer answer_;
  ChildChannel channel_;
  std::thread thread_;
};

RemoteLimits Quick() { return {milliseconds(2'000), milliseconds(150), milliseconds(2'000)}; }

SealedMemfd SomeCode(const std::string& bytes = "code") { return *SealedMemfd::Create(AsBytes(bytes)); }

std::string WhyNotGreeted(RemoteRunner& runner) {
  Result<RemoteHello> hello = runner.Greet();
  EXPECT_FALSE(hello);
  EXPECT_TRUE(runner.Lost());
  return hello ? "" : hello.error().Text();
}

// What becomes of a check, or of a timing, at such a device.
Error AfterCheck(const Device::Answer& answer, const CheckOptions& options = {}) {
  Device device(answer);
  device.Serve();
  RemoteRunner runner(std::move(device.ours), Quick());
  EXPECT_TRUE(runner.Greet());
  Result<std::unique_ptr<RemoteRunner::Turn>> turn = runner.Prepare(kKernel, Device::Soon());
  EXPECT_TRUE(turn);
  Result<CheckReport> report = (*turn)->Check(SomeCode(), options);
  EXPECT_FALSE(report);
  Result<CheckReport> again = (*turn)->Check(SomeCode(), options);
  EXPECT_EQ(again ? "" : again.error().Text(), report ? "" : report.error().Text())
      << "the first fault is what is said";
  return report ? Error{} : report.error();
}

Error AfterTiming(const RunTiming& timing) {
  Device device(Device::But(ChildMessage::kTime, ChildMessage::kTimed, EncodeTiming(timing)));
  device.Serve();
  RemoteRunner runner(std::move(device.ours), Quick());
  EXPECT_TRUE(runner.Greet());
  std::unique_ptr<RemoteRunner::Turn> turn = *runner.Prepare(kKernel, Device::Soon());
  Result<RunTiming> answer = turn->Time(SomeCode(), {});
  EXPECT_FALSE(answer);
  return answer ? Error{} : answer.error();
}

TEST(RemoteRunner, ChecksAndTimesWhatIsSentOnce) {
  Device device;
  device.Serve();
  {
    RemoteRunner runner(std::move(device.ours), Quick());
    Result<RemoteHello> hello = runner.Greet();
    ASSERT_TRUE(hello) << hello.error().Text();
    EXPECT_EQ(hello->program, "hone-runner 1");
    EXPECT_EQ(hello->target, SomeTarget());
    std::unique_ptr<RemoteRunner::Turn> turn = *runner.Prepare(kKernel, Device::Soon());
    for (int i = 0; i < 2; ++i) {
      Result<CheckReport> report = turn->Check(SomeCode(), {.full = true});
      ASSERT_TRUE(report) << report.error().Text();
      EXPECT_TRUE(report->verified());
      ASSERT_TRUE(turn->Time(SomeCode(), {}));
    }
    EXPECT_FALSE(runner.Lost());
  }
  device.Join();
  using enum ChildMessage;
  EXPECT_EQ(device.questions, (std::vector{kPrepare, kArtifact, kCheck, kTime, kCheck, kTime}));
}

TEST(RemoteRunner, ItsFirstWordsSayThatItIsAHoneRunnerOfThisVersion) {
  const auto why = [](std::string_view bytes) {
    Device device;
    device.Send(bytes);
    device.HangUp();
    RemoteRunner runner(std::move(device.ours), Quick());
    return WhyNotGreeted(runner);
  };
  EXPECT_THAT(why("Welcome to Debian GNU/Linux 12!\n"),
              HasSubstr("does not speak as hone-runner --stdio does: not a frame: it begins \"Welcome to Debian GN\""));
  EXPECT_THAT(why(""), HasSubstr("hung up before it said what it is"));

  const auto why_hello = [](std::string body, ChildMessage type = ChildMessage::kHello) {
    const auto header = EncodeChildHeader({type, 0, 0, static_cast<uint32_t>(body.size())});
    Device device;
    device.Send(std::string(header.data(), header.size()) + body);
    RemoteRunner runner(std::move(device.ours), Quick());
    return WhyNotGreeted(runner);
  };
  std::string hello = EncodeHello({"hone-runner 9", SomeTarget()});
  hello[12] = 9;  // behind the mark
  EXPECT_THAT(why_hello(hello), HasSubstr("speaks version 9 of the channel, this honed version 1; install the same"));
  hello = EncodeHello({"hone-runner 9", SomeTarget()});
  hello[14] = 7;
  EXPECT_THAT(why_hello(hello), HasSubstr("runs code of interface 7"));
  EXPECT_THAT(why_hello("x"), HasSubstr("was refused"));
  EXPECT_THAT(why_hello(hello, ChildMessage::kBuilt), HasSubstr("does not begin as hone-runner"));

  Device silent;
  RemoteRunner runner(std::move(silent.ours), {milliseconds(50), milliseconds(50), milliseconds(50)});
  EXPECT_THAT(WhyNotGreeted(runner), HasSubstr("did not say within 0 s what it is"));
}

TEST(RemoteRunner, TimesThatCannotBeAreNotBelieved) {
  const auto with = [](auto change) {
    RunTiming timing = GoodTiming();
    change(timing);
    return timing;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const RunTiming& timing :
       {with([&](RunTiming& t) { t.median_us = nan; }), with([](RunTiming& t) { t.median_us = -1; }),
        with([](RunTiming& t) { t.median_us = t.min_us = 0; }), with([](RunTiming& t) { t.min_us = 2; }),
        with([](RunTiming& t) { t.samples = 0; }), with([](RunTiming& t) { t.spread_us = HUGE_VAL; })}) {
    const Error error = AfterTiming(timing);
    EXPECT_EQ(error.kind, ErrorKind::kUnavailable);
    EXPECT_THAT(error.Text(), HasSubstr("the device is not believed: what it says cannot be: a time that is none"));
  }
  EXPECT_THAT(AfterTiming(with([](RunTiming& t) { t.min_us = t.median_us = 1e9; })).Text(), HasSubstr("within"));
  EXPECT_THAT(AfterTiming(with([](RunTiming& t) { t.calls_per_sample = 1'000'000; })).Text(), HasSubstr("calls of"));
  EXPECT_THAT(AfterTiming(with([](RunTiming& t) { t.min_us = t.median_us = 1e-3; })).Text(),
              HasSubstr("which no processor does"));
}

TEST(RemoteRunner, VerdictsThatCannotBeAreNotBelieved) {
  const auto with = [](auto change) {
    CheckReport report = GoodReport();
    change(report);
    return Device::But(ChildMessage::kCheck, ChildMessage::kChecked, EncodeCheckReport(report));
  };
  EXPECT_THAT(AfterCheck(with([](CheckReport& r) { r.samples = 0; })).Text(), HasSubstr("with nothing compared"));
  EXPECT_THAT(AfterCheck(with([](CheckReport& r) { r.max_rel_err = NAN; })).Text(), HasSubstr("not believed"));
  EXPECT_THAT(AfterCheck(with([](CheckReport& r) { r.check_us = 1e12; })).Text(), HasSubstr("not believed"));
  EXPECT_THAT(AfterCheck(with([](CheckReport& r) { r.full = false; }), {.full = true}).Text(),
              HasSubstr("in which not all was compared"));
}

TEST(RemoteRunner, OneThatHangsIsGivenUpAndOneThatWorksIsNot) {
  const Error error = AfterCheck(Device::But(ChildMessage::kCheck, [](ChildChannel&, const ChildFrame&) {}));
  EXPECT_EQ(error.kind, ErrorKind::kUnavailable);
  EXPECT_EQ(error.where, "device");
  EXPECT_THAT(error.message, HasSubstr("the device was silent for 0.15 s"));

  Device device(Device::But(ChildMessage::kCheck, [](ChildChannel& channel, const ChildFrame& frame) {
    for (int i = 0; i < 5; ++i) {
      std::this_thread::sleep_for(milliseconds(70));
      Device::Say(channel, ChildMessage::kAlive, 0, "");
    }
    Device::Honest(channel, frame);
  }));
  device.Serve();
  RemoteRunner runner(std::move(device.ours), Quick());
  ASSERT_TRUE(runner.Greet());
  EXPECT_TRUE((*runner.Prepare(kKernel, Device::Soon()))->Check(SomeCode(), {}));
}

TEST(RemoteRunner, SignsOfLifeAloneAreNoAnswer) {
  Device device(Device::But(ChildMessage::kCheck, [](ChildChannel& channel, const ChildFrame&) {
    for (int i = 0; i < 20; ++i) {
      std::this_thread::sleep_for(milliseconds(20));
      Device::Say(channel, ChildMessage::kAlive, 0, "");
    }
  }));
  device.Serve();
  RemoteLimits limits = Quick();
  limits.answer = milliseconds(200);
  RemoteRunner runner(std::move(device.ours), limits);
  ASSERT_TRUE(runner.Greet());
  Result<CheckReport> report = (*runner.Prepare(kKernel, Device::Soon()))->Check(SomeCode(), {});
  ASSERT_FALSE(report);
  EXPECT_THAT(report.error().message, HasSubstr("did not answer within"));
}

TEST(RemoteRunner, OneThatHangsUpOrSendsGarbageIsGivenUp) {
  const auto raw = [](std::string bytes) {
    return Device::But(ChildMessage::kCheck, [bytes](ChildChannel& channel, const ChildFrame&) {
      ::send(channel.fd(), bytes.data(), bytes.size(), 0);
    });
  };
  EXPECT_THAT(
      AfterCheck(Device::But(ChildMessage::kCheck,
                             [](ChildChannel& channel, const ChildFrame&) { ::shutdown(channel.fd(), SHUT_RDWR); }))
          .Text(),
      HasSubstr("the device has hung up"));
  EXPECT_THAT(AfterCheck(raw(std::string(64, '\xee'))).Text(), HasSubstr("the device sent garbage: not a frame"));
  EXPECT_THAT(AfterCheck(raw("hnc")).Text(), HasSubstr("the device was silent"));
  EXPECT_THAT(AfterCheck(Device::But(ChildMessage::kCheck, ChildMessage::kChecked, "\1\2\3")).Text(),
              HasSubstr("the device sent garbage"));
  EXPECT_THAT(AfterCheck(Device::But(ChildMessage::kCheck, ChildMessage::kError, "\1\2\3")).Text(),
              HasSubstr("the device sent garbage: an error that does not decode"));
  EXPECT_THAT(AfterCheck(Device::But(ChildMessage::kCheck, ChildMessage::kTimed, "")).Text(),
              HasSubstr("answered another question"));
  EXPECT_THAT(AfterCheck(Device::But(ChildMessage::kCheck,
                                     [](ChildChannel& channel, const ChildFrame& frame) {
                                       Device::Say(channel, ChildMessage::kChecked, frame.id + 5, "");
                                     }))
                  .Text(),
              HasSubstr("a question that nobody asked"));
  EXPECT_THAT(AfterCheck(Device::But(ChildMessage::kCheck,
                                     [](ChildChannel& channel, const ChildFrame& frame) {
                                       (void)channel.Send(ChildMessage::kChecked, frame.id, "", {0}, Device::Soon());
                                     }))
                  .Text(),
              HasSubstr("sent descriptors along"));
}

TEST(RemoteRunner, WhatItSaysIsOneLineAndNotLong) {
  const Error said{ErrorKind::kWrongResult, "\x1b[31mno\n" + std::string(5'000, 'x'), "y"};
  Device device(Device::But(ChildMessage::kTime, ChildMessage::kError, EncodeError(said)));
  device.Serve();
  RemoteRunner runner(std::move(device.ours), Quick());
  ASSERT_TRUE(runner.Greet());
  Result<RunTiming> timing = (*runner.Prepare(kKernel, Device::Soon()))->Time(SomeCode(), {});
  ASSERT_FALSE(timing);
  EXPECT_EQ(timing.error().kind, ErrorKind::kWrongResult);
  EXPECT_EQ(timing.error().message.substr(0, 9), "?[31mno?x");
  EXPECT_LT(timing.error().message.size(), 500u);
  EXPECT_FALSE(runner.Lost());  // that was about code
}

TEST(RemoteRunner, AStopLeavesItUsable) {
  Device device(Device::But(ChildMessage::kCheck, [](ChildChannel& channel, const ChildFrame& frame) {
    std::this_thread::sleep_for(milliseconds(100));
    Device::Honest(channel, frame);
  }));
  device.Serve();
  RemoteRunner runner(std::move(device.ours), {milliseconds(2'000), milliseconds(2'000), milliseconds(2'000)});
  ASSERT_TRUE(runner.Greet());
  std::stop_source stop;
  {
    std::unique_ptr<RemoteRunner::Turn> turn = *runner.Prepare(kKernel, Device::Soon(), stop.get_token());
    stop.request_stop();
    Result<CheckReport> report = turn->Check(SomeCode(), {});
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().message, "given up");
  }
  std::unique_ptr<RemoteRunner::Turn> turn = *runner.Prepare(kKernel, Device::Soon());
  EXPECT_TRUE(turn->Check(SomeCode("others"), {}));
}

// Pools here that find everything wrong.
class Doubters : public WorkerPools {
 public:
  class Doubt : public Reference {
    Result<CheckReport> Check(const SealedMemfd&, const CheckOptions&, Deadline) override {
      CheckReport report;
      report.failure = Error{ErrorKind::kWrongResult, "y[3] is 5", ""};
      return report;
    }
  };
  Result<std::unique_ptr<Reference>> Prepare(const std::string&, const Target&, Deadline,
                                             const std::stop_token&) override {
    return std::unique_ptr<Reference>(std::make_unique<Doubt>());
  }
  Result<std::unique_ptr<Evaluator>> MakeEvaluator(const std::string&, const Target&, const std::stop_token&) override {
    return Error{};
  }
  Result<BuiltArtifact> Build(const BuildRequest&, Deadline, const std::stop_token&) override { return Error{}; }
  Result<std::string> Explain(const BuildRequest&, Deadline, const std::stop_token&) override { return Error{}; }
  BuilderPoolStats BuilderStats() const override { return {}; }
  RunnerPoolStats RunnerStats() const override { return {}; }
  void Pause() override {}
  void Resume() override {}
  void Shutdown() override {}
};

TEST(RemotePools, WhatRunsHereIsCheckedHereAsWellBeforeItIsKept) {
  for (bool runs_here : {false, true}) {
    Device device;
    device.Serve();
    auto runner = std::make_shared<RemoteRunner>(std::move(device.ours), Quick());
    ASSERT_TRUE(runner->Greet());
    std::unique_ptr<WorkerPools> pools = MakeRemotePools({std::make_shared<Doubters>(), runner, runs_here, 1});
    std::unique_ptr<Evaluator> evaluator = *pools->MakeEvaluator(kKernel, SomeTarget(), {});
    EXPECT_TRUE(evaluator->Check(SomeCode(), {}));  // a candidate's
    Result<CheckReport> full = evaluator->Check(SomeCode(), {.full = true});
    EXPECT_EQ(full.has_value(), !runs_here);
    EXPECT_THAT(full ? "" : full.error().Text(),
                HasSubstr(runs_here ? "calls right what is checked here as well, and is wrong: y[3]" : ""));
    evaluator.reset();
    EXPECT_EQ(runner->Lost().has_value(), runs_here);
    if (runs_here) continue;
    std::unique_ptr<WorkerPools::Reference> reference = *pools->Prepare(kKernel, SomeTarget(), Device::Soon(), {});
    EXPECT_TRUE(reference->Check(SomeCode(), {}, Device::Soon()));
  }
}

}  // namespace
}  // namespace hone
