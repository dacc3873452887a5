#include "daemon/serve/transfers.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "cache/tuning_gain.h"
#include "ir/language/parse.h"

namespace hone {
namespace {

constexpr size_t kMostDonors = 50'000;  // in memory: some 2 KB each
constexpr int kNiceness = 10;
constexpr size_t kMeasuredAtOnce = 4;
// What a plan may cost the daemon's threads, together with the bound on a space's kernel: most take 5 ms, and no fit of
// a kernel with a thousand nodes more than 40.
constexpr std::chrono::milliseconds kMostPlanning{50};
constexpr double kTrialMs = 20;           // of a trial: building, and …
constexpr double kTrialFlopsPerMs = 8e6;  // … a check and some ten calls, on a slow machine
constexpr double kHalvedEvery = 2;        // doublings of distance

double ConfidenceOf(const TransferPlan& plan) {
  const Transfer* nearest = nullptr;
  for (const Transfer& transfer : plan.transfers)
    if (transfer.donor && (!nearest || transfer.distance < nearest->distance)) nearest = &transfer;
  if (nearest == nullptr || plan.order.empty()) return 0;
  // A default that was preferred to the neighbours' schedules is as sure as these were near.
  const Transfer& first = plan.transfers[plan.order[0]];
  const Transfer& judged = first.donor ? first : *nearest;
  double confidence = std::exp2(-judged.distance / kHalvedEvery);
  if (!judged.is_same_class) confidence /= 2;
  if (!first.predicted) confidence /= 2;
  return confidence;
}

}  // namespace

Transfers::Transfers(ScheduleCache& cache, int threads) : cache_(cache), threads_(threads) {
  reader_ = std::jthread([this](const std::stop_token& stop) {
    pthread_setname_np(pthread_self(), "hone-donors");
    bool has_begun = false, is_lost = false;
    while (!stop.stop_requested()) {
      try {
        if (std::exchange(is_lost, false)) LogWarn("donor_not_read", {{"why", "out of memory"}});
        if (!std::exchange(has_begun, true)) ReadAll(stop);
        ReadOn(stop);
      } catch (const std::bad_alloc&) { is_lost = true; }
    }
  });
}

void Transfers::ReadOn(const std::stop_token& stop) {
  // An import brings thousands, and whoever asks for one of them comes first. (Of this thread alone; it holds locks.)
  if (!is_ready_.exchange(true)) setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNiceness);
  while (std::optional<Fingerprint> fingerprint = NextToRead(stop)) {
    const Result<std::vector<Record>> records = cache_.RecordsOf(*fingerprint);
    donors_.Remove(*fingerprint);
    if (!records) continue;
    for (const Record& record : *records) Put(record);
  }
}

void Transfers::ReadAll(const std::stop_token& stop) {
  Stopwatch watch;
  Result<void> read = cache_.ForEachRecord(std::nullopt, [&](const Record& record) {
    Put(record);
    return !stop.stop_requested() && donors_.size() < kMostDonors;
  });
  if (!read) return LogWarn("donors_not_read", {{"why", read.error().Text()}});
  LogInfo("donors", {{"count", donors_.size()}, {"ms", watch.Microseconds() / 1e3}});
}

std::optional<Fingerprint> Transfers::NextToRead(const std::stop_token& stop) {
  MutexLock lock(mutex_);
  while (to_read_.empty() && !stop.stop_requested()) changed_.WaitFor(mutex_, std::chrono::hours(1), stop);
  if (stop.stop_requested()) return std::nullopt;
  const Fingerprint next = to_read_.front();
  to_read_.pop_front();
  return next;
}

void Transfers::ReadAgain(const Fingerprint& fingerprint) {
  MutexLock lock(mutex_);
  to_read_.push_back(fingerprint);
  changed_.NotifyOne();
}

void Transfers::Put(const Record& record) { donors_.Put(record, GainOf(cache_, record)); }

std::optional<WallTime> Transfers::DonorChanged(const Record& record) const {
  if (!record.donor) return std::nullopt;
  std::shared_ptr<const Donor> donor = donors_.Find(*record.donor);
  if (!donor) return std::nullopt;
  return donor->updated;
}

Transfers::~Transfers() { Close(); }

void Transfers::Close() {
  reader_.request_stop();
  if (reader_.joinable()) reader_.join();
}

Result<TransferPlan> Transfers::Plan(const CacheKey& key, const Target& target, Reach reach,
                                     const std::stop_token& stop) const {
  Space space = HONE_TRY(Space::Open(key.canonical, target));
  Neighbours::Query query;
  query.fingerprint = key.fingerprint;
  query.class_fingerprint = key.class_fingerprint;
  query.silhouette = SilhouetteOf(space.kernel());
  query.target = key.target;
  query.threads = key.threads;
  query.of_class = reach == Reach::kNear ? 4 : 6;
  query.of_others = reach == Reach::kNear ? 2 : 4;
  TransferPlan plan;
  TransferOptions options;
  options.workers = key.threads;
  options.threads = threads_;
  options.deadline = std::chrono::steady_clock::now() + kMostPlanning;
  options.stop = stop;
  plan.transfers = MakeTransfers(space, donors_.Nearest(query), options);
  if (stop.stop_requested()) return Error{ErrorKind::kUnavailable, "given up", ""};
  Result<std::shared_ptr<const CostModel>> model = model_(target.kind());
  plan.order = RankTransfers(plan.transfers, model ? model->get() : nullptr);
  plan.measured_us.resize(plan.transfers.size());
  plan.confidence = ConfidenceOf(plan);
  return plan;
}

Result<void> MeasurePlan(Evaluator& evaluator, int workers, double flops, std::chrono::milliseconds time,
                         TransferPlan& plan, const std::function<void(const Trial&)>& on_trial,
                         const std::stop_token& stop) {
  Stopwatch watch;
  MeasureOptions options;
  options.workers = workers;
  size_t done = 0;
  std::vector<size_t> failed;
  while (done < plan.order.size() && !stop.stop_requested()) {
    // What one of the next few will take: what the last few took.
    const double spent_ms = watch.Microseconds() / 1e3;
    const double one_ms = done == 0 ? kTrialMs + flops / kTrialFlopsPerMs : spent_ms / static_cast<double>(done);
    const auto fit = static_cast<size_t>(std::max(0.0, (static_cast<double>(time.count()) - spent_ms) / one_ms));
    if (fit < (done == 0 ? 2 : 1)) break;
    std::vector<Candidate> batch;
    const size_t end = std::min(plan.order.size(), done + std::min(fit, kMeasuredAtOnce));
    for (size_t i = done; i < end; ++i) batch.push_back(plan.transfers[plan.order[i]].candidate);
    std::vector<Trial> trials = HONE_TRY(MeasureBatch(evaluator, std::move(batch), options, stop, on_trial));
    for (size_t i = 0; i < trials.size(); ++i) {
      const size_t index = plan.order[done + i];
      plan.measured_us[index] = trials[i].time_us;
      if (trials[i].verdict != Verdict::kTimed) {
        failed.push_back(index);
        plan.transfers[index].refused = fmt::format("{}: {}", VerdictName(trials[i].verdict), trials[i].why);
      } else if (options.best_us == 0 || trials[i].time_us < options.best_us) {
        options.best_us = trials[i].time_us;
      }
    }
    done += trials.size();
  }
  std::erase_if(plan.order, [&](size_t i) { return std::find(failed.begin(), failed.end(), i) != failed.end(); });
  std::stable_sort(plan.order.begin(), plan.order.end(), [&](size_t a, size_t b) {
    auto rank = [&](size_t i) {
      return plan.measured_us[i] > 0 ? plan.measured_us[i] : std::numeric_limits<double>::infinity();
    };
    return rank(a) < rank(b);
  });
  if (!plan.order.empty() && plan.measured_us[plan.order[0]] > 0) plan.confidence = std::max(plan.confidence, 0.9);
  return {};
}

}  // namespace hone
