#include "daemon/serve/event_loop.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <new>
#include <thread>
#include <utility>

#include "base/log.h"

namespace hone {
namespace {

constexpr std::chrono::milliseconds kNextTry{10};

}  // namespace

// Many threads post, one runs: asio's locks stay, its wake-ups of other runners go.
EventLoop::EventLoop() : context_(std::make_unique<boost::asio::io_context>(1)) {}
EventLoop::~EventLoop() = default;

void EventLoop::Run() {
  auto keep_running = boost::asio::make_work_guard(*context_);
  for (bool lost = false;;) {
    try {
      if (std::exchange(lost, false)) LogError("out_of_memory", {{"lost", "one event"}});
      context_->run();
      return;
    } catch (const std::bad_alloc&) { lost = true; }
  }
}

void EventLoop::Stop() { context_->stop(); }

void EventLoop::Post(std::function<void()> work) {
  std::shared_ptr<std::function<void()>> kept;  // what is tried again
  while (true) {
    try {
      if (!kept) kept = std::make_shared<std::function<void()>>(std::move(work));
      return boost::asio::post(*context_, [kept] { std::exchange(*kept, nullptr)(); });
    } catch (const std::bad_alloc&) {
      if (context_->get_executor().running_in_this_thread()) throw;  // what it waited for would not come
    }
    std::this_thread::sleep_for(kNextTry);
  }
}

void EventLoop::After(std::chrono::nanoseconds delay, std::function<void()> work) {
  auto timer = std::make_shared<boost::asio::steady_timer>(*context_, delay);
  timer->async_wait([timer, work = std::move(work)](const boost::system::error_code& error) {
    if (!error) work();
  });
}

struct LoopTimer::State {
  boost::asio::steady_timer timer;
  uint64_t set = 0;  // how often: what was set before is out of date, even if its time has come
};

LoopTimer::LoopTimer(EventLoop& loop)
    : state_(std::make_shared<State>(State{boost::asio::steady_timer(loop.context())})) {}

LoopTimer::~LoopTimer() {
  ++state_->set;
  state_->timer.cancel();
}

void LoopTimer::Set(std::chrono::steady_clock::time_point time, std::function<void()> work) {
  state_->timer.expires_at(time);
  state_->timer.async_wait(
      [state = state_, set = ++state_->set, work = std::move(work)](const boost::system::error_code& error) {
        if (!error && state->set == set) work();
      });
}

}  // namespace hone
