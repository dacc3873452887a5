// The one thread of the library that keeps kernels up to date (client/api/updates), and what others see of it.
#pragma once

#include <sys/eventfd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/unique_fd.h"
#include "client/api/updates.h"
#include "client/protocol/channel.h"

namespace hone {

struct Updates::Crew {
  ~Crew();
  // After a fork it is the parent's, who has the thread and the connection.
  bool IsOurs() const { return process == generation; }

  // Which process this is, among those that forked from each other. From 1.
  inline static std::atomic<uint32_t> generation{1};

  const uint32_t process = generation;
  UniqueFd wake{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::thread thread;
  int socket = -1;  // the worker's
  bool stop = false;
  Clock::time_point sleeps_until = Clock::time_point::max();
};

class Updates::Worker {
 public:
  Worker(Updates& owner, Crew& crew) : owner_(owner), options_(owner.options_), crew_(crew), wake_(crew.wake.get()) {}

  void Run();

  // What a kernel's requests are numbered by; what is said of its code has the next number.
  static uint64_t WatchId(uint64_t id) { return 2 * id; }

 private:
  using milliseconds = std::chrono::milliseconds;

  bool Stopped();
  Updatable* Take(uint64_t id);  // nullptr: gone, or somebody is at it
  void GiveBack() HONE_REQUIRES(mutex_) { owner_.GiveBack(std::exchange(taken_, 0)); }
  // A kernel that calls never leave keeps its versions, and gets no more.
  static bool IsWanted(const Entry& entry) { return entry.stale && !entry.asked && entry.handle->HasRoom(); }

  void Reclaim();  // releases what no call is inside any more
  void Connect();
  void Disconnect();
  // Says what there is to say: calls, kernels that were given back, kernels that are held, kernels that are wanted.
  void Tell();
  Clock::time_point NextDue();  // when there will be something to do, if nobody says anything
  void Sleep();
  bool IsReadable() const;
  void Hear();

  void SetStale(uint64_t id, milliseconds pause = milliseconds(0));
  // What is refused stays refused until the next connection, or until there is news; who is busy is asked again.
  void HearError(uint64_t id, bool is_get, const ErrorReply& error);
  void HearCode(uint64_t id, ReceivedFrame frame);
  // What is asked for again after a pause.
  void AskLater(Entry& entry, milliseconds pause) HONE_REQUIRES(mutex_);
  // The artifact, if calls go there now. REQUIRES: the handle was taken.
  std::optional<SealedMemfd> Adopt(uint64_t id, Updatable& handle, std::unique_ptr<Updatable::Code> code,
                                   ServedFacts facts);
  // Code that was not taken is not wanted again, unless this process only had no room for it.
  void Refuse(uint64_t id, const std::string& digest, const Error& why);

  // While replaced versions wait for their last calls: doubled each time.
  static constexpr milliseconds kFirstReclaimPause{1};
  static constexpr milliseconds kLongestReclaimPause{250};

  Updates& owner_;
  const UpdatesOptions& options_;
  Crew& crew_;
  const int wake_;
  std::unique_ptr<Channel> channel_;
  milliseconds pause_ = options_.first_pause;
  Clock::time_point connect_due_{};
  Clock::time_point report_due_ = Clock::now() + options_.report_every;
  uint64_t taken_ = 0;  // the handle that this thread is at
  bool waits_ = false;  // replaced versions wait for their last calls
  milliseconds reclaim_pause_ = kFirstReclaimPause;
  Clock::time_point reclaim_due_{};
};

}  // namespace hone
