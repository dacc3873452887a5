#include "base/journal.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include "base/paths.h"

namespace hone {
namespace {

void Append(std::string& entry, std::string_view name, std::string_view value) {
  entry += name;
  if (value.find('\n') == std::string_view::npos) {
    entry += '=';
  } else {
    entry += '\n';
    for (int byte = 0; byte < 8; ++byte) entry += static_cast<char>(value.size() >> (8 * byte));
  }
  entry += value;
  entry += '\n';
}

std::string FieldName(std::string_view key) {
  std::string name = "HONE_";
  for (char c : key.substr(0, 59)) {
    if (c >= 'a' && c <= 'z') {
      name += static_cast<char>(c - 'a' + 'A');
    } else {
      name += (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ? c : '_';
    }
  }
  return name;
}

}  // namespace

bool JournalReads(int fd) {
  struct stat info;
  std::optional<std::string> stream = Environment("JOURNAL_STREAM");
  return stream && fstat(fd, &info) == 0 && *stream == fmt::format("{}:{}", info.st_dev, info.st_ino);
}

std::string JournalEntry(std::string_view program, int priority, std::string_view message, std::string_view event,
                         std::span<const JournalField> fields) {
  std::string entry;
  Append(entry, "MESSAGE", message);
  Append(entry, "PRIORITY", fmt::format("{}", priority));
  Append(entry, "SYSLOG_IDENTIFIER", program);
  Append(entry, "HONE_EVENT", event);
  for (const auto& [key, value] : fields) Append(entry, FieldName(key), value);
  return entry;
}

}  // namespace hone
