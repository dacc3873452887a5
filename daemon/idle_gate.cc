#include "daemon/idle_gate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/file.h"

namespace hone {
namespace {

// True if there is mains power that is off: machines without a battery have none, or it is on.
bool OnBattery() {
  std::error_code error;
  bool has_mains = false, is_on = false;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/class/power_supply", error)) {
    std::ifstream type(entry.path() / "type"), online(entry.path() / "online");
    std::string kind;
    int on = 0;
    if (!(type >> kind) || kind != "Mains") continue;
    has_mains = true;
    if (online >> on) is_on |= on == 1;
  }
  return has_mains && !is_on;
}

// Ticks of a process that count as busy in /proc/stat, those of children that it has waited for included; what our
// children spend in user mode is niced, and is not among them.
double BusyTicks(const std::string& directory, bool is_self) {
  std::ifstream file(directory + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(text.substr(name_end + 1));
  std::string skipped;
  for (int i = 3; i < 14; ++i) fields >> skipped;
  double user = 0, system = 0, children_user = 0, children_system = 0;
  fields >> user >> system >> children_user >> children_system;
  return (is_self ? user : 0) + system + children_system;
}

// Of a process and all that descend from it.
double TreeTicks(const std::string& directory, bool is_self, int depth) {
  double ticks = BusyTicks(directory, is_self);
  std::error_code error;
  if (depth == 0) return ticks;
  for (const auto& task : std::filesystem::directory_iterator(directory + "/task", error)) {
    std::ifstream children(task.path() / "children");
    for (std::string child; children >> child;) ticks += TreeTicks("/proc/" + child, false, depth - 1);
  }
  return ticks;
}

double Seconds(std::chrono::steady_clock::duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

Result<LoadSample> ReadLoad() {
  std::string text = HONE_TRY(ReadFile("/proc/stat", 1 << 20));
  // cpu user nice system idle iowait irq softirq steal guest …, in ticks; guest time is part of user time.
  std::istringstream line(text);
  std::string name;
  std::array<double, 8> ticks{};
  line >> name;
  for (double& tick : ticks) line >> tick;
  if (!line || name != "cpu")
    return Error{ErrorKind::kUnsupported, "the first line is not the processor's times", "/proc/stat"};
  LoadSample sample;
  sample.at = std::chrono::steady_clock::now();
  // honed, its workers, their fork servers, candidates.
  double ours = TreeTicks("/proc/self", true, 4);
  sample.busy_s = (ticks[0] + ticks[2] + ticks[5] + ticks[6] - ours) / static_cast<double>(sysconf(_SC_CLK_TCK));
  sample.on_battery = OnBattery();
  return sample;
}

void IdleGate::Add(const LoadSample& sample) {
  if (!last_ || sample.at < last_->at || sample.busy_s < last_->busy_s - 1) {  // the first, or after a sleep
    begin_ = last_ = sample;
    quiet_since_ = sample.at;
    open_ = false;
    return;
  }
  last_ = sample;
  double busy =
      (sample.busy_s - begin_->busy_s) / std::max(Seconds(limits_.window) / 2, Seconds(sample.at - begin_->at));
  if (sample.on_battery && !limits_.on_battery) {
    quiet_since_ = sample.at;
    why_ = "on battery";
  } else if (sample.is_serving) {
    quiet_since_ = sample.at;
    why_ = "serving";
  } else if (busy > limits_.busy_cores) {
    quiet_since_ = sample.at;
    why_ = fmt::format("others use {:.2f} cores", busy);
  } else if (sample.at - quiet_since_ < limits_.quiet) {
    why_ = fmt::format("quiet for {:.1f} s of {:.1f} s", Seconds(sample.at - quiet_since_), Seconds(limits_.quiet));
  } else {
    why_ = "idle";
  }
  open_ = why_ == "idle";
  if (sample.at - begin_->at >= limits_.window) begin_ = sample;
}

}  // namespace hone
