// A daemon without a compiler: what a bundle holds is run once before it is served, and what none holds is noted.
#include "daemon/edge/edge_path.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/file.h"
#include "cache/bundle_cache.h"
#include "daemon/edge/suits.h"
#include "tests/daemon/test_server.h"
#include "tests/support/temporary_directory.h"

namespace hone {
namespace {

using ::testing::HasSubstr;

constexpr const char* kHeld = "matmul(M=4,N=4,K=4)";
constexpr const char* kMissing = "matmul(M=4,N=4,K=8)";
const SigningSeed kSeed = {5, 5};

class EdgePathTest : public ::testing::Test {
 protected:
  // Bundles one kernel's code, as another machine built it.
  void SetUp() override {
    CpuTarget host;
    host.cpu = "generic";
    devices_.emplace(Devices::OfCpu(host, "none"));
    ASSERT_EQ(mkdir((directory_ / "bundles").c_str(), 0700), 0);
    const auto none = *ScheduleCache::Open({});
    EdgePath namer(*none, pools_, metrics_, *devices_, missing_);
    const ResolvedKernel identity = *namer.Identify({kHeld, "", 0});
    Result<BuiltArtifact> built = pools_.Build({identity.key.canonical, "", identity.target}, testing::Soon(), {});
    ASSERT_TRUE(built.has_value()) << built.error().Text();
    ReadOnlyMapping code = *built->object.Map();
    BundleEntry entry;
    entry.record.key = identity.key;
    entry.record.key.code = "another machine's";
    entry.record.shape = identity.shape;
    entry.record.request = kHeld;
    entry.record.label = "matmul";
    entry.record.schedule = built->schedule;
    entry.record.artifact_digest = Hash256(AsText(code.bytes()));
    entry.record.artifact_bytes = code.bytes().size();
    entry.class_text = identity.class_text;
    BundleManifest manifest;
    manifest.name = "kernels";
    manifest.version = 1;
    manifest.producer = "hone test";
    auto source = [&](const Digest256&) -> Result<std::vector<std::byte>> {
      return std::vector(code.bytes().begin(), code.bytes().end());
    };
    const Result<std::string> bundle = WriteBundle(manifest, {entry}, source, kSeed);
    ASSERT_TRUE(bundle.has_value()) << bundle.error().Text();
    ASSERT_TRUE(WriteFileAtomically(directory_ / "bundles/kernels.bundle", *bundle).has_value());

    BundleCacheOptions options;
    options.directories = {directory_ / "bundles"};
    KeyFile key;
    key.name = "fleet";
    key.roles = kArtifacts;
    key.key = PublicKeyOf(kSeed);
    options.keys.Add(key);
    options.target = devices_->host().target_text;
    options.suits = [this](const std::string& target) { return HowWellItSuits(target, *devices_); };
    cache_ = *BundleCache::Open(std::move(options));
    ASSERT_EQ(cache_->records(), 1u) << ::testing::PrintToString(cache_->left_out());
    path_.emplace(*cache_, pools_, metrics_, *devices_, missing_);
  }

  TemporaryDirectory directory_;
  testing::FakeWorkerPools pools_;
  Metrics metrics_;
  MissingKernels missing_;
  std::optional<Devices> devices_;
  std::unique_ptr<BundleCache> cache_;
  std::optional<EdgePath> path_;
};

TEST_F(EdgePathTest, CodeIsCheckedOnceBeforeItIsServed) {
  Result<LookUpResult> found = path_->LookUp({kHeld, "", 0});
  ASSERT_TRUE(found.has_value()) << found.error().Text();
  EXPECT_EQ(found->code, nullptr);
  EXPECT_TRUE(found->is_to_check);
  Result<Compiled> compiled = path_->Compile(*found, {});
  ASSERT_TRUE(compiled.has_value()) << compiled.error().Text();
  EXPECT_TRUE(compiled->was_here);
  EXPECT_EQ(compiled->code->reply.origin, "imported");
  EXPECT_EQ(metrics_.imported_checked, 1u);
  found = path_->LookUp({kHeld, "", 0});
  ASSERT_TRUE(found.has_value());
  EXPECT_NE(found->code, nullptr);
  EXPECT_FALSE(found->is_to_check);
  EXPECT_TRUE(missing_.List("").rows.empty());
}

TEST_F(EdgePathTest, CodeThatComputesSomethingElseIsNotServedThoughItsKeyIsTrusted) {
  pools_.check_failure = Error{ErrorKind::kWrongResult, "scripted", "y"};
  const LookUpResult found = *path_->LookUp({kHeld, "", 0});
  Result<Compiled> compiled = path_->Compile(found, {});
  ASSERT_FALSE(compiled.has_value());
  EXPECT_EQ(compiled.error().kind, ErrorKind::kWrongResult);
  EXPECT_THAT(compiled.error().Text(), HasSubstr("bundle kernels"));
  EXPECT_EQ(metrics_.imported_refused, 1u);
  EXPECT_EQ(path_->LookUp({kHeld, "", 0})->code, nullptr);
}

TEST_F(EdgePathTest, WhatNoBundleHoldsIsNotedAndNotBuilt) {
  const int builds = pools_.builds;
  for (int i = 0; i < 3; ++i) {
    Result<LookUpResult> found = path_->LookUp({std::string(kMissing) + " # mine", "", 0});
    ASSERT_FALSE(found.has_value());
    EXPECT_EQ(found.error().kind, ErrorKind::kNotFound);
    EXPECT_THAT(found.error().message, HasSubstr("hone missing"));
  }
  EXPECT_FALSE(path_->LookUp({"softmax(M=4,N=4)", "", 0}).has_value());
  EXPECT_EQ(path_->LookUp({"nonsense", "", 0}).error().kind, ErrorKind::kInvalid);
  EXPECT_EQ(pools_.builds, builds);
  const MissingReply missing = missing_.List("a target");
  ASSERT_EQ(missing.rows.size(), 2u);
  EXPECT_EQ(missing.rows[0].kernel, kMissing);
  EXPECT_EQ(missing.rows[0].requests, 3u);
  EXPECT_EQ(missing.rows[1].kernel, "softmax(M=4,N=4)");
}

TEST(MissingKernelsTest, AreBoundedByNumberAndBytesAndOnOneLine) {
  MissingKernels missing;
  auto note = [&](int i, std::string text) {
    Fingerprint fingerprint;
    fingerprint.bytes[0] = static_cast<uint8_t>(i);
    fingerprint.bytes[1] = static_cast<uint8_t>(i >> 8);
    return missing.Note(fingerprint, std::move(text));
  };
  EXPECT_TRUE(note(0, "kernel\tk\r\nof two lines"));
  EXPECT_FALSE(note(0, "kernel k\nof two lines"));
  EXPECT_FALSE(note(1, std::string(MissingKernels::kBytes, 'x')));
  for (int i = 2; i < static_cast<int>(MissingKernels::kKernels) + 100; ++i) note(i, "k");
  const MissingReply list = missing.List("cpu somewhere");
  EXPECT_EQ(list.rows.size(), MissingKernels::kKernels);
  EXPECT_EQ(list.rows[0].kernel, "kernel k  of two lines");
  EXPECT_EQ(list.rows[0].requests, 2u);
  EXPECT_EQ(list.forgotten, 1u + 99);
  EXPECT_EQ(list.target, "cpu somewhere");
}

TEST(SuitsTest, TheMoreATargetHasInCommonWithTheDeviceTheBetter) {
  CpuTarget host;
  host.cpu = "haswell";
  host.cores = 4;
  const Devices devices = Devices::OfCpu(host, "none");
  auto suits = [&](const char* text) { return HowWellItSuits(text, devices); };
  const uint64_t own = HowWellItSuits(devices.host().target_text, devices);
  const uint64_t fewer = suits("cpu avx2 cpu=haswell features= l1=32768 l2=524288 l3=4194304 cores=2");
  const uint64_t model = suits("cpu avx2 cpu=haswell features= l1=1 l2=1 l3=1 cores=1");
  const uint64_t generic = suits("cpu avx2 cpu=generic features= l1=32768 l2=524288 l3=4194304 cores=4");
  EXPECT_GT(own, fewer);
  EXPECT_GT(fewer, model);
  EXPECT_GT(model, generic);
  EXPECT_GT(generic, 0u);
  EXPECT_EQ(suits("opencl model=h100"), 0u);
  EXPECT_EQ(suits("no target"), 0u);
  EXPECT_EQ(suits("cpu avx2 cpu=haswell features=amx-nothing"), 0u);
}

}  // namespace
}  // namespace hone
