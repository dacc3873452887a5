// model_bench: how good the cost model is, on this machine's times.
//
//   model_bench collect OUT [--per N] [--seed N] [--seconds S] KERNEL|FILE.kernels…
//                                             times random and mutated schedules (bench/model_collect.h)
//   model_bench remeasure DATA OUT [--per N]  times the same schedules again
//   model_bench evaluate [--loss NAME] DATA…  rank correlation and regret, by loss and by training
//   model_bench features DATA…                the features as a table
//
// The data are those of collect, or recorded searches: a file of search_lab --record, or a cache's directory. Searches
// crowd around what is fast, so what evaluate says of them is about telling the fast from the fastest: harder than on
// data of collect.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <sstream>

#include "backends/cpu/host_target.h"
#include "base/hash.h"
#include "bench/model_collect.h"
#include "codegen/lower/lower.h"
#include "codegen/rules/default_schedule.h"
#include "ir/graph/specialize.h"
#include "ir/language/parse.h"
#include "tuner/features.h"
#include "tuner/replay.h"
#include "tuner/xgb_model.h"

namespace hone {
namespace {

double Seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Group {
  std::string kernel;
  std::vector<Sample> samples;
};

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double Mean(const std::vector<double>& values) {
  return values.empty() ? 0 : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

std::vector<double> Ranks(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (size_t i = 0; i < order.size();) {
    size_t end = i;
    while (end < order.size() && values[order[end]] == values[order[i]]) ++end;
    for (size_t j = i; j < end; ++j) ranks[order[j]] = (static_cast<double>(i) + static_cast<double>(end - 1)) / 2;
    i = end;
  }
  return ranks;
}

double Spearman(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> x = Ranks(a), y = Ranks(b);
  const double mean = static_cast<double>(x.size() - 1) / 2;
  double xy = 0, xx = 0, yy = 0;
  for (size_t i = 0; i < x.size(); ++i)
    xy += (x[i] - mean) * (y[i] - mean), xx += (x[i] - mean) * (x[i] - mean), yy += (y[i] - mean) * (y[i] - mean);
  return xx == 0 || yy == 0 ? 0 : xy / std::sqrt(xx * yy);
}

struct Quality {
  std::vector<double> spearman, top1, top8;
  void Judge(const std::vector<float>& scores, const std::vector<double>& times) {
    std::vector<double> score(scores.begin(), scores.end()), speed;
    for (double time : times) speed.push_back(-time);
    spearman.push_back(Spearman(score, speed));
    std::vector<size_t> order(times.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return scores[a] != scores[b] ? scores[a] > scores[b] : a < b; });
    const double best = *std::min_element(times.begin(), times.end());
    double of_eight = times[order[0]];
    for (size_t i = 0; i < std::min<size_t>(8, order.size()); ++i) of_eight = std::min(of_eight, times[order[i]]);
    top1.push_back(times[order[0]] / best - 1);
    top8.push_back(of_eight / best - 1);
  }
  void Print(const std::string& title) const {
    std::printf("  %-34s spearman %.3f   top-1 regret %5.1f %% (median %5.1f)   top-8 %5.1f %% (median %4.1f)\n",
                title.c_str(), Mean(spearman), 100 * Mean(top1), 100 * Median(top1), 100 * Mean(top8),
                100 * Median(top8));
  }
};

using Groups = std::map<std::string, Group>;

// Adds the timed trials whose choices still lead to what was measured.
void ReadRecorded(const std::string& path, Groups& groups) {
  Result<std::vector<Recording>> recordings = ReadRecordings(path);
  if (!recordings) std::fprintf(stderr, "%s\n", recordings.error().Text().c_str()), std::exit(1);
  for (const Recording& recording : *recordings) {
    Result<std::unique_ptr<Replay>> replay = Replay::Open(recording);
    if (!replay) {
      std::fprintf(stderr, "%s\n", replay.error().Text().c_str());
      continue;
    }
    Group& group = groups[recording.name];
    group.kernel = recording.name;
    for (Sample& sample : (*replay)->Samples()) group.samples.push_back(std::move(sample));
  }
}

bool IsRecorded(const std::string& path) {
  if (std::filesystem::is_directory(path)) return true;
  std::string line;
  std::ifstream file(path);
  return std::getline(file, line) && line.starts_with("hone recording");
}

std::vector<Group> ReadData(const std::vector<std::string>& paths) {
  Groups groups;
  std::vector<double> extract_us;
  for (const std::string& path : paths) {
    if (IsRecorded(path)) {
      ReadRecorded(path, groups);
      continue;
    }
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      nlohmann::json data = nlohmann::json::parse(line, nullptr, false);
      if (data.is_discarded()) continue;
      const std::string text = data["kernel"];
      Result<Kernel> kernel = ParseKernel(text);
      Result<Target> target = ParseTarget(data["target"].get<std::string>());
      Result<Schedule> schedule = ParseSchedule(data["schedule"].get<std::string>());
      if (!kernel || !target || !schedule) continue;
      Result<ScheduledKernel> scheduled = ApplySchedule(Specialize(*kernel), *schedule);
      if (!scheduled) continue;
      Result<LoopProgram> program = Lower(*scheduled);
      if (!program) continue;
      const double start = Seconds();
      std::vector<float> features = ExtractFeatures(*program, *target);
      extract_us.push_back((Seconds() - start) * 1e6);
      Group& group = groups[text];
      group.kernel = text;
      group.samples.push_back({std::move(features), data["time_us"], 0});
    }
  }
  std::vector<Group> list;
  for (auto& [text, group] : groups) {
    if (group.samples.size() < 24) continue;
    for (Sample& sample : group.samples) sample.group = list.size();
    list.push_back(std::move(group));
  }
  std::sort(extract_us.begin(), extract_us.end());
  if (!extract_us.empty())
    std::fprintf(stderr,
                 "%zu samples of %zu kernels, %zu features; extraction: median %.1f us, 99 %% %.1f us, most %.1f us\n",
                 extract_us.size(), list.size(), FeatureNames().size(), extract_us[extract_us.size() / 2],
                 extract_us[extract_us.size() * 99 / 100], extract_us.back());
  return list;
}

void Require(const Result<void>& done) {
  if (!done) std::fprintf(stderr, "%s\n", done.error().Text().c_str()), std::exit(1);
}

void JudgeBy(const CostModel& model, uint64_t group, std::span<const Sample> test, Quality& quality) {
  std::vector<std::vector<float>> rows;
  std::vector<double> times;
  for (const Sample& sample : test) rows.push_back(sample.features), times.push_back(sample.time_us);
  auto scores = model.Score(group, rows);
  if (!scores || !*scores) std::fprintf(stderr, "no scores\n"), std::exit(1);
  quality.Judge(**scores, times);
}

constexpr size_t kTrainSizes[] = {16, 32, 64};
constexpr int kSplits = 3;  // random choices of the training samples
constexpr size_t kKernelFolds = 5;

// Trains on n samples of each kernel of `which`, judges by the others.
void JudgeSameKernel(CostModel& model, const std::vector<Group>& groups, const std::vector<size_t>& which,
                     std::map<size_t, Quality>& by_size) {
  for (size_t g : which)
    for (size_t n : kTrainSizes)
      for (int split = 0; split < kSplits; ++split) {
        std::vector<Sample> samples = groups[g].samples;
        if (samples.size() < n + 20) continue;
        Rng(static_cast<uint64_t>(split) + 17).Shuffle(std::span(samples));
        const uint64_t id = 1'000'000 + g * 1000 + n * 10 + static_cast<uint64_t>(split);
        for (Sample& sample : samples) sample.group = id;
        std::span<const Sample> all = samples;
        Require(model.Add(all.first(n)));
        Require(model.Update(id));
        JudgeBy(model, id, all.subspan(n), by_size[n]);
      }
}

void EvaluateLoss(const std::vector<Group>& groups, RankLoss loss, const char* name, bool per_kernel) {
  std::printf("%s\n", name);
  XgbOptions options;
  options.loss = loss;
  std::vector<size_t> all(groups.size());
  std::iota(all.begin(), all.end(), 0);
  std::map<size_t, Quality> alone, helped;
  {
    auto model = MakeXgbModel(options);
    JudgeSameKernel(*model, groups, all, alone);
  }
  Quality unseen;
  size_t inside = 0, predicted = 0;
  double retrain_s = 0;
  std::vector<std::pair<std::string, Quality>> kernels;
  for (size_t fold = 0; fold < kKernelFolds; ++fold) {
    auto model = MakeXgbModel(options);
    std::vector<size_t> held;
    for (size_t g = 0; g < groups.size(); ++g) {
      if (g % kKernelFolds == fold)
        held.push_back(g);
      else
        Require(model->Add(groups[g].samples));
    }
    double start = Seconds();
    Require(model->Retrain());
    retrain_s = std::max(retrain_s, Seconds() - start);
    for (size_t g : held) {
      JudgeBy(*model, g, groups[g].samples, unseen);
      kernels.emplace_back(groups[g].kernel, Quality());
      JudgeBy(*model, g, groups[g].samples, kernels.back().second);
      for (const Sample& sample : groups[g].samples) {
        auto latency = model->Predict(sample.features);
        if (!latency || !*latency) continue;
        ++predicted;
        inside += sample.time_us >= (*latency)->low_us && sample.time_us <= (*latency)->high_us;
      }
    }
    JudgeSameKernel(*model, groups, held, helped);
  }
  for (auto& [n, quality] : alone) quality.Print(std::to_string(n) + " samples of the kernel alone");
  unseen.Print("other kernels only");
  for (auto& [n, quality] : helped) quality.Print("other kernels + " + std::to_string(n) + " samples");
  std::printf("  retrain %.2f s; bounds of unseen kernels hold %.0f %%\n", retrain_s,
              100.0 * static_cast<double>(inside) / static_cast<double>(std::max<size_t>(1, predicted)));
  if (per_kernel)
    for (auto& [kernel, quality] : kernels) quality.Print(kernel.substr(0, 34));
}

// What the analytic bound says without any learning.
void EvaluateBound(const std::vector<Group>& groups) {
  auto names = FeatureNames();
  Quality quality;
  for (const char* name : {"bound.cycles", "bound.sum"}) {
    const size_t at = static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
    for (const Group& group : groups) {
      std::vector<float> scores;
      std::vector<double> times;
      for (const Sample& sample : group.samples)
        scores.push_back(-sample.features[at]), times.push_back(sample.time_us);
      quality.Judge(scores, times);
    }
    quality.Print(name);
    quality = {};
  }
}

void EvaluateSpeed(const std::vector<Group>& groups) {
  std::vector<Sample> pool;
  for (const Group& group : groups) pool.insert(pool.end(), group.samples.begin(), group.samples.end());
  for (size_t n : {size_t{64}, size_t{256}, size_t{1000}, size_t{2000}}) {
    std::vector<Sample> samples;
    for (size_t i = 0; i < n; ++i) samples.push_back(pool[i * 7919 % pool.size()]), samples.back().group = 1;
    auto model = MakeXgbModel();
    Require(model->Add(pool));
    Require(model->Retrain());
    Require(model->Add(samples));
    std::vector<double> update_ms;
    for (int i = 0; i < 5; ++i) {
      double start = Seconds();
      Require(model->Update(1));
      update_ms.push_back((Seconds() - start) * 1e3);
    }
    std::printf("update with %5zu samples: %.1f ms\n", n, Median(update_ms));
    if (n != 2000) continue;
    for (size_t batch : {size_t{1}, size_t{16}, size_t{128}, size_t{2000}}) {
      std::vector<std::vector<float>> rows;
      for (size_t i = 0; i < batch; ++i) rows.push_back(samples[i].features);
      std::vector<double> us;
      for (int i = 0; i < 50; ++i) {
        double start = Seconds();
        if (!model->Score(1, rows)) std::exit(1);
        us.push_back((Seconds() - start) * 1e6);
      }
      std::printf("score %5zu rows: %.1f us, %.2f us a row\n", batch, Median(us),
                  Median(us) / static_cast<double>(batch));
    }
    Result<std::string> saved = model->Save();
    if (saved) std::printf("saved: %zu bytes\n", saved->size());
  }
}

int Evaluate(const std::vector<std::string>& paths, const std::string& only) {
  std::vector<Group> groups = ReadData(paths);
  if (groups.size() < kKernelFolds) return std::fprintf(stderr, "too few kernels\n"), 1;
  const std::pair<RankLoss, const char*> losses[] = {{RankLoss::kThroughput, "throughput"},
                                                     {RankLoss::kWeightedThroughput, "weighted throughput"},
                                                     {RankLoss::kLogTime, "log time"},
                                                     {RankLoss::kWeightedLogTime, "weighted log time"},
                                                     {RankLoss::kPairwise, "pairwise"}};
  for (auto& [loss, name] : losses)
    if (only.empty() || only == name) EvaluateLoss(groups, loss, name, !only.empty());
  EvaluateBound(groups);
  EvaluateSpeed(groups);
  return 0;
}

// The features of the data as a table, for whoever works on them.
int WriteFeatures(const std::vector<std::string>& paths) {
  std::printf("kernel\ttime_us");
  for (std::string_view name : FeatureNames()) std::printf("\t%.*s", static_cast<int>(name.size()), name.data());
  std::printf("\n");
  for (const Group& group : ReadData(paths))
    for (const Sample& sample : group.samples) {
      std::printf("%s\t%g", group.kernel.c_str(), sample.time_us);
      for (float value : sample.features) std::printf("\t%g", static_cast<double>(value));
      std::printf("\n");
    }
  return 0;
}

int Main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  CollectOptions options;
  Result<Target> host = HostTarget();
  if (!host) return std::fprintf(stderr, "%s\n", host.error().Text().c_str()), 1;
  CpuTarget one_core = *host->cpu();
  one_core.cores = 1;
  options.target = one_core;
  std::string only;
  std::vector<std::string> rest;
  for (int i = 2; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--per" && i + 1 < argc)
      options.per_kernel = std::atoi(argv[++i]);
    else if (arg == "--seed" && i + 1 < argc)
      options.seed = static_cast<uint64_t>(std::atoll(argv[++i]));
    else if (arg == "--seconds" && i + 1 < argc)
      options.seconds = std::atof(argv[++i]);
    else if (arg == "--loss" && i + 1 < argc)
      only = argv[++i];
    else if (arg.ends_with(".kernels")) {
      std::ifstream file(arg);
      for (std::string line; std::getline(file, line);)
        if (!line.empty() && line[0] != '#') rest.push_back(line.substr(line.find(' ') + 1));
    } else {
      rest.push_back(arg);
    }
  }
  if (mode == "features" && !rest.empty()) return WriteFeatures(rest);
  if (mode == "remeasure" && rest.size() == 2) return Remeasure(options, rest[0], rest[1]);
  if (mode == "collect" && rest.size() >= 2) return Collect(options, rest[0], {rest.begin() + 1, rest.end()});
  if (mode == "evaluate" && !rest.empty()) return Evaluate(rest, only);
  std::fprintf(stderr,
               "usage: model_bench collect OUT [--per N] [--seed N] [--seconds S] KERNEL|FILE.kernels…\n"
               "       model_bench remeasure DATA OUT [--per N]\n"
               "       model_bench evaluate [--loss NAME] DATA…\n"
               "       model_bench features DATA…\n");
  return 2;
}

}  // namespace
}  // namespace hone

int main(int argc, char** argv) { return hone::Main(argc, argv); }
