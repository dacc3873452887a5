// The files of bundles in directories that packages and administrators fill.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hone {

inline constexpr const char* kBundleDirectory = "/usr/share/hone/bundles.d";  // that packages fill

// Opens every DIR/NAME.bundle, by name, and hands it to `visit` with its path. Directory and files must be this user's
// or root's, and writable by their owner alone; a directory that is not there holds none. `leave_out` hears of what is
// not read, and of what `visit` has an error for. False from `goes_on` ends it.
struct BundleFileVisitor {
  std::function<Result<void>(const UniqueFd& file, const std::string& path)> visit;
  std::function<void(const std::string& path, const Error& error)> leave_out;
  std::function<bool()> goes_on = [] { return true; };
};
void ForEachBundleFile(const std::string& directory, const BundleFileVisitor& visitor);

}  // namespace hone
