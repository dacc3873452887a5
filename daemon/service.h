// honed, put together: what is opened, in which order, and in which order it is closed again.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/log.h"
#include "base/result.h"

namespace hone {

// The command line: what it says wins over the configuration file, also when that is read again.
struct ServiceOptions {
  bool idle = true;  // refine kernels while the machine is idle
  std::string socket;
  std::string cache;
  std::string config;  // "": FindConfig
  std::optional<LogLevel> log;
  int inspect = -1;     // descriptor of a connected socket: answer questions about the cache there, change nothing
  std::string builder;  // programs of the pools; "": FindOwnProgram
  std::string runner;
};

// Serves until SIGTERM or SIGINT (or, inspecting, until the connection ends). `on_ready` is called once clients are
// answered. Errors: what kept it from starting.
Result<void> RunService(const ServiceOptions& options, const std::function<void()>& on_ready);

}  // namespace hone
