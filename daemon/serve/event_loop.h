// The one thread that serves: it waits for sockets, timers and work that other threads hand to it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace boost::asio {
class io_context;
}

namespace hone {

class EventLoop {
 public:
  EventLoop();
  ~EventLoop();

  // Runs in the calling thread until Stop. Work that ends with std::bad_alloc is lost; what comes after it runs.
  void Run();
  void Stop();  // from any thread

  // Runs `work` in the loop's thread, in the order of the calls. Thread-safe. Dropped once the loop has stopped. Other
  // threads wait here until there is memory for it; the loop's own throws std::bad_alloc.
  void Post(std::function<void()> work);
  // Runs `work` after a while. From the loop's thread.
  void After(std::chrono::nanoseconds delay, std::function<void()> work);

  boost::asio::io_context& context() { return *context_; }

 private:
  std::unique_ptr<boost::asio::io_context> context_;
};

// One piece of work at a later time, which can be set anew. Used by the loop's thread alone; must not outlive the loop.
class LoopTimer {
 public:
  explicit LoopTimer(EventLoop& loop);
  ~LoopTimer();                                                                      // what was set does not happen
  void Set(std::chrono::steady_clock::time_point time, std::function<void()> work);  // instead of what was set before

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace hone
