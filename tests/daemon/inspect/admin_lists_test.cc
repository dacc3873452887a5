// Lists, and what else is asked while somebody has one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <set>

#include "base/clock.h"
#include "tests/daemon/test_server.h"

namespace hone {
namespace {

using testing::Soon;
using testing::TestServer;

constexpr double kAtOnceUs = 2e6;  // far below the ten seconds after which a reader who stalls is closed

Record NumberedRecord(int number, size_t text_bytes) {
  Record record;
  record.label = "many";
  record.schedule = "s";
  record.key.target = "t";
  record.key.fingerprint.bytes[0] = static_cast<uint8_t>(number);
  record.key.fingerprint.bytes[1] = static_cast<uint8_t>(number >> 8);
  record.key.canonical = "k" + std::to_string(number);
  record.request = "k" + std::to_string(number) + std::string(text_bytes, 'x');
  return record;
}

void Fill(TestServer& server, int records, size_t text_bytes) {
  for (int i = 0; i < records; ++i)
    ASSERT_TRUE(server.cache->Put({NumberedRecord(i, text_bytes), "class", std::nullopt}, Durability::kSoon));
}

// A client that asked for a list of some megabytes and reads nothing of it.
Channel Stalled(TestServer& server, uint64_t* id) {
  Channel channel = server.Connect({geteuid(), 1'000'000});
  *id = *channel.Ask(ListRequest{}, Soon());
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  return channel;
}

size_t RowsOf(Channel& channel, uint64_t id) {
  size_t rows = 0;
  for (bool more = true; more;) {
    Result<ListReply> part = channel.Await<ListReply>(id, Soon());
    EXPECT_TRUE(part) << part.error().Text();
    if (!part) break;
    rows += part->rows.size();
    more = part->more;
  }
  return rows;
}

TEST(AdminLists, NobodyWaitsForSomebodysReader) {
  TestServer server;
  Fill(server, 3000, 2000);
  Result<GetReply> served = server.Get("add(M=1,N=1)");
  ASSERT_TRUE(served);
  uint64_t stalled_id = 0;
  Channel stalled = Stalled(server, &stalled_id);
  Stopwatch watch;
  Channel channel = server.Connect();
  EXPECT_TRUE(channel.Call(StatusRequest{}, Soon()));
  EXPECT_TRUE(channel.Call(StatsRequest{}, Soon()));
  EXPECT_TRUE(channel.Call(EditRequest{EditAction::kPin, served->fingerprint}, Soon()));
  EXPECT_TRUE(channel.Call(ShowRequest{served->fingerprint}, Soon()));
  EXPECT_TRUE(channel.Call(ExplainRequest{{served->fingerprint, true}}, Soon()));
  EXPECT_LT(watch.Microseconds(), kAtOnceUs);
  uint64_t id = *channel.Ask(ListRequest{}, Soon());
  EXPECT_EQ(RowsOf(channel, id), 3001u);
  EXPECT_LT(watch.Microseconds(), 2 * kAtOnceUs);
  EXPECT_EQ(RowsOf(stalled, stalled_id), 3001u);  // and its own comes whole when it reads
}

TEST(AdminLists, TwoListsOfOneConnectionComeSideBySide) {
  TestServer server;
  Fill(server, 1000, 100);
  Channel channel = server.Connect();
  uint64_t first = *channel.Ask(ListRequest{}, Soon());
  uint64_t second = *channel.Ask(ListRequest{"many"}, Soon());
  std::map<uint64_t, size_t> rows;
  int changes = 0;
  for (uint64_t ended = 0, last = 0; ended < 2;) {
    Result<ReceivedFrame> frame = channel.Receive(Soon());
    ASSERT_TRUE(frame) << frame.error().Text();
    Result<ListReply> part = DecodeBody<ListReply>(frame->body);
    ASSERT_TRUE(part) << part.error().Text();
    rows[frame->header.request_id] += part->rows.size();
    changes += frame->header.request_id != last;
    last = frame->header.request_id;
    ended += !part->more;
  }
  EXPECT_EQ(rows[first], 1000u);
  EXPECT_EQ(rows[second], 1000u);
  EXPECT_GT(changes, 4);
}

TEST(AdminLists, RecordsComeAndGoWhileOneIsRead) {
  TestServer server;
  constexpr int kRecords = 3000;
  for (int i = 0; i < kRecords; i += 2)
    ASSERT_TRUE(server.cache->Put({NumberedRecord(i, 3000), "class", std::nullopt}, Durability::kSoon));
  Channel channel = server.Connect();
  uint64_t id = *channel.Ask(ListRequest{}, Soon());
  std::multiset<std::string> seen;
  int removed = 0, added = 1;
  for (bool more = true; more;) {
    Result<ListReply> part = channel.Await<ListReply>(id, Soon());
    ASSERT_TRUE(part) << part.error().Text();
    for (const RecordRow& row : part->rows) seen.insert(row.fingerprint);
    for (int i = 0; i < 60; ++i, removed += 10, added += 2) {
      if (removed < kRecords) (void)server.cache->Remove(NumberedRecord(removed, 0).key.fingerprint);
      if (added >= kRecords) continue;
      ASSERT_TRUE(server.cache->Put({NumberedRecord(added, 3000), "class", std::nullopt}, Durability::kSoon));
    }
    more = part->more;
  }
  for (int i = 0; i < kRecords; ++i) {
    const size_t times = seen.count(NumberedRecord(i, 0).key.fingerprint.Hex());
    EXPECT_LE(times, 1u) << i;
    const bool is_always_there = i % 2 == 0 && i % 10 != 0;
    EXPECT_GE(times, is_always_there ? 1u : 0u) << i;
  }
}

TEST(AdminLists, HugeTextsFillPartsByTheirBytes) {
  TestServer server;
  Fill(server, 90, 1'000'000);
  Channel channel = server.Connect();
  uint64_t id = *channel.Ask(ListRequest{}, Soon());
  size_t rows = 0;
  for (bool more = true; more;) {
    Result<ReceivedFrame> frame = channel.Receive(Soon());
    ASSERT_TRUE(frame) << frame.error().Text();
    ASSERT_EQ(frame->header.request_id, id);
    EXPECT_LE(frame->body.size(), (size_t{256} << 10) + 16'384);
    Result<ListReply> part = DecodeBody<ListReply>(frame->body);
    ASSERT_TRUE(part) << part.error().Text();
    for (const RecordRow& row : part->rows) {
      EXPECT_LT(row.kernel.size(), 4200u);
      EXPECT_TRUE(row.kernel.ends_with("x…"));
    }
    rows += part->rows.size();
    more = part->more;
  }
  EXPECT_EQ(rows, 90u);
}

TEST(AdminLists, APartEndsAlthoughNothingFits) {
  TestServer server;
  Fill(server, 9000, 0);
  Channel channel = server.Connect();
  uint64_t id = *channel.Ask(ListRequest{"none"}, Soon());
  int parts = 0;
  for (bool more = true; more; ++parts) {
    Result<ListReply> part = channel.Await<ListReply>(id, Soon());
    ASSERT_TRUE(part) << part.error().Text();
    EXPECT_TRUE(part->rows.empty());
    more = part->more;
  }
  EXPECT_EQ(parts, 3);
}

TEST(AdminLists, CommentsAreNotKept) {
  TestServer server;
  const std::string comment = "# " + std::string(200'000, 'c') + "\n";
  ASSERT_TRUE(server.Get(comment + "\n\nadd(M=1,N=1)  # the sum\n" + comment));
  Channel channel = server.Connect();
  Result<ListReply> list = channel.Call(ListRequest{}, Soon());
  ASSERT_TRUE(list);
  ASSERT_EQ(list->rows.size(), 1u);
  EXPECT_EQ(list->rows[0].kernel, "add(M=1,N=1)");
  Result<ShowReply> shown = channel.Call(ShowRequest{list->rows[0].fingerprint}, Soon());
  ASSERT_TRUE(shown);
  EXPECT_EQ(shown->row.kernel, "add(M=1,N=1)");
}

}  // namespace
}  // namespace hone
