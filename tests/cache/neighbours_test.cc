// Who is near whom: by class and sizes, across classes by what the main computation looks like.
#include "cache/neighbours.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/language/canonical.h"
#include "ir/language/parse.h"

namespace hone {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

Silhouette Of(const std::string& text) { return SilhouetteOf(ParseKernel(text).value()); }

Record Tuned(const std::string& text, Origin origin = Origin::kTuned) {
  Canonical canonical = Canonicalize(ParseKernel(text).value());
  Record record;
  record.key.fingerprint = FingerprintOf(canonical);
  record.key.class_fingerprint = ClassFingerprintOf(canonical);
  record.key.canonical = canonical.text;
  record.key.target = "cpu here";
  record.request = text;
  record.schedule = "parallel t2.i0 grain=1\n";
  record.origin = origin;
  return record;
}

std::vector<std::string> NearestTo(const Neighbours& neighbours, const std::string& text, size_t of_class = 9,
                                   size_t of_others = 9) {
  Canonical canonical = Canonicalize(ParseKernel(text).value());
  Neighbours::Query query;
  query.fingerprint = FingerprintOf(canonical);
  query.class_fingerprint = ClassFingerprintOf(canonical);
  query.silhouette = Of(text);
  query.target = "cpu here";
  query.of_class = of_class;
  query.of_others = of_others;
  std::vector<std::string> requests;
  for (const Neighbour& neighbour : neighbours.Nearest(query)) requests.push_back(neighbour.donor->request);
  return requests;
}

TEST(Neighbours, ADenseLayerAConvolutionAndAProductLookAlike) {
  const Silhouette dense = Of("dense(M=196,N=64,K=256)");
  EXPECT_LT(Distance(dense, Of("matmul(M=196,N=64,K=256)")), 1);
  EXPECT_LT(Distance(Of("conv2d(C=256,H=14,W=14,O=64,R=1,S=1)"), Of("conv2d(C=256,H=14,W=14,O=64,R=1,S=1)+bias")), 1);
  EXPECT_EQ(dense.kind, Of("conv2d(C=256,H=14,W=14,O=64,R=1,S=1)").kind);
  EXPECT_NE(dense.kind, Of("depthwise_conv2d(C=256,H=14,W=14,R=3,S=3)").kind);
  EXPECT_NE(dense.kind, Of("softmax(M=196,N=64)").kind);
  EXPECT_NE(dense.kind, Of("maxpool2d(C=3,H=7,W=9,R=3,S=3,stride=2)").kind);
}

TEST(Neighbours, DistanceIsInDoublings) {
  EXPECT_DOUBLE_EQ(Distance(Of("dense(M=64,N=64,K=64)"), Of("dense(M=64,N=64,K=64)")), 0);
  EXPECT_DOUBLE_EQ(Distance(Of("dense(M=64,N=64,K=64)"), Of("dense(M=64,N=64,K=128)")), 1);
  EXPECT_DOUBLE_EQ(Distance(Of("dense(M=64,N=64,K=64)"), Of("dense(M=256,N=64,K=64)")), 2);
}

TEST(Neighbours, ThoseOfTheClassComeFirstAndByDistance) {
  Neighbours neighbours;
  for (const char* text : {"dense(M=64,N=64,K=64)", "dense(M=512,N=64,K=64)", "dense(M=64,N=64,K=64)+bias",
                           "matmul(M=64,N=64,K=64)", "softmax(M=64,N=64)"})
    neighbours.Put(Tuned(text));
  EXPECT_THAT(NearestTo(neighbours, "dense(M=400,N=64,K=64)", 9, 1),
              ElementsAre("dense(M=512,N=64,K=64)", "dense(M=64,N=64,K=64)", testing::_));
  EXPECT_THAT(NearestTo(neighbours, "dense(M=400,N=64,K=64)", 1, 0), ElementsAre("dense(M=512,N=64,K=64)"));
  EXPECT_THAT(NearestTo(neighbours, "dense(M=64,N=64,K=64)", 1, 0), ElementsAre("dense(M=512,N=64,K=64)"))
      << "nobody is a neighbour of itself";
  EXPECT_THAT(NearestTo(neighbours, "maxpool2d(C=3,H=7,W=9,R=3,S=3,stride=2)"), IsEmpty());
}

TEST(Neighbours, OnlyTunedKernelsAreDonors) {
  Neighbours neighbours;
  neighbours.Put(Tuned("dense(M=64,N=64,K=64)", Origin::kDefault));
  neighbours.Put(Tuned("dense(M=32,N=64,K=64)", Origin::kTransferred));
  EXPECT_EQ(neighbours.size(), 0u);
  neighbours.Put(Tuned("dense(M=32,N=64,K=64)"));
  neighbours.Put(Tuned("dense(M=16,N=64,K=64)", Origin::kImported));
  EXPECT_EQ(neighbours.size(), 2u);
  neighbours.Put(Tuned("dense(M=16,N=64,K=64)", Origin::kDefault));
  EXPECT_EQ(neighbours.size(), 1u) << "it is no donor any more";
  const Fingerprint left = Tuned("dense(M=32,N=64,K=64)").key.fingerprint;
  EXPECT_NE(neighbours.Find(left), nullptr);
  neighbours.Remove(left);
  EXPECT_EQ(neighbours.Find(left), nullptr);
}

TEST(Neighbours, DonorsOfThisTargetComeBeforeOthers) {
  Neighbours neighbours;
  Record elsewhere = Tuned("dense(M=64,N=64,K=64)");
  elsewhere.key.target = "cpu there";
  neighbours.Put(elsewhere);
  neighbours.Put(Tuned("dense(M=256,N=64,K=64)"));
  EXPECT_THAT(NearestTo(neighbours, "dense(M=65,N=64,K=64)", 1, 0), ElementsAre("dense(M=256,N=64,K=64)"));
  // The kernel itself, where another machine or another number of threads tuned it.
  EXPECT_THAT(NearestTo(neighbours, "dense(M=64,N=64,K=64)"),
              UnorderedElementsAre("dense(M=64,N=64,K=64)", testing::_));
  Record threaded = Tuned("dense(M=256,N=64,K=64)");
  threaded.key.threads = 2;
  neighbours.Put(threaded);
  EXPECT_THAT(NearestTo(neighbours, "dense(M=256,N=64,K=64)", 1, 0), ElementsAre("dense(M=256,N=64,K=64)"));
}

TEST(Neighbours, DevicesOfOtherKindsHaveNoDonors) {
  Neighbours neighbours;
  Record elsewhere = Tuned("dense(M=64,N=64,K=64)");
  elsewhere.key.target = "opencl model=here";
  neighbours.Put(elsewhere);
  EXPECT_THAT(NearestTo(neighbours, "dense(M=65,N=64,K=64)"), ElementsAre());
  elsewhere.key.target = "avx2 cpu=here";  // a CPU's, as it was written once
  neighbours.Put(elsewhere);
  EXPECT_THAT(NearestTo(neighbours, "dense(M=65,N=64,K=64)"), ElementsAre("dense(M=64,N=64,K=64)"));
}

}  // namespace
}  // namespace hone
