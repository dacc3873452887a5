// The cost model of all kernels goes on learning for as long as there are searches.
#include "daemon/refine/shared_model.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/rng.h"
#include "tuner/features.h"

namespace hone::shared_model_test {
namespace {

std::vector<Sample> MakeSamples(size_t count, Rng& rng) {
  std::vector<Sample> samples;
  for (size_t i = 0; i < count; ++i) {
    Sample sample;
    sample.group = 1;
    sample.features.resize(FeatureNames().size());
    for (float& feature : sample.features) feature = static_cast<float>(rng.Uniform());
    sample.time_us = 1 + rng.Uniform();
    samples.push_back(std::move(sample));
  }
  return samples;
}

// It holds no more samples than it may, and the newest in place of the oldest.
TEST(SharedModel, LearnsFromNewSamplesWhenItHoldsAsManyAsItMay) {
  auto cache = ScheduleCache::Open({});
  ASSERT_TRUE(cache) << cache.error().Text();
  SharedModel shared(**cache, Devices::OfCpu(CpuTarget{}, "cc"), {.rank_rounds = 2, .max_samples = 600});
  CostModel* model = shared.ToTeach(kCpuKind, {});
  Rng rng(1);
  for (int search = 0; search < 4; ++search) {
    ASSERT_TRUE(model->Add(MakeSamples(600, rng)));
    EXPECT_TRUE(shared.LearnAnew(kCpuKind, {})) << "after search " << search;
  }
  EXPECT_EQ(model->SampleCount(), 600u);
  ASSERT_TRUE(model->Add(MakeSamples(100, rng)));
  EXPECT_FALSE(shared.LearnAnew(kCpuKind, {}));  // too few to be worth the seconds
}

// On a device a dozen searched kernels are a few hundred trials, and others are served from them.
TEST(SharedModel, LearnsFromTheFirstKernelsSearched) {
  auto cache = ScheduleCache::Open({});
  ASSERT_TRUE(cache) << cache.error().Text();
  SharedModel shared(**cache, Devices::OfCpu(CpuTarget{}, "cc"), {.rank_rounds = 2});
  CostModel* model = shared.ToTeach(kCpuKind, {});
  Rng rng(1);
  std::vector<size_t> learnt_after;
  for (size_t trials = 32; trials <= 1024; trials += 32) {
    ASSERT_TRUE(model->Add(MakeSamples(32, rng)));
    if (shared.LearnAnew(kCpuKind, {})) learnt_after.push_back(trials);
  }
  EXPECT_EQ(learnt_after, (std::vector<size_t>{128, 256, 384, 576, 864}));
}

// Whoever asks for a search, or needs the machine, does not wait for what the last one learns.
TEST(SharedModel, StopsLearningWhenTold) {
  auto cache = ScheduleCache::Open({});
  ASSERT_TRUE(cache) << cache.error().Text();
  SharedModel shared(**cache, Devices::OfCpu(CpuTarget{}, "cc"), {.rank_rounds = 1'000'000});
  CostModel* model = shared.ToTeach(kCpuKind, {});
  Rng rng(1);
  ASSERT_TRUE(model->Add(MakeSamples(600, rng)));
  std::stop_source stop;
  std::jthread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    stop.request_stop();
  });
  EXPECT_FALSE(shared.LearnAnew(kCpuKind, stop.get_token()));
  EXPECT_EQ(model->NewSampleCount(), 600u);
}

// A search whose turn ends while it learns goes on searching in its next turn.
TEST(SharedModel, DoesNotLearnAgainAtOnceWhatItWasStoppedAt) {
  auto cache = ScheduleCache::Open({});
  ASSERT_TRUE(cache) << cache.error().Text();
  SharedModel shared(**cache, Devices::OfCpu(CpuTarget{}, "cc"), {.rank_rounds = 2});
  CostModel* model = shared.ToTeach(kCpuKind, {});
  Rng rng(1);
  ASSERT_TRUE(model->Add(MakeSamples(600, rng)));
  std::stop_source stop;
  stop.request_stop();
  EXPECT_FALSE(shared.LearnAnew(kCpuKind, stop.get_token()));
  EXPECT_FALSE(shared.LearnAnew(kCpuKind, {}));
  ASSERT_TRUE(model->Add(MakeSamples(16, rng)));
  EXPECT_TRUE(shared.LearnAnew(kCpuKind, {}));
}

}  // namespace
}  // namespace hone::shared_model_test
