#include "daemon/serve/compilations.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <utility>

#include "base/log.h"

namespace hone {
namespace {

// How long a compilation runs before it makes room for another client's. Begun anew, it gets four times as much: what
// takes t is done after at most t/3 in vain, and t.
constexpr std::chrono::milliseconds kSlice{500};
constexpr int kSliceGrowth = 4;
constexpr int kMostDisplaced = 3;  // of what nobody waits for; then it is given up

// With so much time a search follows the first guess; for so much of what is left.
constexpr std::chrono::seconds kTimeToSearch{3};
constexpr std::chrono::microseconds kMostMeasuring{1'000'000};  // of transferred schedules
constexpr double kSearchShare = 0.6;

// Of the texts that are remembered to be one kernel, those that ask for it while it is compiled.
constexpr size_t kNameBytes = size_t{64} << 10;

constexpr size_t kQueueBytes = size_t{64} << 20;

FairQueue::Limits QueueLimits(const MissLimits& limits) { return {limits.queue, kQueueBytes}; }

// It says nothing about the kernel.
bool IsPassing(ErrorKind kind) { return kind == ErrorKind::kBusy || kind == ErrorKind::kUnavailable; }

// The first, and what there is room for: who asks by another text is looked up once more.
void KeepName(const std::string& name, std::vector<std::string>& names) {
  size_t bytes = name.size();
  for (const std::string& other : names) {
    if (other == name) return;
    bytes += other.size();
  }
  if (names.empty() || bytes <= kNameBytes) names.push_back(name);
}

bool AreAnswered(const Waiters& waiters) {
  return std::all_of(waiters.begin(), waiters.end(), [](const WaiterPtr& waiter) { return waiter->is_answered; });
}

}  // namespace

Error ShuttingDown() { return {ErrorKind::kUnavailable, "honed is shutting down", "honed"}; }

Error OutOfMemory() { return {ErrorKind::kLimit, "takes more memory than honed has", "honed"}; }

Error BusyError(std::string_view what, uint32_t retry_ms) {
  return {ErrorKind::kBusy, fmt::format("{}, retry in {} ms", what, retry_ms), "honed"};
}

bool IsRefusal(ErrorKind kind) {
  return kind == ErrorKind::kInvalid || kind == ErrorKind::kUnsupported || kind == ErrorKind::kLimit;
}

ClientId OwnClient() { return {geteuid(), getpid()}; }

Compilations::Compilations(EventLoop& loop, LookupPath& path, HotSet& hot, Metrics& metrics, int builders,
                           const MissLimits& limits, LookUp look_up)
    : loop_(loop),
      path_(path),
      hot_(hot),
      metrics_(metrics),
      builders_(builders),
      limits_(limits),
      look_up_(std::move(look_up)),
      queue_(builders, "hone-compile", QueueLimits(limits)) {}

Compilations::~Compilations() { Close(); }

void Compilations::SetLimits(const MissLimits& limits) {
  limits_ = limits;
  queue_.SetLimits(QueueLimits(limits));
  failures_.ForgetAll();  // they may be the old limits'
}

void Compilations::Start(const std::string& name, LookUpResult found, Waiters waiters) {
  std::erase_if(waiters, [&](const WaiterPtr& waiter) {
    if (waiter->peer->closed()) return true;
    if (!waiter->no_compile || found.is_to_check) return false;  // checking compiles nothing
    metrics_.not_compiled += waiter->is_answered ? 0 : 1;
    waiter->AnswerError({ErrorKind::kNotFound, "not in the cache, and compiling was not wanted", found.identity.label});
    return true;
  });
  if (waiters.empty()) return;
  const std::string key = found.identity.name;
  const bool names_device = found.identity.on != nullptr;  // which is looked at each time
  auto running = compilations_.find(key);
  if (running != compilations_.end()) {
    metrics_.joined += waiters.size();
  } else {
    if (const Error* known = failures_.Find(key, Failures::Clock::now())) {
      for (const WaiterPtr& waiter : waiters) {
        ++(IsRefusal(known->kind) ? metrics_.refused : metrics_.failed);
        waiter->AnswerError(*known);
      }
      return;
    }
    if (stopped_) {
      for (const WaiterPtr& waiter : waiters) waiter->AnswerError(ShuttingDown());
      return;
    }
    Compilation compilation;
    compilation.found = std::make_shared<const LookUpResult>(std::move(found));
    compilation.slice = kSlice;
    compilation.client = waiters.front()->peer->client();
    compilation.waiters = std::move(waiters);
    if (!Push(key, compilation))
      return AnswerBusy(compilation.waiters, "all builders are at work and the queue is full");
    on_work_();
    waiters = std::exchange(compilation.waiters, {});
    running = compilations_.emplace(key, std::move(compilation)).first;
  }
  Compilation& compilation = running->second;
  if (!names_device) KeepName(name, compilation.names);
  for (WaiterPtr& waiter : waiters) {
    queue_.Join(compilation.job, waiter->peer->client());
    AddWaiter(compilation.waiters, std::move(waiter));
  }
}

void Compilations::Prepare(LookUpResult found, std::function<void()> done) {
  const std::string key = found.identity.name;
  if (stopped_) return;
  if (compilations_.contains(key) || failures_.Find(key, Failures::Clock::now()) != nullptr) return loop_.Post(done);
  Compilation compilation;
  compilation.found = std::make_shared<const LookUpResult>(std::move(found));
  compilation.slice = kSlice;
  compilation.client = OwnClient();
  compilation.done = done;
  if (!Push(key, compilation)) return loop_.After(std::chrono::milliseconds(RetryAfterMs()), done);
  queue_.Abandon(compilation.job);
  compilations_.emplace(key, std::move(compilation));
}

// False: too much waits.
bool Compilations::Push(const std::string& key, Compilation& compilation) {
  // Whoever waits longest decides how much is made of it.
  WaitClock::time_point until{};
  for (const WaiterPtr& waiter : compilation.waiters)
    if (waiter->budget.count() > 0 && !waiter->is_answered) until = std::max(until, waiter->until);
  FairQueue::Job job;
  job.client = compilation.client;
  job.bytes = compilation.found->identity.key.canonical.size() + compilation.found->identity.request.size();
  job.slice = compilation.slice;
  job.is_long = compilation.displaced > 0;
  job.run = [this, self = self_, key, found = compilation.found, limits = limits_.path, until, user = job.client.uid,
             queued = Stopwatch()](const std::stop_token& stop) {
    CountQueued();
    ++metrics_.builds_running;
    Stopwatch stopwatch;
    std::shared_ptr<Result<Compiled>> compiled;
    try {
      LookUpResult mine = *found;
      mine.steps.push_back({"queue", queued.Microseconds()});
      compiled = std::make_shared<Result<Compiled>>(Compile(std::move(mine), limits, until, user, stop));
    } catch (const std::bad_alloc&) { compiled = std::make_shared<Result<Compiled>>(OutOfMemory()); }
    const double ms = stopwatch.Microseconds() / 1000;
    --metrics_.builds_running;
    loop_.Post([self, key, compiled, ms, was_stopped = stop.stop_requested()] {
      if (!*self) return;
      if (*compiled) (*self)->mean_build_ms_ += (ms - (*self)->mean_build_ms_) / 8;
      (*self)->OnCompiled(key, std::move(*compiled), was_stopped);
    });
  };
  job.drop = [this, self = self_, key] {
    loop_.Post([self, key] {
      if (*self) (*self)->OnDropped(key);
    });
  };
  compilation.forgets = hot_.forgets();
  std::optional<FairQueue::Id> id = queue_.Push(std::move(job));
  CountQueued();
  if (id) compilation.job = *id;
  return id.has_value();
}

// In a thread of the queue.
Result<Compiled> Compilations::Compile(LookUpResult found, const PathLimits& limits, WaitClock::time_point until,
                                       uid_t user, const std::stop_token& stop) {
  const auto left = std::chrono::duration_cast<std::chrono::microseconds>(until - WaitClock::now());
  CompileRequest options;
  options.limits = limits;
  options.budget = std::clamp(left, std::chrono::microseconds(0), kMostMeasuring);
  options.stop = stop;
  options.user = user;
  return path_.Compile(found, options);
}

void Compilations::OnCompiled(const std::string& key, Result<Compiled> compiled, bool was_stopped) {
  auto entry = compilations_.find(key);
  if (entry == compilations_.end()) return;
  if (!compiled && was_stopped && BeginAgain(key, entry->second)) return;
  const Compilation done = std::move(entry->second);
  compilations_.erase(entry);
  try {
    if (compiled)
      Serve(key, done, *compiled);
    else
      Fail(key, done, compiled.error(), was_stopped);
  } catch (const std::bad_alloc&) {
    for (const WaiterPtr& waiter : done.waiters) waiter->AnswerError(OutOfMemory());
  }
  if (done.done) loop_.Post(done.done);
}

void Compilations::Fail(const std::string& key, const Compilation& done, const Error& error, bool was_stopped) {
  if (was_stopped) {  // honed shuts down, or too much waits
    for (const WaiterPtr& waiter : done.waiters)
      if (stopped_) waiter->AnswerError(ShuttingDown());
    if (!stopped_) AnswerBusy(done.waiters, "all builders are at work and the queue is full");
    return;
  }
  LogWarn("miss_failed", {{"kernel", key}, {"kind", ErrorKindName(error.kind)}, {"why", error.Text()}});
  if (!IsPassing(error.kind)) failures_.Note(key, error, Failures::Clock::now());
  for (const WaiterPtr& waiter : done.waiters) {
    ++(IsRefusal(error.kind) ? metrics_.refused : metrics_.failed);
    waiter->AnswerError(error, error.kind == ErrorKind::kBusy ? RetryAfterMs() : 0);
  }
}

void Compilations::Serve(const std::string& key, const Compilation& done, const Compiled& compiled) {
  failures_.Forget(key);
  const HotCodePtr& code = compiled.code;
  if (!hot_.ForgotSince(done.forgets, code->fingerprint)) {  // else its record was replaced meanwhile
    if (!done.waiters.empty()) hot_.Insert(code);
    for (const std::string& name : done.names) hot_.Insert(name, code);
  }
  LogInfo("miss", {{"fingerprint", code->reply.fingerprint},
                   {"class", code->reply.class_name},
                   {"bytes", code->reply.size},
                   {"waiters", done.waiters.size()}});
  Waiters patient;
  const bool is_ours = IsChecked(done.found->identity.target) &&  // else there is nothing to measure
                       path_.devices().Find(done.found->identity.key.target) != nullptr &&
                       !done.names.empty();  // else it was asked for by a device's name
  for (const WaiterPtr& waiter : done.waiters) {
    if (waiter->is_answered) continue;
    if (waiter->no_compile && !compiled.was_here) {  // what was to be checked only was no good
      ++metrics_.not_compiled;
      waiter->AnswerError(
          {ErrorKind::kNotFound, "not in the cache, and compiling was not wanted", done.found->identity.label});
      continue;
    }
    if (compiled.was_here) {
      ++metrics_.hits_disk;
      ++code->uses;
      waiter->Answer(code);
      metrics_.disk_hit.Add(waiter->begun.Microseconds());
      continue;
    }
    waiter->steps = compiled.steps;
    if (searcher_ != nullptr && !waiter->code && !stopped_ && is_ours && waiter->Left() >= kTimeToSearch) {
      waiter->code = code;
      patient.push_back(waiter);
      continue;
    }
    ++metrics_.misses;
    ++code->uses;
    waiter->Answer(code);
    metrics_.miss.Add(waiter->begun.Microseconds());
  }
  if (!patient.empty()) SearchFurther(key, done, std::move(patient));
}

// It was stopped: others wanted the thread.
bool Compilations::BeginAgain(const std::string& key, Compilation& compilation) {
  ++metrics_.displaced;
  ++compilation.displaced;
  compilation.slice *= kSliceGrowth;
  const bool is_abandoned = compilation.waiters.empty();
  if (stopped_ || (is_abandoned && compilation.displaced > kMostDisplaced)) return false;
  try {
    if (!Push(key, compilation)) return false;
    for (const WaiterPtr& waiter : compilation.waiters) queue_.Join(compilation.job, waiter->peer->client());
    if (is_abandoned) queue_.Abandon(compilation.job);
  } catch (const std::bad_alloc&) { return false; }
  return true;
}

void Compilations::SearchFurther(const std::string& key, const Compilation& compilation, Waiters waiters) {
  const ResolvedKernel& identity = compilation.found->identity;
  const KernelRequest ask{identity.request, identity.key.target, identity.key.threads, identity.on};
  auto longest = std::max_element(waiters.begin(), waiters.end(),
                                  [](const WaiterPtr& a, const WaiterPtr& b) { return a->until < b->until; });
  // What is found has to be checked in full and compared before it is served.
  const auto time = std::chrono::duration_cast<std::chrono::milliseconds>((*longest)->Left() * kSearchShare);
  const ClientId client = (*longest)->peer->client();
  Refinement& refinement = refinements_[key];
  std::ranges::move(waiters, std::back_inserter(refinement.waiters));
  if (refinement.waiters.size() > waiters.size()) return;  // one is under way
  refinement.id = searcher_->Search(ask, time, client, [self = self_, key, name = compilation.names.front(), ask] {
    if (!*self) return;
    auto entry = (*self)->refinements_.extract(key);
    if (entry.empty()) return;
    Waiters found = std::move(entry.mapped().waiters);
    for (const WaiterPtr& waiter : found) waiter->steps.push_back({"search", waiter->begun.Microseconds()});
    (*self)->look_up_(name, ask, std::move(found));
  });
}

void Compilations::OnSearchOver(const WaiterPtr& waiter) {
  ++metrics_.misses;
  ++waiter->code->uses;
  metrics_.miss.Add(waiter->begun.Microseconds());
  waiter->Answer(waiter->code);
  for (auto entry = refinements_.begin(); entry != refinements_.end(); ++entry) {
    if (!AreAnswered(entry->second.waiters)) continue;
    searcher_->GiveUp(entry->second.id);
    refinements_.erase(entry);
    return;
  }
}

void Compilations::OnDropped(const std::string& key) {
  auto entry = compilations_.extract(key);
  CountQueued();
  if (!entry.empty() && entry.mapped().done) loop_.Post(entry.mapped().done);
  if (!entry.empty())
    AnswerBusy(entry.mapped().waiters, "all builders are at work and the queue is full of your requests");
}

void Compilations::AnswerBusy(const Waiters& waiters, std::string_view why) {
  const uint32_t retry_ms = RetryAfterMs();
  metrics_.busy += waiters.size();
  for (const WaiterPtr& waiter : waiters) waiter->AnswerError(BusyError(why, retry_ms), retry_ms);
}

void Compilations::Forget(const Peer& peer) {
  for (auto entry = compilations_.begin(); entry != compilations_.end();) {
    Compilation& compilation = entry->second;
    const size_t before = compilation.waiters.size();
    const size_t waited = EraseWaitersOf(peer, compilation.waiters);
    metrics_.abandoned += waited;
    compilation.was_promised |= waited < before - compilation.waiters.size();
    if (before == 0 || !compilation.waiters.empty()) {
      ++entry;
      continue;
    }
    // Who was told to ask again may come again, and what is under way is worth something to the next who asks: both run
    // when nothing else wants to.
    if (!compilation.was_promised && !compilation.done && queue_.Withdraw(compilation.job)) {
      entry = compilations_.erase(entry);
      continue;
    }
    queue_.Abandon(compilation.job);
    ++entry;
  }
  CountQueued();
  for (auto entry = refinements_.begin(); entry != refinements_.end();) {
    metrics_.abandoned += EraseWaitersOf(peer, entry->second.waiters);
    const bool is_over = entry->second.waiters.empty();
    if (is_over) searcher_->GiveUp(entry->second.id);
    entry = is_over ? refinements_.erase(entry) : std::next(entry);
  }
}

void Compilations::Stop() {
  stopped_ = true;
  Waiters waiters;
  for (auto entry = compilations_.begin(); entry != compilations_.end();) {
    const bool is_dropped = queue_.Withdraw(entry->second.job);
    if (is_dropped) std::ranges::move(entry->second.waiters, std::back_inserter(waiters));
    entry = is_dropped ? compilations_.erase(entry) : std::next(entry);
  }
  CountQueued();
  for (const WaiterPtr& waiter : waiters) waiter->AnswerError(ShuttingDown());
  // Who waits for better code has some.
  auto refinements = std::exchange(refinements_, {});
  for (auto& [_, refinement] : refinements) {
    searcher_->GiveUp(refinement.id);
    for (const WaiterPtr& waiter : refinement.waiters) waiter->Answer(waiter->code);
  }
}

void Compilations::Close() {
  if (*self_ == nullptr) return;
  Stop();
  *self_ = nullptr;
  auto compilations = std::exchange(compilations_, {});
  for (auto& [_, compilation] : compilations)
    for (const WaiterPtr& waiter : compilation.waiters) waiter->AnswerError(ShuttingDown());
  queue_.Close();
}

void Compilations::CountQueued() { metrics_.builds_queued = static_cast<uint32_t>(queue_.waiting()); }

uint32_t Compilations::BuildMs() const { return static_cast<uint32_t>(std::ceil(mean_build_ms_)); }

// When the queue will have room again, about.
uint32_t Compilations::RetryAfterMs() const {
  double ms = mean_build_ms_ * (static_cast<double>(queue_.waiting()) / builders_ / 2 + 1);
  return static_cast<uint32_t>(std::clamp(ms, 10.0, 60'000.0));
}

}  // namespace hone
