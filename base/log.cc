#include "base/log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <iterator>
#include <vector>

#include "base/journal.h"
#include "base/mutex.h"
#include "base/unique_fd.h"

namespace hone {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"?", "error", "warn", "info", "debug"};

std::atomic<LogLevel> level_now{LogLevel::kInfo};
std::atomic<int> fd_now{STDERR_FILENO};
std::atomic<int> journal_now{-1};  // a connected socket

// Keeps a line whole when the kernel takes it in two writes. Leaked on purpose: threads may log while the process
// exits.
Mutex& WriteMutex() {
  static Mutex& mutex = *new Mutex;
  return mutex;
}

std::string ValueText(const LogField& field) {
  if (auto* text = std::get_if<std::string_view>(&field.value)) return std::string(*text);
  if (auto* real = std::get_if<double>(&field.value)) return fmt::format("{:.6g}", *real);
  if (auto* whole = std::get_if<int64_t>(&field.value)) return fmt::format("{}", *whole);
  return fmt::format("{}", std::get<uint64_t>(field.value));
}

using Buffer = fmt::memory_buffer;

bool IsPlain(std::string_view text) {
  if (text.empty()) return false;
  for (char c : text)
    if (static_cast<unsigned char>(c) <= ' ' || c == '"' || c == '\\' || c == '=' || c == 127) return false;
  return true;
}

void AppendText(Buffer& line, std::string_view text) {
  if (IsPlain(text)) return line.append(text);
  line.push_back('"');
  for (char c : text) {
    if (c == '"' || c == '\\') {
      line.push_back('\\');
      line.push_back(c);
    } else if (c == '\n') {
      line.append(std::string_view("\\n"));
    } else if (static_cast<unsigned char>(c) < ' ' || c == 127) {
      fmt::format_to(std::back_inserter(line), "\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      line.push_back(c);
    }
  }
  line.push_back('"');
}

void AppendTime(Buffer& line) {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  tm utc;
  gmtime_r(&now.tv_sec, &utc);
  fmt::format_to(std::back_inserter(line), "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900,
                 utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, now.tv_nsec / 1'000'000);
}

// False: write a line instead. A journal that cannot keep up loses the entry.
bool SendToJournal(int journal, LogLevel level, std::string_view message, std::string_view event,
                   std::initializer_list<LogField> fields) {
  constexpr int kPriorities[] = {7, 3, 4, 6, 7};  // syslog(3)
  std::vector<std::string> values;
  std::vector<JournalField> named;
  for (const LogField& field : fields) values.push_back(ValueText(field));
  for (size_t i = 0; i < values.size(); ++i) named.emplace_back((fields.begin() + i)->key, values[i]);
  const std::string entry =
      JournalEntry(program_invocation_short_name, kPriorities[static_cast<size_t>(level)], message, event, named);
  ssize_t sent;
  do {
    sent = ::send(journal, entry.data(), entry.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  return sent >= 0 || errno == EAGAIN;
}

void WriteLine(std::string_view line) {
  MutexLock lock(WriteMutex());
  int fd = fd_now.load();
  while (!line.empty()) {
    ssize_t written = ::write(fd, line.data(), line.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    line.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

std::string_view LogLevelName(LogLevel level) {
  size_t index = static_cast<size_t>(level);
  return index < kNames.size() ? kNames[index] : kNames[0];
}

std::optional<LogLevel> ParseLogLevel(std::string_view name) {
  for (size_t i = 1; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<LogLevel>(i);
  return std::nullopt;
}

void SetLogLevel(LogLevel level) { level_now = level; }
LogLevel GetLogLevel() { return level_now.load(std::memory_order_relaxed); }
void SetLogFd(int fd) { fd_now = fd; }

bool LogToJournal(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (!JournalReads(fd_now.load()) || path.size() >= sizeof address.sun_path) return false;
  path.copy(address.sun_path, path.size());
  UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket || connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return false;
  // Leaked like the mutex, for the threads that log to the end; a second call replaces it where it is.
  if (int before = journal_now.load(); before >= 0) return dup3(socket.get(), before, O_CLOEXEC) >= 0;
  journal_now = socket.Release();
  return true;
}

void Log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  if (!LogEnabled(level)) return;
  int saved_errno = errno;  // logging between a failing call and the look at its errno must not disturb it
  Buffer line;
  AppendTime(line);
  fmt::format_to(std::back_inserter(line), " {} ", LogLevelName(level));
  const size_t message = line.size();
  line.append(event);
  for (const LogField& field : fields) {
    fmt::format_to(std::back_inserter(line), " {}=", field.key);
    AppendText(line, ValueText(field));
  }
  const int journal = journal_now.load();
  if (journal < 0 || !SendToJournal(journal, level, {line.data() + message, line.size() - message}, event, fields)) {
    line.push_back('\n');
    WriteLine({line.data(), line.size()});
  }
  errno = saved_errno;
}

}  // namespace hone
