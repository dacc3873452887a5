// Whether the machine is idle enough to refine kernels. Whatever runs without being niced is somebody's work: while it
// takes more than a sliver of processor time nothing is refined. What refines is niced and ours, so its own time does
// not count; averages of pressure would count it, and are too slow.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"

namespace hone {

struct IdleLimits {
  double busy_cores = 0.25;                // processor time of others a second that closes the gate
  std::chrono::milliseconds window{200};   // over which it is taken
  std::chrono::milliseconds quiet{2'000};  // that it has to be quiet before the gate opens
  bool on_battery = false;                 // refine without mains power, too
};

struct LoadSample {
  MonotonicTime at{};
  double busy_s = 0;  // processor time since boot that is neither idle nor niced nor ours, all cores
  bool on_battery = false;
  bool is_serving = false;  // honed builds for somebody who waits
};

// All but is_serving, from /proc/stat and /sys/class/power_supply. kUnsupported where the system does not tell.
Result<LoadSample> ReadLoad();

// Not thread-safe.
class IdleGate {
 public:
  explicit IdleGate(const IdleLimits& limits) : limits_(limits) {}
  void SetLimits(const IdleLimits& limits) { limits_ = limits; }

  // A sample every 50 ms or so.
  void Add(const LoadSample& sample);

  bool open() const { return open_; }
  const std::string& why() const { return why_; }  // "others use 1.20 cores", "on battery", "quiet for 0.4 s of 2.0 s"

 private:
  IdleLimits limits_;
  std::optional<LoadSample> begin_;  // of the window
  std::optional<LoadSample> last_;
  MonotonicTime quiet_since_{};
  bool open_ = false;
  std::string why_ = "looking";
};

}  // namespace hone
