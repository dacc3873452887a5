// hone top: what is being refined, why, and what it has won; drawn again every second on a terminal.
#include "client/cli/top.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>

#include "client/cli/command.h"
#include "client/cli/context.h"
#include "client/cli/interrupt.h"
#include "client/cli/plain_text.h"
#include "client/cli/terminal.h"

namespace hone::cli {
namespace {

constexpr size_t kNarrowest = 40;

volatile sig_atomic_t interrupted = 0, stopped = 0;

// Cut to a width, the end shown by an ellipsis. Text is ASCII but for what we add.
std::string CutEnd(const std::string& text, size_t width) {
  if (text.size() <= width) return text;
  return text.substr(0, width > 1 ? width - 1 : 0) + "…";
}

std::string CountText(double count) {
  if (count < 1e4) return fmt::format("{:.0f}", count);
  if (count < 1e7) return fmt::format("{:.0f}k", count / 1e3);
  return fmt::format("{:.0f}M", count / 1e6);
}

Json ReplyJson(const TopReply& reply) {
  std::vector<Json> tasks;
  for (const TopTask& task : reply.tasks) {
    Json row;
    row.Set("kernel", task.kernel)
        .Set("calls", task.calls)
        .Set("time_us", task.time_us)
        .Set("expected_gain_us", task.expected_us)
        .Set("trials", task.trials)
        .Set("won", task.won)
        .Set("refined", task.is_refined);
    tasks.push_back(std::move(row));
  }
  Json json;
  json.Set("idle", reply.idle_state)
      .Set("kernel", reply.kernel)
      .Set("by_request", reply.by_request)
      .Set("trials", reply.trials)
      .Set("wanted", reply.wanted)
      .Set("elapsed_s", reply.elapsed_s)
      .Set("start_us", reply.start_us)
      .Set("best_us", reply.best_us)
      .Set("all_trials", reply.all_trials)
      .Set("failed_trials", reply.failed_trials)
      .Set("refined", reply.refined)
      .Set("interrupts", reply.interrupts)
      .Set("refinable", reply.refinable)
      .Set("waiting", reply.waiting)
      .Set("tasks", std::move(tasks));
  return json;
}

// Waits a while; false once the user wants to leave.
bool Wait(std::chrono::milliseconds time) {
  poll(nullptr, 0, static_cast<int>(time.count()));
  return interrupted == 0;
}

// The terminal's other screen, without a cursor, for as long as it lives.
class Screen {
 public:
  explicit Screen(bool enabled) : enabled_(enabled) { Enter(); }
  ~Screen() { Leave(); }
  // As Ctrl-Z does to other programs: the shell gets its screen back until this one goes on.
  void Stop() {
    stopped = 0;
    Leave();
    raise(SIGSTOP);
    Enter();
  }

 private:
  void Enter() const {
    if (enabled_) PrintCommands("\033[?1049h\033[?25l");
  }
  void Leave() const {
    if (enabled_) PrintCommands("\033[?25h\033[?1049l");
  }

  const bool enabled_;
};

// Whatever ends or stops this program waits until the terminal has its own screen again.
void NoteSignals(bool is_live) {
  struct sigaction note{};
  note.sa_handler = [](int) { interrupted = 1; };
  for (int signal : {SIGINT, SIGTERM}) HandleUnlessIgnored(signal, note);
  if (!is_live) return;
  for (int signal : {SIGHUP, SIGQUIT}) HandleUnlessIgnored(signal, note);
  note.sa_handler = [](int) { stopped = 1; };
  note.sa_flags = SA_RESTART;  // what is being written to the terminal is written; a pause ends all the same
  HandleUnlessIgnored(SIGTSTP, note);
}

int RunTop(Context& context, const Arguments& arguments) {
  const bool is_live = CanDrawOn(STDOUT_FILENO) && !arguments.Has("--once") && !context.json();
  Result<std::chrono::microseconds> every = arguments.Duration("--every", std::chrono::seconds(1));
  if (!every) return context.WrongUsage(every.error());
  const auto pause = std::chrono::ceil<std::chrono::milliseconds>(*every);
  NoteSignals(is_live);
  Result<Channel> channel = context.Ask();
  if (!channel) return context.Fail(channel.error());
  std::optional<Error> failure;
  uint64_t trials_before = 0;
  auto asked_before = std::chrono::steady_clock::now();
  {
    Screen screen(is_live);
    for (bool is_first = true;; is_first = false) {
      Result<TopReply> reply = channel->Call(TopRequest{}, Context::Patience());
      auto asked = std::chrono::steady_clock::now();
      if (!reply) {
        if (interrupted == 0) failure = reply.error();
        break;
      }
      double rate = is_first ? 0
                             : static_cast<double>(reply->all_trials - trials_before) /
                                   std::chrono::duration<double>(asked - asked_before).count();
      trials_before = reply->all_trials;
      asked_before = asked;
      if (context.json()) {
        Print(ReplyJson(*reply).Dump() + "\n");
      } else {
        TerminalSize size = SizeOfTerminal();
        std::string text = TopText(*reply, rate, size.columns, is_live ? size.rows - 1 : 24);
        PrintCommands(is_live ? "\033[H\033[J" + Plain(text) : Plain(text));
      }
      const bool is_last = arguments.Has("--once") || (!is_live && !arguments.Has("--every"));
      if (is_last || !FinishPrinting() || !Wait(pause)) break;
      if (stopped != 0) screen.Stop();
    }
  }
  return failure ? context.Fail(*failure) : kDone;
}

}  // namespace

std::string TopText(const TopReply& reply, double trials_per_s, size_t columns, size_t rows) {
  columns = std::max(columns, kNarrowest);
  std::string text;
  auto line = [&](const std::string& words) { text += CutEnd(words, columns) + "\n"; };
  line(fmt::format("idle time  {}", reply.idle_state));
  line(fmt::format("kernels    {}, {} of them to be refined; {} got faster code; {} times interrupted", reply.refinable,
                   reply.waiting, reply.refined, reply.interrupts));
  line(fmt::format("trials     {} since the start, {} failed{}", reply.all_trials, reply.failed_trials,
                   trials_per_s > 0 ? fmt::format("; {:.1f} a second", trials_per_s) : ""));
  if (reply.kernel.empty()) {
    line("now        nothing is searched");
  } else {
    line(fmt::format("now        {}{}", reply.kernel, reply.by_request ? "  (hone tune)" : ""));
    std::string gain = reply.start_us > 0 && reply.best_us > 0
                           ? fmt::format(", best {} of {} at the start: {:.2f}x", TimeText(reply.best_us),
                                         TimeText(reply.start_us), reply.start_us / reply.best_us)
                           : "";
    line(fmt::format("           {} of {} trials in {}{}", reply.trials, reply.wanted, TimeText(reply.elapsed_s * 1e6),
                     gain));
  }
  if (reply.tasks.empty()) return text;
  text += "\n";
  // kernel, calls, time, expected, trials, won: the kernel takes what the numbers leave.
  constexpr size_t kNumbers = 46;
  size_t width = std::max<size_t>(12, columns > kNumbers ? columns - kNumbers : 12);
  size_t longest = 6;
  for (const TopTask& task : reply.tasks) longest = std::max(longest, task.kernel.size());
  width = std::min(width, longest);
  text += fmt::format("{:<{}}  {:>6} {:>9}  {:>11} {:>6} {:>6}\n", "kernel", width, "calls", "a call", "to be won",
                      "trials", "won");
  size_t left = rows > 8 ? rows - 8 : 1;
  for (const TopTask& task : reply.tasks) {
    if (left-- == 0) break;
    std::string name = CutEnd(task.kernel, width);
    size_t shown = name.ends_with("…") ? name.size() - 2 : name.size();
    name += std::string(width > shown ? width - shown : 0, ' ');
    text += fmt::format("{}  {:>6} {:>9}  {:>11} {:>6} {:>6}\n", name, CountText(task.calls), TimeText(task.time_us),
                        task.is_refined ? "refined" : TimeText(task.expected_us), task.trials,
                        task.won > 1.0005 ? fmt::format("{:.2f}x", task.won) : "-");
  }
  return text;
}

Command TopCommand() {
  return {
      .name = "top",
      .summary = "show live what is being refined, why, and with what gain, and the state of the idle gate",
      .details =
          R"(On a terminal, updates every second until Ctrl-C. In a pipe, or with --once, prints once. honed refines kernels in the
order of their expected gain: calls × time per call × the gain that searches usually find in a kernel with as many trials.

Examples:
  hone top
  hone top --json --every 5s)",
      .positionals = {},
      .options = {{"--once", "", "print once, even on a terminal"},
                  {"--every", "TIME", "time between updates, such as 5s (default: 1s on a terminal)"}},
      .run = RunTop};
}

}  // namespace hone::cli
