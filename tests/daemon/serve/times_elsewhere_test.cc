// Times that another machine measured are its schedules', and last until these have run here.
#include <gtest/gtest.h>

#include "tests/daemon/test_server.h"

namespace hone::times_elsewhere_test {
namespace {

using std::chrono::nanoseconds;
using testing::TestServer;

constexpr const char* kLarge = "matmul(M=512,N=512,K=512)";  // checked by one call, and not timed further

Record Imported(const ResolvedKernel& identity) {
  Record record;
  record.key = identity.key;
  record.shape = identity.shape;
  record.label = identity.label;
  record.request = kLarge;
  record.schedule = "fast";
  record.measured = Timing{nanoseconds(1)};
  record.origin = Origin::kImported;
  record.source = RecordSource{"pool", 1, std::nullopt, Origin::kTuned, true};
  return record;
}

TEST(TimesElsewhere, AreNotThoseOfWhatIsServedInTheirSchedulesPlace) {
  TestServer server;
  const ResolvedKernel identity = *server.path->Identify({kLarge, "", 0});
  ASSERT_TRUE(server.cache->Put({.record = Imported(identity), .class_text = identity.class_text, .artifact = {}},
                                Durability::kSoon));
  server.pools.fail_schedule = "fast";
  server.pools.fail_kind = ErrorKind::kBuildFailed;
  Result<GetReply> reply = server.Get(kLarge);
  ASSERT_TRUE(reply) << reply.error().Text();
  EXPECT_EQ(reply->origin, "default");
  EXPECT_EQ(reply->expected_us, 3);
  const Record stored = (*server.cache->Lookup(identity.key))->record;
  EXPECT_FALSE(stored.measured) << stored.measured->time.count();
  EXPECT_EQ(stored.expected, nanoseconds(3000));
}

TEST(TimesElsewhere, EndWithTheFirstRunHere) {
  TestServer server;
  const ResolvedKernel identity = *server.path->Identify({kLarge, "", 0});
  ASSERT_TRUE(server.cache->Put({.record = Imported(identity), .class_text = identity.class_text, .artifact = {}},
                                Durability::kSoon));
  ASSERT_TRUE(server.Get(kLarge));
  const Record stored = (*server.cache->Lookup(identity.key))->record;
  EXPECT_EQ(stored.schedule, "fast");
  EXPECT_FALSE(stored.source->times_elsewhere);
  EXPECT_FALSE(stored.measured);
  EXPECT_EQ(stored.expected, nanoseconds(3000));
}

}  // namespace
}  // namespace hone::times_elsewhere_test
