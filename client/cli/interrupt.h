// Ctrl-C during a command that has something left to say.
#pragma once

#include <signal.h>

namespace hone::cli {

// As sigaction; but what this program was started to ignore, as a shell's background jobs are, it goes on ignoring.
void HandleUnlessIgnored(int signal, const struct sigaction& action);

// While one lives, the first SIGINT or SIGTERM is only noticed; a second one ends the process as ever. One at a time.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;

  // Waits until `fd` can be read: false if the signal came first.
  bool WaitReadable(int fd) const;
  bool came() const;
  // Ends the process as the signal would have.
  [[noreturn]] void End() const;
};

}  // namespace hone::cli
