// A runner's life, on whatever kind of device: stays resident, checks and measures artifacts for the daemon, over the
// socket it was started with (descriptor 3), one kernel at a time. It never runs foreign code itself: its launcher
// does.
#pragma once

#include <memory>

#include "backends/runner/launcher.h"
#include "base/result.h"

namespace hone {

struct RunnerProgram {
  const char* name = "";  // in what it says
  Result<std::unique_ptr<Launcher>> (*start_launcher)() = nullptr;
  // Its candidates open files, as a driver's libraries do, so that it cannot live within the runner's Landlock domain:
  // it ends itself when the runner has ended.
  bool launcher_opens_files = false;
};

// What main() returns. REQUIRES: the process has one thread.
int RunRunner(const RunnerProgram& program);

}  // namespace hone
