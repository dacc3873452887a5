#include "daemon/refine/machine_load.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <ctime>
#include <vector>

#include "base/file.h"

namespace hone {
namespace {

constexpr int kDepth = 4;  // honed, its workers, their fork servers, candidates
constexpr std::chrono::seconds kPowerEvery{5};

// Calls `use` with each number in `text`, which are apart by spaces; stops at what is not one.
template <typename Use>
void ForEachNumber(std::string_view text, Use use) {
  const char *at = text.data(), *end = text.data() + text.size();
  while (at < end) {
    int64_t number = 0;
    while (at < end && *at == ' ') ++at;
    auto [rest, error] = std::from_chars(at, end, number);
    if (error != std::errc() || rest == at) return;
    at = rest;
    use(number);
  }
}

struct Ticks {
  double user = 0, system = 0;
  double children_system = 0;  // of children that were waited for
  bool is_niced = false;
};

// Of the `stat` of a process, or of one of its threads.
Ticks ParseTicks(std::string_view stat) {
  Ticks ticks;
  const size_t name_end = stat.rfind(") ");
  if (name_end == std::string_view::npos || name_end + 4 > stat.size()) return ticks;
  int field = 4;  // as proc(5) counts them: after the name and the state
  ForEachNumber(stat.substr(name_end + 4), [&](int64_t number) {
    const double value = static_cast<double>(number);
    if (field == 14) ticks.user = value;
    if (field == 15) ticks.system = value;
    if (field == 17) ticks.children_system = value;
    if (field == 19) ticks.is_niced = number > 0;
    ++field;
  });
  return ticks;
}

std::vector<pid_t> ParsePids(std::string_view text) {
  std::vector<pid_t> pids;
  ForEachNumber(text, [&](int64_t number) { pids.push_back(static_cast<pid_t>(number)); });
  return pids;
}

std::vector<pid_t> ThreadsOf(const std::string& process) {
  std::vector<pid_t> threads;
  for (const std::string& name : ListDirectory(process + "/task").value_or(std::vector<std::string>()))
    for (pid_t thread : ParsePids(name)) threads.push_back(thread);
  return threads;
}

// Seconds since boot that at least one task waited, by a file of /proc/pressure.
double Stalled(std::string_view pressure) {
  double us = 0;
  const std::string_view line = pressure.substr(0, pressure.find('\n')), label = "total=";
  const size_t total = line.find(label);
  if (total != std::string_view::npos)
    ForEachNumber(line.substr(total + label.size()), [&](int64_t number) { us = static_cast<double>(number); });
  return us / 1e6;
}

int MinuteOfDay() {
  std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return local.tm_hour * 60 + local.tm_min;
}

double TicksASecond() { return static_cast<double>(sysconf(_SC_CLK_TCK)); }

}  // namespace

std::string_view MachineLoad::KeptFile::Read(const std::string& path, std::span<char> buffer) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    const bool is_new = !fd_;
    if (is_new) fd_.Reset(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd_) return {};
    const ssize_t got = pread(fd_.get(), buffer.data(), buffer.size(), 0);
    if (got >= 0) return {buffer.data(), static_cast<size_t>(got)};
    fd_.Reset();
    if (is_new) return {};
  }
  return {};
}

Result<void> MachineLoad::ReadProcessors() {
  const std::string_view text = processors_.Read("/proc/stat", buffer_);
  size_t count = 0;
  if (text.starts_with("cpu "))
    ForEachNumber(text.substr(4), [&](int64_t number) {
      if (count < ticks_.size()) ticks_[count] = static_cast<double>(number);
      ++count;
    });
  if (count < ticks_.size())
    return Error{ErrorKind::kUnsupported, "the first line is not the processor's times", "/proc/stat"};
  return {};
}

// Ticks that count as busy in /proc/stat, of a process and all that descend from it. User time of what is niced is not
// among them: that of our children, and of the threads of ours that think in idle time and have others help them.
double MachineLoad::TreeTicks(pid_t pid, int depth) {
  const std::string directory = fmt::format("/proc/{}", pid);
  Process& process = processes_[pid];
  process.is_seen = true;
  const Ticks whole = ParseTicks(process.stat.Read(directory + "/stat", buffer_));
  double busy = whole.system + whole.children_system;
  if (depth == 0) return busy;
  const std::vector<pid_t> threads = ThreadsOf(directory);
  std::erase_if(process.threads, [&](const auto& each) {
    return std::find(threads.begin(), threads.end(), each.first) == threads.end();
  });
  for (pid_t number : threads) {
    const std::string task = fmt::format("{}/task/{}", directory, number);
    Thread& thread = process.threads[number];
    if (pid == getpid()) {
      const Ticks ticks = ParseTicks(thread.stat.Read(task + "/stat", buffer_));
      if (!ticks.is_niced) busy += ticks.user;
    }
    for (pid_t child : ParsePids(thread.children.Read(task + "/children", buffer_)))
      busy += TreeTicks(child, depth - 1);
  }
  return busy;
}

// Ticks of a thread that ended, or of a process whose parent ended before it, are missing in the sum from then on. They
// were ours all the same: given back, they would look like others' work.
double MachineLoad::OurTicks() {
  for (auto& [pid, process] : processes_) process.is_seen = false;
  const double now = TreeTicks(getpid(), kDepth);
  our_ticks_ += std::max(0.0, now - tree_ticks_);
  tree_ticks_ = now;
  std::erase_if(processes_, [](const auto& each) { return !each.second.is_seen; });
  return our_ticks_;
}

// True if there is mains power that is off: machines without a battery have none, or it is on. Looked up seldom: some
// supplies take milliseconds to answer.
bool MachineLoad::OnBattery(MonotonicTime now) {
  if (power_read_ != MonotonicTime() && now < power_read_ + kPowerEvery) return on_battery_;
  power_read_ = now;
  const std::string supplies = "/sys/class/power_supply/";
  bool has_mains = false, is_on = false;
  auto read = [](const std::string& path) { return ReadFile(path, 4096).value_or(""); };
  for (const std::string& name : ListDirectory(supplies).value_or(std::vector<std::string>())) {
    if (read(supplies + name + "/type") != "Mains\n") continue;
    has_mains = true;
    is_on |= read(supplies + name + "/online") == "1\n";
  }
  on_battery_ = has_mains && !is_on;
  return on_battery_;
}

Result<LoadSample> MachineLoad::Sample() {
  HONE_TRY(ReadProcessors());
  LoadSample sample;
  sample.at = std::chrono::steady_clock::now();
  sample.busy_s = (ticks_[0] + ticks_[2] + ticks_[5] + ticks_[6] - OurTicks()) / TicksASecond();
  sample.user_s = ticks_[0] / TicksASecond();
  sample.stalled_s = Stalled(memory_.Read("/proc/pressure/memory", buffer_));
  sample.stalled_s += Stalled(io_.Read("/proc/pressure/io", buffer_));
  sample.minute_of_day = MinuteOfDay();
  sample.on_battery = OnBattery(sample.at);
  return sample;
}

std::optional<double> MachineLoad::BusyUserSeconds() {
  if (!ReadProcessors()) return std::nullopt;
  return ticks_[0] / TicksASecond();
}

}  // namespace hone
