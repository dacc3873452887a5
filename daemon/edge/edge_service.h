// honed-edge, put together: the serving half of honed, on a cache of bundles.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/result.h"

namespace hone {

struct EdgeOptions {
  std::string socket;                // "": DefaultSocketPath
  std::vector<std::string> bundles;  // directories; empty: kBundleDirectory
  std::vector<std::string> keys;     // directories; empty: TrustedKeys::StandardDirectories
  bool any_user = false;             // may connect
  LogLevel log = LogLevel::kInfo;
  std::string runner;  // "": FindOwnProgram
};

// Serves until SIGTERM or SIGINT. `on_ready` is called once clients are answered. Errors: what kept it from starting.
// A bundle that cannot be served is none: it is left out, and the log and the status say so.
Result<void> RunEdge(const EdgeOptions& options, const std::function<void()>& on_ready);

// This device, as `hone warm --target` takes it on another machine.
Result<std::string> DescribeDevice();

}  // namespace hone
