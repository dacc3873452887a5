#include "client/cli/interrupt.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"

namespace hone::cli {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM};

int ends[2] = {-1, -1};  // a pipe: a signal's byte makes the first one readable
volatile sig_atomic_t seen = 0;
struct sigaction before[2];

void Note(int signal) {
  seen = signal;
  const char byte = 0;
  (void)!write(ends[1], &byte, 1);
}

}  // namespace

void HandleUnlessIgnored(int signal, const struct sigaction& action) {
  struct sigaction given{};
  if (sigaction(signal, nullptr, &given) == 0 && given.sa_handler == SIG_IGN) return;
  sigaction(signal, &action, nullptr);
}

Interrupt::Interrupt() {
  HONE_CHECK(ends[0] < 0);
  HONE_CHECK(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
  seen = 0;
  struct sigaction action{};
  action.sa_handler = Note;
  action.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
  for (int i = 0; i < 2; ++i) {
    sigaction(kSignals[i], nullptr, &before[i]);
    HandleUnlessIgnored(kSignals[i], action);
  }
}

Interrupt::~Interrupt() {
  for (int i = 0; i < 2; ++i) sigaction(kSignals[i], &before[i], nullptr);
  for (int& end : ends) {
    close(end);
    end = -1;
  }
}

bool Interrupt::WaitReadable(int fd) const {
  pollfd waits[2] = {{fd, POLLIN, 0}, {ends[0], POLLIN, 0}};
  while (poll(waits, 2, -1) < 0) {}
  return waits[1].revents == 0;
}

bool Interrupt::came() const { return seen != 0; }

void Interrupt::End() const {
  signal(seen, SIG_DFL);
  raise(seen);
  abort();  // it was blocked
}

}  // namespace hone::cli
