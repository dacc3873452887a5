#include "daemon/serve/misses.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <utility>

namespace hone {
namespace {

constexpr FairQueue::Limits kLookupLimits{4096, size_t{64} << 20};
constexpr uint32_t kLookupRetryMs = 50;
constexpr std::chrono::microseconds kLongestBudget = std::chrono::hours(1);

}  // namespace

Misses::Misses(EventLoop& loop, LookupPath& path, HotSet& hot, Metrics& metrics, int builders, const MissLimits& limits)
    : loop_(loop),
      path_(path),
      hot_(hot),
      metrics_(metrics),
      budgets_(loop, [this](const WaiterPtr& waiter) { OnBudget(waiter); }),
      queue_(1, "hone-lookup", kLookupLimits),
      compilations_(loop, path, hot, metrics, builders, limits,
                    [this](const std::string& name, const KernelRequest& ask, Waiters waiters) {
                      LookUp(name, ask, std::move(waiters));
                    }) {}

Misses::~Misses() { Close(); }

void Misses::Ask(const PeerPtr& peer, uint64_t request_id, const GetRequest& request, std::string name, Stopwatch begun,
                 AttachedDevicePtr on) {
  auto waiter = std::make_shared<Waiter>();
  waiter->peer = peer;
  waiter->request_id = request_id;
  waiter->no_compile = request.no_compile;
  waiter->no_artifact = request.no_artifact;
  waiter->begun = begun;
  waiter->budget =
      std::chrono::microseconds(std::min(request.budget_us, static_cast<uint64_t>(kLongestBudget.count())));
  if (waiter->budget.count() > 0) waiter->until = WaitClock::now() + waiter->budget;
  if (stopped_) return waiter->AnswerError(ShuttingDown());
  budgets_.Add(waiter);
  KernelRequest ask{request.kernel, request.target, request.threads, std::move(on)};
  LookUp(name, ask, {waiter});
}

void Misses::LookUp(const std::string& name, const KernelRequest& ask, Waiters waiters) {
  if (auto same = lookups_.find(name); same != lookups_.end()) {
    for (WaiterPtr& waiter : waiters) {
      queue_.Join(same->second.job, waiter->peer->client());
      AddWaiter(same->second.waiters, std::move(waiter));
    }
    return;
  }
  Lookup lookup{ask, std::move(waiters)};
  if (!PushLookup(name, lookup)) {
    ++metrics_.busy;
    return AnswerAll(lookup.waiters, BusyError("too many requests at once", kLookupRetryMs), kLookupRetryMs);
  }
  lookups_.emplace(name, std::move(lookup));
  metrics_.lookups_queued = static_cast<uint32_t>(lookups_.size());
}

bool Misses::PushLookup(const std::string& name, Lookup& lookup) {
  FairQueue::Job job;
  job.client = lookup.waiters.front()->peer->client();
  job.bytes = name.size() + lookup.ask.kernel.size();
  job.run = [this, self = self_, ask = lookup.ask, name, forgets = hot_.forgets()](const std::stop_token&) {
    std::shared_ptr<Result<LookUpResult>> found;
    try {
      found = std::make_shared<Result<LookUpResult>>(path_.LookUp(ask));
    } catch (const std::bad_alloc&) { found = std::make_shared<Result<LookUpResult>>(OutOfMemory()); }
    loop_.Post([self, name, forgets, found] {
      if (*self) (*self)->OnFound(name, forgets, std::move(*found));
    });
  };
  job.drop = [this, self = self_, name] {
    loop_.Post([self, name] {
      if (*self) (*self)->OnDropped(name);
    });
  };
  std::optional<FairQueue::Id> id = queue_.Push(std::move(job));
  if (id) lookup.job = *id;
  return id.has_value();
}

void Misses::OnFound(const std::string& name, uint64_t forgets, Result<LookUpResult> found) {
  auto entry = lookups_.find(name);
  if (entry == lookups_.end()) return;
  // Its record was replaced meanwhile: what is remembered from now on must not be the old code.
  const bool is_stale = found && hot_.ForgotSince(forgets, found->identity.key.fingerprint);
  if (is_stale && LookUpAgain(name, entry->second)) return;
  const Lookup done = std::move(entry->second);
  lookups_.erase(entry);
  metrics_.lookups_queued = static_cast<uint32_t>(lookups_.size());
  try {
    if (found) return Serve(name, done, *std::move(found), is_stale);
    (IsRefusal(found.error().kind) ? metrics_.refused : metrics_.failed) += done.waiters.size();
    AnswerAll(done.waiters, found.error());
  } catch (const std::bad_alloc&) { AnswerAll(done.waiters, OutOfMemory()); }
}

// Once, not for as long as somebody goes on replacing its record. Whether it is under way.
bool Misses::LookUpAgain(const std::string& name, Lookup& lookup) {
  if (lookup.waiters.empty() || std::exchange(lookup.is_second, true)) return false;
  try {
    return PushLookup(name, lookup);
  } catch (const std::bad_alloc&) { return false; }
}

void Misses::Serve(const std::string& name, const Lookup& lookup, LookUpResult found, bool is_stale) {
  const bool was_here = found.code != nullptr;
  HotCodePtr code = was_here ? found.code : hot_.FindCode(found.identity.name);
  if (!code) return compilations_.Start(name, std::move(found), lookup.waiters);
  // A device's name says nothing by itself: who may use it is looked at each time.
  if (!is_stale) lookup.ask.on ? hot_.Insert(code) : hot_.Insert(name, code);
  for (const WaiterPtr& waiter : lookup.waiters) {
    if (waiter->is_answered) continue;
    code->uses += was_here ? 0 : 1;  // the cache counted its own
    // Counted before it is told of.
    const bool is_miss = !waiter->steps.empty();  // searched further since it was compiled
    ++(is_miss ? metrics_.misses : metrics_.hits_disk);
    waiter->Answer(code);
    (is_miss ? metrics_.miss : metrics_.disk_hit).Add(waiter->begun.Microseconds());
  }
}

void Misses::OnDropped(const std::string& name) {
  auto entry = lookups_.extract(name);
  if (entry.empty()) return;
  metrics_.busy += entry.mapped().waiters.size();
  AnswerAll(entry.mapped().waiters, BusyError("too many requests at once, most of them yours", kLookupRetryMs),
            kLookupRetryMs);
}

void Misses::Prepare(std::function<std::optional<KernelRequest>(const Devices& devices)> which,
                     std::function<void()> done) {
  if (stopped_) return;
  FairQueue::Job job;
  job.client = OwnClient();
  job.run = [this, self = self_, which = std::move(which), done](const std::stop_token&) {
    std::shared_ptr<Result<LookUpResult>> found;
    try {
      if (const std::optional<KernelRequest> ask = which(path_.devices()))
        found = std::make_shared<Result<LookUpResult>>(path_.LookUp(*ask, Counting::kNot));
    } catch (const std::bad_alloc&) {}
    loop_.Post([self, found, done] {
      if (!*self || (*self)->stopped_) return;
      if (!found || !*found || (*found)->code) return done();
      (*self)->compilations_.Prepare(**std::move(found), done);
    });
  };
  job.drop = [this, self = self_, done] {
    loop_.Post([self, done] {
      if (*self) done();
    });
  };
  if (!queue_.Push(std::move(job))) loop_.After(std::chrono::seconds(1), done);
}

void Misses::OnBudget(const WaiterPtr& waiter) {
  if (waiter->code) return compilations_.OnSearchOver(waiter);
  ++metrics_.over_budget;
  waiter->AnswerError({ErrorKind::kTimeout,
                       fmt::format("not compiled within the budget of {:.1f} ms; it goes on, ask again soon",
                                   static_cast<double>(waiter->budget.count()) / 1000),
                       "honed"},
                      compilations_.BuildMs());
}

void Misses::Forget(const Peer& peer) {
  for (auto entry = lookups_.begin(); entry != lookups_.end();) {
    metrics_.abandoned += EraseWaitersOf(peer, entry->second.waiters);
    const bool is_dropped = entry->second.waiters.empty() && queue_.Withdraw(entry->second.job);
    entry = is_dropped ? lookups_.erase(entry) : std::next(entry);
  }
  metrics_.lookups_queued = static_cast<uint32_t>(lookups_.size());
  compilations_.Forget(peer);
}

void Misses::Stop() {
  stopped_ = true;
  compilations_.Stop();
}

void Misses::Close() {
  if (*self_ == nullptr) return;
  *self_ = nullptr;
  Stop();
  // Answering may make a peer close, which comes back through Forget: nothing is left to be found by then.
  auto lookups = std::exchange(lookups_, {});
  for (auto& [_, lookup] : lookups) AnswerAll(lookup.waiters, ShuttingDown());
  compilations_.Close();
  queue_.Close();
}

void Misses::AnswerAll(const Waiters& waiters, const Error& error, uint32_t retry_after_ms) {
  for (const WaiterPtr& waiter : waiters) waiter->AnswerError(error, retry_after_ms);
}

}  // namespace hone
