#include "cache/bundle/key_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <array>
#include <charconv>
#include <chrono>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "cache/bundle/bundle.h"

namespace hone {
namespace {

constexpr std::string_view kHead = "hone key 1";
constexpr size_t kFileLimit = 4096;

constexpr std::array<std::pair<Role, std::string_view>, 3> kRoleNames = {
    {{kSchedules, "schedules"}, {kArtifacts, "artifacts"}, {kCostModels, "cost-models"}}};

// Whole lines of a key file, comments left out, in the order that the grammar wants.
class Lines {
 public:
  Lines(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  // The rest of the next line, which has to begin with that word.
  Result<std::string_view> Next(std::string_view word) {
    const std::string_view line = NextLine();
    if (line.substr(0, line.find(' ')) != word || line.size() <= word.size())
      return Wrong(fmt::format("wanted a line \"{} …\", saw \"{}\"", word, line.substr(0, 60)));
    return line.substr(word.size() + 1);
  }
  std::string_view NextLine() {
    std::string_view line;
    do {
      const size_t end = std::min(text_.find('\n'), text_.size());
      line = text_.substr(0, end);
      text_.remove_prefix(std::min(end + 1, text_.size()));
      ++number_;
    } while (line.starts_with('#') && !text_.empty());
    return line;
  }
  bool at_end() const { return text_.empty(); }
  Error Wrong(std::string message) const {
    return {ErrorKind::kInvalid, std::move(message), fmt::format("{}:{}", path_, number_)};
  }

 private:
  std::string_view text_;
  const std::string& path_;
  int number_ = 0;
};

template <size_t N>
Result<std::array<uint8_t, N>> NextHex(Lines& lines, std::string_view word) {
  std::array<uint8_t, N> bytes;
  if (!ParseHex(HONE_TRY(lines.Next(word)), bytes))
    return lines.Wrong(fmt::format("wanted {} hexadecimal digits after \"{}\"", 2 * N, word));
  return bytes;
}

}  // namespace

std::string RolesText(Roles roles) {
  std::string text;
  for (const auto& [role, name] : kRoleNames)
    if (roles & role) text += (text.empty() ? "" : " ") + std::string(name);
  return text;
}

Result<Roles> ParseRoles(std::string_view text) {
  Roles roles = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of(" ,"), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    bool is_known = false;
    for (const auto& [role, name] : kRoleNames) {
      if (word != name) continue;
      is_known = true;
      roles |= role;
    }
    if (!is_known)
      return Error{ErrorKind::kInvalid,
                   fmt::format("saw the role \"{}\", wanted schedules, artifacts or cost-models", word.substr(0, 40)),
                   ""};
  }
  if (roles == 0) return Error{ErrorKind::kInvalid, "no role: wanted schedules, artifacts or cost-models", ""};
  return roles;
}

std::optional<WallTime> ParseDate(std::string_view text) {
  int parts[3] = {0, 0, 0};
  constexpr size_t kBegins[] = {0, 5, 8}, kEnds[] = {4, 7, 10};
  if (text.size() != 10 || text[4] != '-' || text[7] != '-') return std::nullopt;
  for (size_t i = 0; i < 3; ++i) {
    const char* end = text.data() + kEnds[i];
    auto [rest, code] = std::from_chars(text.data() + kBegins[i], end, parts[i]);
    if (code != std::errc() || rest != end || parts[i] < 0) return std::nullopt;
  }
  const std::chrono::year_month_day day(std::chrono::year(parts[0]),
                                        std::chrono::month(static_cast<unsigned>(parts[1])),
                                        std::chrono::day(static_cast<unsigned>(parts[2])));
  if (!day.ok() || parts[0] < 1970) return std::nullopt;
  return WallTime(std::chrono::sys_days(day));
}

Result<WallTime> ParseExpiry(std::string_view text, std::chrono::system_clock::time_point now) {
  const std::optional<WallTime> date = ParseDate(text);
  if (!date)
    return Error{ErrorKind::kInvalid, fmt::format("saw \"{}\", wanted a date such as 2030-12-31", text), "--expires"};
  // In milliseconds: nanoseconds, as `now` is in, end in 2262.
  if (*date > std::chrono::time_point_cast<WallTime::duration>(now)) return *date;
  return Error{ErrorKind::kInvalid, fmt::format("{} is past: it would be refused from the first", text), "--expires"};
}

std::string DateText(WallTime time) {
  const std::chrono::year_month_day day(std::chrono::floor<std::chrono::days>(time));
  return fmt::format("{:04}-{:02}-{:02}", static_cast<int>(day.year()), static_cast<unsigned>(day.month()),
                     static_cast<unsigned>(day.day()));
}

std::string EncodeKeyFile(const KeyFile& file) {
  std::string text =
      fmt::format("{}\nkind {}\nname {}\nroles {}\nexpires {}\npublic {}\n", kHead, file.seed ? "secret" : "public",
                  file.name, RolesText(file.roles), file.expires ? DateText(*file.expires) : "never", HexOf(file.key));
  if (file.seed) text += fmt::format("seed {}\n", HexOf(*file.seed));
  return text;
}

Result<KeyFile> DecodeKeyFile(std::string_view text, const std::string& path) {
  Lines lines(text, path);
  if (lines.NextLine() != kHead) return lines.Wrong("this is no key of hone's: wanted a first line \"hone key 1\"");
  KeyFile file;
  const std::string_view kind = HONE_TRY(lines.Next("kind"));
  if (kind != "secret" && kind != "public") return lines.Wrong("wanted \"kind secret\" or \"kind public\"");
  file.name = HONE_TRY(lines.Next("name"));
  if (!IsBundleName(file.name)) return lines.Wrong("wanted a name of letters, digits and \"._+-\"");
  Result<Roles> roles = ParseRoles(HONE_TRY(lines.Next("roles")));
  if (!roles) return lines.Wrong(roles.error().message);
  file.roles = *roles;
  const std::string_view expires = HONE_TRY(lines.Next("expires"));
  file.expires = ParseDate(expires);
  if (!file.expires && expires != "never") return lines.Wrong("wanted \"expires YYYY-MM-DD\" or \"expires never\"");
  file.key = HONE_TRY(NextHex<32>(lines, "public"));
  if (kind == "secret") {
    file.seed = HONE_TRY(NextHex<32>(lines, "seed"));
    if (PublicKeyOf(*file.seed) != file.key) return lines.Wrong("the seed is not that of the public key");
  }
  while (!lines.at_end())
    if (const std::string_view rest = lines.NextLine(); !rest.empty() && !rest.starts_with('#'))
      return lines.Wrong(fmt::format("saw \"{}\" after the key's end", rest.substr(0, 60)));
  return file;
}

Result<ReadKey> ReadKeyFile(const std::string& path) {
  UniqueFd opened(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!opened) return ErrnoError(errno, "cannot open the key", path);
  struct stat info;
  if (fstat(opened.get(), &info) != 0) return ErrnoError(errno, "cannot look at the key", path);
  Result<std::string> text = ReadAll(opened.get(), kFileLimit);
  if (!text) return Error{text.error().kind, "no key: " + text.error().message, path};
  ReadKey key{HONE_TRY(DecodeKeyFile(*text, path)), ""};
  if (key.file.seed && (info.st_mode & 077) != 0)
    key.warning = fmt::format(
        "{}: others can read this secret key (mode {:o}): chmod 600 it, and make a new one if "
        "somebody may have",
        path, info.st_mode & 07777);
  return key;
}

}  // namespace hone
