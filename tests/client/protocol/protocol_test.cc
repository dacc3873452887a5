#include "client/protocol/protocol.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <tuple>

#include "base/bytes.h"
#include "base/file.h"
#include "base/rng.h"
#include "tests/client/protocol/sample_messages.h"

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

TEST(Protocol, EveryMessageComesBackAndEveryTruncationIsRefused) {
  AllMessages::ForEach([]<typename Message>() {
    const Message message = testing::Sample<Message>();
    SCOPED_TRACE(MessageTraits<Message>::kName);
    EveryTruncationAndOneByteMore(message);
    EXPECT_EQ(EncodeBody(*DecodeBody<Message>(AsBytes(EncodeBody(message)))), EncodeBody(message));
  });
}

// What anything but a T can be made of, so that as many as T has members make a T.
template <typename T>
struct Anything {
  template <typename Member>
    requires(!std::is_same_v<Member, T>)
  operator Member() const;
};
template <typename T, typename... Members>
constexpr size_t CountMembers() {
  if constexpr (requires { T{Members{}..., Anything<T>{}}; }) {
    return CountMembers<T, Members..., Anything<T>>();
  } else {
    return sizeof...(Members);
  }
}

template <testing::Fielded T>
void ExpectEveryMemberTravels() {
  auto fields = T().Fields();
  EXPECT_EQ(std::tuple_size_v<decltype(fields)>, CountMembers<T>()) << testing::StructName<T>();
  auto look = [&]<typename Field>(const Field&) {
    if constexpr (testing::Fielded<Field>) ExpectEveryMemberTravels<Field>();
    if constexpr (requires { typename Field::value_type; }) {
      if constexpr (testing::Fielded<typename Field::value_type>)
        ExpectEveryMemberTravels<typename Field::value_type>();
    }
  };
  std::apply([&](const auto&... each) { (look(each), ...); }, fields);
}

TEST(Protocol, EveryMemberTravels) {
  AllMessages::ForEach([]<typename Message>() { ExpectEveryMemberTravels<Message>(); });
}

TEST(Protocol, WhatComesInPartsSaysWhetherThereAreMore) {
  AllMessages::ForEach([]<typename M>() {
    if constexpr (requires { MessageTraits<M>::kReplies; }) {
      constexpr bool says_so = requires(ReplyTo<M> reply) { reply.more; };
      EXPECT_EQ(says_so, MessageTraits<M>::kReplies == Replies::kMany) << MessageTraits<M>::kName;
    }
  });
}

// name, then the frame with id 7, 32 bytes a line.
template <typename Message>
std::string GoldenText() {
  std::string text(MessageTraits<Message>::kName);
  const std::string frame = EncodeFrame(7, testing::Sample<Message>());
  for (size_t i = 0; i < frame.size(); ++i) {
    char digits[8];
    snprintf(digits, sizeof digits, "%s%02x", i % 32 == 0 ? "\n  " : " ", static_cast<unsigned char>(frame[i]));
    text += digits;
  }
  return text + "\n";
}

// tests/golden/protocol_messages.txt: bytes of version 1, which never change; a new message adds its own.
TEST(Protocol, TheBytesOfEveryMessageStayAsTheyAre) {
  const std::string path = HONE_SOURCE_DIR "/tests/golden/protocol_messages.txt";
  Result<std::string> golden = ReadFile(path, 1 << 20);
  ASSERT_TRUE(golden) << golden.error().Text();
  AllMessages::ForEach([&]<typename Message>() {
    const std::string text = GoldenText<Message>();
    EXPECT_NE(("\n" + *golden).find("\n" + text), std::string::npos) << path << " has other bytes than\n" << text;
  });
}

TEST(Protocol, NumbersAreUsedOnce) {
  std::map<MessageType, std::string_view> names;
  AllMessages::ForEach([&]<typename Message>() {
    auto [used, is_new] = names.emplace(kTypeOf<Message>, MessageTraits<Message>::kName);
    EXPECT_TRUE(is_new) << MessageTraits<Message>::kName << " has the number of " << used->second;
  });
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
