#include "daemon/refine/shared_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/log.h"
#include "tuner/measure.h"
#include "tuner/space.h"
#include "tuner/xgb_model.h"

namespace hone {
namespace {

constexpr std::string_view kModelName = "cpu";
constexpr size_t kLearnEvery =
    512;  // samples, or a quarter of those there are: learning takes as long as they are many
constexpr size_t kFewestToLearn = 16;
constexpr size_t kMostSamples = 8192;  // taken from the log at the first search: seconds …
constexpr size_t kFewestOfOne = 24;    // … of each kernel as many, since many kernels teach more than many trials
constexpr size_t kMostOfOne = 512;

size_t NextLearning(size_t samples) { return samples + std::max(kLearnEvery, samples / 4); }

}  // namespace

uint64_t SampleGroup(const CacheKey& key) {
  Digest64 hash = Hash64(fmt::format("{} {} {}", key.fingerprint.Hex(), key.threads, key.target));
  uint64_t group;
  std::memcpy(&group, hash.data(), sizeof group);
  return group;
}

CostModel* SharedModel::ToTeach(std::stop_token stop) {
  if (!model_) Load(stop);
  MutexLock lock(mutex_);
  asked_ = model_;
  return model_.get();
}

void SharedModel::Load(std::stop_token stop) {
  bool is_of_no_use = false;
  Result<std::optional<std::string>> saved = cache_.GetModel(kModelName);
  if (saved && *saved) {
    Result<std::unique_ptr<CostModel>> loaded = LoadXgbModel(**saved);
    if (loaded) {
      model_ = *std::move(loaded);
    } else {
      LogWarn("model_left_out", {{"why", loaded.error().Text()}});
      is_of_no_use = true;
    }
  }
  const bool is_new = !model_;
  if (is_new) model_ = MakeXgbModel();
  // Trials of this machine's records, until there are enough to learn from.
  const std::string target = PrintTarget(host_);
  size_t searched = 0;
  (void)cache_.ForEachRecord(std::nullopt, [&](const Record& record) {
    searched += record.key.target == target && record.origin == Origin::kTuned ? 1 : 0;
    return true;
  });
  const size_t of_one = std::clamp(kMostSamples / std::max<size_t>(1, searched), kFewestOfOne, kMostOfOne);
  size_t left = kMostSamples;
  (void)cache_.ForEachRecord(std::nullopt, [&](const Record& record) {
    if (record.key.target != target) return true;
    Result<Space> space = Space::Open(record.key.canonical, host_);
    if (!space) return true;
    uint64_t group = SampleGroup(record.key);
    std::vector<Sample> samples;
    const Result<Candidate> standard = space->Default();
    (void)cache_.ForEachTrial(record.key, [&](const TrialRecord& trial) {
      if (trial.verdict != static_cast<uint8_t>(Verdict::kTimed) || trial.time.count() <= 0) return true;
      Result<Candidate> candidate = space->Parse(trial.choices);
      // Rules may have changed since: what another program took says nothing about this one.
      if (candidate && candidate->program == trial.program)
        samples.push_back({candidate->features, static_cast<double>(trial.time.count()) / 1e3, group,
                           standard && candidate->program == standard->program});
      return samples.size() < of_one && samples.size() < left;
    });
    left -= samples.size();
    if (Result<void> added = model_->Add(samples); !added) LogWarn("samples_refused", {{"why", added.error().Text()}});
    return left > 0 && !stop.stop_requested();
  });
  // What takes the place of a model that was there does not wait for as many samples again.
  learn_at_ = is_of_no_use ? kFewestToLearn : is_new ? kLearnEvery : NextLearning(model_->SampleCount());
}

void SharedModel::LearnAnew() {
  if (model_->SampleCount() < learn_at_) return;
  if (Result<void> trained = model_->Retrain(); !trained)
    return LogWarn("model_not_trained", {{"why", trained.error().Text()}});
  learn_at_ = NextLearning(model_->SampleCount());
  Result<std::string> saved = model_->Save();
  if (saved)
    (void)cache_.PutModel(kModelName, *saved);
  else
    LogWarn("model_not_kept", {{"why", saved.error().Text()}});
}

Result<std::shared_ptr<const CostModel>> SharedModel::ToAsk() {
  MutexLock lock(mutex_);
  if (!asked_) {
    std::optional<std::string> saved = HONE_TRY(cache_.GetModel(kModelName));
    if (!saved)
      return Error{
          ErrorKind::kNotFound,
          "there is no cost model yet: it learns from searches; `hone tune` some kernels, or leave the machine "
          "idle for a while",
          "model"};
    Result<std::unique_ptr<CostModel>> loaded = LoadXgbModel(*saved);
    if (!loaded)
      return Error{ErrorKind::kNotFound,
                   fmt::format("the stored cost model is of no use: {}; the next search (`hone tune`) trains another",
                               loaded.error().Text()),
                   "model"};
    asked_ = *std::move(loaded);
  }
  return asked_;
}

}  // namespace hone
