// What others do with this machine, as /proc and /sys tell it.
#pragma once

#include <sys/types.h>

#include <array>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace hone {

struct LoadSample {
  MonotonicTime at{};
  double busy_s = 0;     // processor time since boot that is neither idle nor niced nor ours, all cores
  double user_s = 0;     // as MachineLoad::BusyUserSeconds()
  double stalled_s = 0;  // time since boot that something waited for memory or the disk; 0 where it is not told
  int minute_of_day = 0;
  bool on_battery = false;
  bool is_serving = false;  // honed works for somebody who waits
};

// Looks ten times a second while others may be disturbed, so a look has to be cheap: files of /proc stay open between
// two of them. Not thread-safe.
class MachineLoad {
 public:
  // All but is_serving. kUnsupported where the system does not tell.
  Result<LoadSample> Sample();

  // Processor time since boot that programs which are not niced spent in their own code, all cores, ours among them: a
  // part of what Sample reads, for a glance between two of them. nullopt where the system does not tell.
  std::optional<double> BusyUserSeconds();

 private:
  // A file of /proc or /sys that is read again and again.
  class KeptFile {
   public:
    // Its first bytes, in `buffer`; "" if it cannot be read (any more). Opens `path` the first time, and anew when what
    // was open belongs to a process that has ended: its number may be another's by now.
    std::string_view Read(const std::string& path, std::span<char> buffer);

   private:
    UniqueFd fd_;
  };
  struct Thread {
    KeptFile stat, children;
  };
  struct Process {
    KeptFile stat;
    std::map<pid_t, Thread> threads;
    bool is_seen = false;
  };

  Result<void> ReadProcessors();
  double TreeTicks(pid_t pid, int depth);
  double OurTicks();
  bool OnBattery(MonotonicTime now);

  std::array<char, 4096> buffer_;
  KeptFile processors_, memory_, io_;
  std::array<double, 8> ticks_{};  // user nice system idle iowait irq softirq steal, of all cores
  std::map<pid_t, Process> processes_;
  double tree_ticks_ = 0, our_ticks_ = 0;
  MonotonicTime power_read_{};
  bool on_battery_ = false;
};

}  // namespace hone
