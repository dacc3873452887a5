#include "daemon/refine/idle_gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

namespace hone {
namespace {

constexpr double kQuietABurst = 10;  // of quiet for the processor time of a burst

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
    close(quiet,
          fmt::format("something waits for memory or the disk {:.0f} % of the time", 100 * std::min(1.0, stalled)));
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
