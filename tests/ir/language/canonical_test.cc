#include "ir/language/canonical.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "ir/graph/print.h"
#include "ir/language/fingerprint.h"
#include "ir/language/parse.h"
#include "tests/support/operation_samples.h"

namespace hone::canonical_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Kernel Parse(std::string_view text) {
  Result<Kernel> kernel = ParseKernel(text);
  if (!kernel) ADD_FAILURE() << text << "\n" << kernel.error().Text();
  return kernel ? *kernel : Kernel{};
}

Canonical Of(std::string_view text) { return Canonicalize(Parse(text)); }

TEST(Canonical, NamesDoNotMatter) {
  Canonical a =
      Of("kernel a(q: f32[M, K], const w: f32[K, N]) -> y: f32[M, N] where M=3, N=4, K=5 { y[m, n] = sum(k) q[m, k] * "
         "w[k, n] }");
  Canonical b =
      Of("kernel b(r: f32[X, Z], const v: f32[Z, Y]) -> u: f32[X, Y] where Z=5, Y=4, X=3 { u[i, j] = sum(l) r[i, l] * "
         "v[l, j] }");
  EXPECT_EQ(a.text, b.text);
  EXPECT_EQ(a.class_text, b.class_text);
  EXPECT_EQ(a.shape, b.shape);
  EXPECT_EQ(a.text, Of("matmul(M=3,N=4,K=5,const=1)").text);
}

TEST(Canonical, TextParsesBackToTheSameKernel) {
  for (const std::string& text : OperationSamples()) {
    SCOPED_TRACE(text);
    Kernel kernel = Parse(text);
    Canonical canonical = Canonicalize(kernel);
    Kernel again = Parse(canonical.text);
    EXPECT_TRUE(SameKernel(again, WithCanonicalNames(kernel))) << canonical.text;
    Canonical twice = Canonicalize(again);
    EXPECT_EQ(twice.text, canonical.text);
    EXPECT_EQ(twice.class_text, canonical.class_text);
    EXPECT_EQ(twice.shape, canonical.shape);
  }
}

TEST(Canonical, ArithmeticOfTypedNumbersReadsBack) {
  for (const char* value :
       {"x[i] + i32(7) / 2", "x[i] + (i32(2147483647) * 2) % 10", "i32(7) / 2",
        "x[i] * (i32(7) / 2 + abs(i32(-3)) * 2)", "x[i] - (i32(3) + 0)", "x[i] + -i32(7)", "max(i32(7) * 1, x[i])",
        "min(i32(7), 9) + x[i]", "if(i32(7) / 2 < x[i], i32(1) + 2, 3 + i32(1))",
        "x[i] + i32(b[i] + min(i8(3), i8(4)))", "x[i] + abs(-3) * 2", "x[i] + if(x[i] < 2, 1, 3) * 2"}) {
    const Kernel kernel =
        Parse(std::string("kernel k(x: i32[8], b: i8[8]) -> y: i32[8] { y[i] = ") + value + " + 0 * i32(b[i]) }");
    const Kernel again = Parse(Canonicalize(kernel).text);
    EXPECT_TRUE(SameKernel(again, WithCanonicalNames(kernel))) << value << "\n" << Canonicalize(kernel).text;
  }
  EXPECT_THAT(Of("kernel k(x: i32[8]) -> y: i32[8] { y[i] = x[i] + abs(-3) * 2 }").text, HasSubstr("abs(-3) * 2"));
}

// The ninth variable's number would make it a type's name.
TEST(Canonical, NineVariablesReadBack) {
  Kernel kernel = ParseKernel(
                      "kernel k(x: f32[1,2,1,2,1,2,1,2]) -> y: f32[1,2,1,2,1,2,1,2] { "
                      "y[a,b,c,d,e,f,g,h] = max(k < 3) x[a,b,c,d,e,f,g,h]*float(k) }")
                      .value();
  Result<Kernel> again = ParseKernel(Canonicalize(kernel).text);
  ASSERT_TRUE(again) << again.error().Text();
  EXPECT_TRUE(SameKernel(*again, WithCanonicalNames(kernel)));
}

TEST(Canonical, DtypesConstnessAndOptionsAreTold) {
  std::set<std::string> texts;
  for (const char* attributes :
       {"", ",const=1", ",dtype=f64", ",accuracy=relaxed", ",accuracy=fast", ",threads=1", ",ta=1"})
    EXPECT_TRUE(texts.insert(Of(std::string("matmul(M=4,N=4,K=4") + attributes + ")").text).second) << attributes;
}

TEST(Canonical, ANumberOfThreadsIsPutIntoTheTextAsThePrinterWould) {
  std::vector<std::string> samples = OperationSamples();
  samples.insert(samples.end(),
                 {"matmul(M=1..9,N=4,K=4,accuracy=fast)", "matmul(M=4,N=4,K=4,accuracy=relaxed,threads=3)"});
  for (const std::string& sample : samples) {
    SCOPED_TRACE(sample);
    Kernel kernel = Parse(sample);
    std::vector<std::string> texts;
    for (int threads : {0, 1, 2, 40}) {
      kernel.options.threads = threads;
      texts.push_back(Canonicalize(kernel).text);
      EXPECT_EQ(ThreadsSaidBy(texts.back()), threads);
    }
    for (const std::string& text : texts) {
      EXPECT_EQ(WithThreads(text, 0), texts[0]);
      EXPECT_EQ(WithThreads(text, 1), texts[1]);
      EXPECT_EQ(WithThreads(text, 40), texts[3]);
      EXPECT_TRUE(SameButThreads(text, texts[2]));
    }
  }
  EXPECT_FALSE(SameButThreads(Of("matmul(M=4,N=4,K=4,threads=2)").text, Of("matmul(M=4,N=4,K=5,threads=2)").text));
  EXPECT_FALSE(SameButThreads(Of("matmul(M=4,N=4,K=4,accuracy=fast)").text, Of("matmul(M=4,N=4,K=4)").text));
}

TEST(Canonical, WhatIsNoCanonicalTextKeepsItsThreads) {
  for (const char* text :
       {"", "\nwith ", " {\n", "threads=2", "\nwith threads=", "kernel k\nwith accuracy=fast, threads= {\n",
        "\nwith , threads=2", "matmul(M=4,N=4,K=4,threads=2)"}) {
    EXPECT_EQ(ThreadsSaidBy(text), 0) << text;
    EXPECT_FALSE(SameButThreads(text, "kernel k")) << text;
  }
  EXPECT_EQ(WithThreads("matmul(M=4,N=4,K=4,threads=2)", 0), "matmul(M=4,N=4,K=4,threads=2)");
}

TEST(Canonical, AllCoresAreNotSaidAndOneThreadIs) {
  EXPECT_EQ(ThreadsToSay(0, 8), 0);
  EXPECT_EQ(ThreadsToSay(8, 8), 0);
  EXPECT_EQ(ThreadsToSay(4, 8), 4);
  EXPECT_EQ(ThreadsToSay(16, 8), 16);
  EXPECT_EQ(ThreadsToSay(1, 8), 1);
  EXPECT_EQ(ThreadsToSay(0, 1), 1);
  EXPECT_EQ(ThreadsToSay(1, 1), 1);
}

TEST(Canonical, OptionsAreNotPartOfTheClass) {
  EXPECT_EQ(Of("matmul(M=4,N=4,K=4)").class_text, Of("matmul(M=4,N=4,K=4,threads=1,accuracy=fast)").class_text);
}

TEST(Canonical, SizesAndAttributesAreNotPartOfTheClass) {
  Canonical a = Of("conv2d(C=64,H=56,W=56,O=64,R=3,S=3,stride=1,pad=1)+bias+relu");
  Canonical b = Of("conv2d(C=3,H=224,W=224,O=17,R=7,S=5,stride=[2,3],pad=[3,2,1,0],dilation=2)+bias+relu");
  Canonical c = Of("conv2d(C=64,H=56,W=56,O=64,R=1,S=1)+bias+relu");
  EXPECT_EQ(a.class_text, b.class_text);
  EXPECT_EQ(a.class_text, c.class_text);
  EXPECT_EQ(a.shape.size(), b.shape.size());
  EXPECT_NE(a.shape, b.shape);
  EXPECT_NE(a.class_text, Of("conv2d(C=64,H=56,W=56,O=64,R=3,S=3,pad=1)+bias").class_text);
  EXPECT_NE(a.class_text, Of("conv2d(C=64,H=56,W=56,O=64,R=3,S=3,pad=1,groups=2)+bias+relu").class_text);
}

TEST(Canonical, LiteralExtentsAreSizesOfTheClass) {
  Canonical a = Of("kernel a(x: f32[4, 3]) -> y: f32[4] { y[i] = sum(k) x[i, k] * 2.5 }");
  Canonical b = Of("kernel a(x: f32[7, 9]) -> y: f32[7] { y[i] = sum(k) x[i, k] * 2.5 }");
  EXPECT_EQ(a.class_text, b.class_text);
  EXPECT_NE(a.text, b.text);
  EXPECT_THAT(a.class_text, HasSubstr("2.5"));
  EXPECT_NE(a.class_text, Of("kernel a(x: f32[4, 3]) -> y: f32[4] { y[i] = sum(k) x[i, k] * 3.5 }").class_text);
}

TEST(Canonical, ShapeFollowsTheClassText) {
  EXPECT_THAT(Of("matmul(M=3,N=5,K=7)").shape, ElementsAre(3, 7, 5));
  EXPECT_THAT(Of("matmul(M=1..9,N=5,K=7)").shape, ElementsAre(1, 9, 7, 5));
  EXPECT_NE(Of("matmul(M=1..9,N=5,K=7)").class_text, Of("matmul(M=9,N=5,K=7)").class_text);
  EXPECT_THAT(Of("matmul(M=3,N=5,K=7)").class_text, Not(HasSubstr("=3")));
}

TEST(Canonical, EqualSizesStayDistinct) {
  // Square or not, it is the same class: parameters are told apart by name and not by value.
  EXPECT_EQ(Of("matmul(M=4,N=4,K=4)").class_text, Of("matmul(M=2,N=3,K=4)").class_text);
}

TEST(Fingerprint, DependsOnTheWholeTextAndRoundTrips) {
  std::set<std::string> seen;
  for (const std::string& text : OperationSamples())
    EXPECT_TRUE(seen.insert(FingerprintOf(Of(text)).Hex()).second) << text;
  Fingerprint fingerprint = FingerprintOf(Of("matmul(M=4,N=4,K=4)"));
  EXPECT_EQ(fingerprint.Hex().size(), 32u);
  EXPECT_EQ(ParseFingerprint(fingerprint.Hex()), fingerprint);
  EXPECT_EQ(ParseFingerprint(fingerprint.Hex().substr(1)), std::nullopt);
  EXPECT_EQ(ParseFingerprint("zz" + fingerprint.Hex().substr(2)), std::nullopt);
  EXPECT_EQ(ClassFingerprintOf(Of("matmul(M=4,N=4,K=4)")), ClassFingerprintOf(Of("matmul(M=5,N=4,K=4)")));
  EXPECT_NE(FingerprintOf(Of("matmul(M=4,N=4,K=4)")), FingerprintOf(Of("matmul(M=5,N=4,K=4)")));
}

}  // namespace
}  // namespace hone::canonical_test
