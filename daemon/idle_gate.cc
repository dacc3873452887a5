#include "daemon/idle_gate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <sstream>

#include "base/file.h"

namespace hone {
namespace {

constexpr double kQuietABurst = 10;  // of quiet for the processor time of a burst

// What /proc or /sys says; "" if it is not there any more. No streams: what reads a process that goes away meanwhile
// fails, and their iterators throw.
std::string ReadSmall(const std::string& path) { return ReadFile(path, 1 << 20).value_or(""); }

// True if there is mains power that is off: machines without a battery have none, or it is on.
bool OnBattery() {
  const std::string supplies = "/sys/class/power_supply/";
  bool has_mains = false, is_on = false;
  for (const std::string& name : ListDirectory(supplies).value_or(std::vector<std::string>())) {
    if (ReadSmall(supplies + name + "/type") != "Mains\n") continue;
    has_mains = true;
    is_on |= ReadSmall(supplies + name + "/online") == "1\n";
  }
  return has_mains && !is_on;
}

struct Ticks {
  double user = 0, system = 0;
  double children_system = 0;  // of children that were waited for
  int nice = 0;
};

// Of a process, or of one of its threads.
Ticks ReadTicks(const std::string& directory) {
  std::string text = ReadSmall(directory + "/stat");
  size_t name_end = text.rfind(')');
  Ticks ticks;
  if (name_end == std::string::npos) return ticks;
  std::istringstream fields(text.substr(name_end + 1));
  std::string skipped;
  for (int i = 3; i < 14; ++i) fields >> skipped;
  fields >> ticks.user >> ticks.system >> skipped >> ticks.children_system >> skipped >> ticks.nice;
  return ticks;
}

// Ticks that count as busy in /proc/stat, of a process and all that descend from it: user time of what is niced is not
// among them, which is that of our children and of our own thread for idle time.
double TreeTicks(const std::string& directory, bool is_self, int depth) {
  Ticks whole = ReadTicks(directory);
  double busy = (is_self ? whole.user : 0) + whole.system + whole.children_system;
  if (depth == 0) return busy;
  for (const std::string& name : ListDirectory(directory + "/task").value_or(std::vector<std::string>())) {
    const std::string task = directory + "/task/" + name;
    if (is_self) {
      Ticks thread = ReadTicks(task);
      if (thread.nice > 0) busy -= thread.user;
    }
    std::istringstream children(ReadSmall(task + "/children"));
    for (std::string child; children >> child;) busy += TreeTicks("/proc/" + child, false, depth - 1);
  }
  return busy;
}

// Seconds since boot that at least one task waited for `what`.
double Stalled(const char* what) {
  std::string text = ReadSmall(std::string("/proc/pressure/") + what);
  std::string line = text.substr(0, text.find('\n'));
  unsigned long long us = 0;
  size_t total = line.find("total=");
  if (total == std::string::npos || sscanf(line.c_str() + total, "total=%llu", &us) != 1) return 0;
  return static_cast<double>(us) / 1e6;
}

int MinuteOfDay() {
  std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return local.tm_hour * 60 + local.tm_min;
}

// user nice system idle iowait irq softirq steal, of all cores.
using CpuTicks = std::array<double, 8>;

Result<CpuTicks> ReadCpuTicks() {
  std::istringstream line(HONE_TRY(ReadFile("/proc/stat", 1 << 20)));
  std::string name;
  CpuTicks ticks{};
  line >> name;
  for (double& tick : ticks) line >> tick;
  if (!line || name != "cpu")
    return Error{ErrorKind::kUnsupported, "the first line is not the processor's times", "/proc/stat"};
  return ticks;
}

double TicksASecond() { return static_cast<double>(sysconf(_SC_CLK_TCK)); }

double Seconds(std::chrono::steady_clock::duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

std::string PrintHours(const Hours& hours) {
  if (hours.from == hours.to) return "";
  return fmt::format("{:02}:{:02}-{:02}:{:02}", hours.from / 60, hours.from % 60, hours.to / 60, hours.to % 60);
}

std::optional<Hours> ParseHours(std::string_view text) {
  if (text.empty()) return Hours{};
  int from_hour = 0, from_minute = 0, to_hour = 0, to_minute = 0;
  char rest = 0;
  std::string copy(text);
  if (sscanf(copy.c_str(), "%2d:%2d-%2d:%2d%c", &from_hour, &from_minute, &to_hour, &to_minute, &rest) != 4) return {};
  auto is_time = [](int hour, int minute) { return hour >= 0 && hour < 24 && minute >= 0 && minute < 60; };
  if (!is_time(from_hour, from_minute) || !is_time(to_hour, to_minute)) return {};
  return Hours{from_hour * 60 + from_minute, to_hour * 60 + to_minute};
}

bool IsWithin(const Hours& hours, int minute_of_day) {
  if (hours.from == hours.to) return true;
  if (hours.from < hours.to) return minute_of_day >= hours.from && minute_of_day < hours.to;
  return minute_of_day >= hours.from || minute_of_day < hours.to;
}

Result<LoadSample> ReadLoad() {
  const CpuTicks ticks = HONE_TRY(ReadCpuTicks());
  LoadSample sample;
  sample.at = std::chrono::steady_clock::now();
  // honed, its workers, their fork servers, candidates.
  double ours = TreeTicks("/proc/self", true, 4);
  sample.busy_s = (ticks[0] + ticks[2] + ticks[5] + ticks[6] - ours) / TicksASecond();
  sample.user_s = ticks[0] / TicksASecond();
  sample.stalled_s = Stalled("memory") + Stalled("io");
  sample.minute_of_day = MinuteOfDay();
  sample.on_battery = OnBattery();
  return sample;
}

std::optional<double> BusyUserSeconds() {
  Result<CpuTicks> ticks = ReadCpuTicks();
  return ticks ? std::optional((*ticks)[0] / TicksASecond()) : std::nullopt;
}

void IdleGate::Add(const LoadSample& sample) {
  using std::chrono::nanoseconds;
  const nanoseconds quiet = limits_.quiet;
  if (!last_ || sample.at < last_->at || sample.busy_s < last_->busy_s - 1) {  // the first, or after a sleep
    begin_ = last_ = sample;
    quiet_since_ = sample.at;
    needed_ = quiet;
    open_ = false;
    return;
  }
  const double burst_s = sample.busy_s - (open_ ? begin_ : last_)->busy_s;
  last_ = sample;
  double time = std::max(Seconds(limits_.window) / 2, Seconds(sample.at - begin_->at));
  double busy = (sample.busy_s - begin_->busy_s) / time, stalled = (sample.stalled_s - begin_->stalled_s) / time;
  auto close = [&](nanoseconds needed, std::string why) {
    quiet_since_ = sample.at;
    needed_ = std::min(quiet, (open_ ? nanoseconds(0) : needed_) + needed);
    why_ = std::move(why);
  };
  if (sample.on_battery && !limits_.on_battery) {
    close(quiet, "on battery");
  } else if (sample.is_serving) {
    close(quiet, "serving");
  } else if (busy > limits_.busy_cores) {
    close(nanoseconds(static_cast<int64_t>(kQuietABurst * 1e9 * std::clamp(burst_s, 0.0, Seconds(quiet)))),
          fmt::format("others use {:.2f} cores", busy));
  } else if (stalled > limits_.stalled) {
    close(quiet, fmt::format("something waits for memory or the disk {:.0f} % of the time", 100 * std::min(1.0, stalled)));
  } else if (!IsWithin(limits_.hours, sample.minute_of_day)) {
    why_ = fmt::format("only from {}", PrintHours(limits_.hours));
  } else if (sample.at - quiet_since_ < needed_) {
    why_ = fmt::format("quiet for {:.1f} s of {:.1f} s", Seconds(sample.at - quiet_since_), Seconds(needed_));
  } else {
    why_ = "idle";
  }
  open_ = why_ == "idle";
  if (sample.at - begin_->at >= limits_.window) begin_ = sample;
}

}  // namespace hone
