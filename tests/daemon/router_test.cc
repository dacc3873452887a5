// Every request that there is has somebody who answers it, whatever its body.
#include "daemon/router.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "tests/daemon/test_server.h"

namespace hone {
namespace {

using testing::Soon;
using testing::TestServer;

std::string FrameOf(MessageType type, uint64_t id, const std::string& body) {
  std::string frame(kFrameHeaderBytes, '\0');
  EncodeHeader({kProtocolMax, type, id, body.size()},
               std::span<std::byte, kFrameHeaderBytes>(reinterpret_cast<std::byte*>(frame.data()), kFrameHeaderBytes));
  return frame + body;
}

template <typename Visit>
void ForEachRequest(const Visit& visit) {
  AllMessages::ForEach([&]<typename Message>() {
    if constexpr (requires { typename MessageTraits<Message>::Reply; }) visit.template operator()<Message>();
  });
}

TEST(Router, EveryRequestIsAnsweredWithItsReplyOrRefusedByWhoKnowsIt) {
  TestServer server;
  ForEachRequest([&]<typename Request>() {
    SCOPED_TRACE(MessageTraits<Request>::kName);
    Channel channel = server.Connect();
    Result<void> sent = channel.Send(EncodeFrame(5, Request{}), Soon());
    ASSERT_TRUE(sent) << sent.error().Text();
    Result<ReceivedFrame> answer = channel.Receive(Soon());
    ASSERT_TRUE(answer) << answer.error().Text();
    EXPECT_EQ(answer->header.request_id, 5u);
    if (answer->header.type != MessageType::kError) {
      EXPECT_EQ(answer->header.type, kTypeOf<ReplyTo<Request>>);
      EXPECT_TRUE(DecodeBody<ReplyTo<Request>>(answer->body));
    } else {
      EXPECT_NE(DecodeBody<ErrorReply>(answer->body)->kind, ErrorKind::kUnsupported);
    }
  });
  EXPECT_EQ(server.metrics.bad_frames, 0u);
}

TEST(Router, ABodyThatDoesNotDecodeIsRefusedAndCounted) {
  TestServer server;
  uint64_t sent = 0;
  ForEachRequest([&]<typename Request>() {
    SCOPED_TRACE(MessageTraits<Request>::kName);
    Channel channel = server.Connect();
    ASSERT_TRUE(channel.Send(FrameOf(kTypeOf<Request>, 6, EncodeBody(Request{}) + "\7"), Soon()));
    Result<ReceivedFrame> answer = channel.Receive(Soon());
    ASSERT_TRUE(answer) << answer.error().Text();
    EXPECT_EQ(answer->header.request_id, 6u);
    ASSERT_EQ(answer->header.type, MessageType::kError);
    EXPECT_EQ(DecodeBody<ErrorReply>(answer->body)->kind, ErrorKind::kCorrupt);
    EXPECT_EQ(server.metrics.bad_frames, ++sent);
  });
  EXPECT_GT(sent, 10u);
}

TEST(Router, NumbersOfRepliesAndOfNothingAreNoRequests) {
  TestServer server;
#define HONE_NUMBER(name, number, replies) number,
  const std::set<int> requests = {HONE_REQUESTS(HONE_NUMBER)};
#undef HONE_NUMBER
  std::vector<int> numbers = {999, 0xffff};
  for (int number = 0; number < *requests.rbegin() + 8; ++number) {
    if (!requests.contains(number)) numbers.push_back(number);
  }
  for (int number : numbers) {
    SCOPED_TRACE(number);
    Channel channel = server.Connect();
    ASSERT_TRUE(channel.Send(FrameOf(static_cast<MessageType>(number), 7, ""), Soon()));
    Result<ReceivedFrame> answer = channel.Receive(Soon());
    ASSERT_TRUE(answer) << answer.error().Text();
    ErrorReply error = *DecodeBody<ErrorReply>(answer->body);
    EXPECT_EQ(error.kind, ErrorKind::kUnsupported);
    EXPECT_EQ(error.message, "no request has the number " + std::to_string(number));
  }
}

}  // namespace
}  // namespace hone
