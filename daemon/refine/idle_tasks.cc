#include "daemon/refine/idle_tasks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <numeric>

namespace hone {
namespace {

constexpr std::chrono::minutes kLookEvery{5};
constexpr double kBetter = 1.005;   // a ratio that counts as progress
constexpr double kDoubtful = 0.35;  // confidence below which a guess is looked at first
constexpr size_t kPlanned = 100;

// The note that progress is kept in, so that what was refined yesterday is not searched again.
constexpr std::string_view kRefinedNote = "refined";

double MicrosecondsOf(const Record& record) {
  const auto time = record.measured ? record.measured->time : record.expected.value_or(std::chrono::nanoseconds(0));
  return std::chrono::duration<double, std::micro>(time).count();
}

}  // namespace

IdleTasks::Id IdleTasks::IdOf(const Record& record) {
  const std::string rest = fmt::format("{} {}", record.key.threads, record.key.target);
  return {record.key.fingerprint, std::hash<std::string>()(rest)};
}

Result<void> IdleTasks::Look(uint64_t compiled, const Transfers* transfers) {
  // A cache of a million kernels takes a while to read: again only when there are others, or counts have changed much.
  const MonotonicTime now = std::chrono::steady_clock::now();
  if (!tasks_.empty() && compiled == looked_at_compiled_ && now < looked_at_ + kLookEvery) return {};
  std::map<Id, size_t> known;
  for (size_t i = 0; i < progress_.size(); ++i) known.emplace(progress_[i].id, i);
  std::vector<RefineTask> tasks;
  std::vector<Progress> all_progress;
  Result<void> failed;
  HONE_TRY(cache_.ForEachRecord(std::nullopt, [&](const Record& record) {
    const ServedDevice* device = devices_.Find(record.key.target);
    if (device == nullptr || !IsChecked(device->target) || record.pinned) return true;
    RefineTask task;
    Progress progress;
    const Id id = IdOf(record);
    if (auto before = known.find(id); before != known.end() && progress_[before->second].created == record.created) {
      task = tasks_[before->second];
      progress = progress_[before->second];
    } else {  // not seen yet, or removed and asked for again
      progress.id = id;
      progress.created = record.created;
      Result<std::optional<std::string>> stored = cache_.GetNote(record.key, kRefinedNote);
      long long trials = 0, stale = 0;
      double won = 1;
      if (stored && *stored && sscanf((*stored)->c_str(), "%lld %lld %lf", &trials, &stale, &won) >= 2)
        task.trials = trials, task.stale = stale, progress.won = won;
    }
    Result<KernelUse> use = cache_.UseOf(record.key.fingerprint);
    if (!use) {
      failed = std::move(use).error();
      return false;
    }
    task.calls = static_cast<double>(use->calls);
    task.time_us = MicrosecondsOf(record);
    task.is_doubtful = IsDoubtful(record, transfers, task, progress);
    tasks.push_back(task);
    all_progress.push_back(std::move(progress));
    return true;
  }));
  HONE_TRY(std::move(failed));
  tasks_ = std::move(tasks);
  progress_ = std::move(all_progress);
  looked_at_compiled_ = compiled;
  looked_at_ = now;
  return {};
}

// A guess that nobody has looked at and that may be far off; or one from a donor that has become better since, which is
// fitted anew.
bool IdleTasks::IsDoubtful(const Record& record, const Transfers* transfers, RefineTask& task,
                           Progress& progress) const {
  if (record.origin == Origin::kTuned && !record.donor) return false;
  std::optional<WallTime> changed = transfers != nullptr ? transfers->DonorChanged(record) : std::nullopt;
  if (changed && *changed > std::max(record.updated, progress.refitted)) {
    progress.refit_for = *changed;
    task.stale = 0;
    return true;
  }
  if (record.origin == Origin::kTuned || task.trials > 0) return false;
  std::optional<TransferProvenance> provenance = ProvenanceOf(cache_, record.key);
  return provenance && provenance->confidence < kDoubtful;
}

std::optional<Record> IdleTasks::RecordOf(const Id& id) const {
  Result<std::vector<Record>> records = cache_.RecordsOf(id.fingerprint);
  if (!records) return std::nullopt;
  auto record = std::ranges::find_if(*records, [&](const Record& each) { return IdOf(each) == id; });
  return record == records->end() ? std::nullopt : std::optional<Record>(std::move(*record));
}

std::optional<IdleTasks::Turn> IdleTasks::Next() {
  ++turn_;
  while (std::optional<size_t> next = NextTask(tasks_, turn_)) {
    if (std::optional<Record> record = RecordOf(progress_[*next].id); record && !record->pinned)
      return Turn{*next, *std::move(record), static_cast<uint64_t>(tasks_[*next].trials) + 1, progress_[*next].best};
    // Removed or pinned since the cache was read.
    tasks_.erase(tasks_.begin() + static_cast<int64_t>(*next));
    progress_.erase(progress_.begin() + static_cast<int64_t>(*next));
  }
  return std::nullopt;
}

void IdleTasks::TookTurn(size_t index) {
  tasks_[index].last_turn = turn_;
  tasks_[index].is_doubtful = false;
  progress_[index].refitted = progress_[index].refit_for;
}

void IdleTasks::Failed(const Turn& turn, int64_t trials) {
  TookTurn(turn.index);
  tasks_[turn.index].stale += trials;
}

Result<void> IdleTasks::Refined(const Turn& turn, const Tuning::Outcome& outcome, bool was_stopped) {
  TookTurn(turn.index);
  RefineTask& task = tasks_[turn.index];
  Progress& progress = progress_[turn.index];
  const std::vector<Trial>& top = outcome.search.top;
  progress.best = was_stopped && !top.empty() ? PrintChoices(top[0].candidate.choices) : "";
  const int64_t trials = outcome.search.progress.trials;
  task.trials += trials;
  if (outcome.ratio > 0) {
    progress.won *= outcome.ratio;
    task.time_us = outcome.served_us / outcome.ratio;
  }
  task.last_gain = std::max(0.0, outcome.ratio - 1);
  task.stale = outcome.ratio > kBetter ? 0 : task.stale + trials;
  if (outcome.search.exhausted) task.stale = kRefined;
  Result<void> noted =
      cache_.PutNote(turn.record.key, kRefinedNote, fmt::format("{} {} {:.6g}", task.trials, task.stale, progress.won),
                     Durability::kSoon, turn.record.created);
  if (!noted && noted.error().kind == ErrorKind::kNotFound) return {};  // removed meanwhile
  return noted;
}

IdleTasks::Plan IdleTasks::MakePlan() const {
  Plan plan;
  plan.refinable = tasks_.size();
  plan.waiting = static_cast<uint64_t>(
      std::ranges::count_if(tasks_, [](const RefineTask& task) { return task.stale < kRefined; }));
  auto expected = [&](size_t i) { return tasks_[i].stale < kRefined ? ExpectedGain(tasks_[i]) : 0; };
  std::vector<size_t> order(tasks_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto end = order.begin() + static_cast<int64_t>(std::min(kPlanned, order.size()));
  std::partial_sort(order.begin(), end, order.end(), [&](size_t a, size_t b) {
    return std::pair(-expected(a), progress_[a].id) < std::pair(-expected(b), progress_[b].id);
  });
  order.erase(end, order.end());
  for (size_t i : order) {
    const RefineTask& task = tasks_[i];
    if (std::optional<Record> record = RecordOf(progress_[i].id))
      plan.tasks.push_back({record->request, task.calls, task.time_us, expected(i), static_cast<uint64_t>(task.trials),
                            progress_[i].won, task.stale >= kRefined});
  }
  return plan;
}

}  // namespace hone
