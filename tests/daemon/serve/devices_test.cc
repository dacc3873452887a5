#include "daemon/serve/devices.h"

#include <gtest/gtest.h>

#include "tests/support/no_threads.h"

namespace hone::devices_test {
namespace {

TEST(Devices, AreFoundWhereThereIsNoThreadToLookForThem) {
  testing::NoThreads none;
  Result<Devices> devices = Devices::Probe("/proc/self/exe");
  ASSERT_TRUE(devices) << devices.error().Text();
  EXPECT_EQ(devices->all().front().name, devices->host().name);
}

}  // namespace
}  // namespace hone::devices_test
