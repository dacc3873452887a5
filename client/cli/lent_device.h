// A device on another machine, for commands with `--on COMMAND`: the command is started here, with this user's rights
// and terminal, and honed talks with the hone-runner that it leads to. honed itself starts nothing.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "base/result.h"
#include "base/unique_fd.h"
#include "client/cli/command.h"
#include "client/protocol/channel.h"

namespace hone::cli {

class LentDevice {
 public:
  // Has `command` run by a shell, and returns once the device has said what it is. `silence`: as AttachRequest's.
  static Result<std::unique_ptr<LentDevice>> Start(Context& context, const std::string& command,
                                                   std::chrono::milliseconds silence);
  ~LentDevice();  // ends the command

  const std::string& name() const { return name_; }      // what requests call it
  const std::string& target() const { return target_; }  // what it is
  // How the command ended, to follow an error of the device's; "" while it runs.
  std::string HowItEnded() const;

 private:
  LentDevice(std::string name, pid_t pid, UniqueFd socket, Channel keeper);
  bool WaitEnded(std::chrono::milliseconds time) const;

  const std::string name_;
  std::string target_;
  const pid_t pid_;
  const UniqueFd socket_;  // the command's standard input and output, too
  Channel keeper_;         // honed gives the device back when it ends, however this program does
  std::jthread watcher_;
};

// Whether an error says that the device is lost, so that there is no use in asking for more.
bool IsOfDevice(const Error& error);

extern const Option kOnOption;
extern const Option kSilenceOption;

// Refuses --on beside --target, and --silence alone: wrong usage.
Result<void> CheckLentDevice(const Arguments& arguments);
// The device of --on, which it names unless the output is JSON; nullptr: without --on.
Result<std::unique_ptr<LentDevice>> StartLentDevice(Context& context, const Arguments& arguments);

}  // namespace hone::cli
