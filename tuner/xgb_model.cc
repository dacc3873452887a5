//   model     ::= feature_version:u32 loss:u8 rank:string latency:string low:f64 middle:f64 high:f64
//                 count:varint (group:u64 correction:string)* gain:string trust:f64
// in an envelope (base/envelope.h); strings are boosters (Booster::Save), empty where there is none. Version 1 had
// neither gain nor trust.
#include "tuner/xgb_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/bytes.h"
#include "base/check.h"
#include "base/envelope.h"
#include "base/mutex.h"
#include "tuner/booster.h"
#include "tuner/features.h"

namespace hone {
namespace {

constexpr uint8_t kFormatVersion = 2;
constexpr size_t kMaxBoosterBytes = 256 << 20;
constexpr uint64_t kMaxCorrections = 1 << 16;
constexpr double kWorstLog = -8;   // log2(best / time): slower ones are all alike
constexpr double kWorstGain = -2;  // log2(default / time): the same
constexpr size_t kPromising = 8;   // candidates of a group that gains are judged by
constexpr double kDoubt = 0.25;    // log2 squared: as if one more group had been promised a half and got nothing
constexpr int kFolds = 4;          // held-out parts for the bounds of Predict

// What was learnt: replaced as a whole, never changed.
struct Learnt {
  BoosterPtr rank;
  std::map<uint64_t, BoosterPtr> corrections;  // by group; on top of `rank`
  BoosterPtr latency;                          // log2 of the time in µs over the bound in cycles
  double low = 0, middle = 0, high = 0;        // quantiles of its error on groups held out, in log2
  BoosterPtr gain;                             // log2 of the default's time over the time
  double trust = 0;                            // how much of a predicted gain is real on groups held out, 0 … 1
};

struct Group {
  std::vector<float> rows;
  std::vector<double> times;
  std::vector<double> defaults;    // the default's time that was the newest when a row was timed; 0: none was
  std::vector<float> default_row;  // empty: it was not timed
  double default_us = 0;           // the newest of its times

  // In times of the default, if there is one at all, else µs: what one group's rows are compared by.
  double Relative(size_t i) const {
    const double by = defaults[i] > 0 ? defaults[i] : default_us;
    return by > 0 ? times[i] / by : times[i];
  }
};
using Groups = std::map<uint64_t, Group>;

size_t Width() { return FeatureNames().size(); }

size_t BoundFeature() {
  static const size_t kIndex = [] {
    auto names = FeatureNames();
    auto found = std::find(names.begin(), names.end(), "bound.cycles");
    HONE_CHECK(found != names.end());
    return static_cast<size_t>(found - names.begin());
  }();
  return kIndex;
}

Result<void> CheckRow(const std::vector<float>& row) {
  if (row.size() != Width())
    return Error{ErrorKind::kInvalid,
                 fmt::format("{} features, wanted {}: of another feature version?", row.size(), Width()), ""};
  for (size_t f = 0; f < row.size(); ++f)
    if (!std::isfinite(row[f]))
      return Error{ErrorKind::kInvalid, fmt::format("feature {} is {}", FeatureNames()[f], row[f]), ""};
  return {};
}

// The rows one after the other.
Result<std::vector<float>> Flat(std::span<const std::vector<float>> rows) {
  std::vector<float> flat;
  flat.reserve(rows.size() * Width());
  for (const std::vector<float>& row : rows) {
    HONE_TRY(CheckRow(row));
    flat.insert(flat.end(), row.begin(), row.end());
  }
  return flat;
}

void AppendRank(const Group& group, RankLoss loss, Table& table) {
  std::vector<double> times(group.times.size());
  for (size_t i = 0; i < times.size(); ++i) times[i] = group.Relative(i);
  const double best = *std::min_element(times.begin(), times.end());
  for (double time : times) {
    const double throughput = best / time;
    const bool log = loss == RankLoss::kLogTime || loss == RankLoss::kWeightedLogTime;
    table.labels.push_back(static_cast<float>(log ? std::max(kWorstLog, std::log2(throughput)) : throughput));
    const bool weighted = loss == RankLoss::kWeightedThroughput || loss == RankLoss::kWeightedLogTime;
    table.weights.push_back(weighted ? static_cast<float>(0.05 + throughput) : 1.0f);
  }
  table.rows.insert(table.rows.end(), group.rows.begin(), group.rows.end());
  table.groups.push_back(static_cast<unsigned>(group.times.size()));
}

void AppendLatency(const Group& group, Table& table) {
  table.rows.insert(table.rows.end(), group.rows.begin(), group.rows.end());
  for (size_t i = 0; i < group.times.size(); ++i)
    table.labels.push_back(static_cast<float>(std::log2(group.times[i]) - group.rows[i * Width() + BoundFeature()]));
}

// A row of the gain trees: what is different from the default, and the default.
void AppendGainRow(std::span<const float> row, std::span<const float> from, std::vector<float>& rows) {
  for (size_t f = 0; f < from.size(); ++f) rows.push_back(row[f] - from[f]);
  rows.insert(rows.end(), from.begin(), from.end());
}

double GainOf(const Group& group, size_t i) { return std::max(kWorstGain, -std::log2(group.Relative(i))); }

void AppendGain(const Group& group, Table& table) {
  if (group.default_row.empty()) return;
  for (size_t i = 0; i < group.times.size(); ++i) {
    const double gain = GainOf(group, i);
    AppendGainRow({group.rows.data() + i * Width(), Width()}, group.default_row, table.rows);
    table.labels.push_back(static_cast<float>(gain));
    table.weights.push_back(static_cast<float>(std::exp2(2 * std::min(gain, 1.0))));  // the fast end counts
  }
}

Table EmptyTable(size_t width = Width()) {
  Table table;
  table.width = width;
  return table;
}

template <typename Append>
Table TableOf(const Groups& groups, size_t width, const Append& append) {
  Table table = EmptyTable(width);
  for (const auto& [id, group] : groups) append(group, table);
  return table;
}

double Quantile(std::vector<double>& values, double q) {
  if (values.empty()) return 0;
  auto at = values.begin() + static_cast<ptrdiff_t>(q * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

// What the trees say of each of the rows, which lie one after the other, less what they say of the default itself.
Result<std::vector<float>> GainsBy(const Booster& trees, std::span<const float> standard, std::span<const float> rows) {
  std::vector<float> flat;
  flat.reserve(2 * (rows.size() + Width()));
  for (size_t i = 0; i < rows.size(); i += Width()) AppendGainRow(rows.subspan(i, Width()), standard, flat);
  AppendGainRow(standard, standard, flat);
  std::vector<float> gains(rows.size() / Width() + 1, 0);
  HONE_TRY(trees.Predict(flat.data(), gains.size(), 2 * Width(), gains));
  for (float& gain : gains) gain -= gains.back();
  gains.pop_back();
  return gains;
}

class XgbModel : public CostModel {
 public:
  explicit XgbModel(const XgbOptions& options, Learnt learnt = {})
      : options_(options), learnt_(std::make_shared<const Learnt>(std::move(learnt))) {}

  Result<void> Add(std::span<const Sample> samples) override {
    for (size_t i = 0; i < samples.size(); ++i) {
      const Sample& sample = samples[i];
      if (Result<void> checked = CheckRow(sample.features); !checked)
        return std::move(checked).error().Context(fmt::format("sample {}", i));
      if (!std::isfinite(sample.time_us) || sample.time_us <= 0)
        return Error{ErrorKind::kInvalid, fmt::format("sample {}: a time of {} µs", i, sample.time_us), ""};
    }
    MutexLock lock(samples_mutex_);
    for (const Sample& sample : samples) {
      Group& group = groups_[sample.group];
      group.rows.insert(group.rows.end(), sample.features.begin(), sample.features.end());
      if (sample.is_default) {
        group.default_row = sample.features;
        group.default_us = sample.time_us;
      }
      group.times.push_back(sample.time_us);
      group.defaults.push_back(group.default_us);
      ++sample_count_;
      ++new_sample_count_;
    }
    if (sample_count_ > options_.max_samples) DropOldest();
    return {};
  }

  Result<void> Update(uint64_t group) override {
    Table table = EmptyTable();
    {
      MutexLock lock(samples_mutex_);
      auto found = groups_.find(group);
      if (found == groups_.end()) return {};
      AppendRank(found->second, options_.loss, table);
    }
    std::shared_ptr<const Learnt> before = Current();
    if (before->rank) {
      table.margins.assign(table.size(), 0);
      HONE_TRY(before->rank->Predict(table.rows.data(), table.size(), table.width, table.margins));
    }
    TrainOptions train = RankOptions();
    // Smaller trees than for all kernels: as good on 16 to 64 samples, and twice as fast on 2,000.
    train.rounds = options_.correction_rounds;
    train.eta = 0.2;
    train.depth = 5;
    train.columns = 0.5;
    BoosterPtr correction = HONE_TRY(Booster::Train(table, train));
    MutexLock lock(learnt_mutex_);
    if (learnt_->rank != before->rank) return {};  // corrects trees that were replaced meanwhile
    Learnt next = *learnt_;
    next.corrections[group] = std::move(correction);
    learnt_ = std::make_shared<const Learnt>(std::move(next));
    return {};
  }

  Result<void> Retrain(const std::stop_token& stop) override {
    Groups groups;
    size_t learnt_from = 0;
    {
      MutexLock lock(samples_mutex_);
      groups = groups_;
      learnt_from = new_sample_count_;
    }
    if (groups.empty()) return {};
    TrainOptions train = RankOptions();
    train.rounds = options_.rank_rounds;
    train.stop = stop;
    Learnt next;
    // One table after the other: each takes as much memory as all samples, or twice that.
    next.rank = HONE_TRY(Booster::Train(
        TableOf(groups, Width(), [&](const Group& group, Table& table) { AppendRank(group, options_.loss, table); }),
        train));
    train.pairwise = false;
    HONE_TRY(LearnLatency(groups, train, next));
    HONE_TRY(LearnGain(groups, train, next));
    {
      MutexLock lock(learnt_mutex_);
      learnt_ = std::make_shared<const Learnt>(std::move(next));
    }
    MutexLock lock(samples_mutex_);
    new_sample_count_ -= learnt_from;
    return {};
  }

  Result<std::optional<std::vector<float>>> Score(uint64_t group,
                                                  std::span<const std::vector<float>> rows) const override {
    std::vector<float> flat = HONE_TRY(Flat(rows));
    std::shared_ptr<const Learnt> learnt = Current();
    auto correction = learnt->corrections.find(group);
    if (!learnt->rank && correction == learnt->corrections.end()) return std::optional<std::vector<float>>();
    std::vector<float> scores(rows.size(), 0);
    if (rows.empty()) return std::optional(std::move(scores));
    if (learnt->rank) HONE_TRY(learnt->rank->Predict(flat.data(), rows.size(), Width(), scores));
    if (correction != learnt->corrections.end())
      HONE_TRY(correction->second->Predict(flat.data(), rows.size(), Width(), scores));
    return std::optional(std::move(scores));
  }

  Result<std::optional<Latency>> Predict(const std::vector<float>& row) const override {
    HONE_TRY(CheckRow(row));
    std::shared_ptr<const Learnt> learnt = Current();
    if (!learnt->latency) return std::optional<Latency>();
    std::vector<float> out(1, row[BoundFeature()]);
    HONE_TRY(learnt->latency->Predict(row.data(), 1, Width(), out));
    Latency latency;
    latency.expected_us = std::exp2(out[0] + learnt->middle);
    latency.low_us = std::exp2(out[0] + learnt->low);
    latency.high_us = std::exp2(out[0] + learnt->high);
    return std::optional(latency);
  }

  Result<std::optional<Gains>> Gain(const std::vector<float>& standard,
                                    std::span<const std::vector<float>> rows) const override {
    HONE_TRY(CheckRow(standard));
    std::vector<float> flat = HONE_TRY(Flat(rows));
    std::shared_ptr<const Learnt> learnt = Current();
    if (!learnt->gain) return std::optional<Gains>();
    return std::optional(Gains{HONE_TRY(GainsBy(*learnt->gain, standard, flat)), learnt->trust});
  }

  size_t SampleCount() const override {
    MutexLock lock(samples_mutex_);
    return sample_count_;
  }

  size_t NewSampleCount() const override {
    MutexLock lock(samples_mutex_);
    return new_sample_count_;
  }

  Result<std::string> Save() const override {
    std::shared_ptr<const Learnt> learnt = Current();
    auto write = [](ByteWriter& out, const BoosterPtr& booster) -> Result<void> {
      out.String(booster ? HONE_TRY(booster->Save()) : std::string());
      return {};
    };
    ByteWriter out;
    out.U32(kFeatureVersion);
    out.U8(static_cast<uint8_t>(options_.loss));
    HONE_TRY(write(out, learnt->rank));
    HONE_TRY(write(out, learnt->latency));
    for (double quantile : {learnt->low, learnt->middle, learnt->high}) out.F64(quantile);
    out.Varint(learnt->corrections.size());
    for (const auto& [group, booster] : learnt->corrections) {
      out.U64(group);
      HONE_TRY(write(out, booster));
    }
    HONE_TRY(write(out, learnt->gain));
    out.F64(learnt->trust);
    return Seal(ValueType::kModel, kFormatVersion, out.view());
  }

 private:
  std::shared_ptr<const Learnt> Current() const {
    MutexLock lock(learnt_mutex_);
    return learnt_;
  }

  TrainOptions RankOptions() const {
    TrainOptions train;
    train.pairwise = options_.loss == RankLoss::kPairwise;
    train.threads = options_.threads;
    train.seed = options_.seed;
    return train;
  }

  // The bounds come from groups that the trees had not seen: a new kernel is what is asked about. With few groups,
  // parts of them stand in.
  Result<void> LearnLatency(const Groups& groups, TrainOptions train, Learnt& next) const {
    next.latency = HONE_TRY(Booster::Train(TableOf(groups, Width(), AppendLatency), train));
    train.rounds = std::min(train.rounds, 60);
    std::vector<double> errors;
    for (int fold = 0; fold < kFolds; ++fold) {
      Table kept = EmptyTable(), held = EmptyTable();
      int index = 0;
      for (const auto& [id, group] : groups) {
        if (groups.size() >= 2 * kFolds) {
          AppendLatency(group, index++ % kFolds == fold ? held : kept);
          continue;
        }
        Group parts[2];
        for (size_t i = 0; i < group.times.size(); ++i) {
          Group& part = parts[static_cast<int>(i) % kFolds == fold];
          auto row = group.rows.begin() + static_cast<ptrdiff_t>(i * Width());
          part.rows.insert(part.rows.end(), row, row + static_cast<ptrdiff_t>(Width()));
          part.times.push_back(group.times[i]);
        }
        AppendLatency(parts[0], kept);
        AppendLatency(parts[1], held);
      }
      if (kept.size() == 0 || held.size() == 0) continue;
      BoosterPtr booster = HONE_TRY(Booster::Train(kept, train));
      std::vector<float> predicted(held.size(), 0);
      HONE_TRY(booster->Predict(held.rows.data(), held.size(), held.width, predicted));
      for (size_t i = 0; i < held.size(); ++i) errors.push_back(held.labels[i] - predicted[i]);
    }
    if (errors.empty()) {
      next.low = -1, next.high = 1;  // one sample: within a factor of two, for want of anything better
      return {};
    }
    next.low = Quantile(errors, 0.1);
    next.middle = Quantile(errors, 0.5);
    next.high = Quantile(errors, 0.9);
    return {};
  }

  // A gain is believed as far as the most promising candidates of groups held out had theirs: the slope through the
  // origin. Kernels that were searched differ in how much there is to gain, so few of them prove little.
  Result<void> LearnGain(const Groups& groups, TrainOptions train, Learnt& next) const {
    train.depth = 4;  // of 3, 4 and 6 the least regret, on three models left out
    {
      const Table all = TableOf(groups, 2 * Width(), AppendGain);
      if (all.size() == 0) return {};
      next.gain = HONE_TRY(Booster::Train(all, train));
    }
    train.rounds = std::min(train.rounds, 60);
    double products = 0, squares = kDoubt;
    for (int fold = 0; fold < kFolds; ++fold) {
      Table kept = EmptyTable(2 * Width());
      std::vector<const Group*> held;
      int index = 0;
      for (const auto& [id, group] : groups) {
        if (group.default_row.empty()) continue;
        if (index++ % kFolds == fold)
          held.push_back(&group);
        else
          AppendGain(group, kept);
      }
      if (kept.size() == 0 || held.empty()) continue;
      BoosterPtr booster = HONE_TRY(Booster::Train(kept, train));
      for (const Group* group : held) {
        std::vector<float> said = HONE_TRY(GainsBy(*booster, group->default_row, group->rows));
        std::vector<size_t> order(said.size());
        std::iota(order.begin(), order.end(), 0);
        const size_t most = std::min(order.size(), kPromising);
        std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(most), order.end(),
                          [&](size_t a, size_t b) { return said[a] > said[b]; });
        for (size_t i = 0; i < most; ++i) {
          products += said[order[i]] * GainOf(*group, order[i]) / static_cast<double>(most);
          squares += said[order[i]] * said[order[i]] / static_cast<double>(most);
        }
      }
    }
    next.trust = std::clamp(products / squares, 0.0, 1.0);
    return {};
  }

  void DropOldest() HONE_REQUIRES(samples_mutex_) {
    while (sample_count_ > options_.max_samples) {
      auto largest = std::max_element(groups_.begin(), groups_.end(), [](const auto& a, const auto& b) {
        return a.second.times.size() < b.second.times.size();
      });
      Group& group = largest->second;
      const size_t drop = std::min(
          {group.times.size(), sample_count_ - options_.max_samples, std::max<size_t>(1, group.times.size() / 4)});
      for (std::vector<double>* values : {&group.times, &group.defaults})
        values->erase(values->begin(), values->begin() + static_cast<ptrdiff_t>(drop));
      group.rows.erase(group.rows.begin(), group.rows.begin() + static_cast<ptrdiff_t>(drop * Width()));
      sample_count_ -= drop;
      if (group.times.empty()) groups_.erase(largest);
    }
  }

  const XgbOptions options_;
  mutable Mutex samples_mutex_;
  Groups groups_ HONE_GUARDED_BY(samples_mutex_);
  size_t sample_count_ HONE_GUARDED_BY(samples_mutex_) = 0;
  size_t new_sample_count_ HONE_GUARDED_BY(samples_mutex_) = 0;
  mutable Mutex learnt_mutex_;
  std::shared_ptr<const Learnt> learnt_ HONE_GUARDED_BY(learnt_mutex_);
};

}  // namespace

std::unique_ptr<CostModel> MakeXgbModel(const XgbOptions& options) { return std::make_unique<XgbModel>(options); }

Result<std::unique_ptr<CostModel>> LoadXgbModel(std::string_view saved, const XgbOptions& options) {
  std::string_view body = HONE_TRY(Unseal(ValueType::kModel, kFormatVersion, saved));
  ByteReader in(body);
  const uint32_t version = HONE_TRY(in.U32());
  if (version != kFeatureVersion)
    return Error{ErrorKind::kUnsupported,
                 fmt::format("a model over features of version {}, this hone has {}: it is trained anew", version,
                             kFeatureVersion),
                 ""};
  XgbOptions loaded = options;
  loaded.loss = HONE_TRY(in.Enumerator(RankLoss::kThroughput, RankLoss::kWeightedLogTime));
  auto read = [&](size_t width = Width()) -> Result<BoosterPtr> {
    std::string_view bytes = HONE_TRY(in.String(kMaxBoosterBytes));
    if (bytes.empty()) return BoosterPtr();
    return Booster::Load(bytes, width, options.threads, options.seed);
  };
  Learnt learnt;
  learnt.rank = HONE_TRY(read());
  learnt.latency = HONE_TRY(read());
  for (double* quantile : {&learnt.low, &learnt.middle, &learnt.high}) {
    *quantile = HONE_TRY(in.F64());
    if (!std::isfinite(*quantile)) return Error{ErrorKind::kCorrupt, "bounds that are not finite", ""};
  }
  const uint64_t corrections = HONE_TRY(in.Count(kMaxCorrections, 9));
  for (uint64_t i = 0; i < corrections; ++i) {
    const uint64_t group = HONE_TRY(in.U64());
    BoosterPtr booster = HONE_TRY(read());
    if (!booster) return Error{ErrorKind::kCorrupt, "a correction without trees", ""};
    learnt.corrections[group] = std::move(booster);
  }
  if (in.left() > 0) {
    learnt.gain = HONE_TRY(read(2 * Width()));
    learnt.trust = HONE_TRY(in.F64());
    if (!(learnt.trust >= 0 && learnt.trust <= 1)) return Error{ErrorKind::kCorrupt, "a trust beyond 0 … 1", ""};
  }
  HONE_TRY(in.Finish());
  return std::unique_ptr<CostModel>(std::make_unique<XgbModel>(loaded, std::move(learnt)));
}

}  // namespace hone
