// CPUs by name.
#include "backends/cpu/named_targets.h"

#include <gmock/gmock.h>

namespace hone {
namespace {

using ::testing::HasSubstr;

TEST(NamedCpu, KnowsWhatPeopleCallThem) {
  auto text = [](std::string_view name) {
    Result<CpuTarget> target = NamedCpu(name);
    return target ? PrintTarget(*target) : target.error().Text();
  };
  EXPECT_EQ(text("neoverse-n1"),
            "cpu neon cpu=neoverse-n1 features=dotprod,fullfp16 l1=65536 l2=1048576 l3=4194304 cores=4");
  EXPECT_THAT(text("cortex-a72"), HasSubstr("cpu neon cpu=cortex-a72 features= "));
  EXPECT_THAT(text("x86-64-v3"), HasSubstr("cpu avx2 cpu=x86-64-v3 features= "));
  EXPECT_THAT(text("armv8.2-a+i8mm+dotprod"), HasSubstr("cpu neon cpu=generic features=dotprod,i8mm "));
  EXPECT_THAT(text("x86-64-v4+amx-int8+amx-tile"), HasSubstr("cpu avx512 cpu=x86-64-v4 features=amx-int8,amx-tile "));
  EXPECT_THAT(text("neoverse-n1+dotprod"), HasSubstr("features=dotprod,fullfp16 "));
  EXPECT_EQ(ParseTarget(text("neoverse-v1"))->kind(), "cpu");
}

TEST(NamedCpu, SaysWhatItDoesNotKnow) {
  for (const char* name : {"", "vax", "NEOVERSE-N1", "neoverse-n1 "}) {
    SCOPED_TRACE(name);
    ASSERT_FALSE(NamedCpu(name).has_value());
    EXPECT_EQ(NamedCpu(name).error().kind, ErrorKind::kInvalid);
    EXPECT_THAT(NamedCpu(name).error().message, HasSubstr("there are: x86-64-v3, "));
  }
  for (const char* name :
       {"neoverse-n1+", "neoverse-n1+avx512vnni", "x86-64-v3+dotprod", "armv8-a+dotprod+", "armv8-a++"}) {
    SCOPED_TRACE(name);
    ASSERT_FALSE(NamedCpu(name).has_value());
    EXPECT_THAT(NamedCpu(name).error().message, HasSubstr("wanted one of: "));
  }
}

}  // namespace
}  // namespace hone
