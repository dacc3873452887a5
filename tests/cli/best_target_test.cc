#include "client/cli/best_target.h"

#include <gtest/gtest.h>

#include "client/cli/served_targets.h"
#include "ir/manifest.h"

namespace hone::cli {
namespace {

ManifestOperand Matrix(DType dtype, int64_t rows, int64_t columns) {
  ManifestOperand operand;
  operand.dtype = dtype;
  operand.shape = {{rows, rows, -1}, {columns, columns, -1}};
  return operand;
}

Manifest DenseManifest() {
  Manifest manifest;
  manifest.operands = {Matrix(DType::kF32, 100, 1000), Matrix(DType::kF32, 1000, 1000), Matrix(DType::kF16, 100, 1000)};
  manifest.operands[1].is_const = true;
  manifest.operands[2].is_output = true;
  return manifest;
}

TEST(BestTarget, InputsAndOutputsCountInEachCallAndConstantsOnce) {
  TargetOffer offer;
  offer.expected_us = 7;
  CountCopies(DenseManifest(), {.to_gb_s = 4, .from_gb_s = 2, .to_us = 10, .from_us = 20}, offer);
  EXPECT_DOUBLE_EQ(offer.copies_us, (10 + 400'000 / 4e3) + (20 + 200'000 / 2e3));
  EXPECT_DOUBLE_EQ(offer.constants_us, 10 + 4'000'000 / 4e3);
  EXPECT_DOUBLE_EQ(offer.total_us(), 7 + 230);
}

TEST(BestTarget, NothingIsCopiedToWhereOperandsAre) {
  TargetOffer offer;
  CountCopies(DenseManifest(), {}, offer);
  EXPECT_EQ(offer.copies_us, 0);
  EXPECT_EQ(offer.constants_us, 0);
}

TEST(BestTarget, TheLeastTotalIsTakenAndTheFirstOfEqualOnes) {
  std::vector<TargetOffer> offers(4);
  offers[0] = {.name = "cpu", .error = {}, .expected_us = 400};
  offers[1] = {.name = "toy:0", .error = {}, .expected_us = 100, .copies_us = 300};
  offers[2] = {.name = "toy:1", .error = {}, .expected_us = 10, .copies_us = 400};
  offers[3] = {.name = "toy:2", .error = Error{ErrorKind::kUnsupported, "no such types", ""}};
  EXPECT_EQ(LeastTotal(offers), 0U);
  offers[1].constants_us = 1e6;
  offers[1].expected_us = 99;
  EXPECT_EQ(LeastTotal(offers), 1U);
  offers[0].error = offers[1].error = offers[3].error;
  EXPECT_EQ(LeastTotal(offers), 2U);
  offers[2].error = offers[3].error;
  EXPECT_EQ(LeastTotal(offers), std::nullopt);
}

TEST(BestTarget, EachDeviceHasALineAndOneIsTaken) {
  BestTarget best;
  best.offers.resize(3);
  best.offers[0] = {.name = "cpu", .error = {}, .expected_us = 900};
  best.offers[1] = {.name = "toy:0", .error = {}, .expected_us = 100, .copies_us = 300, .constants_us = 5000};
  best.offers[2] = {.name = "toy:1", .error = Error{ErrorKind::kUnsupported, "no such types", ""}};
  best.taken = 1;
  EXPECT_EQ(OffersText(best),
            "target  expected  copies   total  \n"
            "cpu       900 us    none  900 us  \n"
            "toy:0     100 us  300 us  400 us  taken; constants once, 5.00 ms\n"
            "toy:1          -       -       -  left out: no such types\n");
  const std::vector<Json> json = OffersJson(best);
  EXPECT_EQ(
      json[1].Dump(),
      R"({"target":"toy:0","taken":true,"expected_us":100.0,"copies_us":300.0,"total_us":400.0,"constants_us":5000.0})");
  EXPECT_NE(json[2].Dump().find("no such types"), std::string::npos);
}

TEST(ServedTargets, HaveTheNamesThatTargetTakes) {
  StatusReply status;
  status.targets = {"cpu avx2 cores=2", "opencl name=a", "opencl name=b", "cuda arch=sm_90 unchecked=sm_90"};
  const std::vector<ServedTarget> served = ServedTargets(status);
  ASSERT_EQ(served.size(), 4U);
  EXPECT_EQ(served[0].name, "cpu");
  EXPECT_EQ(served[1].name, "opencl:0");
  EXPECT_EQ(served[2].name, "opencl:1");
  EXPECT_EQ(served[3].name, "cuda:sm_90");
  EXPECT_TRUE(served[2].is_here);
  EXPECT_FALSE(served[3].is_here);
}

}  // namespace
}  // namespace hone::cli
