// The cost model on made-up candidates: what it must learn, refuse and keep.
#include "tuner/xgb_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <thread>

#include "base/bytes.h"
#include "base/envelope.h"
#include "base/rng.h"
#include "tuner/features.h"

namespace hone {
namespace {

size_t BoundFeature() {
  auto names = FeatureNames();
  return static_cast<size_t>(std::find(names.begin(), names.end(), "bound.cycles") - names.begin());
}

// Time as a function of a few features: a penalty beyond a threshold, a product, a scale of the kernel. As among the
// candidates of a real kernel, most features are the same for all.
Sample MakeSample(uint64_t group, Rng& rng) {
  Sample sample;
  sample.group = group;
  sample.features.resize(FeatureNames().size());
  for (size_t i = 0; i < sample.features.size(); ++i)
    sample.features[i] = static_cast<float>(i < 32 || i == BoundFeature() ? rng.Uniform() * 8 : group);
  const std::vector<float>& f = sample.features;
  const double log_time = 0.25 * f[3] + (f[10] > 5 ? 0.7 : 0) + 0.02 * f[20] * f[21] + static_cast<double>(group);
  sample.time_us = std::exp2(log_time) * (1 + 0.02 * rng.Normal());
  return sample;
}

std::vector<Sample> MakeSamples(uint64_t group, size_t count, uint64_t seed) {
  Rng rng(seed);
  std::vector<Sample> samples;
  for (size_t i = 0; i < count; ++i) samples.push_back(MakeSample(group, rng));
  return samples;
}

// As MakeSamples, the first of them the default.
std::vector<Sample> WithDefault(uint64_t group, size_t count, uint64_t seed) {
  auto samples = MakeSamples(group, count, seed);
  samples[0].is_default = true;
  return samples;
}

std::vector<std::vector<float>> RowsOf(const std::vector<Sample>& samples) {
  std::vector<std::vector<float>> rows;
  for (const Sample& sample : samples) rows.push_back(sample.features);
  return rows;
}

std::vector<float> ScoresOf(const CostModel& model, uint64_t group, const std::vector<Sample>& samples) {
  auto scores = model.Score(group, RowsOf(samples));
  EXPECT_TRUE(scores) << scores.error().Text();
  if (!scores || !*scores) return {};
  EXPECT_EQ((*scores)->size(), samples.size());
  return **scores;
}

double Spearman(const std::vector<float>& scores, const std::vector<Sample>& samples) {
  auto ranks = [](auto key, size_t n) {
    std::vector<size_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
    std::vector<double> rank(n);
    for (size_t i = 0; i < n; ++i) rank[order[i]] = static_cast<double>(i);
    return rank;
  };
  const size_t n = samples.size();
  if (scores.size() != n || n < 2) return NAN;
  auto a = ranks([&](size_t i) { return scores[i]; }, n), b = ranks([&](size_t i) { return -samples[i].time_us; }, n);
  double squares = 0;
  for (size_t i = 0; i < n; ++i) squares += (a[i] - b[i]) * (a[i] - b[i]);
  return 1 - 6 * squares / (static_cast<double>(n) * static_cast<double>(n * n - 1));
}

// Fewer trees than a daemon has: enough for what is made up here.
XgbOptions Quick() {
  XgbOptions options;
  options.rank_rounds = 60;
  return options;
}

std::unique_ptr<CostModel> Trained(const XgbOptions& options = Quick()) {
  auto model = MakeXgbModel(options);
  for (uint64_t group = 0; group < 9; ++group) EXPECT_TRUE(model->Add(MakeSamples(group, 120, group + 1)));
  EXPECT_TRUE(model->Retrain());
  return model;
}

TEST(XgbModel, NothingLearntGivesNoScores) {
  auto model = MakeXgbModel();
  EXPECT_TRUE(model->Update(7));
  EXPECT_TRUE(model->Retrain());
  auto samples = MakeSamples(7, 3, 1);
  auto scores = model->Score(7, RowsOf(samples));
  ASSERT_TRUE(scores) << scores.error().Text();
  EXPECT_FALSE(scores->has_value());
  auto latency = model->Predict(samples[0].features);
  ASSERT_TRUE(latency);
  EXPECT_FALSE(latency->has_value());
}

TEST(XgbModel, RanksCandidatesOfAKernelItHasNotSeen) {
  for (RankLoss loss : {RankLoss::kThroughput, RankLoss::kWeightedThroughput, RankLoss::kLogTime, RankLoss::kPairwise,
                        RankLoss::kWeightedLogTime}) {
    XgbOptions options = Quick();
    options.loss = loss;
    auto model = Trained(options);
    auto unseen = MakeSamples(77, 200, 99);
    EXPECT_GT(Spearman(ScoresOf(*model, 77, unseen), unseen), 0.9) << static_cast<int>(loss);
  }
}

// Every second search of a kernel was made while the machine took three times as long: what it says of candidates is
// the same as what the others say.
TEST(XgbModel, SearchesOfAnotherHourAreComparedByTheirDefaults) {
  auto steady = MakeXgbModel(Quick()), moved = MakeXgbModel(Quick());
  for (uint64_t group = 0; group < 8; ++group) {
    for (uint64_t search = 0; search < 4; ++search) {
      auto samples = MakeSamples(group, 40, 10 * group + search + 1);
      samples.insert(samples.begin(), MakeSamples(group, 1, 1000 + group)[0]);  // one default for all of them
      samples[0].is_default = true;
      ASSERT_TRUE(steady->Add(samples));
      if (search % 2 == 1)
        for (Sample& sample : samples) sample.time_us *= 3;
      ASSERT_TRUE(moved->Add(samples));
    }
  }
  ASSERT_TRUE(steady->Retrain());
  ASSERT_TRUE(moved->Retrain());
  const auto unseen = MakeSamples(77, 100, 99);
  const auto expected = ScoresOf(*steady, 77, unseen), scores = ScoresOf(*moved, 77, unseen);
  const auto of_steady = steady->Gain(unseen[0].features, RowsOf(unseen));
  const auto of_moved = moved->Gain(unseen[0].features, RowsOf(unseen));
  ASSERT_TRUE(of_steady && *of_steady && of_moved && *of_moved);
  for (size_t i = 0; i < unseen.size(); ++i) {
    EXPECT_NEAR(scores[i], expected[i], 1e-3);
    EXPECT_NEAR((**of_moved).log2[i], (**of_steady).log2[i], 1e-3);
  }
}

TEST(XgbModel, AnUpdateLearnsAKernelFromItsOwnSamples) {
  auto model = MakeXgbModel();
  ASSERT_TRUE(model->Add(MakeSamples(5, 300, 3)));
  ASSERT_TRUE(model->Update(5));
  auto others = MakeSamples(5, 200, 4);
  EXPECT_GT(Spearman(ScoresOf(*model, 5, others), others), 0.85);
  // What was learnt of one kernel says nothing of another until the model is retrained.
  auto scores = model->Score(6, RowsOf(others));
  ASSERT_TRUE(scores);
  EXPECT_FALSE(scores->has_value());
}

TEST(XgbModel, AnUpdateCorrectsWhatOtherKernelsSay) {
  auto model = Trained();
  // On this kernel the feature that is bad elsewhere is good.
  auto reversed = [](uint64_t seed) {
    auto samples = MakeSamples(50, 300, seed);
    for (Sample& sample : samples) sample.time_us *= std::exp2(-0.75 * sample.features[3]);
    return samples;
  };
  auto test = reversed(2);
  const double before = Spearman(ScoresOf(*model, 50, test), test);
  EXPECT_LT(before, 0.2);
  ASSERT_TRUE(model->Add(reversed(1)));
  ASSERT_TRUE(model->Update(50));
  EXPECT_GT(Spearman(ScoresOf(*model, 50, test), test), before + 0.4);
  ASSERT_TRUE(model->Retrain());
  EXPECT_TRUE(model->Score(50, RowsOf(test)));
}

TEST(XgbModel, AnUpdateStartsFromWhatOtherKernelsSay) {
  auto model = Trained();
  auto samples = MakeSamples(50, 200, 8);
  ASSERT_TRUE(model->Add(samples));
  ASSERT_TRUE(model->Update(50));
  const double best =
      std::min_element(samples.begin(), samples.end(), [](auto& a, auto& b) { return a.time_us < b.time_us; })->time_us;
  std::vector<float> scores = ScoresOf(*model, 50, samples);
  double off = 0;
  for (size_t i = 0; i < samples.size(); ++i)
    off += std::abs(scores[i] - best / samples[i].time_us) / static_cast<double>(samples.size());
  EXPECT_LT(off, 0.1);  // scores are shares of the best throughput, not twice of it
}

TEST(XgbModel, OneSampleIsEnoughToGoOn) {
  auto model = MakeXgbModel(Quick());
  ASSERT_TRUE(model->Add(MakeSamples(1, 1, 1)));
  ASSERT_TRUE(model->Update(1));
  ASSERT_TRUE(model->Retrain());
  auto samples = MakeSamples(1, 4, 2);
  for (float score : ScoresOf(*model, 1, samples)) EXPECT_TRUE(std::isfinite(score));
  auto latency = model->Predict(samples[0].features);
  ASSERT_TRUE(latency && *latency);
  EXPECT_GT((*latency)->expected_us, 0);
}

TEST(XgbModel, RefusesNumbersThatAreNone) {
  auto model = Trained();
  const size_t before = model->SampleCount();
  auto bad = [&](auto edit) {
    auto samples = MakeSamples(1, 3, 1);
    edit(samples[1]);
    Result<void> added = model->Add(samples);
    EXPECT_FALSE(added);
    if (!added) { EXPECT_EQ(added.error().kind, ErrorKind::kInvalid); }
    EXPECT_EQ(model->SampleCount(), before);  // not even the first
  };
  bad([](Sample& s) { s.features[4] = std::numeric_limits<float>::quiet_NaN(); });
  bad([](Sample& s) { s.features[4] = std::numeric_limits<float>::infinity(); });
  bad([](Sample& s) { s.features.pop_back(); });
  bad([](Sample& s) { s.features.push_back(0); });
  bad([](Sample& s) { s.features.clear(); });
  bad([](Sample& s) { s.time_us = 0; });
  bad([](Sample& s) { s.time_us = -1; });
  bad([](Sample& s) { s.time_us = std::numeric_limits<double>::infinity(); });
  bad([](Sample& s) { s.time_us = std::numeric_limits<double>::quiet_NaN(); });
  auto row = MakeSamples(1, 1, 1)[0].features;
  row[0] = std::numeric_limits<float>::quiet_NaN();
  auto scores = model->Score(1, std::vector<std::vector<float>>{row});
  ASSERT_FALSE(scores);
  EXPECT_EQ(scores.error().kind, ErrorKind::kInvalid);
  EXPECT_FALSE(model->Predict(row));
  EXPECT_NE(scores.error().message.find(FeatureNames()[0]), std::string::npos) << scores.error().message;
}

TEST(XgbModel, NoRowsGiveNoScores) {
  auto model = Trained();
  auto scores = model->Score(1, {});
  ASSERT_TRUE(scores && *scores);
  EXPECT_TRUE((*scores)->empty());
}

TEST(XgbModel, TheSameSeedGivesTheSameScores) {
  auto probe = MakeSamples(1, 100, 55);
  auto one = Trained();
  XgbOptions reseeded = Quick();
  reseeded.seed = 2;
  auto other = Trained(reseeded);  // what another model does in between does not matter
  auto two = Trained();
  EXPECT_EQ(ScoresOf(*one, 1, probe), ScoresOf(*two, 1, probe));
  EXPECT_NE(ScoresOf(*one, 1, probe), ScoresOf(*other, 1, probe));
  ASSERT_TRUE(one->Update(3));
  ASSERT_TRUE(two->Update(2));
  ASSERT_TRUE(two->Update(3));
  EXPECT_EQ(ScoresOf(*one, 3, probe), ScoresOf(*two, 3, probe));
}

TEST(XgbModel, ScoresDoNotDependOnTheBatch) {
  auto model = Trained();
  auto probe = MakeSamples(1, 64, 55);
  std::vector<float> together = ScoresOf(*model, 1, probe);
  for (size_t i = 0; i < probe.size(); ++i) EXPECT_EQ(ScoresOf(*model, 1, {probe[i]})[0], together[i]);
}

TEST(XgbModel, SaysHowLongAndHowSure) {
  auto model = MakeXgbModel(Quick());
  const size_t bound = BoundFeature();
  auto make = [&](uint64_t group, uint64_t seed) {
    auto samples = MakeSamples(group, 100, seed);
    Rng rng(seed);
    // Cycles at 4 GHz, off by up to ± 20 %.
    for (Sample& sample : samples)
      sample.time_us = std::exp2(sample.features[bound]) / 4000 * (0.8 + 0.4 * rng.Uniform());
    return samples;
  };
  for (uint64_t group = 0; group < 10; ++group) ASSERT_TRUE(model->Add(make(group, group + 1)));
  ASSERT_TRUE(model->Retrain());
  auto unseen = make(99, 123);
  int inside = 0;
  for (const Sample& sample : unseen) {
    auto latency = model->Predict(sample.features);
    ASSERT_TRUE(latency && *latency);
    EXPECT_LE((*latency)->low_us, (*latency)->expected_us);
    EXPECT_LE((*latency)->expected_us, (*latency)->high_us);
    EXPECT_NEAR(std::log2((*latency)->expected_us / sample.time_us), 0, 0.6);
    inside += sample.time_us >= (*latency)->low_us && sample.time_us <= (*latency)->high_us;
  }
  EXPECT_GT(inside, 65);
  EXPECT_LT(inside, 96);
}

TEST(XgbModel, GainsOverTheDefaultOfAKernelItHasNotSeen) {
  auto model = MakeXgbModel(Quick());
  for (uint64_t group = 0; group < 12; ++group) ASSERT_TRUE(model->Add(WithDefault(group, 120, group + 1)));
  ASSERT_TRUE(model->Retrain());
  auto unseen = WithDefault(77, 200, 99);
  auto gains = model->Gain(unseen[0].features, RowsOf(unseen));
  ASSERT_TRUE(gains && *gains);
  const std::vector<float>& log2 = (*gains)->log2;
  ASSERT_EQ(log2.size(), unseen.size());
  EXPECT_EQ(log2[0], 0);
  EXPECT_GT(Spearman(log2, unseen), 0.8);
  EXPECT_GT((*gains)->trust, 0.7);
  const size_t promised = static_cast<size_t>(std::max_element(log2.begin(), log2.end()) - log2.begin());
  EXPECT_GT(log2[promised], 0.3);
  EXPECT_NEAR(log2[promised], std::log2(unseen[0].time_us / unseen[promised].time_us), 1);
}

TEST(XgbModel, GainsThatDidNotHoldAreNotTrusted) {
  auto model = MakeXgbModel(Quick());
  Rng rng(5);
  for (uint64_t group = 0; group < 12; ++group) {
    auto samples = WithDefault(group, 60, group + 1);
    for (Sample& sample : samples) sample.time_us = std::exp2(rng.Normal());  // of nothing that can be seen
    samples[0].time_us = 1;
    ASSERT_TRUE(model->Add(samples));
  }
  ASSERT_TRUE(model->Retrain());
  auto unseen = WithDefault(77, 100, 99);
  auto gains = model->Gain(unseen[0].features, RowsOf(unseen));
  ASSERT_TRUE(gains && *gains);
  EXPECT_LT((*gains)->trust, 0.3);
}

TEST(XgbModel, NoGainsWithoutADefault) {
  auto model = Trained();
  auto rows = RowsOf(MakeSamples(1, 3, 1));
  auto gains = model->Gain(rows[0], rows);
  ASSERT_TRUE(gains);
  EXPECT_FALSE(gains->has_value());
  rows[1].pop_back();
  EXPECT_FALSE(model->Gain(rows[0], rows));
  EXPECT_FALSE(model->Gain(rows[1], rows));
  // One kernel proves nothing of others.
  auto one = MakeXgbModel(Quick());
  ASSERT_TRUE(one->Add(WithDefault(1, 50, 1)));
  ASSERT_TRUE(one->Retrain());
  rows = RowsOf(MakeSamples(1, 3, 1));
  gains = one->Gain(rows[0], rows);
  ASSERT_TRUE(gains && *gains);
  EXPECT_EQ((*gains)->trust, 0);
}

TEST(XgbModel, KeepsNoMoreSamplesThanItMay) {
  auto model = MakeXgbModel({.rank_rounds = 10, .max_samples = 100});
  ASSERT_TRUE(model->Add(MakeSamples(1, 20, 1)));
  ASSERT_TRUE(model->Add(MakeSamples(2, 300, 1)));
  EXPECT_EQ(model->SampleCount(), 100u);
  EXPECT_EQ(model->NewSampleCount(), 320u);
  ASSERT_TRUE(model->Retrain());
  EXPECT_EQ(model->NewSampleCount(), 0u);
  ASSERT_TRUE(model->Add(MakeSamples(3, 101, 1)));
  EXPECT_EQ(model->SampleCount(), 100u);
  EXPECT_EQ(model->NewSampleCount(), 101u);
  ASSERT_TRUE(model->Update(1));  // the small group is still there
  EXPECT_TRUE(ScoresOf(*model, 1, MakeSamples(1, 2, 1)).size() == 2);
}

TEST(XgbModel, ASavedModelGivesTheSameScores) {
  auto model = MakeXgbModel(Quick());
  for (uint64_t group = 0; group < 9; ++group) ASSERT_TRUE(model->Add(WithDefault(group, 120, group + 1)));
  ASSERT_TRUE(model->Retrain());
  ASSERT_TRUE(model->Add(MakeSamples(40, 50, 5)));
  ASSERT_TRUE(model->Update(40));
  Result<std::string> saved = model->Save();
  ASSERT_TRUE(saved) << saved.error().Text();
  auto loaded = LoadXgbModel(*saved);
  ASSERT_TRUE(loaded) << loaded.error().Text();
  auto probe = MakeSamples(1, 100, 55);
  EXPECT_EQ(ScoresOf(*model, 1, probe), ScoresOf(**loaded, 1, probe));
  EXPECT_EQ(ScoresOf(*model, 40, probe), ScoresOf(**loaded, 40, probe));
  EXPECT_NE(ScoresOf(*model, 40, probe), ScoresOf(*model, 1, probe));
  EXPECT_EQ((*model->Predict(probe[0].features))->high_us, (*(*loaded)->Predict(probe[0].features))->high_us);
  auto gains = model->Gain(probe[0].features, RowsOf(probe)), same = (*loaded)->Gain(probe[0].features, RowsOf(probe));
  ASSERT_TRUE(gains && *gains && same && *same);
  EXPECT_EQ((*gains)->log2, (*same)->log2);
  EXPECT_EQ((*gains)->trust, (*same)->trust);
  EXPECT_EQ(*(*loaded)->Save(), *saved);
  // It goes on learning on top of what was saved.
  ASSERT_TRUE((*loaded)->Add(MakeSamples(41, 50, 6)));
  ASSERT_TRUE((*loaded)->Update(41));
  EXPECT_EQ(ScoresOf(**loaded, 41, probe).size(), probe.size());
}

TEST(XgbModel, AnEmptyModelIsSavedToo) {
  Result<std::string> saved = MakeXgbModel()->Save();
  ASSERT_TRUE(saved);
  auto loaded = LoadXgbModel(*saved);
  ASSERT_TRUE(loaded) << loaded.error().Text();
  EXPECT_FALSE((*loaded)->Score(1, RowsOf(MakeSamples(1, 1, 1)))->has_value());
}

std::string SmallSaved() {
  auto model = MakeXgbModel({.rank_rounds = 2, .correction_rounds = 1});
  EXPECT_TRUE(model->Add(WithDefault(1, 40, 1)));
  EXPECT_TRUE(model->Retrain());
  EXPECT_TRUE(model->Update(1));
  return model->Save().value();
}

TEST(XgbModel, RefusesEveryTruncation) {
  const std::string saved = SmallSaved();
  ASSERT_TRUE(LoadXgbModel(saved));
  for (size_t size = 0; size < saved.size(); ++size) {
    auto loaded = LoadXgbModel(std::string_view(saved).substr(0, size));
    ASSERT_FALSE(loaded) << size;
    ASSERT_EQ(loaded.error().kind, ErrorKind::kCorrupt) << size;
  }
  EXPECT_FALSE(LoadXgbModel(saved + "x"));
}

TEST(XgbModel, RefusesEveryFlippedByte) {
  const std::string saved = SmallSaved();
  for (size_t i = 0; i < saved.size(); ++i) {
    std::string damaged = saved;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << i % 8));
    ASSERT_FALSE(LoadXgbModel(damaged)) << i;
  }
}

// Damage under a right checksum: the trees themselves must not take the process down.
TEST(XgbModel, RefusesTreesThatAreNone) {
  auto sealed = [](std::string_view trees) {
    ByteWriter out;
    out.U32(kFeatureVersion);
    out.U8(static_cast<uint8_t>(RankLoss::kLogTime));
    out.String(trees);
    out.String("");
    for (int i = 0; i < 3; ++i) out.F64(0);
    out.Varint(0);
    return Seal(ValueType::kModel, 1, out.view());  // without the gains that version 2 has
  };
  EXPECT_TRUE(LoadXgbModel(sealed("")));
  for (std::string_view trees :
       {"x", "{", "{}", "{\"a\":1}", "binf", "{L\x00\x00", "not a model at all, but long enough to be taken for one",
        "{\"learner\":", "{\"learner\":{}}", "{\"version\":[1,7,4],\"learner\":[]}", "{\"a\":[1e999999,{}]"}) {
    auto loaded = LoadXgbModel(sealed(trees));
    ASSERT_FALSE(loaded) << trees;
    EXPECT_EQ(loaded.error().kind, ErrorKind::kCorrupt) << trees;
  }
}

TEST(XgbModel, RefusesAnotherFeatureVersion) {
  const std::string saved = SmallSaved();
  std::string body(Unseal(ValueType::kModel, 2, saved).value());
  body[0] = static_cast<char>(kFeatureVersion + 1);
  auto loaded = LoadXgbModel(Seal(ValueType::kModel, 2, body));
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().kind, ErrorKind::kUnsupported);
  body[0] = static_cast<char>(kFeatureVersion);
  EXPECT_TRUE(LoadXgbModel(Seal(ValueType::kModel, 2, body)));
  loaded = LoadXgbModel(Seal(ValueType::kModel, 3, body));
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().kind, ErrorKind::kUnsupported);
  EXPECT_FALSE(LoadXgbModel(Seal(ValueType::kRecord, 1, body)));
}

TEST(XgbModel, ScoresWhileItLearns) {
  auto model = Trained({.rank_rounds = 20});
  auto probe = MakeSamples(1, 16, 55);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) EXPECT_EQ(ScoresOf(*model, 1, probe).size(), probe.size());
    });
  threads.emplace_back([&] { EXPECT_TRUE(model->Retrain()); });
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(model->Add(MakeSamples(1, 10, static_cast<uint64_t>(i))));
    EXPECT_TRUE(model->Update(1));
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace hone
