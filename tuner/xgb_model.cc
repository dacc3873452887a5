// Wraps XGBoost's C API: its handles, its errors and its memory stay in this file.
//
//   model     ::= feature_version:u32 loss:u8 rank:string latency:string low:f64 middle:f64 high:f64
//                 count:varint (group:u64 correction:string)*
// in an envelope (base/envelope.h); strings are boosters as XGBoost stores them (JSON: of its two formats the one whose
// reader checks what it reads), empty where there is none.
#include "tuner/xgb_model.h"

#include <fmt/format.h>
#include <xgboost/c_api.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/bytes.h"
#include "base/check.h"
#include "base/envelope.h"
#include "base/mutex.h"
#include "tuner/features.h"

namespace hone {
namespace {

constexpr uint8_t kFormatVersion = 1;
constexpr size_t kMaxBoosterBytes = 256 << 20;
constexpr uint64_t kMaxCorrections = 1 << 16;
constexpr double kWorstLog = -8;  // log2(best / time): slower ones are all alike
constexpr int kFolds = 4;         // held-out parts for the bounds of Predict

Error XgbError(std::string_view what) {
  std::string_view text = XGBGetLastError();
  return {ErrorKind::kInternal, fmt::format("{}: xgboost: {}", what, text.substr(0, text.find('\n'))), ""};
}

#define HONE_XGB(call) \
  if ((call) != 0) return XgbError(#call)

// Rows of features with what is to be learnt from them.
struct Table {
  size_t width = 0;
  std::vector<float> rows;
  std::vector<float> labels;
  std::vector<float> weights;
  std::vector<float> margins;    // where the trees start from; empty: at zero
  std::vector<unsigned> groups;  // lengths of runs of rows; for pairwise ranking
  size_t size() const { return labels.size(); }
};

struct TrainOptions {
  int rounds = 100;
  int depth = 6;
  double eta = 0.1;
  double columns = 0.5;  // share of the features that a tree sees
  double rows = 1.0;
  double min_child_weight = 1.0;
  bool pairwise = false;
  int threads = 1;
  uint64_t seed = 1;
};

class Matrix {
 public:
  static Result<Matrix> Of(const Table& table, bool pairwise, int threads) {
    Matrix matrix;
    const float missing = std::numeric_limits<float>::quiet_NaN();
    HONE_XGB(
        XGDMatrixCreateFromMat_omp(table.rows.data(), table.size(), table.width, missing, &matrix.handle_, threads));
    HONE_XGB(XGDMatrixSetFloatInfo(matrix.handle_, "label", table.labels.data(), table.labels.size()));
    if (!table.weights.empty() && !pairwise)
      HONE_XGB(XGDMatrixSetFloatInfo(matrix.handle_, "weight", table.weights.data(), table.weights.size()));
    if (!table.margins.empty())
      HONE_XGB(XGDMatrixSetFloatInfo(matrix.handle_, "base_margin", table.margins.data(), table.margins.size()));
    if (pairwise) HONE_XGB(XGDMatrixSetUIntInfo(matrix.handle_, "group", table.groups.data(), table.groups.size()));
    return matrix;
  }
  Matrix(Matrix&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  ~Matrix() {
    if (handle_) XGDMatrixFree(handle_);
  }
  DMatrixHandle handle() const { return handle_; }

 private:
  Matrix() = default;
  DMatrixHandle handle_ = nullptr;
};

// Trees. Immutable once made: Predict may be called from several threads.
class Booster {
 public:
  static Result<std::shared_ptr<const Booster>> Train(const Table& table, const TrainOptions& options) {
    Matrix matrix = HONE_TRY(Matrix::Of(table, options.pairwise, options.threads));
    auto booster = std::shared_ptr<Booster>(new Booster);
    DMatrixHandle handles[] = {matrix.handle()};
    HONE_XGB(XGBoosterCreate(handles, 1, &booster->handle_));
    HONE_TRY(booster->SetCommon(options.threads, options.seed));
    const std::pair<const char*, std::string> parameters[] = {
        {"objective", options.pairwise ? "rank:pairwise" : "reg:squarederror"},
        {"base_score", "0"},
        {"tree_method", "hist"},
        {"max_bin", "32"},
        {"max_depth", std::to_string(options.depth)},
        {"eta", fmt::format("{}", options.eta)},
        {"colsample_bytree", fmt::format("{}", options.columns)},
        {"subsample", fmt::format("{}", options.rows)},
        {"min_child_weight", fmt::format("{}", options.min_child_weight)},
    };
    for (const auto& [name, value] : parameters) HONE_XGB(XGBoosterSetParam(booster->handle_, name, value.c_str()));
    for (int round = 0; round < options.rounds; ++round)
      HONE_XGB(XGBoosterUpdateOneIter(booster->handle_, round, matrix.handle()));
    HONE_TRY(booster->Warm(table.width));
    return std::shared_ptr<const Booster>(std::move(booster));
  }

  static Result<std::shared_ptr<const Booster>> Load(std::string_view bytes, size_t width, int threads, uint64_t seed) {
    // The library chooses a reader by the first bytes; those of its binary formats trust lengths that they read.
    if (!bytes.starts_with("{\"")) return Error{ErrorKind::kCorrupt, "trees that are not JSON", ""};
    auto booster = std::shared_ptr<Booster>(new Booster);
    HONE_XGB(XGBoosterCreate(nullptr, 0, &booster->handle_));
    auto corrupt = [](Error error) { return Error{ErrorKind::kCorrupt, std::move(error.message), ""}; };
    if (XGBoosterLoadModelFromBuffer(booster->handle_, bytes.data(), bytes.size()) != 0)
      return corrupt(XgbError("trees"));
    bst_ulong features = 0;
    if (XGBoosterGetNumFeature(booster->handle_, &features) != 0) return corrupt(XgbError("trees"));
    if (features != width)
      return Error{ErrorKind::kCorrupt, fmt::format("trees over {} features, wanted {}", features, width), ""};
    HONE_TRY(booster->SetCommon(threads, seed));
    if (Result<void> warmed = booster->Warm(width); !warmed) return corrupt(std::move(warmed).error());
    return std::shared_ptr<const Booster>(std::move(booster));
  }

  ~Booster() {
    if (handle_) XGBoosterFree(handle_);
  }
  Booster(const Booster&) = delete;

  // Adds the trees' output of each row to `out`.
  Result<void> Predict(const float* rows, size_t count, size_t width, std::vector<float>& out) const {
    const std::string array = fmt::format(R"({{"data":[{},true],"shape":[{},{}],"typestr":"<f4","version":3}})",
                                          reinterpret_cast<uintptr_t>(rows), count, width);
    static constexpr const char* kConfig =
        R"({"type":1,"training":false,"iteration_begin":0,"iteration_end":0,"strict_shape":false,"missing":NaN,"cache_id":0})";
    const bst_ulong* shape = nullptr;
    bst_ulong dimensions = 0;
    const float* result = nullptr;
    HONE_XGB(XGBoosterPredictFromDense(handle_, array.c_str(), kConfig, nullptr, &shape, &dimensions, &result));
    bst_ulong values = 1;
    for (bst_ulong d = 0; d < dimensions; ++d) values *= shape[d];
    if (values != count)
      return Error{ErrorKind::kInternal, fmt::format("xgboost predicted {} values for {} rows", values, count), ""};
    for (size_t i = 0; i < count; ++i) out[i] += result[i];
    return {};
  }

  Result<std::string> Save() const {
    bst_ulong size = 0;
    const char* bytes = nullptr;
    HONE_XGB(XGBoosterSaveModelToBuffer(handle_, R"({"format":"json"})", &size, &bytes));
    return std::string(bytes, size);
  }

 private:
  Booster() = default;
  Result<void> SetCommon(int threads, uint64_t seed) {
    HONE_XGB(XGBoosterSetParam(handle_, "verbosity", "0"));
    HONE_XGB(XGBoosterSetParam(handle_, "nthread", std::to_string(std::max(1, threads)).c_str()));
    HONE_XGB(XGBoosterSetParam(handle_, "seed", std::to_string(seed & 0x7fffffff).c_str()));
    return {};
  }
  // The library settles its configuration at the first prediction; afterwards it only reads.
  Result<void> Warm(size_t width) {
    std::vector<float> row(width, 0), out(1, 0);
    return Predict(row.data(), 1, width, out);
  }

  BoosterHandle handle_ = nullptr;
};

using BoosterPtr = std::shared_ptr<const Booster>;

// What was learnt: replaced as a whole, never changed.
struct Learnt {
  BoosterPtr rank;
  std::map<uint64_t, BoosterPtr> corrections;  // by group; on top of `rank`
  BoosterPtr latency;                          // log2 of the time in µs over the bound in cycles
  double low = 0, middle = 0, high = 0;        // quantiles of its error on groups held out, in log2
};

struct Group {
  std::vector<float> rows;
  std::vector<double> times;
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

void AppendRank(const Group& group, RankLoss loss, Table& table) {
  const double best = *std::min_element(group.times.begin(), group.times.end());
  for (double time : group.times) {
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

Table EmptyTable() {
  Table table;
  table.width = Width();
  return table;
}

double Quantile(std::vector<double>& values, double q) {
  if (values.empty()) return 0;
  auto at = values.begin() + static_cast<ptrdiff_t>(q * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), at, values.end());
  return *at;
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
      group.times.push_back(sample.time_us);
      ++sample_count_;
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

  Result<void> Retrain() override {
    Groups groups;
    {
      MutexLock lock(samples_mutex_);
      groups = groups_;
    }
    if (groups.empty()) return {};
    Table rank = EmptyTable(), latency = EmptyTable();
    for (const auto& [id, group] : groups) {
      AppendRank(group, options_.loss, rank);
      AppendLatency(group, latency);
    }
    TrainOptions train = RankOptions();
    train.rounds = options_.rank_rounds;
    Learnt next;
    next.rank = HONE_TRY(Booster::Train(rank, train));
    HONE_TRY(LearnLatency(groups, latency, next));
    MutexLock lock(learnt_mutex_);
    learnt_ = std::make_shared<const Learnt>(std::move(next));
    return {};
  }

  Result<std::optional<std::vector<float>>> Score(uint64_t group,
                                                  std::span<const std::vector<float>> rows) const override {
    std::vector<float> flat;
    flat.reserve(rows.size() * Width());
    for (const std::vector<float>& row : rows) {
      HONE_TRY(CheckRow(row));
      flat.insert(flat.end(), row.begin(), row.end());
    }
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

  size_t SampleCount() const override {
    MutexLock lock(samples_mutex_);
    return sample_count_;
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
  Result<void> LearnLatency(const Groups& groups, const Table& all, Learnt& next) const {
    TrainOptions train = RankOptions();
    train.pairwise = false;
    train.rounds = options_.rank_rounds;
    next.latency = HONE_TRY(Booster::Train(all, train));
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

  void DropOldest() HONE_REQUIRES(samples_mutex_) {
    while (sample_count_ > options_.max_samples) {
      auto largest = std::max_element(groups_.begin(), groups_.end(), [](const auto& a, const auto& b) {
        return a.second.times.size() < b.second.times.size();
      });
      Group& group = largest->second;
      const size_t drop = std::min(
          {group.times.size(), sample_count_ - options_.max_samples, std::max<size_t>(1, group.times.size() / 4)});
      group.times.erase(group.times.begin(), group.times.begin() + static_cast<ptrdiff_t>(drop));
      group.rows.erase(group.rows.begin(), group.rows.begin() + static_cast<ptrdiff_t>(drop * Width()));
      sample_count_ -= drop;
      if (group.times.empty()) groups_.erase(largest);
    }
  }

  const XgbOptions options_;
  mutable Mutex samples_mutex_;
  Groups groups_ HONE_GUARDED_BY(samples_mutex_);
  size_t sample_count_ HONE_GUARDED_BY(samples_mutex_) = 0;
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
  auto read = [&]() -> Result<BoosterPtr> {
    std::string_view bytes = HONE_TRY(in.String(kMaxBoosterBytes));
    if (bytes.empty()) return BoosterPtr();
    return Booster::Load(bytes, Width(), options.threads, options.seed);
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
  HONE_TRY(in.Finish());
  return std::unique_ptr<CostModel>(std::make_unique<XgbModel>(loaded, std::move(learnt)));
}

}  // namespace hone
