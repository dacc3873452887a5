#include "daemon/inspect/insight.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "cache/tuning_gain.h"
#include "codegen/rules/default_schedule.h"
#include "daemon/inspect/record_facts.h"
#include "daemon/serve/transfers.h"
#include "ir/schedule/schedule.h"
#include "ir/schedule/schedule_cases.h"
#include "tuner/measure.h"

namespace hone {
namespace {

constexpr size_t kMostOfSizes = 60;  // characters of the sizes that a case is for
constexpr std::chrono::minutes kMeasureAgain{30};
constexpr size_t kMostHistory = 2'000;  // points
constexpr size_t kMostRecipients = 100;
constexpr size_t kMostLookedAt = 50'000;  // records, for recipients

double Us(std::chrono::nanoseconds time) { return std::chrono::duration<double, std::micro>(time).count(); }

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The choices that a schedule was made with, and whether the rules of today still make it of them.
struct Remade {
  Candidate candidate;
  bool is_same = false;
};
Result<Remade> Remake(const Space& space, const std::string& schedule) {
  Remade remade;
  const std::string choices = ChoicesOf(schedule);
  remade.candidate = HONE_TRY(choices.empty() ? space.Default() : space.Parse(choices));
  remade.is_same = WithChoices(remade.candidate.schedule, choices) == InWordsOfToday(schedule);
  return remade;
}

// Steps that were fitted from another kernel's are no rule's: they come without choices. REQUIRES: it is not the
// default.
bool IsFitted(const Record& record) {
  return (record.origin == Origin::kTransferred || record.origin == Origin::kTuned) &&
         ChoicesOf(record.schedule).empty();
}

// The same choices but one.
Result<Candidate> Otherwise(const Space& space, const Candidate& candidate, const Choice& changed, int64_t value) {
  std::vector<Choice> choices = candidate.choices;
  for (Choice& choice : choices)
    if (choice.site == changed.site) choice.value = value;
  return space.Parse(PrintChoices(choices));
}

// What a list of choices in text names a decision with: "6" of "acc.rows"; nullopt where it is as the rules prefer.
std::optional<std::string_view> ValueIn(std::string_view choices, std::string_view site) {
  while (!choices.empty()) {
    std::string_view word = choices.substr(0, choices.find(' '));
    if (word.size() > site.size() && word.starts_with(site) && word[site.size()] == '=')
      return word.substr(site.size() + 1);
    choices.remove_prefix(std::min(choices.size(), word.size() + 1));
  }
  return std::nullopt;
}

double Lower(double a, double b) { return a > 0 && (b <= 0 || a < b) ? a : b; }

double ExpectedUs(const CostModel* model, const std::vector<float>& features) {
  if (model == nullptr) return 0;
  Result<std::optional<Latency>> latency = model->Predict(features);
  return latency && *latency ? (*latency)->expected_us : 0;
}

}  // namespace

struct Insight::Trials {
  struct One {
    std::string choices;
    double time_us = 0;
  };
  std::vector<One> timed;
  std::unordered_map<uint64_t, std::vector<double>> times;  // by program
  struct Same {
    uint64_t count = 0;
    std::string why;  // of the latest that says so
  };
  std::map<uint8_t, Same> verdicts;
  std::vector<HistoryPoint> history;
  uint64_t count = 0;
  double best_us = 0;
};

Result<Insight::Trials> Insight::ReadTrials(const Record& record) const {
  Trials trials;
  std::optional<uint64_t> by_default;
  if (Result<Target> target = ParseTarget(record.key.target))
    if (Result<Space> space = Space::Open(record.key.canonical, *target))
      if (Result<Candidate> standard = space->Default()) by_default = standard->program;
  HONE_TRY(cache_.ForEachTrial(record.key, [&](const TrialRecord& trial) {
    ++trials.count;
    Trials::Same& same = trials.verdicts[trial.verdict];
    ++same.count;
    if (!trial.why.empty()) same.why = trial.why;
    const double time_us = Us(trial.time);
    if (trial.verdict != static_cast<uint8_t>(Verdict::kTimed) || time_us <= 0) return true;
    // A fit of a neighbour's steps has no choices either, and is not the default.
    if (!trial.choices.empty() || !by_default || trial.program == *by_default)
      trials.timed.push_back({trial.choices, time_us});
    trials.times[trial.program].push_back(time_us);
    if (trials.best_us > 0 && time_us >= trials.best_us) return true;
    trials.best_us = time_us;
    if (trials.history.size() < kMostHistory)
      trials.history.push_back({trials.count, time_us,
                                std::chrono::duration_cast<std::chrono::seconds>(trial.at.time_since_epoch()).count()});
    return true;
  }));
  return trials;
}

Result<ExplainReply> Insight::Explain(const Record& record) {
  ExplainReply reply;
  reply.threads = static_cast<uint32_t>(record.key.threads);
  const Trials trials = HONE_TRY(ReadTrials(record));
  reply.trials = trials.count;
  reply.history = trials.history;
  for (const auto& [verdict, same] : trials.verdicts) {
    std::string_view known = VerdictName(static_cast<Verdict>(verdict));
    const std::string name = known.empty() ? "of a newer hone" : std::string(known);
    reply.verdicts.push_back({name, static_cast<double>(same.count)});
    if (!same.why.empty())
      reply.reasons.push_back(
          {name, fmt::format("{} of {} trials; the latest: {}", same.count, trials.count, same.why)});
  }
  std::vector<double> of_default;
  for (const Trials::One& trial : trials.timed)
    if (trial.choices.empty()) of_default.push_back(trial.time_us);
  reply.default_us = Median(std::move(of_default));
  if (TuningGain won = TuningGainOf(cache_, record); won.steps > 0) {
    reply.won_ratio = won.ratio;
    reply.idle_ratio = won.idle_ratio;
  }
  if (std::optional<TransferProvenance> provenance = ProvenanceOf(cache_, record.key))
    reply.transfer = *std::move(provenance);
  for (TransferGuess& guess : reply.transfer.guesses) guess.kernel = ShownText(guess.kernel);
  reply.recipients = RecipientsOf(record);
  ExplainSpace(record, trials, reply);
  return reply;
}

std::vector<std::string> Insight::RecipientsOf(const Record& record) const {
  std::vector<std::string> recipients;
  size_t looked_at = 0;
  (void)cache_.ForEachRecord(std::nullopt, [&](const Record& other) {
    if (other.donor == record.key.fingerprint) recipients.push_back(ShownText(other.request));
    return recipients.size() < kMostRecipients && ++looked_at < kMostLookedAt;
  });
  return recipients;
}

// A record whose kernel or target this hone cannot read any more has nothing to say here, and the rest is told.
void Insight::ExplainSpace(const Record& record, const Trials& trials, ExplainReply& reply) {
  Result<Target> target = ParseTarget(record.key.target);
  if (!target) return;
  Result<Space> space = Space::Open(record.key.canonical, *target);
  if (!space) return;
  reply.roofline = RooflineOf(record, *space, trials);
  reply.space_size = space->Size();
  if (HasCases(record.schedule)) {
    // Each case is a space of its own: which there are, and what a search chose in them.
    if (Result<ScheduleCases> cases = ParseScheduleCases(record.schedule))
      for (size_t i = 0; i < cases->cases.size(); ++i) {
        const ScheduleCase& scheduled = cases->cases[i];
        std::string sizes = PrintScheduleCases({cases->size, {{scheduled.ranges, {}, {}}}});
        sizes = sizes.substr(sizes.find(' ') + 1);
        sizes.pop_back();
        if (sizes.size() > kMostOfSizes) sizes = sizes.substr(0, sizes.rfind(' ', kMostOfSizes)) + " and others";
        reply.reasons.push_back(
            {fmt::format("case {}", i + 1),
             fmt::format("{}: {}", sizes, scheduled.choices.empty() ? "as the rules prefer" : scheduled.choices)});
      }
    return;
  }
  Result<Remade> remade = Remake(*space, record.schedule);
  if (!remade) return;
  const Candidate& now = remade->candidate;
  if (!remade->is_same)
    reply.reasons.push_back(
        {"rules", IsFitted(record)
                      ? "did not make this schedule: its steps are another kernel's, fitted; what follows is "
                        "of the one that they would make"
                      : "changed since this schedule was made; what follows is of today's rules"});
  Result<Chooser> chooser = ParseChoices(PrintChoices(now.choices));
  if (chooser)
    if (Result<Plan> plan = PlanSchedule(space->kernel(), *target, *chooser))
      for (RuleNote& note : plan->notes)
        reply.rules.push_back({std::move(note.rule), std::move(note.stage), note.applied, std::move(note.why)});

  std::shared_ptr<const CostModel> model;
  if (trials.count > 0)
    if (Result<std::shared_ptr<const CostModel>> newest = model_(target->kind())) model = *std::move(newest);
  for (const Choice& choice : now.choices) reply.choices.push_back(WorthOf(choice, now, *space, trials, model.get()));
}

ChoiceRow Insight::WorthOf(const Choice& choice, const Candidate& now, const Space& space, const Trials& trials,
                           const CostModel* model) {
  ChoiceRow row;
  row.site = choice.site;
  row.meaning = choice.decision.meaning;
  row.is_flag = choice.is_flag;
  row.value = choice.value;
  row.preferred = choice.preferred;
  row.options = choice.options;
  if (trials.timed.empty()) return row;
  const bool is_changed = choice.value != choice.preferred;

  const std::string value = std::to_string(choice.value);
  double with = 0, without = 0;
  for (const Trials::One& trial : trials.timed) {
    std::optional<std::string_view> decided = ValueIn(trial.choices, choice.site);
    const bool is_as_now = is_changed ? decided == value : !decided;
    ++(is_as_now ? row.trials_with : row.trials_without);
    double& best = is_as_now ? with : without;
    best = Lower(trial.time_us, best);
  }
  if (with > 0) row.trials_ratio = without / with;

  auto measured_us = [&](const Candidate& candidate) {
    auto found = trials.times.find(candidate.program);
    return found == trials.times.end() ? 0 : Median(found->second);
  };
  const double measured_now = measured_us(now), expected_now = ExpectedUs(model, now.features);
  double measured = 0, expected = 0;
  for (int64_t option : is_changed ? std::vector<int64_t>{choice.preferred} : choice.options) {
    if (option == choice.value) continue;
    Result<Candidate> other = Otherwise(space, now, choice, option);
    if (!other) continue;
    if (other->program == now.program && !is_changed) continue;  // it makes no difference to the code
    measured = Lower(measured_us(*other), measured);
    expected = Lower(ExpectedUs(model, other->features), expected);
  }
  if (measured_now > 0) row.measured_ratio = measured / measured_now;
  if (expected_now > 0) row.model_ratio = expected / expected_now;
  return row;
}

Result<PredictReply> Insight::Predict(const ResolvedKernel& identity) {
  Result<std::shared_ptr<const CostModel>> model = model_(identity.target.kind());
  if (!model && model.error().kind != ErrorKind::kNotFound) return std::move(model).error();
  Space space = HONE_TRY(Space::Open(identity.key.canonical, identity.target));
  PredictReply reply;
  reply.fingerprint = identity.key.fingerprint.Hex();
  reply.class_name = identity.label;
  reply.flops = space.flops();
  auto estimate = [&](const Candidate& candidate) -> Result<Estimate> {
    if (!model) return Estimate{};
    std::optional<Latency> latency = HONE_TRY((*model)->Predict(candidate.features));
    return latency ? Estimate{latency->expected_us, latency->low_us, latency->high_us} : Estimate{};
  };
  Candidate standard = HONE_TRY(space.Default());
  reply.by_default = HONE_TRY(estimate(standard));
  std::vector<Record> records = HONE_TRY(cache_.RecordsOf(identity.key.fingerprint));
  for (const Record& record : records) {
    if (record.key.target != identity.key.target || record.key.threads != identity.key.threads) continue;
    reply.origin = OriginName(record.origin);
    if (record.measured) reply.measured_us = Us(record.measured->time);
    std::string choices = ChoicesOf(record.schedule);
    Result<Candidate> served = choices.empty() ? standard : space.Parse(choices);
    if (served) reply.served = HONE_TRY(estimate(*served));
  }
  if (!model) {
    reply.why_none = model.error().message;
  } else if (reply.by_default.expected_us <= 0) {
    reply.why_none =
        "the cost model has seen too few searches to say how long a kernel takes; `hone tune` some kernels, or leave "
        "the machine idle for a while";
  }
  return reply;
}

Roofline Insight::RooflineOf(const Record& record, const Space& space, const Trials& trials) {
  Roofline roofline;
  roofline.flops = space.flops();
  const Kernel& kernel = space.kernel();
  bool is_float = true;
  for (TensorId operand : kernel.operands) {
    const Tensor& tensor = kernel.tensors[operand];
    double bytes = static_cast<double>(ByteSize(tensor.dtype));
    for (const Expr& extent : tensor.shape) bytes *= static_cast<double>(UpperExtent(kernel, extent));
    roofline.operand_bytes += bytes;
    if (tensor.kind == TensorKind::kOutput) is_float &= tensor.dtype == DType::kF32;
  }
  if (record.measured) {
    roofline.time_us = Us(record.measured->time);
    roofline.time_from = "measured";
  } else if (record.expected) {
    roofline.time_us = Us(*record.expected);
    roofline.time_from = "first call";
  } else if (trials.best_us > 0) {
    roofline.time_us = trials.best_us;
    roofline.time_from = "best trial";
  }
  const int level = LevelOf(roofline.operand_bytes, space.target(), record.key.threads);
  roofline.level = MemoryLevelName(level);
  const ServedDevice* device = devices_.Find(record.key.target);
  if (device == nullptr) return roofline;
  const MachinePeaks peaks = Peaks(*device, record.key.threads);
  if (is_float) roofline.peak_gflops = peaks.gflops;  // other types have other units
  roofline.read_gb_s = peaks.read_gb_s[static_cast<size_t>(level)];
  return roofline;
}

MachinePeaks Insight::Peaks(const ServedDevice& device, int threads) {
  threads = std::clamp(threads, 1, std::max(1, device.target.cores()));
  MutexLock lock(peaks_mutex_);
  auto [known, is_new] = peaks_.try_emplace({device.target_text, threads});
  const MonotonicTime now = std::chrono::steady_clock::now();
  if (!is_new && now - known->second.at < kMeasureAgain) return known->second.peaks;
  const std::string name = fmt::format("peaks {} {}", threads, HashedTarget(device.target_text));
  MachinePeaks& peaks = known->second.peaks;
  if (Result<std::optional<std::string>> stored = cache_.GetMeta(name); stored && *stored)
    if (Result<MachinePeaks> before = ParsePeaks(**stored)) peaks = Highest(peaks, *before);
  peaks = Highest(peaks,
                  measure_ ? measure_(device.target, threads) : device.backend->MeasurePeaks(device.target, threads));
  known->second.at = now;
  (void)cache_.PutMeta(name, PrintPeaks(peaks), Durability::kSoon);  // a cache that is only looked at keeps nothing
  return peaks;
}

Result<CopySpeed> Insight::Copies(const std::string& target) {
  const Devices::Choice choice = HONE_TRY(devices_.Choose(target));
  const ServedDevice* device = devices_.Find(PrintTarget(choice.target));
  if (device == nullptr || !IsChecked(choice.target))
    return Error{ErrorKind::kUnsupported, "no device here is that: nothing is copied to it", "target"};
  MutexLock lock(copies_mutex_);
  const MonotonicTime now = std::chrono::steady_clock::now();
  const auto known = copies_.find(device->target_text);
  if (known != copies_.end() && now - known->second.at < kMeasureAgain) return known->second.speed;
  const std::string name = fmt::format("copies {}", HashedTarget(device->target_text));
  CopySpeed speed;
  if (Result<std::optional<std::string>> stored = cache_.GetMeta(name); stored && *stored)
    speed = ParseCopySpeed(**stored).value_or(CopySpeed{});
  const Result<CopySpeed> measured = device->backend->MeasureCopies(device->target);
  if (!measured && speed.IsFree()) return measured;
  if (measured) speed = Fastest(speed, *measured);
  copies_[device->target_text] = {speed, now};
  if (!speed.IsFree()) (void)cache_.PutMeta(name, PrintCopySpeed(speed), Durability::kSoon);
  return speed;
}

}  // namespace hone
