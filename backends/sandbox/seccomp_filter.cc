#include "backends/sandbox/seccomp_filter.h"

#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "base/check.h"

namespace hone {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
constexpr uint32_t kX32Bit = 0x40000000;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#endif

constexpr uint32_t kNumberAt = offsetof(struct seccomp_data, nr);
constexpr uint32_t kArchitectureAt = offsetof(struct seccomp_data, arch);
constexpr uint32_t ArgumentAt(int argument) {  // its low half: little-endian
  return static_cast<uint32_t>(offsetof(struct seccomp_data, args) + 8 * static_cast<size_t>(argument));
}

bool goes_on_without = false, is_unfiltered = false;  // of this process, set while it has one thread

}  // namespace

void SeccompFilter::Emit(uint16_t code, uint32_t k, uint8_t jump_true, uint8_t jump_false) {
  program_.push_back({code, jump_true, jump_false, k});
}

void SeccompFilter::Return(Action action) {
  switch (action) {
    case Action::kAllow: return Emit(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    case Action::kKill: return Emit(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    case Action::kDeny: return Emit(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    case Action::kAbsent: return Emit(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS);
  }
}

SeccompFilter::SeccompFilter() {
  Emit(BPF_LD | BPF_W | BPF_ABS, kArchitectureAt);
  Emit(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0);
  Return(Action::kKill);
  Emit(BPF_LD | BPF_W | BPF_ABS, kNumberAt);
#if defined(__x86_64__)
  Emit(BPF_JMP | BPF_JSET | BPF_K, kX32Bit, 0, 1);
  Return(Action::kKill);
#endif
}

// The accumulator holds the call's number before and after every rule.
SeccompFilter& SeccompFilter::Add(Action action, std::initializer_list<int> calls) {
  for (int call : calls) {
    Emit(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call), 0, 1);
    Return(action);
  }
  return *this;
}

SeccompFilter& SeccompFilter::AddIf(Action action, int call, int argument, uint32_t mask, uint32_t value) {
  Emit(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call), 0, 5);
  Emit(BPF_LD | BPF_W | BPF_ABS, ArgumentAt(argument));
  Emit(BPF_ALU | BPF_AND | BPF_K, mask);
  Emit(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1);
  Return(action);
  Emit(BPF_LD | BPF_W | BPF_ABS, kNumberAt);
  return *this;
}

SeccompFilter& SeccompFilter::Otherwise(Action action) {
  Return(action);
  HONE_CHECK(program_.size() <= BPF_MAXINSNS);
  return *this;
}

bool SeccompFilter::Install(bool all_threads) const {
  struct sock_fprog program{static_cast<unsigned short>(program_.size()),
                            const_cast<struct sock_filter*>(program_.data())};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
  if (::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, all_threads ? SECCOMP_FILTER_FLAG_TSYNC : 0, &program) == 0)
    return true;
  is_unfiltered = goes_on_without && errno == ENOSYS;
  return is_unfiltered;
}

void GoOnWithoutFilters() { goes_on_without = true; }
bool IsUnfiltered() { return is_unfiltered; }

}  // namespace hone
