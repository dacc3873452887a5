// A device that another machine's honed tunes for (hone tune --on): says what it is, then has what comes checked and
// timed by a runner as honed's own are, until the stream ends.
#pragma once

#include <string>
#include <vector>

namespace hone {

struct StdioOptions {
  std::string target = "";  // what it says that it is: a name such as "x86-64-v3", or a target's text; "": this machine
  std::string runner = "";  // program that checks and times; "": this one
  bool is_emulated = false;  // by a program that filters no system calls
};

// What main() returns; errors are on standard error. REQUIRES: the process has one thread.
int ServeStdio(const StdioOptions& options);

}  // namespace hone
