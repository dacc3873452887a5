#include "daemon/misses.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/log.h"

namespace hone {
namespace {

constexpr size_t kMostLookups = 4096;  // distinct requests that wait to be looked up
constexpr uint32_t kLookupRetryMs = 50;

// With so much time a search follows the first guess; for so much of what is left.
constexpr std::chrono::seconds kTimeToSearch{3};
constexpr std::chrono::microseconds kMostMeasuring{1'000'000};  // of transferred schedules
constexpr double kSearchShare = 0.6;

Error ShuttingDown() { return {ErrorKind::kUnavailable, "honed is shutting down", "honed"}; }

Error Busy(std::string what, uint32_t retry_ms) {
  return {ErrorKind::kBusy, fmt::format("{}, retry in {} ms", what, retry_ms), "honed"};
}

// Whose fault an error is, for the counters.
bool IsRefusal(ErrorKind kind) {
  return kind == ErrorKind::kInvalid || kind == ErrorKind::kUnsupported || kind == ErrorKind::kLimit;
}

}  // namespace

Misses::Misses(EventLoop& loop, RequestPath& path, HotSet& hot, Metrics& metrics, int builders,
               const MissLimits& limits)
    : loop_(loop),
      path_(path),
      hot_(hot),
      metrics_(metrics),
      builders_(builders),
      limits_(limits),
      lookup_queue_(1, "hone-lookup"),
      compile_queue_(builders, "hone-compile") {}

Misses::~Misses() { Close(); }

void Misses::Ask(const PeerPtr& peer, uint64_t request_id, const GetRequest& request, std::string name,
                 Stopwatch begun) {
  constexpr uint64_t kLongestBudget = uint64_t{3600} * 1'000'000;
  Waiter waiter{++last_serial_,
                peer,
                request_id,
                request.no_compile,
                request.no_artifact,
                std::chrono::microseconds(std::min(request.budget_us, kLongestBudget)),
                begun};
  if (stopped_) return AnswerError(waiter, ShuttingDown());
  if (auto same = lookups_.find(name); same != lookups_.end()) {
    same->second.push_back(std::move(waiter));
    return;
  }
  if (lookups_.size() >= kMostLookups) {
    return AnswerError(waiter, Busy("too many requests at once", kLookupRetryMs), kLookupRetryMs);
  }
  lookups_[name].push_back(std::move(waiter));
  metrics_.lookups_queued = static_cast<uint32_t>(lookups_.size());
  hone::Ask ask{request.kernel, request.target, static_cast<int>(std::min(request.threads, 4096u))};
  StartLookup(name, std::move(ask));
}

void Misses::StartLookup(const std::string& name, hone::Ask ask) {
  lookup_queue_.Push([this, self = self_, ask = std::move(ask), name, forgets = hot_.forgets()]() mutable {
    auto found = std::make_shared<Result<Found>>(path_.LookUp(ask));
    loop_.Post([self = std::move(self), name = std::move(name), ask = std::move(ask), forgets, found] {
      if (*self) (*self)->OnFound(name, ask, forgets, std::move(*found));
    });
  });
}

void Misses::OnFound(const std::string& name, const hone::Ask& ask, uint64_t forgets, Result<Found> found) {
  // A record was replaced meanwhile, maybe this one: what is handed out from now on must not be the old code.
  if (found && forgets != hot_.forgets() && lookups_.contains(name)) return StartLookup(name, ask);
  auto entry = lookups_.extract(name);
  if (entry.empty()) return;
  metrics_.lookups_queued = static_cast<uint32_t>(lookups_.size());
  std::vector<Waiter> waiters = std::move(entry.mapped());
  if (!found) {
    for (const Waiter& waiter : waiters) {
      ++(IsRefusal(found.error().kind) ? metrics_.refused : metrics_.failed);
      AnswerError(waiter, found.error());
    }
    return;
  }
  HotCodePtr code = found->code ? found->code : hot_.FindCode(found->identity.name);
  if (!code) return StartCompilation(name, *std::move(found), std::move(waiters));
  hot_.Insert(name, code);
  for (const Waiter& waiter : waiters) {
    ++metrics_.hits_disk;
    code->uses += found->code ? 0 : 1;  // the cache counted its own
    AnswerHit(waiter, code);
    metrics_.disk_hit.Add(waiter.begun.Microseconds());
  }
}

void Misses::StartCompilation(const std::string& name, Found found, std::vector<Waiter> waiters) {
  std::erase_if(waiters, [&](const Waiter& waiter) {
    if (waiter.peer->closed()) return true;
    if (!waiter.no_compile) return false;
    ++metrics_.not_compiled;
    AnswerError(waiter, {ErrorKind::kNotFound, "not in the cache, and compiling was not wanted", found.identity.label});
    return true;
  });
  if (waiters.empty()) return;
  const std::string key = found.identity.name;
  auto running = compilations_.find(key);
  if (running != compilations_.end()) {
    metrics_.joined += waiters.size();
  } else {
    if (stopped_ || metrics_.builds_queued >= limits_.queue) {
      uint32_t retry_ms = RetryAfterMs();
      for (const Waiter& waiter : waiters) {
        AnswerError(waiter,
                    stopped_ ? ShuttingDown() : Busy("all builders are at work and the queue is full", retry_ms),
                    stopped_ ? 0 : retry_ms);
        ++metrics_.busy;
      }
      return;
    }
    running = compilations_.try_emplace(key).first;
    // Whoever waits longest decides how much is made of it.
    std::chrono::microseconds budget{};
    for (const Waiter& waiter : waiters) budget = std::max(budget, waiter.budget);
    auto work = [this, self = self_, key, found = std::move(found), limits = limits_.path, budget,
                 queued = Stopwatch()]() mutable {
      found.steps.push_back({"queue", queued.Microseconds()});
      --metrics_.builds_queued;
      ++metrics_.builds_running;
      Stopwatch stopwatch;
      auto compiled = std::make_shared<Result<Compiled>>(Compile(found, limits, budget));
      double ms = stopwatch.Microseconds() / 1000;
      --metrics_.builds_running;
      loop_.Post([self = std::move(self), key = std::move(key), compiled, ms] {
        if (!*self) return;
        (*self)->mean_build_ms_ += (ms - (*self)->mean_build_ms_) / 8;
        (*self)->OnCompiled(key, std::move(*compiled));
      });
    };
    on_work_();
    ++metrics_.builds_queued;
    running->second.forgets = hot_.forgets();
    running->second.work = compile_queue_.Push(std::move(work));
  }
  Compilation& compilation = running->second;
  compilation.names.push_back(name);
  for (Waiter& waiter : waiters) {
    if (waiter.budget.count() > 0) {
      auto spent = std::chrono::microseconds(static_cast<int64_t>(waiter.begun.Microseconds()));
      loop_.After(std::max(waiter.budget - spent, std::chrono::microseconds(0)),
                  [self = self_, key, serial = waiter.serial] {
                    if (*self) (*self)->OnBudget(key, serial);
                  });
    }
    compilation.waiters.push_back(std::move(waiter));
  }
}

// In a compilation's thread.
Result<Compiled> Misses::Compile(const Found& found, const PathLimits& limits, std::chrono::microseconds budget) {
  Stopwatch watch;
  Result<Compiled> compiled = path_.Compile(found, limits, std::min(budget, kMostMeasuring));
  if (!compiled || budget < kTimeToSearch || !refine_ || found.identity.key.target != PrintTarget(path_.host()))
    return compiled;
  const auto spent = std::chrono::microseconds(static_cast<int64_t>(watch.Microseconds()));
  const hone::Ask ask{found.identity.request, "", found.identity.key.threads};
  // What is found has to be checked in full and compared before it is served.
  refine_(ask, std::chrono::duration_cast<std::chrono::milliseconds>((budget - spent) * kSearchShare));
  Result<Found> now = path_.LookUp(ask, Counting::kNot);
  if (!now || !now->code) return compiled;
  compiled->code = now->code;
  compiled->steps.push_back({"search", watch.Microseconds() - static_cast<double>(spent.count())});
  return compiled;
}

void Misses::OnCompiled(const std::string& key, Result<Compiled> compiled) {
  auto entry = compilations_.extract(key);
  if (entry.empty()) return;
  Compilation& compilation = entry.mapped();
  if (!compiled) {
    LogWarn("miss_failed",
            {{"kernel", key}, {"kind", ErrorKindName(compiled.error().kind)}, {"why", compiled.error().Text()}});
    for (const Waiter& waiter : compilation.waiters) {
      ++(IsRefusal(compiled.error().kind) ? metrics_.refused : metrics_.failed);
      bool busy = compiled.error().kind == ErrorKind::kBusy;
      AnswerError(waiter, compiled.error(), busy ? RetryAfterMs() : 0);
    }
    return;
  }
  const HotCodePtr& code = compiled->code;
  if (compilation.forgets == hot_.forgets()) {  // else a record was replaced meanwhile, maybe this one
    for (const std::string& name : compilation.names) hot_.Insert(name, code);
  }
  GetReply reply = code->reply;
  reply.hit = false;
  reply.steps = std::move(compiled->steps);
  std::string body = EncodeBody(reply);
  for (const Waiter& waiter : compilation.waiters) {
    ++metrics_.misses;
    ++code->uses;
    waiter.peer->ReplyWithCode(waiter.request_id, body, waiter.no_artifact ? nullptr : code);
    metrics_.miss.Add(waiter.begun.Microseconds());
  }
  LogInfo("miss", {{"fingerprint", reply.fingerprint},
                   {"class", reply.class_name},
                   {"bytes", reply.size},
                   {"waiters", compilation.waiters.size()}});
}

void Misses::OnBudget(const std::string& key, uint64_t serial) {
  auto entry = compilations_.find(key);
  if (entry == compilations_.end()) return;
  std::vector<Waiter>& waiters = entry->second.waiters;
  auto waiter = std::find_if(waiters.begin(), waiters.end(), [&](const Waiter& w) { return w.serial == serial; });
  if (waiter == waiters.end()) return;
  entry->second.keep = true;
  ++metrics_.over_budget;
  Waiter late = std::move(*waiter);
  waiters.erase(waiter);
  AnswerError(late,
              {ErrorKind::kTimeout,
               fmt::format("not compiled within the budget of {:.1f} ms; it goes on, ask again soon",
                           static_cast<double>(late.budget.count()) / 1000),
               "honed"},
              static_cast<uint32_t>(std::ceil(mean_build_ms_)));
}

void Misses::Forget(const Peer& peer) {
  auto is_its = [&](const Waiter& waiter) { return waiter.peer.get() == &peer; };
  for (auto& [_, waiters] : lookups_) metrics_.abandoned += std::erase_if(waiters, is_its);
  for (auto entry = compilations_.begin(); entry != compilations_.end();) {
    Compilation& compilation = entry->second;
    metrics_.abandoned += std::erase_if(compilation.waiters, is_its);
    // Work under way goes on: its result is kept, so it is not done again for the next who asks.
    bool is_dropped = compilation.waiters.empty() && !compilation.keep && Cancel(compilation);
    entry = is_dropped ? compilations_.erase(entry) : std::next(entry);
  }
}

void Misses::Stop() {
  stopped_ = true;
  std::vector<Waiter> waiters;
  for (auto entry = compilations_.begin(); entry != compilations_.end();) {
    bool is_dropped = Cancel(entry->second);
    if (is_dropped) std::ranges::move(entry->second.waiters, std::back_inserter(waiters));
    entry = is_dropped ? compilations_.erase(entry) : std::next(entry);
  }
  for (const Waiter& waiter : waiters) AnswerError(waiter, ShuttingDown());
}

void Misses::Close() {
  if (*self_ == nullptr) return;
  *self_ = nullptr;
  Stop();
  // Answering may make a peer close, which comes back through Forget: nothing is left to be found by then.
  auto lookups = std::exchange(lookups_, {});
  auto compilations = std::exchange(compilations_, {});
  for (auto& [_, waiters] : lookups) {
    for (const Waiter& waiter : waiters) AnswerError(waiter, ShuttingDown());
  }
  for (auto& [_, compilation] : compilations) {
    for (const Waiter& waiter : compilation.waiters) AnswerError(waiter, ShuttingDown());
  }
  lookup_queue_.Close();
  compile_queue_.Close();
}

void Misses::AnswerHit(const Waiter& waiter, const HotCodePtr& code) {
  if (waiter.no_artifact) {
    waiter.peer->Reply(waiter.request_id, MessageType::kGetReply, code->hit_body);
  } else {
    waiter.peer->ReplyHit(waiter.request_id, code);
  }
}

void Misses::AnswerError(const Waiter& waiter, const Error& error, uint32_t retry_after_ms) {
  waiter.peer->ReplyError(waiter.request_id, error, retry_after_ms);
}

// When the queue will have room again, about.
uint32_t Misses::RetryAfterMs() const {
  double ms = mean_build_ms_ * (static_cast<double>(metrics_.builds_queued) / builders_ / 2 + 1);
  return static_cast<uint32_t>(std::clamp(ms, 10.0, 60'000.0));
}

// False if it has begun.
bool Misses::Cancel(const Compilation& compilation) {
  if (!compile_queue_.Cancel(compilation.work)) return false;
  --metrics_.builds_queued;
  return true;
}

}  // namespace hone
