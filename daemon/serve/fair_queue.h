// Work that several clients want of a few threads. The next job is of whoever was served least of late: of the user
// first, then of the user's process. What runs for longer than its slice makes room for others; nobody fills the queue
// for them.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "daemon/serve/clients.h"

namespace hone {

// Thread-safe. Time served counts half after ten seconds, a quarter after twenty.
class FairQueue {
 public:
  using Id = uint64_t;
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kWhole = std::chrono::milliseconds::max();

  struct Limits {  // of what waits, all clients together
    size_t jobs = 256;
    size_t bytes = size_t{64} << 20;
  };
  struct Job {
    ClientId client{};
    size_t bytes = 0;  // that it holds while it waits
    // A stop is requested when it has run for so long and a client that was served less waits. It ends soon then; who
    // wants the rest pushes it again, with a longer slice if it begins anew.
    std::chrono::milliseconds slice = kWhole;
    // Has shown that it takes long: such jobs leave one thread to others, if there are several.
    bool is_long = false;
    std::function<void(const std::stop_token&)> run;  // throws nothing
    // Called instead of run where the queue is full and this is the last job of the client with the most, by the thread
    // that pushes another one's; or where too many are abandoned and this is the oldest, by the thread that abandons
    // one more.
    std::function<void()> drop;
  };

  // `name` shows in the process table, at most 15 characters. Throws std::system_error where there are no threads.
  FairQueue(int threads, const std::string& name, const Limits& limits);
  ~FairQueue();  // = Close

  void SetLimits(const Limits& limits);
  // nullopt: it is full, and nobody has more in it than this client.
  std::optional<Id> Push(Job job);
  // Another client wants the same: the job counts as that of whoever was served less.
  void Join(Id id, const ClientId& client);
  // Takes back what has not begun. False if it has begun or is done.
  bool Withdraw(Id id);
  // Nobody waits for it any more. It runs when nothing else waits, and makes room at once. At most 32 of them wait.
  void Abandon(Id id);
  // Requests a stop of what runs; nothing if it does not.
  void Stop(Id id);
  size_t waiting() const;  // without what was abandoned

  // Forgets what waits, stops what runs and returns when it has ended.
  void Close();

 private:
  struct Item {
    Id id = 0;
    Job job;
  };
  struct Served {
    double seconds = 0;
    Clock::time_point at{};
    double Now(Clock::time_point now) const;
    void Add(double more, Clock::time_point now);
  };
  struct Client {
    std::deque<Item> waiting;  // by id
    Served served;
  };
  struct Running {
    Id id = 0;
    ClientId client;
    Clock::time_point begun;
    Clock::time_point charged;  // its client has been charged for what it took before
    std::chrono::milliseconds slice{};
    bool is_long = false;
    bool is_abandoned = false;
    std::stop_source stop;
  };
  using Load = std::pair<double, double>;  // seconds served: of the user, of the process

  void Run();
  void Watch();
  // The first of a client's jobs that may run beside what runs, or would if `ended` had; end(): none may.
  std::deque<Item>::iterator FirstToRun(Client& client, const Running* ended = nullptr) HONE_REQUIRES(mutex_);
  std::optional<Item> TakeNext(bool& is_abandoned) HONE_REQUIRES(mutex_);
  Load LoadOf(const ClientId& client, Clock::time_point now) const HONE_REQUIRES(mutex_);
  // Of the clients with something that may run now; end(): there is none. `ended`: of others than its client, with
  // something that waits for that to end.
  std::map<ClientId, Client>::iterator LeastServed(Clock::time_point now, const Running* ended = nullptr)
      HONE_REQUIRES(mutex_);
  Item Extract(Client& client, std::deque<Item>::iterator item) HONE_REQUIRES(mutex_);
  static void Insert(std::deque<Item>& waiting, Item item);
  // Whoever it counts for has had it until now.
  void Charge(Running& running, Clock::time_point now) HONE_REQUIRES(mutex_);
  bool HasRoom(size_t jobs, size_t bytes, const Job& job) const HONE_REQUIRES(mutex_);
  bool MakeRoom(const Job& job, std::vector<Item>& dropped) HONE_REQUIRES(mutex_);
  std::optional<Clock::time_point> Displace() HONE_REQUIRES(mutex_);
  void ForgetOldClients(Clock::time_point now) HONE_REQUIRES(mutex_);

  mutable Mutex mutex_;
  CondVar work_came_;
  CondVar watch_again_;
  Limits limits_ HONE_GUARDED_BY(mutex_);
  std::map<ClientId, Client> clients_ HONE_GUARDED_BY(mutex_);
  std::map<uid_t, Served> users_ HONE_GUARDED_BY(mutex_);
  std::unordered_map<Id, ClientId> where_ HONE_GUARDED_BY(mutex_);  // what waits, and whose it is
  size_t bytes_ HONE_GUARDED_BY(mutex_) = 0;
  std::deque<Item> abandoned_ HONE_GUARDED_BY(mutex_);
  std::list<Running> running_ HONE_GUARDED_BY(mutex_);
  Id last_id_ HONE_GUARDED_BY(mutex_) = 0;
  bool closed_ HONE_GUARDED_BY(mutex_) = false;
  const size_t thread_count_;
  std::vector<std::thread> threads_;  // the last one watches over slices
};

}  // namespace hone
