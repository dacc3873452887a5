// honed's configuration: a TOML file whose every key has a default, a meaning and a unit. docs/configuration.md is
// what `honed --describe-config` prints.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "cache/bundle/bundle_files.h"
#include "daemon/refine/idle_gate.h"

namespace hone {

struct Config {
  LogLevel log = LogLevel::kInfo;
  std::string socket;        // "": DefaultSocketPath
  std::vector<uid_t> users;  // besides our own who may connect
  bool any_user = false;
  std::string cache;                       // "": DefaultCacheDir
  std::chrono::milliseconds idle_exit{0};  // of a honed that its socket started; 0: it stays
  std::string metrics_listen;              // a LoopbackPort; "" for none
  std::string system_cache;                // read-only layer; "" for none
  std::string bundles = kBundleDirectory;  // whose bundles are imported; "" for none
  uint64_t cache_bytes = uint64_t{4} << 30;
  int builders = 0;  // 0: one a core, at most 4
  int runners = 0;   // 0: as many as builders
  std::chrono::milliseconds build_limit{20'000};
  std::chrono::milliseconds check_limit{30'000};
  std::string nvrtc;                            // "": looked for (backends/gpu/find_nvrtc.h)
  std::string foreign_runners;                  // "": beside our programs (backends/cpu/emulator.h)
  bool idle = true;                             // refine kernels while the machine is idle
  double idle_busy = 0.25;                      // cores that others may use meanwhile
  std::chrono::milliseconds idle_quiet{2'000};  // as IdleLimits::quiet
  double idle_stalled = 0.2;                    // of the time that something may wait for memory or the disk meanwhile
  bool idle_on_battery = false;
  Hours idle_hours;
  double idle_share = 1;  // of idle time that is used
  uint32_t queue = 256;   // builds that wait; one more is answered "busy"
  uint32_t connections = 2'048;
  uint32_t requests = 64;                        // under way on one connection; more are read when some are answered
  std::chrono::milliseconds frame_time{30'000};  // from a frame's first byte to its last
  std::chrono::milliseconds stall_time{10'000};  // that a client may leave its answers unread
  uint64_t hot_bytes = uint64_t{256} << 20;      // code kept in memory, as sealed descriptors
  uint32_t hot_entries = 2'048;                  // at most so many descriptors
  uint32_t memo_entries = 16'384;                // request texts whose kernel is known
  uint64_t store_memory = uint64_t{64} << 20;    // RocksDB's block cache and write buffers
};

// Reads a file that nobody but this user and root can change, in a directory like that. kInvalid if others can, and
// with "file:line:column" for syntax, an unknown key, a wrong type or a value out of range.
Result<Config> LoadConfig(const std::string& path);
Result<Config> ParseConfig(std::string_view text, const std::string& path);

// Keys of `next` that differ from `now` and take effect only at a start.
std::vector<std::string> NeedRestart(const Config& now, const Config& next);

// Every key with its default and meaning, as a TOML file that changes nothing.
std::string DescribeConfig();

// $XDG_CONFIG_HOME/hone/honed.toml (~/.config), else /etc/hone/honed.toml; "" if neither is there.
std::string FindConfig();

}  // namespace hone
