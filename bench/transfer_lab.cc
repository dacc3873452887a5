// transfer_lab: what kernels of one model would be served from the tuned kernels of others, and what each of the
// possibilities takes. bench/transfer.py runs it for models that are left out one by one, and makes tables of it.
//
//   transfer_lab --pool CACHE [--threads N] [--rounds N] [--of-class N] [--of-others N] [--target TARGET]
//                [--leave-out FILE.kernels]… [--donors FILE.kernels]… [--features FILE] [--rank-only] FILE.kernels …
//
// The pool is a cache's directory with searched kernels. Donors are all of its tuned kernels (--donors: those of these
// lists) but those of the lists that are left out; the ranker learns from the trials of what is left, and nothing else.
// Donors are those of this machine. With --target, code is made for a second kind of device, whose code this machine
// must be able to run, too; what was tuned for that one is the reference. For every kernel of the other lists it
// builds, checks and times, in turns, each fit of the nearest donors (N of its class, N of others), the same as
// published (strict), the default schedule, what the pool has for the kernel itself, and loops without any schedule. A
// line of JSON per kernel:
//   {"kernel","calls","flops","rank_ms","default_us","tuned_us","tuned_pick_us","plain_us","fits":[{"way","donor","same_class",
//    "distance","donor_gain","predicted","gain","rank","us","pick_us","refused","strict"},…]}
// us is the least over every other round, 0 where it was refused, pick_us that of the rounds between, by which whoever
// measures would choose; rank counts from 0 among the programs that the nearest donors come to; what the trees alone
// predict and what the donor won are parts of the gain, log2 as it is. --features keeps what the ranker learnt from and
// what it was asked, for whoever tries another: comma-separated lines of "sample" or "fit",
// the kernel's number, its name, whether it is the default, µs, and the features. With --rank-only nothing is built or
// timed: what the ranker says alone.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <future>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "backends/cpu/host_target.h"
#include "backends/processes/process_evaluator.h"
#include "base/clock.h"
#include "cache/schedule_cache.h"
#include "cache/tuning_gain.h"
#include "ir/language/canonical.h"
#include "ir/language/parse.h"
#include "tuner/measure.h"
#include "tuner/ranked_transfer.h"
#include "tuner/xgb_model.h"

namespace hone {
namespace {

constexpr int kMostSamples = 128;  // of one kernel, for the ranker
constexpr std::string_view kPlainLoops = "# loops as they are written\n";

struct Lab {
  std::string pool;
  int threads = 1;
  int rounds = 6;
  size_t of_class = 64, of_others = 8;
  std::vector<std::string> left_out, donors, lists;
  std::string features;
  std::string target;  // "": this machine's
  bool rank_only = false;
};

struct Listed {
  std::string kernel;
  int calls = 1;
};

Result<std::vector<Listed>> ReadList(const std::string& path) {
  std::ifstream file(path);
  if (!file) return Error{ErrorKind::kNotFound, "cannot be read", path};
  std::vector<Listed> list;
  std::string line;
  while (std::getline(file, line)) {
    line = line.substr(0, line.find('#'));
    size_t space = line.find(' ');
    if (space == std::string::npos) continue;
    list.push_back({line.substr(space + 1), std::atoi(line.c_str())});
  }
  return list;
}

Result<Canonical> CanonicalOf(const std::string& text, int threads) {
  Kernel kernel = HONE_TRY(ParseKernel(text));
  if (kernel.options.threads == 0) kernel.options.threads = threads;
  return Canonicalize(kernel);
}

// Something that can be built, and its times.
struct Contestant {
  std::string schedule;
  std::optional<BuiltArtifact> code;
  std::vector<double> us;
  std::string failed;
  bool is_plain = false;  // loops without a schedule: so slow that two short looks do

  // Of every other round: whoever chooses by some and counts the others has not chosen the luckiest. The least of them,
  // each a median of samples: a machine that is slow for seconds at a time is so for some programs of a round alone.
  double LeastUs(size_t from) const {
    double least = us.empty() ? 0 : us.front();
    for (size_t i = from; i < us.size(); i += 2) least = i == from ? us[i] : std::min(least, us[i]);
    return least;
  }
  double Us() const { return LeastUs(1); }
  double PickUs() const { return LeastUs(0); }
};

// Builds, checks and times them in turns. What does not build or is wrong keeps no times.
void Measure(Evaluator& evaluator, const Lab& lab, std::vector<Contestant*>& contestants) {
  for (size_t i = 0; i < contestants.size(); i += 2) {
    std::vector<std::future<Result<BuiltArtifact>>> builds;
    for (size_t k = i; k < std::min(i + 2, contestants.size()); ++k)
      builds.push_back(
          std::async(std::launch::async, [&evaluator, c = contestants[k]] { return evaluator.Build(c->schedule); }));
    for (size_t k = 0; k < builds.size(); ++k) {
      Result<BuiltArtifact> built = builds[k].get();
      if (built)
        contestants[i + k]->code = *std::move(built);
      else
        contestants[i + k]->failed = built.error().Text();
    }
  }
  for (Contestant* c : contestants) {
    if (!c->code) continue;
    CheckOptions options;
    options.workers = lab.threads;
    Result<CheckReport> report = evaluator.Check(c->code->object, options);
    if (report && !report->failure) continue;
    c->failed = report ? report->failure->Text() : report.error().Text();
    c->code.reset();
  }
  TimeOptions options;
  options.workers = lab.threads;
  options.samples = 3;
  options.max_samples = 12;
  options.min_sample = std::chrono::microseconds(500);
  TimeOptions short_look = options;
  short_look.samples = short_look.max_samples = 1;
  for (int round = 0; round < lab.rounds; ++round) {
    for (size_t i = 0; i < contestants.size(); ++i) {
      Contestant* c = contestants[(i + static_cast<size_t>(round)) % contestants.size()];
      if (!c->code || (c->is_plain && round >= 2)) continue;
      Result<RunTiming> timing = evaluator.Time(c->code->object, c->is_plain ? short_look : options);
      if (timing) c->us.push_back(timing->median_us);
    }
  }
}

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return quoted + '"';
}

class Study {
 public:
  static Result<std::unique_ptr<Study>> Open(const Lab& lab);
  Result<void> Run(const Listed& listed);

 private:
  explicit Study(const Lab& lab) : lab_(lab) {}
  Result<void> Learn();

  const Lab& lab_;
  Target target_;
  std::unique_ptr<ScheduleCache> cache_;
  std::unique_ptr<BuilderPool> builders_;
  std::unique_ptr<RunnerPool> runners_;
  std::set<Fingerprint> left_out_, only_;
  void Keep(const char* what, uint64_t group, const std::string& kernel, bool is_default, double us,
            const std::vector<float>& features);

  std::ofstream features_;
  uint64_t asked_ = 0;
  std::map<Fingerprint, Record> records_;
  Neighbours donors_;
  std::unique_ptr<CostModel> model_ = MakeXgbModel({.threads = 2});
};

Result<std::unique_ptr<Study>> Study::Open(const Lab& lab) {
  std::unique_ptr<Study> study(new Study(lab));
  study->target_ = HONE_TRY(lab.target.empty() ? HostTarget() : ParseTarget(lab.target));
  CacheOptions options;
  options.directory = lab.pool;
  options.inspect = true;
  study->cache_ = HONE_TRY(ScheduleCache::Open(std::move(options)));
  BuilderPoolOptions builder_options;
  builder_options.builders = 2;
  study->builders_ = HONE_TRY(BuilderPool::Start(builder_options));
  study->runners_ = HONE_TRY(RunnerPool::Start({}));
  for (auto [paths, kernels] : {std::pair(&lab.left_out, &study->left_out_), std::pair(&lab.donors, &study->only_)})
    for (const std::string& path : *paths)
      for (const Listed& listed : HONE_TRY(ReadList(path)))
        kernels->insert(FingerprintOf(HONE_TRY(CanonicalOf(listed.kernel, lab.threads))));
  if (!lab.features.empty()) study->features_.open(lab.features);
  HONE_TRY(study->Learn());
  return study;
}

Result<void> Study::Learn() {
  Stopwatch watch;
  const std::string here = PrintTarget(HONE_TRY(HostTarget()));
  size_t samples_in_all = 0;
  uint64_t group = 0;
  HONE_TRY(cache_->ForEachRecord(std::nullopt, [&](const Record& record) {
    if (record.key.threads != lab_.threads) return true;
    if (record.key.target == PrintTarget(target_)) records_[record.key.fingerprint] = record;
    if (record.key.target != here) return true;  // of the other device: a reference and no donor
    if (left_out_.contains(record.key.fingerprint)) return true;
    if (!only_.empty() && !only_.contains(record.key.fingerprint)) return true;
    Result<Target> target = ParseTarget(record.key.target);
    if (!target) return true;
    Result<Space> space = Space::Open(record.key.canonical, *target);
    if (!space) return true;
    ++group;
    std::vector<Sample> samples;
    const Result<Candidate> standard = space->Default();
    (void)cache_->ForEachTrial(record.key, [&](const TrialRecord& trial) {
      if (trial.verdict != static_cast<uint8_t>(Verdict::kTimed)) return true;
      Result<Candidate> candidate = space->Parse(trial.choices);
      if (candidate && candidate->program == trial.program) {
        samples.push_back({candidate->features, static_cast<double>(trial.time.count()) / 1e3, group,
                           standard && candidate->program == standard->program});
        Keep("sample", group, record.request, samples.back().is_default, samples.back().time_us, candidate->features);
      }
      return samples.size() < kMostSamples;
    });
    donors_.Put(record, GainOf(*cache_, record));
    samples_in_all += samples.size();
    if (Result<void> added = model_->Add(samples); !added) fmt::print(stderr, "{}\n", added.error().Text());
    return true;
  }));
  HONE_TRY(model_->Retrain());
  fmt::print(stderr, "{} donors, {} samples of {} kernels, {:.1f} s\n", donors_.size(), samples_in_all, group,
             watch.Microseconds() / 1e6);
  return {};
}

void Study::Keep(const char* what, uint64_t group, const std::string& kernel, bool is_default, double us,
                 const std::vector<float>& features) {
  if (!features_.is_open()) return;
  features_ << fmt::format("{},{},{},{},{:.4f},{:.6g}\n", what, group, Quoted(kernel), is_default ? 1 : 0, us,
                           fmt::join(features, ","));
}

Result<void> Study::Run(const Listed& listed) {
  Canonical canonical = HONE_TRY(CanonicalOf(listed.kernel, lab_.threads));
  const Fingerprint fingerprint = FingerprintOf(canonical);
  Space space = HONE_TRY(Space::Open(canonical.text, target_));

  Stopwatch watch;
  Neighbours::Query query;
  query.fingerprint = fingerprint;
  query.class_fingerprint = ClassFingerprintOf(canonical);
  query.silhouette = SilhouetteOf(space.kernel());
  query.target = PrintTarget(target_);
  query.threads = lab_.threads;
  query.of_class = lab_.of_class;
  query.of_others = lab_.of_others;
  TransferOptions options;
  options.workers = lab_.threads;
  options.most = 400;
  const std::vector<Neighbour> neighbours = donors_.Nearest(query);
  std::vector<Transfer> fits = MakeTransfers(space, neighbours, options);
  const std::vector<size_t> order = RankTransfers(fits, model_.get());
  const double rank_ms = watch.Microseconds() / 1e3;
  options.mode = FitMode::kStrict;
  std::vector<Transfer> strict = MakeTransfers(space, neighbours, options);

  std::map<uint64_t, Contestant> by_program;
  auto enter = [&](const Candidate& candidate) {
    by_program[candidate.program].schedule = candidate.schedule;
    return candidate.program;
  };
  for (const std::vector<Transfer>* list : {&fits, &strict})
    for (const Transfer& fit : *list)
      if (fit.IsCandidate()) enter(fit.candidate);
  const uint64_t by_default = HONE_TRY(space.Default()).program;
  uint64_t tuned = by_default;
  if (auto record = records_.find(fingerprint); record != records_.end())
    if (Result<Candidate> own = space.Read(record->second.schedule)) tuned = enter(*own);
  Contestant plain;
  plain.schedule = kPlainLoops;
  plain.is_plain = true;

  std::unique_ptr<Evaluator> evaluator =
      HONE_TRY(MakeProcessEvaluator(*builders_, *runners_, 2, canonical.text, target_));
  std::vector<Contestant*> contestants{&plain};
  for (auto& [_, contestant] : by_program) contestants.push_back(&contestant);
  if (!lab_.rank_only) Measure(*evaluator, lab_, contestants);
  ++asked_;
  for (const Transfer& fit : fits)
    if (fit.IsCandidate())
      Keep("fit", asked_, listed.kernel, !fit.donor, by_program[fit.candidate.program].Us(), fit.candidate.features);

  fmt::print(
      "{{\"kernel\":{},\"calls\":{},\"flops\":{:.0f},\"rank_ms\":{:.2f},\"default_us\":{:.3f},\"tuned_us\":{:.3f},"
      "\"tuned_pick_us\":{:.3f},\"plain_us\":{:.3f},\"fits\":[",
      Quoted(listed.kernel), listed.calls, space.flops(), rank_ms, by_program[by_default].Us(), by_program[tuned].Us(),
      by_program[tuned].PickUs(), plain.Us());
  bool is_first = true;
  for (const std::vector<Transfer>* list : {&fits, &strict}) {
    for (size_t i = 0; i < list->size(); ++i) {
      const Transfer& fit = (*list)[i];
      if (list == &strict && fit.way == FitWay::kDefault) continue;
      auto place = std::find(order.begin(), order.end(), i);
      const bool is_ranked = list == &fits && place != order.end();
      const Contestant* c = fit.refused.empty() ? &by_program[fit.candidate.program] : nullptr;
      std::string refused = fit.refused;
      if (c != nullptr && c->us.empty()) refused = c->failed.empty() ? "not timed" : c->failed;
      fmt::print("{}{{\"way\":\"{}\",\"donor\":{},\"same_class\":{},\"distance\":{:.2f}", is_first ? "" : ",",
                 FitWayName(fit.way), Quoted(fit.donor ? fit.donor->request : ""), fit.is_same_class, fit.distance);
      fmt::print(",\"donor_gain\":{:.5f},\"predicted\":{}", fit.donor ? fit.donor->gain : 0,
                 fit.predicted ? fmt::format("{:.5f}", *fit.predicted) : "null");
      fmt::print(",\"gain\":{},\"rank\":{}", is_ranked ? fmt::format("{:.5f}", fit.gain) : "null",
                 is_ranked ? std::to_string(place - order.begin()) : "null");
      fmt::print(",\"us\":{:.3f},\"pick_us\":{:.3f},\"refused\":{},\"strict\":{}}}", c != nullptr ? c->Us() : 0,
                 c != nullptr ? c->PickUs() : 0, Quoted(refused), list == &strict);
      is_first = false;
    }
  }
  fmt::print("]}}\n");
  std::fflush(stdout);
  return {};
}

Result<void> Run(const Lab& lab) {
  std::unique_ptr<Study> study = HONE_TRY(Study::Open(lab));
  for (const std::string& path : lab.lists)
    for (const Listed& listed : HONE_TRY(ReadList(path)))
      if (Result<void> done = study->Run(listed); !done)
        fmt::print(stderr, "{}: {}\n", listed.kernel, done.error().Text());
  return {};
}

int Usage() {
  fmt::print(stderr,
             "usage: transfer_lab --pool CACHE [--threads N] [--rounds N] [--of-class N] [--of-others N]\n"
             "                    [--leave-out FILE.kernels]… [--donors FILE.kernels]… [--features FILE]\n"
             "                    [--target TARGET] [--rank-only] FILE.kernels …\n");
  return 2;
}

}  // namespace
}  // namespace hone

int main(int argc, char** argv) {
  using namespace hone;
  Lab lab;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    auto value = [&] { return i + 1 < argc ? argv[++i] : ""; };
    if (word == "--pool")
      lab.pool = value();
    else if (word == "--threads")
      lab.threads = std::atoi(value());
    else if (word == "--rounds")
      lab.rounds = std::atoi(value());
    else if (word == "--of-class")
      lab.of_class = static_cast<size_t>(std::atoi(value()));
    else if (word == "--of-others")
      lab.of_others = static_cast<size_t>(std::atoi(value()));
    else if (word == "--leave-out")
      lab.left_out.emplace_back(value());
    else if (word == "--features")
      lab.features = value();
    else if (word == "--rank-only")
      lab.rank_only = true;
    else if (word == "--target")
      lab.target = value();
    else if (word == "--donors")
      lab.donors.emplace_back(value());
    else if (word.starts_with("-"))
      return Usage();
    else
      lab.lists.push_back(word);
  }
  if (lab.pool.empty() || lab.lists.empty() || lab.threads < 1 || lab.rounds < 1) return Usage();
  Result<void> done = Run(lab);
  if (!done) fmt::print(stderr, "transfer_lab: {}\n", done.error().Text());
  return done ? 0 : 1;
}
