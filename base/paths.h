// Where hone keeps things: the cache, the socket. XDG rules; the environment is not believed by privileged programs.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"

namespace hone {

// The variable's value; nullopt if it is unset, empty, or the program runs with more privileges than its caller
// (AT_SECURE): then no HONE_* or XDG_* variable is believed.
std::optional<std::string> Environment(const char* name);

// $XDG_CACHE_HOME/hone, else ~/.cache/hone. kNotFound if there is no home directory either; relative values are
// ignored, as XDG demands.
Result<std::string> DefaultCacheDir();

// $XDG_RUNTIME_DIR/hone, else $XDG_CACHE_HOME/hone/run (as above): a directory of this user's own, never a shared
// temporary folder. Not created.
Result<std::string> DefaultRuntimeDir();

// $HONE_SOCKET, else honed.sock in the runtime directory.
Result<std::string> DefaultSocketPath();

inline constexpr const char* kSystemSocketPath = "/run/hone/honed.sock";
inline constexpr const char* kSystemCacheDir = "/var/lib/hone";

// Creates the directory (0700) if it is missing and refuses it unless OpenPrivateDirectory accepts it.
Result<void> EnsurePrivateDirectory(const std::string& path);

}  // namespace hone
