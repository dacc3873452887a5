// A builder pool with a scripted builder: the test program itself, started again with --fake-builder, does what the
// kernel's text says.
#pragma once

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backends/processes/builder_pool.h"
#include "backends/processes/child_messages.h"
#include "backends/processes/child_pool.h"
#include "tests/backends/runner/hand_made.h"
#include "tests/support/deadline.h"

namespace hone::testing {

// ---- The script ----

inline void Reply(ChildChannel& channel, uint64_t id, int object) {
  (void)channel.Send(ChildMessage::kBuilt, id, EncodeBuilt({"a schedule", {}}), {object}, MonotonicTime::max());
}

inline void RawWrite(const void* data, size_t size) {
  [[maybe_unused]] ssize_t written = ::send(kChildChannelFd, data, size, MSG_NOSIGNAL);
}

// By the clock that all processes share.
inline int64_t Now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }
inline int64_t fake_builder_born = 0;

inline void Act(ChildChannel& channel, const ChildFrame& frame) {
  BuildRequest request = *DecodeBuildRequest(frame.body);
  const std::string& act = request.kernel;
  if (act == "abort") {
    std::fprintf(stderr, "LLVM ERROR: scripted\n");
    std::abort();
  }
  if (act == "spin")
    while (true) asm volatile("");
  if (act == "sleep") ::pause();
  if (act == "linger") {  // somebody has its channel open for longer than it lives
    if (::fork() == 0) ::setsid(), ::sleep(5), ::_exit(0);
    ::pause();
  }
  if (act == "eat")
    for (std::vector<std::string> food;;) food.emplace_back(size_t{16} << 20, 'x');
  if (act == "garbage") RawWrite("this is no frame at all, not even nearly", 40);
  if (act == "close") ::_exit(0);
  if (act == "cut")
    RawWrite(EncodeChildHeader({ChildMessage::kBuilt, 0, frame.id, 1000}).data(), kChildHeaderBytes), ::_exit(0);
  if (act == "huge") {
    std::array<char, kChildHeaderBytes> header = EncodeChildHeader({ChildMessage::kBuilt, 0, frame.id, 0});
    std::memset(header.data() + 16, 0xff, 4);
    RawWrite(header.data(), header.size());
  }
  if (act == "bad-body") (void)channel.Send(ChildMessage::kBuilt, frame.id, "\xff\xff\xff", {0}, MonotonicTime::max());
  if (act == "no-time") {
    BuiltReply reply;
    reply.times.link = std::numeric_limits<double>::quiet_NaN();
    Result<SealedMemfd> object = SealedMemfd::Create(AsBytes(ReadFile(request.schedule)));
    (void)channel.Send(ChildMessage::kBuilt, frame.id, EncodeBuilt(reply), {object->fd()}, MonotonicTime::max());
  }
  if (act == "no-object") (void)channel.Send(ChildMessage::kBuilt, frame.id, EncodeBuilt({}), {}, MonotonicTime::max());
  if (act == "wrong-type") (void)channel.Send(ChildMessage::kChecked, frame.id, "", {}, MonotonicTime::max());
  if (act == "other-id") Reply(channel, frame.id + 7, 0);
  if (act == "refuse")
    (void)channel.Send(ChildMessage::kError, frame.id,
                       EncodeError({ErrorKind::kUnsupported, "scripted refusal", "k:1:2"}), {}, MonotonicTime::max());
  if (act == "unsealed") {
    int fd = ::memfd_create("unsealed", MFD_ALLOW_SEALING);
    [[maybe_unused]] ssize_t written = ::write(fd,
                                               "\x7f"
                                               "ELF",
                                               4);
    Reply(channel, frame.id, fd);
  }
  if (act == "no-elf") Reply(channel, frame.id, SealedMemfd::Create(AsBytes("not an object"))->fd());
  if (act == "large-file") {
    ::signal(SIGXFSZ, SIG_IGN);
    std::vector<std::byte> bytes(size_t{3} << 20);
    Result<SealedMemfd> object = SealedMemfd::Create(bytes);
    if (!object)
      (void)channel.Send(ChildMessage::kError, frame.id, EncodeError(object.error()), {}, MonotonicTime::max());
    else
      Reply(channel, frame.id, object->fd());
  }
  if (act == "good" || act == "slow") {
    if (act == "slow") std::this_thread::sleep_for(std::chrono::milliseconds(1300));
    std::string bytes = ReadFile(request.schedule);
    Result<SealedMemfd> object = SealedMemfd::Create(AsBytes(bytes));
    Reply(channel, frame.id, object->fd());
  }
  if (act == "killed" || (act == "killed-once" && ::access((request.schedule + ".killed").c_str(), F_OK) != 0)) {
    WriteFile(request.schedule + ".killed", "");
    ::kill(::getpid(), SIGKILL);
  }
  // The first one, and all that were there then: as if somebody had killed all of them, and those that nobody had asked
  // for anything had not yet ended.
  if (act == "all-killed-once") {
    const std::string marker = request.schedule + ".all-killed";
    if (::access(marker.c_str(), F_OK) != 0) WriteFile(marker, std::to_string(Now()));
    if (fake_builder_born <= std::stoll(ReadFile(marker))) ::kill(::getpid(), SIGKILL);
    Reply(channel, frame.id, SealedMemfd::Create(AsBytes(ReadFile(request.schedule)))->fd());
  }
  if (act == "killed-once") Reply(channel, frame.id, SealedMemfd::Create(AsBytes(ReadFile(request.schedule)))->fd());
  if (act == "hello-again")
    (void)channel.Send(ChildMessage::kConfined, 0, EncodeConfinements({}) + "x", {}, MonotonicTime::max());
  if (act == "descriptors") {  // sixteen with each byte
    std::array<char, kChildHeaderBytes> header = EncodeChildHeader({ChildMessage::kBuilt, 16, frame.id, 1 << 20});
    std::vector<char> bytes(header.begin(), header.end());
    bytes.resize(bytes.size() + 1000);
    for (char& byte : bytes) {
      struct iovec part{&byte, 1};
      alignas(struct cmsghdr) char control[CMSG_SPACE(16 * sizeof(int))] = {};
      struct msghdr message{};
      message.msg_iov = &part, message.msg_iovlen = 1;
      message.msg_control = control, message.msg_controllen = sizeof control;
      struct cmsghdr* rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET, rights->cmsg_type = SCM_RIGHTS, rights->cmsg_len = CMSG_LEN(16 * sizeof(int));
      std::memset(CMSG_DATA(rights), 0, 16 * sizeof(int));
      if (::sendmsg(kChildChannelFd, &message, MSG_NOSIGNAL) < 0) break;
    }
    ::pause();
  }
  if (act == "pid")
    (void)channel.Send(ChildMessage::kExplained, frame.id, std::to_string(::getpid()), {}, MonotonicTime::max());
}

// Before main: gtest must not see the flag. Constructors get the arguments from glibc.
inline __attribute__((constructor)) void BecomeFakeBuilder(int argc, char** argv) {
  if (argc < 2 || std::strcmp(argv[1], "--fake-builder") != 0) return;
  if (argc > 2 && std::strcmp(argv[2], "die-at-start") == 0) ::_exit(3);
  fake_builder_born = Now();
  ChildChannel channel{UniqueFd(kChildChannelFd)};
  while (true) {
    Result<ChildFrame> frame = channel.Receive(MonotonicTime::max());
    if (!frame) ::_exit(0);
    Act(channel, *frame);
  }
}

// ---- The pool ----

inline BuilderPoolOptions FakeOptions(int builders = 1) {
  BuilderPoolOptions options;
  options.executable = "/proc/self/exe";
  options.arguments = {"--fake-builder"};
  options.builders = builders;
  options.address_space = int64_t{1} << 30;
  options.object_bytes = 2 << 20;
  options.nice = 0;  // beside other work a child below it may get nothing for seconds, and these tests have deadlines
  return options;
}

inline std::unique_ptr<BuilderPool> StartPool(const BuilderPoolOptions& options) {
  Result<std::unique_ptr<BuilderPool>> pool = BuilderPool::Start(options);
  EXPECT_TRUE(pool) << pool.error().Text();
  return std::move(*pool);
}

class FakeBuilder : public ::testing::Test {
 protected:
  FakeBuilder() {
    const char kernel[] = "kernel relu(x: f32[N]) -> y: f32[N] where N=64 { y[i] = max(x[i], 0.0) }";
    manifest_ = ManifestOf(kernel);
    bytes_ = CompileArtifact(CPrologue() + CManifest(EncodeManifest(manifest_)) + Entry(""));
    WriteFile(Good(), std::string(AsText(bytes_)));
  }
  std::string Good() const { return folder_.path() + "/good.so"; }

  Result<BuiltArtifact> Ask(const std::string& act, std::chrono::milliseconds time = std::chrono::seconds(20),
                            const std::stop_token& stop = {}) {
    return pool_->Build({act, Good(), Target{}}, In(time), stop);
  }

  // `act` fails as said, and the next request is answered.
  void ExpectFailure(const std::string& act, ErrorKind kind, const std::string& message, bool replaced = true) {
    SCOPED_TRACE(act);
    uint64_t restarts = pool_->Stats().restarts;
    Result<BuiltArtifact> built = Ask(act);
    ASSERT_FALSE(built);
    EXPECT_EQ(built.error().kind, kind) << built.error().Text();
    EXPECT_THAT(built.error().Text(), ::testing::HasSubstr(message));
    built = Ask("good");
    ASSERT_TRUE(built) << built.error().Text();
    EXPECT_EQ(pool_->Stats().restarts, restarts + (replaced ? 1 : 0));
  }

  ScratchFolder folder_;
  Manifest manifest_;
  std::vector<std::byte> bytes_;
  std::unique_ptr<BuilderPool> pool_ = StartPool(FakeOptions());
};

}  // namespace hone::testing
