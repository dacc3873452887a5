// System-call filters, assembled as the kernel's BPF. Written by hand and not with libseccomp: the runner installs one
// per candidate and wants to do so with one system call and no allocation.
#pragma once

#include <linux/filter.h>

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "base/result.h"

namespace hone {

// Rules are tried in the order they were added; the first that fits decides. Calls for another architecture, and x32
// calls, kill. Not thread-safe.
class SeccompFilter {
 public:
  // What happens to a call.
  enum class Action : uint8_t { kAllow, kKill, kDeny /* EPERM */, kAbsent /* ENOSYS */ };

  SeccompFilter();

  SeccompFilter& Add(Action action, std::initializer_list<int> calls);
  // Only if (argument & mask) == value, on the argument's low 32 bits; otherwise later rules decide.
  SeccompFilter& AddIf(Action action, int call, int argument, uint32_t mask, uint32_t value);
  // Decides whatever no rule fits. Last.
  SeccompFilter& Otherwise(Action action);

  // Sets no_new_privs and installs the filter in the calling thread, or in all threads of the process. Cannot be
  // undone. Async-signal-safe. False with errno if the kernel refuses.
  bool Install(bool all_threads) const;

 private:
  void Emit(uint16_t code, uint32_t k, uint8_t jump_true = 0, uint8_t jump_false = 0);
  void Return(Action action);
  std::vector<struct sock_filter> program_;
};

// This process is emulated by a program that has no filters for what it runs (qemu-user): where there are none, Install
// succeeds from now on without one. Where there are, nothing changes. Whoever starts such a process has to confine the
// emulator.
void GoOnWithoutFilters();
// Whether an Install came to nothing for that reason.
bool IsUnfiltered();

}  // namespace hone
