#include "client/cli/contribute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "ir/language/canonical.h"
#include "ir/language/fingerprint.h"
#include "ir/language/parse.h"
#include "tests/support/temporary_directory.h"

namespace hone::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kOwn[] =
    "kernel alices_layer(secret_input: f32[N]) -> home_alice_out: f32[N] where N=33 {\n"
    "  home_alice_out[i] = secret_input[i] * 3.0\n}";

// As honed gives it out: tuned here at a quarter past ten.
BundleEntry Tuned(const std::string& kernel, int threads = 1) {
  Kernel parsed = *ParseKernel(kernel);
  parsed.options.threads = threads;
  const Canonical canonical = Canonicalize(parsed);
  BundleEntry entry;
  entry.class_text = canonical.class_text;
  entry.calls = 77;
  Record& record = entry.record;
  record.key.canonical = canonical.text;
  record.key.fingerprint = FingerprintOf(canonical);
  record.key.class_fingerprint = ClassFingerprintOf(canonical);
  record.key.target = "cpu avx2 cpu=generic features= l1=32768 l2=524288 l3=4194304 cores=2";
  record.key.threads = threads;
  record.shape = canonical.shape;
  record.request = kernel;
  record.label = parsed.name;
  record.schedule = "a schedule";
  record.origin = Origin::kTuned;
  record.measured = Timing{.time = std::chrono::nanoseconds(5'000), .threads = threads, .repeats = 15};
  record.donor = record.key.fingerprint;
  record.artifact_digest = Digest256{1};
  record.artifact_bytes = 9;
  record.created = record.updated = WallTime(std::chrono::days(20'000) + std::chrono::minutes(615));
  return entry;
}

std::vector<BundleEntry> Given(std::vector<BundleEntry> entries, const std::vector<std::string>& without = {}) {
  Result<Exclusions> exclusions = Exclusions::Read(without);
  EXPECT_TRUE(exclusions) << exclusions.error().Text();
  return ForEverybody(std::move(entries), *exclusions);
}

TEST(Contribute, NothingTellsOfWhoGives) {
  const std::vector<BundleEntry> given = Given({Tuned(kOwn), Tuned("matmul(M=4,N=4,K=4)+relu # alice's")});
  ASSERT_EQ(given.size(), 2u);
  for (const BundleEntry& entry : given) {
    const std::string bytes = EncodeEntry(entry);
    for (const char* word : {"alice", "secret", "home"}) EXPECT_THAT(bytes, Not(HasSubstr(word)));
    EXPECT_EQ(entry.record.request, entry.record.key.canonical);
    EXPECT_EQ(entry.calls, 0u);
    EXPECT_EQ(entry.record.updated, WallTime(std::chrono::days(20'000)));
    EXPECT_EQ(entry.record.created, entry.record.updated);
    EXPECT_FALSE(entry.record.artifact_digest || entry.record.donor);
    EXPECT_EQ(entry.record.schedule, "a schedule");
    EXPECT_EQ(entry.record.measured->time.count(), 5'000);
  }
  EXPECT_EQ(given[0].record.label, "kernel");
  EXPECT_EQ(given[1].record.label, "matmul+relu");
}

TEST(Contribute, OnlyWhatWasTunedHereIsGiven) {
  BundleEntry imported = Tuned("matmul(M=4,N=4,K=4)"), by_default = imported, unmeasured = imported;
  imported.record.origin = Origin::kImported;
  by_default.record.origin = Origin::kDefault;
  unmeasured.record.measured.reset();
  EXPECT_TRUE(Given({imported, by_default, unmeasured}).empty());
}

TEST(Contribute, WhatIsExcludedStaysHere) {
  const std::string matmul = "matmul(M=4,N=4,K=4)", softmax = "softmax(M=4,N=4)";
  const std::vector<BundleEntry> entries = {Tuned(matmul), Tuned(matmul, 2), Tuned(softmax), Tuned(kOwn)};
  const auto left = [&](const std::vector<std::string>& without) { return Given(entries, without).size(); };
  EXPECT_EQ(left({}), 4u);
  EXPECT_EQ(left({"matmul(N=4,K=4,M=4)"}), 2u);  // with any number of threads
  EXPECT_EQ(left({kOwn}), 3u);
  EXPECT_EQ(left({"soft"}), 3u);
  EXPECT_EQ(left({entries[3].record.key.fingerprint.Hex().substr(0, 12)}), 3u);
  EXPECT_EQ(left({"matmul", "softmax", kOwn}), 0u);
  EXPECT_EQ(left({"matmul(M=5,N=4,K=4)"}), 4u);
  EXPECT_FALSE(Exclusions::Read({"matmul(M=4"}));
  EXPECT_FALSE(Exclusions::Read({"nowhere.kernels"}));
}

TEST(Contribute, WhatIsExcludedForARangeIsAtEachOfItsSizesAndForARangeWithin) {
  const std::vector<BundleEntry> entries = {Tuned("matmul(M=4,N=4,K=4)"),  Tuned("matmul(M=64,N=4,K=4)", 2),
                                            Tuned("matmul(M=65,N=4,K=4)"), Tuned("matmul(M=8..32,N=4,K=4)"),
                                            Tuned("matmul(M=4,N=5,K=4)"),  Tuned("softmax(M=4,N=4)")};
  const std::vector<BundleEntry> given = Given(entries, {"matmul(M=1..64,N=4,K=4)"});
  ASSERT_EQ(given.size(), 3u);
  EXPECT_EQ(given[0].record.key.canonical, entries[2].record.key.canonical);
  EXPECT_EQ(given[1].record.key.canonical, entries[4].record.key.canonical);
}

TEST(Contribute, AWordThatCanMeanNoKernelsIsRefusedForItWouldKeepNothingBack) {
  const TemporaryDirectory folder;
  const std::string model = folder / "model";  // known by its first byte, wherever a model is wanted
  std::ofstream(model) << "\x08 is no model beyond that";
  for (const std::string& word :
       {model, std::string("no/where"), std::string("./nowhere"), std::string("secret.model"), std::string()})
    EXPECT_FALSE(Exclusions::Read({word})) << word;
}

TEST(Contribute, BeginningsThatNothingHasAreTold) {
  const std::vector<BundleEntry> entries = {Tuned("matmul(M=4,N=4,K=4)"), Tuned("softmax(M=4,N=4)")};
  const std::string digits = entries[0].record.key.fingerprint.Hex().substr(0, 8);
  const Result<Exclusions> exclusions =
      Exclusions::Read({"matmul", "sofmax", digits, "matmul+bias", "softmax(M=5,N=5)"});
  ASSERT_TRUE(exclusions);
  EXPECT_THAT(exclusions->WithoutEffect(entries), ::testing::ElementsAre("sofmax", "matmul+bias"));
}

}  // namespace
}  // namespace hone::cli
