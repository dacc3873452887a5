// Processes that come and go: what looks at /proc must outlive them.
#pragma once

#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace hone {

class PassingProcesses {
 public:
  PassingProcesses() = default;
  ~PassingProcesses() {
    done_ = true;
    thread_.join();
  }
  PassingProcesses(const PassingProcesses&) = delete;
  PassingProcesses& operator=(const PassingProcesses&) = delete;
  pid_t newest() const { return newest_; }

 private:
  void Run() {
    char name[] = "true";
    char* arguments[] = {name, nullptr};
    while (!done_) {
      pid_t child = 0;
      if (posix_spawnp(&child, name, nullptr, nullptr, arguments, environ) != 0) {
        ADD_FAILURE() << "`true` cannot be started";
        return;
      }
      newest_ = child;
      waitpid(child, nullptr, 0);
    }
  }

  std::atomic<pid_t> newest_{0};
  std::atomic<bool> done_{false};
  std::thread thread_{[this] { Run(); }};
};

}  // namespace hone
