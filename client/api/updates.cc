#include "client/api/updates.h"

#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <system_error>
#include <utility>

#include "base/aligned_bytes.h"
#include "client/api/linker_use.h"
#include "client/api/packed_constants.h"
#include "client/api/updates_worker.h"

namespace hone {

struct Updates::ForkGuard {
  ForkGuard() { pthread_atfork(Lock, Unlock, InChild); }

  static void Lock() HONE_NO_THREAD_SAFETY_ANALYSIS {
    LinkerUse::Close();
    for (Mutex* mutex : kMutexes) mutex->Lock();
  }
  static void Unlock() HONE_NO_THREAD_SAFETY_ANALYSIS {
    for (Mutex* mutex : kMutexes) mutex->Unlock();
    LinkerUse::Open();
  }
  static void InChild() HONE_NO_THREAD_SAFETY_ANALYSIS {
    Crew::generation.fetch_add(1, std::memory_order_relaxed);
    for (Mutex* mutex : kMutexes) mutex->Unlock();
    LinkerUse::OpenInChild();
  }

  // Nobody takes one with another in hand.
  static constexpr Mutex* kMutexes[] = {&mutex_, &Updatable::places_, &PackedConstants::mutex(), &LargePages::mutex()};
};

Updates::Updates(UpdatesOptions options) : options_(std::move(options)) { static const ForkGuard guard; }

Updates::~Updates() {
  std::unique_ptr<Crew> crew;
  MutexLock lock(mutex_);
  crew = std::move(crew_);
  if (crew == nullptr || !crew->IsOurs()) return;
  crew->stop = true;
  uint64_t one = 1;
  [[maybe_unused]] ssize_t size = write(crew->wake.get(), &one, sizeof one);
  if (crew->socket >= 0) shutdown(crew->socket, SHUT_RDWR);  // ends what the thread waits for
}

Updates::Entry* Updates::Find(uint64_t id) {
  auto found = entries_.find(id);
  return found == entries_.end() ? nullptr : &found->second;
}

Updates::Entry* Updates::Take(uint64_t id, bool wait) {
  for (;;) {
    Entry* entry = Find(id);
    if (entry == nullptr) return nullptr;
    const uint32_t process = Crew::generation;
    if (entry->holder != process) {  // nobody, or a thread that a fork left behind
      entry->holder = process;
      return entry;
    }
    if (!wait) return nullptr;
    uint32_t seen = given_back_;
    mutex_.Unlock();
    given_back_.wait(seen);
    mutex_.Lock();
  }
}

void Updates::GiveBack(uint64_t id) {
  if (Entry* entry = Find(id)) entry->holder = 0;
  ++given_back_;
  given_back_.notify_all();
}

bool Updates::StartThread() {
  if (crew_ != nullptr && crew_->IsOurs()) return true;
  auto crew = std::make_unique<Crew>();
  if (!crew->wake) return false;
  // The application's signals are not for this thread.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    crew->thread = std::thread([this, crew = crew.get()] { Worker(*this, *crew).Run(); });
    crew_ = std::move(crew);
  } catch (const std::system_error&) {}
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return crew_ != nullptr && crew_->IsOurs();
}

void Updates::Wake() {
  if (crew_ == nullptr || !crew_->IsOurs()) return;
  uint64_t one = 1;
  [[maybe_unused]] ssize_t size = write(crew_->wake.get(), &one, sizeof one);
}

void Updates::Watch(const std::shared_ptr<Updates>& updates, Updatable& handle, GetRequest request,
                    std::string canonical) {
  const GetReply reply = handle.facts().reply;
  request.budget_us = 0;
  request.no_compile = true;  // what is not there is nothing new
  request.no_artifact = false;
  MutexLock lock(mutex_);
  if (!updates->StartThread()) return;
  handle.updates_ = updates;
  handle.watch_ = ++updates->last_id_;
  Entry& entry = updates->entries_[handle.watch_];
  entry.handle = &handle;
  entry.request = std::move(request);
  entry.canonical = std::move(canonical);
  entry.fingerprint = reply.fingerprint;
  entry.target = reply.target;
  entry.digest = reply.digest;
  entry.origin = reply.origin;
  entry.due = Clock::now() + updates->options_.settle;
  if (entry.due < updates->crew_->sleeps_until) updates->Wake();
}

void Updates::Remove(Updatable& handle) {
  MutexLock lock(mutex_);
  Entry* entry = Take(handle.watch_, true);
  if (entry == nullptr) return;
  if (entry->watched && crew_ != nullptr && crew_->IsOurs()) {
    gone_.push_back({Worker::WatchId(handle.watch_), handle.calls() - entry->reported});
    Wake();
  }
  entries_.erase(handle.watch_);
}

Updates::Pause::Pause(Updates& updates, Updatable& handle) : updates_(updates), id_(handle.watch_) {
  MutexLock lock(mutex_);
  updates_.Take(id_, true);
}

Updates::Pause::~Pause() {
  MutexLock lock(mutex_);
  updates_.GiveBack(id_);
}

void Updates::LookAgain(Updatable& handle) {
  MutexLock lock(mutex_);
  if (Entry* entry = Find(handle.watch_)) {
    entry->stale = true;
    entry->refused.clear();
    Wake();
  }
}

}  // namespace hone
