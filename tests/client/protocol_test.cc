#include "client/protocol.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/bytes.h"
#include "base/rng.h"

namespace hone {
namespace {

std::span<const std::byte, kFrameHeaderBytes> HeaderOf(const std::string& frame) {
  return std::span<const std::byte, kFrameHeaderBytes>(AsBytes(frame).first(kFrameHeaderBytes));
}

GetReply FullReply() {
  GetReply reply;
  reply.fingerprint = std::string(32, 'a');
  reply.class_name = "conv2d+bias+relu";
  reply.target = "avx512 cpu=znver5";
  reply.hit = true;
  reply.origin = "default";
  reply.expected_us = 12.5;
  reply.digest = std::string("\0\1\2\xff", 4);
  reply.size = uint64_t{1} << 40;
  reply.manifest = std::string(300, '\x07');
  reply.steps = {{"parse", 1.5}, {"build", 20'000}};
  return reply;
}

TEST(Protocol, GetRequestKeepsEveryField) {
  GetRequest request{"matmul(M=1,N=2,K=3)", "avx2", 4, 50'000, true, true};
  Result<GetRequest> back = DecodeBody<GetRequest>(AsBytes(EncodeBody(request)));
  ASSERT_TRUE(back) << back.error().Text();
  EXPECT_EQ(back->kernel, request.kernel);
  EXPECT_EQ(back->target, request.target);
  EXPECT_EQ(back->budget_us, request.budget_us);
  EXPECT_EQ(back->threads, request.threads);
  EXPECT_TRUE(back->no_compile);
  EXPECT_TRUE(back->no_artifact);
}

TEST(Protocol, WhatDecidesTheCodeComesBeforeTheTail) {
  GetRequest request{"add(M=1,N=2)", "avx2", 4, 0, false, false};
  std::string body = EncodeBody(request);
  GetRequest other = request;
  other.budget_us = ~uint64_t{0};
  other.no_compile = other.no_artifact = true;
  EXPECT_EQ(EncodeBody(other).substr(0, body.size() - kGetTailBytes), body.substr(0, body.size() - kGetTailBytes));
  EXPECT_EQ(EncodeBody(other).back(), 1);
  other = request;
  other.threads = 5;
  EXPECT_NE(EncodeBody(other).substr(0, body.size() - kGetTailBytes), body.substr(0, body.size() - kGetTailBytes));
}

TEST(Protocol, GetReplyKeepsEveryField) {
  GetReply reply = FullReply();
  Result<GetReply> back = DecodeBody<GetReply>(AsBytes(EncodeBody(reply)));
  ASSERT_TRUE(back) << back.error().Text();
  EXPECT_EQ(back->digest, reply.digest);
  EXPECT_EQ(back->size, reply.size);
  EXPECT_EQ(back->expected_us, 12.5);
  EXPECT_TRUE(back->hit);
  EXPECT_FALSE(back->pinned);
  ASSERT_EQ(back->steps.size(), 2u);
  EXPECT_EQ(back->steps[1].step, "build");
  EXPECT_EQ(back->steps[1].us, 20'000);
  EXPECT_EQ(EncodeBody(*back), EncodeBody(reply));
}

TEST(Protocol, TheFramesBytesAreTheDocumentedOnes) {
  std::string frame = EncodeFrame(0x0102030405060708, EditRequest{EditAction::kPin, "ab"});
  const unsigned char wanted[] = {'H', 'O', 'N', 'E', 1, 0, 14, 0, 8, 7, 6, 5, 4, 3,   2,  1,
                                  7,   0,   0,   0,   0, 0, 0,  0, 2, 2, 0, 0, 0, 'a', 'b'};
  ASSERT_EQ(frame.size(), sizeof wanted);
  EXPECT_EQ(std::memcmp(frame.data(), wanted, sizeof wanted), 0);
}

TEST(Protocol, HeaderRoundTrips) {
  std::string frame = EncodeFrame(77, StatusRequest{});
  Result<FrameHeader> header = DecodeHeader(HeaderOf(frame), 100);
  ASSERT_TRUE(header);
  EXPECT_EQ(header->request_id, 77u);
  EXPECT_EQ(header->type, MessageType::kStatus);
  EXPECT_EQ(header->length, 0u);
}

TEST(Protocol, HeaderRefusesStrangersVersionsAndLengths) {
  std::string frame = EncodeFrame(1, StatusRequest{});
  std::string stranger = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
  EXPECT_EQ(DecodeHeader(HeaderOf(stranger), 100).error().kind, ErrorKind::kCorrupt);
  std::string newer = frame;
  newer[4] = 9;
  EXPECT_EQ(DecodeHeader(HeaderOf(newer), 100).error().kind, ErrorKind::kUnsupported);
  for (uint64_t length : {uint64_t{101}, uint64_t{1} << 32, ~uint64_t{0}}) {
    std::string longer = frame;
    std::memcpy(longer.data() + 16, &length, 8);
    Result<FrameHeader> header = DecodeHeader(HeaderOf(longer), 100);
    ASSERT_FALSE(header);
    EXPECT_EQ(header.error().kind, ErrorKind::kLimit);
    EXPECT_NE(header.error().message.find(std::to_string(length)), std::string::npos);
  }
}

template <typename Message>
void EveryTruncationAndOneByteMore(const Message& message) {
  std::string body = EncodeBody(message);
  for (size_t n = 0; n < body.size(); ++n) {
    Result<Message> got = DecodeBody<Message>(AsBytes(body).first(n));
    ASSERT_FALSE(got) << n;
    EXPECT_EQ(got.error().kind, ErrorKind::kCorrupt);
  }
  EXPECT_FALSE(DecodeBody<Message>(AsBytes(body + '\0')));
  EXPECT_TRUE(DecodeBody<Message>(AsBytes(body)));
}

TEST(Protocol, EveryTruncationIsRefused) {
  EveryTruncationAndOneByteMore(ErrorReply{ErrorKind::kBusy, "busy", "queue", 30});
  EveryTruncationAndOneByteMore(HelloRequest{1, 2, "test"});
  EveryTruncationAndOneByteMore(GetRequest{"add(M=1,N=1)", "", 1, 2, false, true});
  EveryTruncationAndOneByteMore(FullReply());
  EveryTruncationAndOneByteMore(ListReply{{RecordRow{}, RecordRow{}}, true});
  EveryTruncationAndOneByteMore(ShowReply{RecordRow{}, "k", "s", {{"a", "b"}}, {{"c", "d"}}});
  EveryTruncationAndOneByteMore(VerifyReply{{VerifyRow{}}, 9, 1, false});
  EveryTruncationAndOneByteMore(StatsReply{{{"hits", 3}}});
  EveryTruncationAndOneByteMore(TextRequest{TextKind::kCode, {"abc", true}});
  EveryTruncationAndOneByteMore(WatchRequest{true, "f", "t", "d"});
  EveryTruncationAndOneByteMore(NewerNotice{"f", "t", "d"});
  EveryTruncationAndOneByteMore(CallsRequest{{{1, 2}, {3, 4}}});
  EveryTruncationAndOneByteMore(PredictRequest{"k", 2});
  EveryTruncationAndOneByteMore(PredictReply{"f", "c", {1, 2, 3}, {4, 5, 6}, "tuned", 7, 8});
  TopReply top;
  top.kernel = "k";
  top.tasks = {{"k", 1, 2, 3, 4, 1.5, true}};
  EveryTruncationAndOneByteMore(top);
  EveryTruncationAndOneByteMore(ExplainRequest{{"k", true, 2}});
  ExplainReply explained;
  explained.reasons = {{"a", "b"}};
  explained.roofline.level = "L2";
  explained.verdicts = {{"timed", 2}};
  explained.history = {{1, 2, 3}};
  explained.choices = {{"s", "m", true, 1, 2, {1, 2}, 1, 1, 1, 1, 1}};
  explained.rules = {{"r", "s", true, "w"}};
  explained.transfer = {0.5, {{"w", "d", "k", true, 1, 2, 3, true, 4, "r"}}, {{"f", "s", "n", "y"}}};
  explained.heirs = {"h"};
  EveryTruncationAndOneByteMore(explained);
}

TEST(Protocol, FlagsAndEnumeratorsOutOfRangeAreRefused) {
  std::string edit = EncodeBody(EditRequest{EditAction::kPin, ""});
  for (int value : {0, 4, 255}) {
    edit[0] = static_cast<char>(value);
    EXPECT_FALSE(DecodeBody<EditRequest>(AsBytes(edit))) << value;
  }
  std::string get = EncodeBody(GetRequest{});
  get.back() = 2;
  EXPECT_FALSE(DecodeBody<GetRequest>(AsBytes(get)));
}

TEST(Protocol, AFalseCountEndsWithTheBytes) {
  std::string body(1 << 20, '\0');  // a million rows promised; each would take dozens of bytes
  uint32_t count = 1 << 20;
  std::memcpy(body.data(), &count, sizeof count);
  EXPECT_FALSE(DecodeBody<ListReply>(AsBytes(body)));
  std::string tiny = "\xff\xff\xff\xff";
  EXPECT_FALSE(DecodeBody<ListReply>(AsBytes(tiny)));
  EXPECT_FALSE(DecodeBody<StatsReply>(AsBytes(tiny)));
  EXPECT_FALSE(DecodeBody<ShowRequest>(AsBytes(tiny)));
}

TEST(Protocol, DamagedBodiesNeverCrashAndWhatDecodesEncodesBack) {
  Rng rng(20240607);
  std::string body = EncodeBody(FullReply());
  int decoded = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string damaged = body;
    for (uint64_t hits = 1 + rng.Below(3); hits > 0; --hits) {
      damaged[rng.Below(damaged.size())] = static_cast<char>(rng.Next());
    }
    if (Result<GetReply> got = DecodeBody<GetReply>(AsBytes(damaged))) {
      ++decoded;
      EXPECT_EQ(EncodeBody(*got), damaged);
    }
  }
  EXPECT_GT(decoded, 1000);
}

}  // namespace
}  // namespace hone
