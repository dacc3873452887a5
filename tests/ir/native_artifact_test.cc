// What a process may map: AMX is in targets, and Linux may refuse it to some processes.
#include "ir/native_artifact.h"

#include <gtest/gtest.h>

#include <string>

#include "base/tiles.h"

namespace hone {
namespace {

TEST(NativeArtifact, WithoutTilesCodeForTheSameMachineIsAskedFor) {
  auto instead = [](const char* text) {
    const std::optional<Target> other = WithoutRefusedTiles(ParseTarget(text).value());
    return other ? PrintTarget(*other) : "";
  };
  EXPECT_EQ(instead("cpu avx512 cpu=znver4 features=avx512vnni l1=32768 l2=1048576 l3=33554432 cores=2"), "");
  EXPECT_EQ(instead("opencl name=x"), "");
  const std::string with =
      "cpu avx512 cpu=sapphirerapids features=amx-bf16,amx-int8,amx-tile,avx512vnni l1=49152 l2=2097152 l3=1 cores=2";
  EXPECT_EQ(instead(with.c_str()),
            MayUseTiles() ? "" : "cpu avx512 cpu=sapphirerapids features=avx512vnni l1=49152 l2=2097152 l3=1 cores=2");
}

}  // namespace
}  // namespace hone
