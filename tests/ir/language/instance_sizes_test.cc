#include "ir/language/instance_sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/language/canonical.h"
#include "ir/language/parse.h"

namespace hone {
namespace {

using ::testing::ElementsAre;
using ::testing::Optional;

std::string CanonicalText(const std::string& kernel) {
  Result<Kernel> parsed = ParseKernel(kernel);
  EXPECT_TRUE(parsed) << parsed.error().Text();
  return Canonicalize(*parsed).text;
}

std::optional<std::vector<int64_t>> Sizes(const std::string& wanted, const std::string& ranged) {
  return InstanceSizes(CanonicalText(wanted), CanonicalText(ranged));
}

TEST(InstanceSizes, AreThoseOfARangeThatHasTheKernelInIt) {
  EXPECT_THAT(Sizes("matmul(M=7,N=16,K=16)", "matmul(M=1..24,N=16,K=16)"), Optional(ElementsAre(7)));
  EXPECT_THAT(Sizes("matmul(M=1,N=16,K=24)", "matmul(M=1..24,N=16,K=1..64)"), Optional(ElementsAre(1, 24)));
  EXPECT_THAT(Sizes("dense(M=24,N=8,K=8,const=1)+bias+relu", "dense(M=1..24,N=8,K=8,const=1)+bias+relu"),
              Optional(ElementsAre(24)));
  EXPECT_THAT(Sizes("softmax(M=3,N=33)", "softmax(M=1..8,N=33)"), Optional(ElementsAre(3)));
  EXPECT_THAT(Sizes("matmul(M=7,N=16,K=16,threads=1)", "matmul(M=1..24,N=16,K=16,threads=2)"),
              Optional(ElementsAre(7)));
}

TEST(InstanceSizes, AreNoneOfAnotherRangeOrAnotherKernel) {
  for (const char* wanted : {"matmul(M=25,N=16,K=16)", "matmul(M=7,N=17,K=16)", "matmul(M=7,N=16,K=16,dtype=i8)",
                             "matmul(M=7,N=16,K=16,const=1)", "matmul(M=7,N=16,K=16)+relu",
                             "matmul(M=7,N=16,K=16,accuracy=relaxed)", "softmax(M=7,N=16)", "matmul(M=1..7,N=16,K=16)"})
    EXPECT_EQ(Sizes(wanted, "matmul(M=1..24,N=16,K=16)"), std::nullopt) << wanted;
  EXPECT_EQ(Sizes("matmul(M=7,N=16,K=16)", "matmul(M=7,N=16,K=16)"), std::nullopt);
  EXPECT_EQ(InstanceSizes("no kernel", CanonicalText("matmul(M=1..24,N=16,K=16)")), std::nullopt);
  EXPECT_EQ(InstanceSizes(CanonicalText("matmul(M=7,N=16,K=16)"), "no kernel"), std::nullopt);
}

// What one size means twice has to be one size in both.
TEST(InstanceSizes, SizesThatAreOneAreOne) {
  const std::string square = "kernel k(a: f32[N, N]) -> b: f32[N, N] where N=1..9 { b[i, j] = a[i, j] * 2.0 }";
  EXPECT_THAT(Sizes("kernel k(a: f32[N, N]) -> b: f32[N, N] where N=4 { b[i, j] = a[i, j] * 2.0 }", square),
              Optional(ElementsAre(4)));
  EXPECT_EQ(Sizes("kernel k(a: f32[N, M]) -> b: f32[N, M] where N=4, M=5 { b[i, j] = a[i, j] * 2.0 }", square),
            std::nullopt);
}

}  // namespace
}  // namespace hone
