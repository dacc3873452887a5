// Whether the machine is idle enough to refine kernels. Whatever runs without being niced is somebody's work: while it
// takes more than a sliver of processor time, or waits for memory or the disk, nothing is refined. What refines is
// niced and ours, so its own time does not count; averages of pressure would count it, and are too slow. A short burst
// of others' work asks for less quiet afterwards, ten times the processor time that it took: what wakes up every second
// to look after the machine would keep the gate shut for good.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "daemon/refine/machine_load.h"

namespace hone {

// Of a day, local time, in minutes since midnight; may pass midnight. from == to: all day.
struct Hours {
  int from = 0, to = 0;
  bool operator==(const Hours&) const = default;
};
std::string PrintHours(const Hours& hours);              // "22:00-07:00", "" for all day
std::optional<Hours> ParseHours(std::string_view text);  // nullopt: neither
bool IsWithin(const Hours& hours, int minute_of_day);

struct IdleLimits {
  double busy_cores = 0.25;                // processor time of others a second that closes the gate
  std::chrono::milliseconds window{200};   // over which it is taken
  std::chrono::milliseconds quiet{2'000};  // that it has to be quiet before the gate opens; less after a short burst
  double stalled = 0.2;     // share of the time that somebody waits for memory or the disk, as busy_cores
  bool on_battery = false;  // refine without mains power, too
  Hours hours = {};         // when refining is allowed
};

// Not thread-safe.
class IdleGate {
 public:
  explicit IdleGate(const IdleLimits& limits) : limits_(limits) {}
  void SetLimits(const IdleLimits& limits) { limits_ = limits; }

  // A sample every 100 ms or so while it is open; seldom is enough while it is closed.
  void Add(const LoadSample& sample);

  bool open() const { return open_; }
  const std::string& why() const { return why_; }  // "others use 1.20 cores", "on battery", "quiet for 0.4 s of 2.0 s"

 private:
  IdleLimits limits_;
  std::optional<LoadSample> begin_;  // of the window
  std::optional<LoadSample> last_;
  MonotonicTime quiet_since_{};
  std::chrono::nanoseconds needed_{};  // of quiet, after what closed it
  bool open_ = false;
  std::string why_ = "looking";
};

}  // namespace hone
