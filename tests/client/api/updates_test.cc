// What the thread that keeps kernels up to date does where this process has no room for better code: it asks again. The
// daemon is a few lines here.
#include "client/api/updates.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <atomic>
#include <cstring>
#include <optional>
#include <string>
#include <thread>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/subprocess.h"
#include "client/protocol/channel.h"
#include "tests/support/no_free_descriptor.h"
#include "tests/support/send_descriptors.h"
#include "tests/support/temporary_directory.h"

namespace hone::updates_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

Deadline Soon() { return steady_clock::now() + std::chrono::seconds(10); }

GetReply ReplyWith(const char* digest) {
  GetReply reply;
  reply.fingerprint = "f";
  reply.target = "t";
  reply.digest = digest;
  return reply;
}

// A kernel that nobody can call.
class FakeHandle : public Updatable {
 public:
  ~FakeHandle() override { updates_->Remove(*this); }
  Open opener() const override {
    return [](SealedMemfd, const GetReply&, std::string_view) -> Result<std::unique_ptr<Code>> {
      return std::make_unique<Code>();
    };
  }
  ServedFacts facts() const override { return {ReplyWith("old"), ""}; }
  uint64_t calls() const override { return 0; }
  Result<std::unique_ptr<Version>> PrepareCode(std::unique_ptr<Code>, ServedFacts) override {
    if (++prepared == 1 && first_failure) return *first_failure;
    return std::make_unique<Version>();
  }
  void PublishVersion(std::unique_ptr<Version>) override { ++published; }
  bool Reclaim() override { return true; }
  bool HasRoom() const override { return true; }
  bool HasRetired() const override { return false; }
  Result<SealedMemfd> CopyArtifact() const override { return Error{ErrorKind::kUnsupported, "", ""}; }

  std::optional<Error> first_failure;
  std::atomic<int> prepared{0}, published{0};
};

class UpdatesTest : public ::testing::Test {
 protected:
  UpdatesTest() : listener_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(listener_.get(), 16), 0);
    code_ = *SealedMemfd::Create(AsBytes("code"));
  }

  // The handle is watched, and there is better code.
  void Begin() {
    UpdatesOptions options;
    options.socket = path_;
    options.settle = milliseconds(1);
    options.longest_pause = milliseconds(20);
    Updates::Watch(std::make_shared<Updates>(options), handle_, {}, "");
    daemon_.emplace(UniqueFd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
    const Result<ReceivedFrame> watch = daemon_->Receive(Soon());
    ASSERT_TRUE(watch) << watch.error().Text();
    ASSERT_EQ(watch->header.type, MessageType::kWatch);
    ASSERT_TRUE(daemon_->Send(EncodeFrame(watch->header.request_id, WatchReply{.is_current = false}), Soon()));
  }
  // The next request for code, over the same connection.
  uint64_t NextGet() {
    const Result<ReceivedFrame> get = daemon_->Receive(Soon());
    EXPECT_TRUE(get) << get.error().Text();
    if (!get) return 0;
    EXPECT_EQ(get->header.type, MessageType::kGet);
    return get->header.request_id;
  }
  void Answer(uint64_t id) {
    testing::SendWithDescriptors(daemon_->fd(), EncodeFrame(id, ReplyWith("new")), {code_.fd()});
  }
  bool IsPublished() {
    for (int i = 0; i < 2'000 && handle_.published == 0; ++i) std::this_thread::sleep_for(milliseconds(1));
    return handle_.published == 1;
  }

  TemporaryDirectory directory_;
  const std::string path_ = directory_ / "sock";
  const UniqueFd listener_;
  SealedMemfd code_;
  FakeHandle handle_;
  std::optional<Channel> daemon_;
};

TEST_F(UpdatesTest, CodeThatCameWhileNoDescriptorWasFreeIsAskedForAgain) {
  Begin();
  if (kShadowMemory) GTEST_SKIP() << "[SKIP] a sanitizer looks at objects through descriptors of its own";
  uint64_t next = 0;
  {
    const testing::NoFreeDescriptor none;
    Answer(NextGet());
    next = NextGet();
  }
  Answer(next);
  EXPECT_TRUE(IsPublished());
}

TEST_F(UpdatesTest, CodeThatThisProcessHadNoMemoryForIsAskedForAgain) {
  handle_.first_failure = Error{ErrorKind::kLimit, "no memory for 64 packed bytes", "w"};
  Begin();
  Answer(NextGet());
  Answer(NextGet());
  EXPECT_TRUE(IsPublished());
}

}  // namespace
}  // namespace hone::updates_test
