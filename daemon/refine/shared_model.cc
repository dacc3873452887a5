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

namespace hone {
namespace {

// Learning takes as long as samples are many: the first few kernels are enough to begin with, then half as many samples
// again, then so many, then a quarter of those there are. How far it is to be believed it says itself (Gains::trust).
constexpr size_t kLearnFirst = 128;
constexpr size_t kLearnEvery = 512;
constexpr size_t kFewestToLearn = 16;
constexpr size_t kMostSamples = 8192;  // taken from the log at the first search: seconds …
constexpr size_t kFewestOfOne = 24;    // … of each kernel as many, since many kernels teach more than many trials
constexpr size_t kMostOfOne = 512;

size_t EnoughAfter(size_t samples) { return std::max(std::clamp(samples / 2, kLearnFirst, kLearnEvery), samples / 4); }

}  // namespace

uint64_t SampleGroup(const CacheKey& key) {
  Digest64 hash = Hash64(fmt::format("{} {} {}", key.fingerprint.Hex(), key.threads, key.target));
  uint64_t group;
  std::memcpy(&group, hash.data(), sizeof group);
  return group;
}

CostModel* SharedModel::ToTeach(std::string_view kind, std::stop_token stop) {
  auto taught = taught_.find(kind);
  if (taught == taught_.end()) taught = taught_.emplace(std::string(kind), Load(kind, stop)).first;
  MutexLock lock(mutex_);
  asked_[std::string(kind)] = taught->second.model;
  return taught->second.model.get();
}

Result<std::unique_ptr<CostModel>> SharedModel::Stored(std::string_view kind) const {
  const std::optional<std::string> saved = HONE_TRY(cache_.GetModel(std::string(kind)));
  if (saved) return LoadXgbModel(*saved, options_);
  return Error{ErrorKind::kNotFound,
               "there is no cost model yet: it learns from searches; `hone tune` some kernels, or leave the machine "
               "idle for a while",
               "model"};
}

SharedModel::Taught SharedModel::Load(std::string_view kind, std::stop_token stop) {
  Taught taught;
  std::shared_ptr<CostModel>& model = taught.model;
  bool is_of_no_use = false;
  Result<std::unique_ptr<CostModel>> loaded = Stored(kind);
  if (loaded) {
    model = *std::move(loaded);
  } else if (loaded.error().kind != ErrorKind::kNotFound) {
    LogWarn("model_left_out", {{"why", loaded.error().Text()}});
    is_of_no_use = true;
  }
  const bool is_new = !model;
  if (is_new) model = MakeXgbModel(options_);
  // Trials of the records of this machine's devices of the kind, until there are enough to learn from.
  auto device_of = [&](const Record& record) {
    const ServedDevice* device = devices_.Find(record.key.target);
    return device != nullptr && device->target.kind() == kind ? device : nullptr;
  };
  size_t searched = 0;
  (void)cache_.ForEachRecord(std::nullopt, [&](const Record& record) {
    searched += device_of(record) != nullptr && record.origin == Origin::kTuned ? 1 : 0;
    return true;
  });
  const size_t of_one = std::clamp(kMostSamples / std::max<size_t>(1, searched), kFewestOfOne, kMostOfOne);
  size_t left = kMostSamples;
  (void)cache_.ForEachRecord(std::nullopt, [&](const Record& record) {
    const ServedDevice* device = device_of(record);
    if (device == nullptr) return true;
    Result<Space> space = Space::Open(record.key.canonical, device->target);
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
    if (Result<void> added = model->Add(samples); !added) LogWarn("samples_refused", {{"why", added.error().Text()}});
    return left > 0 && !stop.stop_requested();
  });
  // What takes the place of a model that was there does not wait for as many samples again.
  taught.enough = is_of_no_use ? kFewestToLearn
                  : is_new     ? kLearnFirst
                               : model->NewSampleCount() + EnoughAfter(model->SampleCount());
  return taught;
}

bool SharedModel::LearnAnew(std::string_view kind, const std::stop_token& stop) {
  auto found = taught_.find(kind);
  if (found == taught_.end()) return false;
  auto& [model, enough] = found->second;
  if (model->NewSampleCount() < enough) return false;
  Result<void> trained = model->Retrain(stop);
  if (!trained && stop.stop_requested()) {
    // Not again at once: a search whose turns are shorter than it takes to learn would come to nothing else.
    enough = model->NewSampleCount() + kFewestToLearn;
    return false;
  }
  if (!trained) LogWarn("model_not_trained", {{"why", trained.error().Text()}});
  enough = model->NewSampleCount() + EnoughAfter(model->SampleCount());
  return trained.has_value();
}

void SharedModel::Keep(std::string_view kind) {
  auto found = taught_.find(kind);
  if (found == taught_.end()) return;
  Result<std::string> saved = found->second.model->Save();
  if (saved)
    (void)cache_.PutModel(std::string(kind), *saved);
  else
    LogWarn("model_not_kept", {{"why", saved.error().Text()}});
}

Result<std::shared_ptr<const CostModel>> SharedModel::ToAsk(std::string_view kind) {
  MutexLock lock(mutex_);
  std::shared_ptr<const CostModel>& asked = asked_[std::string(kind)];
  if (!asked) {
    Result<std::unique_ptr<CostModel>> loaded = Stored(kind);
    if (!loaded && loaded.error().kind == ErrorKind::kNotFound) return std::move(loaded).error();
    if (!loaded)
      return Error{ErrorKind::kNotFound,
                   fmt::format("the stored cost model is of no use: {}; the next search (`hone tune`) trains another",
                               loaded.error().Text()),
                   "model"};
    asked = *std::move(loaded);
  }
  return asked;
}

}  // namespace hone
