// One table says what there is: key, default, meaning, how it is read. toml++ is seen here alone.
#include "daemon/config.h"

#include <fmt/format.h>
#include <unistd.h>

#include <toml++/toml.h>
#include <span>

#include "base/file.h"
#include "base/paths.h"
#include "daemon/metrics_port.h"

namespace hone {
namespace {

// What can be wrong with a value, in words that follow "key: ".
using Refusal = std::optional<std::string>;

struct Key {
  std::string_view name;      // "cache.size"
  std::string_view standard;  // as TOML
  std::string_view meaning;
  bool needs_restart;
  Refusal (*read)(const toml::node& node, Config& config);
  bool (*equal)(const Config& a, const Config& b);
};

Refusal ReadText(const toml::node& node, std::string& out) {
  if (!node.is_string()) return "expected text in quotes";
  out = node.as_string()->get();
  return {};
}

Refusal ReadPath(const toml::node& node, std::string& out) {
  std::string path;
  if (Refusal refusal = ReadText(node, path)) return refusal;
  if (!path.empty() && path[0] != '/') return fmt::format("\"{}\" is not an absolute path", path);
  out = std::move(path);
  return {};
}

template <typename T>
Refusal ReadNumber(const toml::node& node, T least, T most, T& out) {
  if (!node.is_integer()) return "expected a whole number";
  int64_t value = node.as_integer()->get();
  if (value < static_cast<int64_t>(least) || value > static_cast<int64_t>(most)) {
    return fmt::format("{} is not within {} … {}", value, least, most);
  }
  out = static_cast<T>(value);
  return {};
}

struct Unit {
  std::string_view name;
  int64_t factor;
};

// A number and a unit, "50ms": the value in the table's smallest unit.
Refusal ReadMeasure(const toml::node& node, std::span<const Unit> units, std::string_view example, int64_t least,
                    int64_t most, int64_t& out) {
  Refusal refusal = fmt::format("expected a number and a unit in quotes, such as \"{}\"", example);
  if (!node.is_string()) return refusal;
  std::string_view text = node.as_string()->get();
  int64_t number = 0;
  size_t digits = 0;
  for (; digits < text.size() && text[digits] >= '0' && text[digits] <= '9'; ++digits) {
    if (digits == 15) return refusal;
    number = number * 10 + (text[digits] - '0');
  }
  std::string_view unit = text.substr(digits);
  while (!unit.empty() && unit[0] == ' ') unit.remove_prefix(1);
  for (const Unit& known : units) {
    if (digits == 0 || known.name != unit) continue;
    int64_t value;
    if (__builtin_mul_overflow(number, known.factor, &value) || value < least || value > most) {
      return fmt::format("\"{}\" is out of range", text);
    }
    out = value;
    return {};
  }
  return refusal;
}

constexpr Unit kTimes[] = {{"ms", 1}, {"s", 1000}, {"min", 60'000}};
constexpr Unit kSizes[] = {{"B", 1}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", int64_t{1} << 40}};

Refusal ReadTime(const toml::node& node, std::chrono::milliseconds& out) {
  int64_t ms = 0;
  Refusal refusal = ReadMeasure(node, kTimes, "30s", 1, 24 * 3600 * 1000, ms);
  if (!refusal) out = std::chrono::milliseconds(ms);
  return refusal;
}

// 0: "".
Refusal ReadTimeOrNever(const toml::node& node, std::chrono::milliseconds& out) {
  if (!node.is_string() || !node.as_string()->get().empty()) return ReadTime(node, out);
  out = {};
  return {};
}

Refusal ReadSize(const toml::node& node, int64_t least, uint64_t& out) {
  int64_t bytes = 0;
  Refusal refusal = ReadMeasure(node, kSizes, "4GiB", least, int64_t{1} << 50, bytes);
  if (!refusal) out = static_cast<uint64_t>(bytes);
  return refusal;
}

Refusal ReadUsers(const toml::node& node, Config& config) {
  Config read;
  if (node.is_string()) {
    if (node.as_string()->get() != "any") return "expected \"any\" or a list of user numbers";
    read.any_user = true;
  } else if (const toml::array* array = node.as_array()) {
    for (const toml::node& entry : *array) {
      uid_t uid = 0;
      if (Refusal refusal = ReadNumber<uid_t>(entry, 0, UINT32_MAX - 1, uid)) return refusal;
      read.users.push_back(uid);
    }
  } else {
    return "expected \"any\" or a list of user numbers";
  }
  config.any_user = read.any_user;
  config.users = std::move(read.users);
  return {};
}

Refusal ReadSwitch(const toml::node& node, bool& out) {
  std::optional<bool> value = node.value_exact<bool>();
  if (!value) return "expected true or false";
  out = *value;
  return {};
}

Refusal ReadReal(const toml::node& node, double least, double most, double& out) {
  std::optional<double> value = node.value<double>();
  if (!value || !(*value >= least && *value <= most))
    return fmt::format("expected a number from {} to {}", least, most);
  out = *value;
  return {};
}

Refusal ReadListen(const toml::node& node, Config& config) {
  std::string text;
  if (Refusal refusal = ReadText(node, text)) return refusal;
  if (!text.empty() && !ParseLoopbackPort(text))
    return fmt::format("\"{}\" is no port of the loopback; expected such as \"127.0.0.1:9464\" or \"[::1]:9464\"",
                       text);
  config.metrics_listen = std::move(text);
  return {};
}

Refusal ReadHours(const toml::node& node, Config& config) {
  std::string text;
  if (Refusal refusal = ReadText(node, text)) return refusal;
  std::optional<Hours> hours = ParseHours(text);
  if (!hours) return fmt::format("\"{}\" is no span of hours; expected such as \"22:00-07:00\"", text);
  config.idle_hours = *hours;
  return {};
}

Refusal ReadLog(const toml::node& node, Config& config) {
  std::string name;
  if (Refusal refusal = ReadText(node, name)) return refusal;
  std::optional<LogLevel> level = ParseLogLevel(name);
  if (!level) return fmt::format("\"{}\" is no level; expected error, warn, info or debug", name);
  config.log = *level;
  return {};
}

#define HONE_EQUAL(field) [](const Config& a, const Config& b) { return a.field == b.field; }
#define HONE_READ(expression) [](const toml::node& node, Config& config) -> Refusal { return expression; }

const Key kKeys[] = {
    {"log", R"("info")", "What is logged to standard error: error, warn, info or debug.", false, ReadLog,
     HONE_EQUAL(log)},
    {"server.socket", R"("")", "Where clients connect; empty: hone/honed.sock in $XDG_RUNTIME_DIR.", true,
     HONE_READ(ReadPath(node, config.socket)), HONE_EQUAL(socket)},
    {"server.users", "[]",
     "Numbers of the users besides honed's own who may connect, or \"any\"; they must be able to reach the socket.",
     false, ReadUsers, [](const Config& a, const Config& b) { return a.users == b.users && a.any_user == b.any_user; }},
    {"server.connections", "2048", "Open connections; one beyond a client's share closes its idlest.", false,
     HONE_READ(ReadNumber<uint32_t>(node, 4, 65'536, config.connections)), HONE_EQUAL(connections)},
    {"server.requests", "64", "Unanswered requests of one connection; more are read when some are answered.", false,
     HONE_READ(ReadNumber<uint32_t>(node, 1, 4'096, config.requests)), HONE_EQUAL(requests)},
    {"server.queue", "256", "Builds that wait for a builder; one more is answered \"busy, retry in …\".", false,
     HONE_READ(ReadNumber<uint32_t>(node, 1, 65'536, config.queue)), HONE_EQUAL(queue)},
    {"server.frame_time", R"("30s")", "From a request's first byte to its last; slower clients are closed.", false,
     HONE_READ(ReadTime(node, config.frame_time)), HONE_EQUAL(frame_time)},
    {"server.stall_time", R"("10s")", "How long a client may leave its answers unread before it is closed.", false,
     HONE_READ(ReadTime(node, config.stall_time)), HONE_EQUAL(stall_time)},
    {"service.idle_exit", R"("")",
     "Ends a honed that systemd's socket started after so long without connections and work; empty: never.", true,
     HONE_READ(ReadTimeOrNever(node, config.idle_exit)), HONE_EQUAL(idle_exit)},
    {"metrics.listen", R"("")",
     "A port of the loopback that serves counters and times to Prometheus, such as \"127.0.0.1:9464\"; empty: none.",
     true, ReadListen, HONE_EQUAL(metrics_listen)},
    {"cache.directory", R"("")", "The cache; empty: hone in $XDG_CACHE_HOME.", true,
     HONE_READ(ReadPath(node, config.cache)), HONE_EQUAL(cache)},
    {"cache.system", R"("")", "A cache that is only read, under the user's own; empty: none.", true,
     HONE_READ(ReadPath(node, config.system_cache)), HONE_EQUAL(system_cache)},
    {"cache.bundles", R"("/usr/share/hone/bundles.d")",
     "Bundles that are imported when they are dropped there; empty: none.", false,
     HONE_READ(ReadPath(node, config.bundles)), HONE_EQUAL(bundles)},
    {"cache.size", R"("4GiB")", "What the cache may take on disk; the least recently used goes first.", true,
     HONE_READ(ReadSize(node, 16 << 20, config.cache_bytes)), HONE_EQUAL(cache_bytes)},
    {"memory.code", R"("256MiB")", "Code kept in memory, ready to be handed out.", false,
     HONE_READ(ReadSize(node, 1 << 20, config.hot_bytes)), HONE_EQUAL(hot_bytes)},
    {"memory.descriptors", "2048", "How many kernels' code is kept in memory at most: each takes a descriptor.", false,
     HONE_READ(ReadNumber<uint32_t>(node, 1, 65'536, config.hot_entries)), HONE_EQUAL(hot_entries)},
    {"memory.requests", "16384", "Request texts whose kernel is remembered, so that a hit parses nothing.", false,
     HONE_READ(ReadNumber<uint32_t>(node, 1, 1 << 24, config.memo_entries)), HONE_EQUAL(memo_entries)},
    {"memory.store", R"("64MiB")", "What the database may keep in memory: blocks read, and what is not written yet.",
     true, HONE_READ(ReadSize(node, 4 << 20, config.store_memory)), HONE_EQUAL(store_memory)},
    {"build.builders", "0", "Processes that compile; 0: one a core, at most 4.", true,
     HONE_READ(ReadNumber<int>(node, 0, 256, config.builders)), HONE_EQUAL(builders)},
    {"build.runners", "0", "Processes that check what was compiled; 0: as many as builders.", true,
     HONE_READ(ReadNumber<int>(node, 0, 256, config.runners)), HONE_EQUAL(runners)},
    {"build.build_limit", R"("20s")", "Longest time for one build.", false,
     HONE_READ(ReadTime(node, config.build_limit)), HONE_EQUAL(build_limit)},
    {"build.check_limit", R"("30s")", "Longest time for checking one build's result.", false,
     HONE_READ(ReadTime(node, config.check_limit)), HONE_EQUAL(check_limit)},
    {"build.nvrtc", R"("")",
     "NVRTC, which compiles for CUDA devices: its file or folder; empty: in a CUDA installation or a Python package.",
     true, HONE_READ(ReadPath(node, config.nvrtc)), HONE_EQUAL(nvrtc)},
    {"build.foreign_runners", R"("")",
     "Folder of the hone-runners of other processors, which an emulator runs to check code for these, as "
     "ARCHITECTURE/hone-runner; empty: beside honed's own programs.",
     true, HONE_READ(ReadPath(node, config.foreign_runners)), HONE_EQUAL(foreign_runners)},
    {"idle.enabled", "true", "Refine kernels while the machine is idle.", true,
     HONE_READ(ReadSwitch(node, config.idle)), HONE_EQUAL(idle)},
    {"idle.busy", "0.25", "Cores that others may use meanwhile; niced work does not count.", false,
     HONE_READ(ReadReal(node, 0.01, 1024, config.idle_busy)), HONE_EQUAL(idle_busy)},
    {"idle.stalled", "0.2", "Share of the time that something may wait for memory or the disk meanwhile.", false,
     HONE_READ(ReadReal(node, 0, 2, config.idle_stalled)), HONE_EQUAL(idle_stalled)},
    {"idle.quiet", R"("2s")", "How long the machine has to be quiet before; less after a short burst.", false,
     HONE_READ(ReadTime(node, config.idle_quiet)), HONE_EQUAL(idle_quiet)},
    {"idle.on_battery", "false", "Refine without mains power, too.", false,
     HONE_READ(ReadSwitch(node, config.idle_on_battery)), HONE_EQUAL(idle_on_battery)},
    {"idle.hours", R"("")", "When refining is allowed, local time, such as \"22:00-07:00\"; empty: always.", false,
     ReadHours, HONE_EQUAL(idle_hours)},
    {"idle.share", "1.0", "Share of idle time that is used.", false,
     HONE_READ(ReadReal(node, 0.01, 1, config.idle_share)), HONE_EQUAL(idle_share)},
};

Error At(const toml::source_region& region, const std::string& path, std::string message) {
  return {ErrorKind::kInvalid, std::move(message),
          fmt::format("{}:{}:{}", path, region.begin.line, region.begin.column)};
}

std::string KnownNames(std::string_view section) {
  std::string names;
  for (const Key& key : kKeys) {
    size_t dot = key.name.find('.');
    std::string_view its_section = dot == std::string_view::npos ? "" : key.name.substr(0, dot);
    if (its_section != section) continue;
    names += (names.empty() ? "" : ", ") + std::string(key.name.substr(dot == std::string_view::npos ? 0 : dot + 1));
  }
  if (section.empty()) {
    for (std::string_view table : {"server", "service", "metrics", "cache", "memory", "build", "idle"})
      names += fmt::format(", [{}]", table);
  }
  return names;
}

Result<void> ReadTable(const toml::table& table, const std::string& section, const std::string& path, Config& config) {
  for (auto&& [name, node] : table) {
    std::string full = section.empty() ? std::string(name.str()) : section + "." + std::string(name.str());
    bool is_section = section.empty() && !KnownNames(full).empty();
    if (is_section) {
      if (!node.is_table()) return At(node.source(), path, full + ": expected a section, [" + full + "]");
      HONE_TRY(ReadTable(*node.as_table(), full, path, config));
      continue;
    }
    const Key* found = nullptr;
    for (const Key& key : kKeys) {
      if (key.name == full) found = &key;
    }
    if (found == nullptr) {
      return At(name.source(), path, fmt::format("unknown key \"{}\"; there are: {}", full, KnownNames(section)));
    }
    if (Refusal refusal = found->read(node, config)) return At(node.source(), path, full + ": " + *refusal);
  }
  return {};
}

}  // namespace

Result<Config> ParseConfig(std::string_view text, const std::string& path) {
  try {
    toml::table table = toml::parse(text, path);
    Config config;
    HONE_TRY(ReadTable(table, "", path, config));
    return config;
  } catch (const toml::parse_error& error) { return At(error.source(), path, std::string(error.description())); }
}

Result<Config> LoadConfig(const std::string& path) {
  std::string text = HONE_TRY(ReadPrivateFile(path, 1 << 20));
  return ParseConfig(text, path);
}

std::vector<std::string> NeedRestart(const Config& now, const Config& next) {
  std::vector<std::string> names;
  for (const Key& key : kKeys) {
    if (key.needs_restart && !key.equal(now, next)) names.emplace_back(key.name);
  }
  return names;
}

std::string DescribeConfig() {
  std::string text =
      "# honed.toml: every key with its default. SIGHUP reads the file again; what is marked (start) needs a "
      "restart.\n";
  std::string section;
  for (const Key& key : kKeys) {
    size_t dot = key.name.find('.');
    if (dot != std::string_view::npos && key.name.substr(0, dot) != section) {
      section = key.name.substr(0, dot);
      text += "\n[" + section + "]\n";
    }
    text += fmt::format("# {}{}\n{} = {}\n", key.meaning, key.needs_restart ? " (start)" : "",
                        key.name.substr(dot == std::string_view::npos ? 0 : dot + 1), key.standard);
  }
  return text;
}

std::string FindConfig() {
  std::string own;
  if (std::optional<std::string> base = Environment("XDG_CONFIG_HOME"); base && (*base)[0] == '/') {
    own = *base + "/hone/honed.toml";
  } else if (std::optional<std::string> home = Environment("HOME")) {
    own = *home + "/.config/hone/honed.toml";
  }
  for (const std::string& path : {own, std::string("/etc/hone/honed.toml")}) {
    if (!path.empty() && access(path.c_str(), F_OK) == 0) return path;
  }
  return "";
}

}  // namespace hone
