#include "daemon/serve/fair_queue.h"

#include <pthread.h>

#include <algorithm>
#include <cmath>
#include <new>

namespace hone {
namespace {

constexpr double kHalfLife = 10;          // seconds
constexpr double kForgotten = 1e-3;       // seconds served that do not matter any more
constexpr size_t kMostRemembered = 1024;  // clients without work
constexpr size_t kMostAbandoned = 32;

double SecondsBetween(FairQueue::Clock::time_point from, FairQueue::Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

double FairQueue::Served::Now(Clock::time_point now) const {
  return seconds * std::exp2(-SecondsBetween(at, now) / kHalfLife);
}

void FairQueue::Served::Add(double more, Clock::time_point now) {
  seconds = Now(now) + more;
  at = now;
}

FairQueue::FairQueue(int threads, const std::string& name, const Limits& limits)
    : limits_(limits), thread_count_(static_cast<size_t>(std::max(threads, 1))) {
  auto start = [&](void (FairQueue::*work)()) {
    threads_.emplace_back([this, name, work] {
      pthread_setname_np(pthread_self(), name.c_str());
      (this->*work)();
    });
  };
  try {
    for (size_t i = 0; i < thread_count_; ++i) start(&FairQueue::Run);
    start(&FairQueue::Watch);
  } catch (...) {
    Close();
    throw;
  }
}

FairQueue::~FairQueue() { Close(); }

void FairQueue::SetLimits(const Limits& limits) {
  MutexLock lock(mutex_);
  limits_ = limits;
}

size_t FairQueue::waiting() const {
  MutexLock lock(mutex_);
  return where_.size();
}

std::deque<FairQueue::Item>::iterator FairQueue::FirstToRun(Client& client, const Running* ended) {
  const auto running = std::count_if(running_.begin(), running_.end(),
                                     [&](const Running& each) { return each.is_long && &each != ended; });
  const bool may_be_long = thread_count_ == 1 || static_cast<size_t>(running) + 1 < thread_count_;
  return std::find_if(client.waiting.begin(), client.waiting.end(),
                      [&](const Item& item) { return may_be_long || !item.job.is_long; });
}

FairQueue::Load FairQueue::LoadOf(const ClientId& client, Clock::time_point now) const {
  Load load{0, 0};
  if (auto user = users_.find(client.uid); user != users_.end()) load.first = user->second.Now(now);
  if (auto entry = clients_.find(client); entry != clients_.end()) load.second = entry->second.served.Now(now);
  for (const Running& running : running_) {
    if (running.is_abandoned || running.client.uid != client.uid) continue;
    const double seconds = SecondsBetween(running.charged, now);
    load.first += seconds;
    if (running.client == client) load.second += seconds;
  }
  return load;
}

std::map<ClientId, FairQueue::Client>::iterator FairQueue::LeastServed(Clock::time_point now, const Running* ended) {
  const bool has_thread = running_.size() < thread_count_;
  auto least = clients_.end();
  Load least_load;
  for (auto entry = clients_.begin(); entry != clients_.end(); ++entry) {
    if (FirstToRun(entry->second, ended) == entry->second.waiting.end()) continue;
    if (ended != nullptr && !ended->is_abandoned && entry->first == ended->client) continue;
    if (ended != nullptr && has_thread && FirstToRun(entry->second) != entry->second.waiting.end()) continue;
    const Load load = LoadOf(entry->first, now);
    // Among equals, who has waited longest.
    if (least == clients_.end() || load < least_load ||
        (load == least_load && entry->second.waiting.front().id < least->second.waiting.front().id)) {
      least = entry;
      least_load = load;
    }
  }
  return least;
}

FairQueue::Item FairQueue::Extract(Client& client, std::deque<Item>::iterator item) {
  Item taken = std::move(*item);
  client.waiting.erase(item);
  where_.erase(taken.id);
  bytes_ -= taken.job.bytes;
  return taken;
}

std::optional<FairQueue::Item> FairQueue::TakeNext(bool& is_abandoned) {
  auto least = LeastServed(Clock::now());
  is_abandoned = least == clients_.end();
  if (!is_abandoned) return Extract(least->second, FirstToRun(least->second));
  if (abandoned_.empty()) return std::nullopt;
  Item item = std::move(abandoned_.front());
  abandoned_.pop_front();
  return item;
}

void FairQueue::Insert(std::deque<Item>& waiting, Item item) {
  auto place = std::find_if(waiting.begin(), waiting.end(), [&](const Item& each) { return each.id > item.id; });
  waiting.insert(place, std::move(item));
}

void FairQueue::Charge(Running& running, Clock::time_point now) {
  if (!running.is_abandoned && !closed_) {
    const double seconds = SecondsBetween(running.charged, now);
    clients_[running.client].served.Add(seconds, now);
    users_[running.client.uid].Add(seconds, now);
  }
  running.charged = now;
}

bool FairQueue::HasRoom(size_t jobs, size_t bytes, const Job& job) const {
  return jobs < limits_.jobs && bytes + job.bytes <= limits_.bytes;
}

// The last jobs of whoever has the most go until there is room: of the user, then of the user's process. False, and all
// stay: that is whoever pushes.
bool FairQueue::MakeRoom(const Job& job, std::vector<Item>& dropped) {
  if (HasRoom(where_.size(), bytes_, job)) return true;
  struct Held {
    size_t jobs = 0, bytes = 0;
  };
  std::map<uid_t, Held> users;
  std::map<ClientId, Held> processes;
  for (const auto& [id, client] : clients_) {
    for (const Item& item : client.waiting) {
      for (Held* held : {&users[id.uid], &processes[id]}) ++held->jobs, held->bytes += item.job.bytes;
    }
  }
  Held all{where_.size(), bytes_};
  while (!HasRoom(all.jobs, all.bytes, job)) {
    const bool by_jobs = all.jobs >= limits_.jobs;
    auto weight = [&](const Held& held) { return by_jobs ? held.jobs : held.bytes; };
    auto heavier = [&](const auto& a, const auto& b) { return weight(a.second) < weight(b.second); };
    const size_t more = by_jobs ? 1 : job.bytes;
    auto user = std::max_element(users.begin(), users.end(), heavier);
    if (user == users.end() || user->second.jobs == 0) return false;  // larger than the queue
    auto process = processes.end();
    for (auto each = processes.begin(); each != processes.end(); ++each)
      if (each->first.uid == user->first && (process == processes.end() || heavier(*process, *each))) process = each;
    const bool is_own = user->first == job.client.uid;
    const size_t mine = weight(is_own ? processes[job.client] : users[job.client.uid]) + more;
    if (mine >= weight(is_own ? process->second : user->second)) return false;
    const Item& last = clients_.at(process->first).waiting[process->second.jobs - 1];
    for (Held* held : {&user->second, &process->second, &all}) --held->jobs, held->bytes -= last.job.bytes;
  }
  for (const auto& [id, left] : processes) {
    auto client = clients_.find(id);
    while (client != clients_.end() && client->second.waiting.size() > left.jobs)
      dropped.push_back(Extract(client->second, std::prev(client->second.waiting.end())));
  }
  return true;
}

std::optional<FairQueue::Id> FairQueue::Push(Job job) {
  std::vector<Item> dropped;
  std::optional<Id> id;
  {
    MutexLock lock(mutex_);
    if (closed_) return std::nullopt;
    if (MakeRoom(job, dropped)) {
      // What may find no memory comes first: nothing of the job is left here then.
      std::deque<Item>& waiting = clients_[job.client].waiting;
      id = last_id_ + 1;
      const auto place = where_.emplace(*id, job.client).first;
      const size_t bytes = job.bytes;
      try {
        waiting.push_back({*id, std::move(job)});
      } catch (const std::bad_alloc&) {
        where_.erase(place);
        throw;
      }
      ++last_id_;
      bytes_ += bytes;
      ForgetOldClients(Clock::now());
      work_came_.NotifyOne();
      if (!running_.empty()) watch_again_.NotifyOne();
    }
  }
  for (const Item& item : dropped)
    if (item.job.drop) item.job.drop();
  return id;
}

void FairQueue::Join(Id id, const ClientId& client) {
  MutexLock lock(mutex_);
  const Clock::time_point now = Clock::now();
  for (Running& running : running_) {
    if (running.id != id) continue;
    const bool is_less = LoadOf(client, now) < LoadOf(running.client, now);
    Charge(running, now);
    if (is_less || running.is_abandoned) running.client = client;
    running.is_abandoned = false;
    watch_again_.NotifyOne();
    return;
  }
  auto abandoned = std::find_if(abandoned_.begin(), abandoned_.end(), [&](const Item& item) { return item.id == id; });
  auto found = where_.find(id);
  if (abandoned == abandoned_.end()) {
    if (found == where_.end() || LoadOf(found->second, now) <= LoadOf(client, now)) return;
    Client& owner = clients_.at(found->second);
    auto item =
        std::find_if(owner.waiting.begin(), owner.waiting.end(), [&](const Item& item) { return item.id == id; });
    abandoned_.push_front(Extract(owner, item));
    abandoned = abandoned_.begin();
  }
  Item item = std::move(*abandoned);
  abandoned_.erase(abandoned);
  item.job.client = client;
  where_.emplace(id, client);
  bytes_ += item.job.bytes;
  Insert(clients_[client].waiting, std::move(item));
  watch_again_.NotifyOne();
}

bool FairQueue::Withdraw(Id id) {
  Item gone;  // destroyed without the lock
  MutexLock lock(mutex_);
  if (auto found = where_.find(id); found != where_.end()) {
    Client& owner = clients_.at(found->second);
    auto item =
        std::find_if(owner.waiting.begin(), owner.waiting.end(), [&](const Item& item) { return item.id == id; });
    gone = Extract(owner, item);
    return true;
  }
  return std::erase_if(abandoned_, [&](const Item& item) { return item.id == id; }) > 0;
}

void FairQueue::Abandon(Id id) {
  Item gone;
  {
    MutexLock lock(mutex_);
    for (Running& running : running_) {
      if (running.id != id) continue;
      Charge(running, Clock::now());
      running.is_abandoned = true;
    }
    if (auto found = where_.find(id); found != where_.end()) {
      Client& owner = clients_.at(found->second);
      auto item =
          std::find_if(owner.waiting.begin(), owner.waiting.end(), [&](const Item& item) { return item.id == id; });
      abandoned_.push_back(Extract(owner, item));
      if (abandoned_.size() > kMostAbandoned) {
        gone = std::move(abandoned_.front());
        abandoned_.pop_front();
      }
    }
    watch_again_.NotifyOne();
  }
  if (gone.job.drop) gone.job.drop();
}

void FairQueue::Stop(Id id) {
  std::stop_source stop(std::nostopstate);
  {
    MutexLock lock(mutex_);
    for (const Running& running : running_)
      if (running.id == id) stop = running.stop;
  }
  stop.request_stop();
}

void FairQueue::Close() {
  std::vector<std::stop_source> stops;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    clients_.clear();
    where_.clear();
    abandoned_.clear();
    bytes_ = 0;
    for (const Running& running : running_) stops.push_back(running.stop);
    work_came_.NotifyAll();
    watch_again_.NotifyAll();
  }
  for (std::stop_source& stop : stops) stop.request_stop();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void FairQueue::Run() {
  for (;;) {
    std::optional<Item> item;
    std::stop_token stop;
    std::list<Running>::iterator me;
    {
      MutexLock lock(mutex_);
      bool is_abandoned = false;
      while (!closed_ && !(item = TakeNext(is_abandoned))) work_came_.Wait(mutex_);
      if (closed_) return;
      const Job& job = item->job;
      const Clock::time_point now = Clock::now();
      me = running_.insert(running_.end(),
                           {item->id, job.client, now, now, job.slice, job.is_long, is_abandoned, std::stop_source()});
      stop = me->stop.get_token();
      if (!where_.empty()) watch_again_.NotifyOne();
    }
    item->job.run(stop);
    item.reset();  // what it holds goes without the lock
    MutexLock lock(mutex_);
    Charge(*me, Clock::now());
    running_.erase(me);
    work_came_.NotifyOne();  // what could not run beside it
  }
}

// Stops one that has had its slice, for each that waits. When to look again; nullopt: when something changes.
std::optional<FairQueue::Clock::time_point> FairQueue::Displace() {
  std::optional<Clock::time_point> again;
  if (where_.empty()) return again;
  const Clock::time_point now = Clock::now();
  size_t stopping = 0;
  for (const Running& running : running_) stopping += running.stop.stop_requested() ? 1 : 0;
  for (Running& running : running_) {
    if (running.stop.stop_requested() || stopping >= where_.size()) continue;
    auto next = LeastServed(now, &running);
    if (next == clients_.end()) continue;
    if (!running.is_abandoned) {
      if (running.slice == kWhole) continue;
      Clock::time_point over = running.begun + running.slice;
      if (now >= over && LoadOf(running.client, now) <= LoadOf(next->first, now))
        over = now + std::chrono::milliseconds(10);  // until it has had more
      if (now < over) {
        again = again ? std::min(*again, over) : over;
        continue;
      }
    }
    running.stop.request_stop();
    ++stopping;
  }
  return again;
}

void FairQueue::Watch() {
  MutexLock lock(mutex_);
  while (!closed_) {
    std::optional<Clock::time_point> again = Displace();
    if (again)
      watch_again_.WaitFor(mutex_, *again - Clock::now());
    else
      watch_again_.Wait(mutex_);
  }
}

void FairQueue::ForgetOldClients(Clock::time_point now) {
  if (clients_.size() <= kMostRemembered) return;
  std::erase_if(clients_, [&](const auto& entry) {
    return entry.second.waiting.empty() && entry.second.served.Now(now) < kForgotten;
  });
  std::erase_if(users_, [&](const auto& entry) { return entry.second.Now(now) < kForgotten; });
}

}  // namespace hone
