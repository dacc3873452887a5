#include "client/cli/print_values.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <ctime>

#include "base/file.h"
#include "client/cli/interrupt.h"
#include "client/cli/plain_text.h"
#include "client/cli/terminal.h"
#include "client/cli/text_layout.h"

namespace hone::cli {
namespace {

std::string Scaled(double value, std::string_view unit) {
  int digits = value < 10 ? 2 : value < 100 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, digits, unit);
}

int print_failure = 0;  // errno of the first print that failed

volatile sig_atomic_t bar_is_drawn = 0;
constexpr char kClearLine[] = "\r\033[K";

}  // namespace

std::string TimeText(double us) {
  if (us <= 0) return "-";
  if (us < 0.01) return Scaled(us * 1e3, "ns");
  if (us < 999.5) return Scaled(us, "us");
  if (us < 999.5e3) return Scaled(us / 1e3, "ms");
  return Scaled(us / 1e6, "s");
}

std::string BytesText(double bytes) {
  if (bytes <= 0) return "-";
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1024;
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

std::string AgeText(int64_t unix_time) {
  if (unix_time <= 0) return "never";
  int64_t s = std::max<int64_t>(0, time(nullptr) - unix_time);
  if (s < 60) return fmt::format("{} s ago", s);
  if (s < 3600) return fmt::format("{} min ago", s / 60);
  if (s < 48 * 3600) return fmt::format("{} h ago", s / 3600);
  return fmt::format("{} days ago", s / (24 * 3600));
}

std::string ErrorText(double error) { return error == 0 ? "0" : fmt::format("{:.1e}", error); }

void Table::Add(std::vector<std::string> row) {
  for (std::string& cell : row) cell = PlainLine(cell);
  rows_.push_back(std::move(row));
}

std::string Table::Text() const {
  if (rows_.empty()) return "";
  std::vector<size_t> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    size_t width = Width(columns_[c].title);
    for (const auto& row : rows_) width = std::max(width, Width(row[c]));
    widths.push_back(width);
  }
  std::string text;
  auto add = [&](size_t c, std::string_view cell) {
    bool is_last = c + 1 == columns_.size();
    std::string blanks(widths[c] - Width(cell), ' ');
    if (columns_[c].align == Align::kRight) {
      text += blanks + std::string(cell);
    } else {
      text += std::string(cell) + (is_last ? "" : blanks);
    }
    text += is_last ? "\n" : "  ";
  };
  for (size_t c = 0; c < columns_.size(); ++c) add(c, columns_[c].title);
  for (const auto& row : rows_) {
    for (size_t c = 0; c < columns_.size(); ++c) add(c, row[c]);
  }
  return text;
}

std::string FactsText(const std::vector<std::pair<std::string, std::string>>& facts) {
  size_t width = 0;
  for (const auto& [name, _] : facts) width = std::max(width, Width(name));
  std::string text;
  for (const auto& [name, value] : facts) { text += name + std::string(width - Width(name) + 2, ' ') + value + "\n"; }
  return text;
}

ProgressBar::ProgressBar(uint64_t total, bool enabled)
    : total_(total), enabled_(enabled && total > 1 && CanDrawOn(STDERR_FILENO)) {}

ProgressBar::~ProgressBar() { Clear(); }

void ProgressBar::Show(uint64_t done, std::string_view what) {
  if (!enabled_) return;
  winsize window{};
  size_t columns = ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 20 ? window.ws_col : 80;
  constexpr size_t kBar = 24;
  size_t full = total_ == 0 ? 0 : kBar * std::min(done, total_) / total_;
  std::string line = fmt::format("[{}{}] {}/{} {}", std::string(full, '#'), std::string(kBar - full, '-'), done, total_,
                                 PlainLine(what));
  if (Width(line) >= columns) line = First(line, columns - 1);
  std::fprintf(stderr, "%s%s", kClearLine, line.c_str());
  std::fflush(stderr);
  bar_is_drawn = 1;
}

void ProgressBar::Clear() {
  if (!bar_is_drawn) return;
  std::fputs(kClearLine, stderr);
  std::fflush(stderr);
  bar_is_drawn = 0;
}

void CleanUpOnInterrupt() {
  struct sigaction action{};
  action.sa_handler = [](int signal) {
    if (bar_is_drawn) (void)!write(STDERR_FILENO, kClearLine, sizeof kClearLine - 1);
    raise(signal);  // as it would have been: SA_RESETHAND
  };
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
  for (int signal : {SIGINT, SIGTERM}) HandleUnlessIgnored(signal, action);
}

Json ErrorJson(const Error& error) {
  Json body;
  body.Set("kind", ErrorKindName(error.kind)).Set("message", error.message).Set("where", error.where);
  return body;
}

void PrintError(const Error& error, bool json) {
  std::fprintf(stderr, "hone: %s\n", PlainLine(error.Text()).c_str());
  if (json) Print(Json().Set("error", ErrorJson(error)).Dump() + "\n");
}

void PrintWarning(std::string_view text) { std::fprintf(stderr, "hone: warning: %s\n", PlainLine(text).c_str()); }

void Print(std::string_view text) { PrintCommands(Plain(text)); }

void PrintCommands(std::string_view text) {
  const bool is_written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if ((std::fflush(stdout) != 0 || !is_written) && print_failure == 0) print_failure = errno;
}

Result<void> FinishPrinting() {
  if (std::fflush(stdout) != 0 && print_failure == 0) print_failure = errno;
  if (std::ferror(stdout) != 0 && print_failure == 0) print_failure = EIO;
  if (print_failure != 0) return ErrnoError(print_failure, "cannot write", "standard output");
  return {};
}

}  // namespace hone::cli
