// What several users of one honed may do, and what they learn of each other: docs/security.md says it, row by row.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>

#include "daemon/inspect/record_facts.h"
#include "daemon/routes.h"
#include "tests/daemon/test_server.h"

namespace hone {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Soon;
using testing::TestServer;

const ClientId kOwner{geteuid(), getpid()};
const ClientId kOther{geteuid() + 1000, getpid()};
constexpr std::string_view kRefusal = "whose honed this is, and root may";

// Whether who asks is refused because of who that is.
template <typename Request>
bool IsRefused(TestServer& server, const ClientId& client) {
  Channel channel = server.Connect(client);
  Result<uint64_t> id = channel.Ask(Request{}, Soon());
  if (!id) return false;
  Result<ReplyTo<Request>> reply = channel.Await<ReplyTo<Request>>(*id, Soon());
  return !reply && reply.error().message.find(kRefusal) != std::string::npos;
}

// Of the rows "| `Edit` | what that is | no |".
std::map<std::string, std::string> ReadTable() {
  std::ifstream file(HONE_SOURCE_DIR "/docs/security.md");
  std::map<std::string, std::string> may;
  const std::regex row(R"(\| `(\w+)` \|.*\| (yes|less|own|no) \|)");
  for (std::string line; std::getline(file, line);)
    if (std::smatch match; std::regex_match(line, match, row)) may[match[1]] = match[2];
  return may;
}

TEST(Users, MayAskWhatTheTableSays) {
  TestServer server;
  const std::map<std::string, std::string> table = ReadTable();
  size_t rows = 0;
#define HONE_ROW(name, number, replies)                                                       \
  {                                                                                           \
    ASSERT_TRUE(table.contains(#name)) << "docs/security.md has no row of " #name;            \
    EXPECT_EQ(IsRefused<name##Request>(server, kOther), table.at(#name) == "no") << #name;    \
    if (MessageType::k##name != MessageType::kAttach) { /* which would take the connection */ \
      EXPECT_FALSE(IsRefused<name##Request>(server, kOwner)) << #name;                        \
    }                                                                                         \
    ++rows;                                                                                   \
  }
  HONE_REQUESTS(HONE_ROW)
#undef HONE_ROW
  EXPECT_EQ(table.size(), rows);
}

TEST(Users, OthersSeeTheCanonicalTextAlone) {
  TestServer server;
  const std::string kernel =
      "kernel payroll(salaries: f32[N]) -> raised: f32[N] where N=5 {\n  raised[i] = salaries[i] * 2.0\n}";
  Channel owner = server.Connect(kOwner), other = server.Connect(kOther);
  Result<GetReply> mine = owner.Call(GetRequest{kernel}, Soon());
  ASSERT_TRUE(mine) << mine.error().Text();
  EXPECT_EQ(mine->class_name, "payroll");

  Result<ListReply> seen = owner.Call(ListRequest{}, Soon());
  ASSERT_TRUE(seen);
  ASSERT_EQ(seen->rows.size(), 1u);
  EXPECT_THAT(seen->rows[0].kernel, HasSubstr("salaries"));
  Result<ShowReply> shown = owner.Call(ShowRequest{mine->fingerprint}, Soon());
  ASSERT_TRUE(shown);
  EXPECT_GT(shown->facts.size(), 5u);

  Result<ListReply> hidden = other.Call(ListRequest{}, Soon());
  ASSERT_TRUE(hidden);
  ASSERT_EQ(hidden->rows.size(), 1u);
  Result<ShowReply> little = other.Call(ShowRequest{mine->fingerprint}, Soon());
  ASSERT_TRUE(little);
  for (const RecordRow& row : {hidden->rows[0], little->row}) {
    EXPECT_EQ(row.fingerprint, mine->fingerprint);
    EXPECT_EQ(row.kernel, ShownText(little->canonical));
    EXPECT_EQ(row.class_name, "");
    EXPECT_EQ(row.requests, 0u);
    EXPECT_EQ(row.last_used_s, 0);
  }
  const std::string all = EncodeBody(*hidden) + EncodeBody(*little);
  EXPECT_THAT(all, AllOf(Not(HasSubstr("payroll")), Not(HasSubstr("salaries")), Not(HasSubstr("raised"))));
  EXPECT_TRUE(little->schedule.empty() && little->facts.empty() && little->reasons.empty());
  // Nor is the name found out by asking for it.
  Result<ListReply> guess = other.Call(ListRequest{"payroll"}, Soon());
  ASSERT_TRUE(guess);
  EXPECT_TRUE(guess->rows.empty());
  // Who has the same kernel under another name is served the same code under that one.
  Result<GetReply> same =
      other.Call(GetRequest{"kernel other(a: f32[N]) -> b: f32[N] where N=5 {\n  b[i] = a[i] * 2.0\n}"}, Soon());
  ASSERT_TRUE(same) << same.error().Text();
  EXPECT_EQ(same->fingerprint, mine->fingerprint);
  EXPECT_EQ(same->class_name, "other");
}

}  // namespace
}  // namespace hone
