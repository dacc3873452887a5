#include "backends/builder_sandbox.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "backends/seccomp_filter.h"
#include "base/file.h"
#include "base/unique_fd.h"

namespace hone {
namespace {

using Action = SeccompFilter::Action;

// Every right to files, and none granted. Memfds are not under Landlock: their file system can never be mounted.
void DenyFiles() {
  int abi = static_cast<int>(::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION));
  if (abi < 1) return;
  struct landlock_ruleset_attr rights{};
  // Rights of the first version (execute, write, read, list, remove, make …), and REFER and TRUNCATE that came later.
  rights.handled_access_fs = (uint64_t{1} << (abi >= 3 ? 15 : abi >= 2 ? 14 : 13)) - 1;
  UniqueFd ruleset(static_cast<int>(::syscall(SYS_landlock_create_ruleset, &rights, sizeof rights, 0)));
  if (!ruleset) return;
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  ::syscall(SYS_landlock_restrict_self, ruleset.get(), 0);
}

SeccompFilter BuilderFilter() {
  SeccompFilter filter;
  filter.Add(Action::kAllow, {SYS_read,
                              SYS_write,
                              SYS_readv,
                              SYS_writev,
                              SYS_pread64,
                              SYS_pwrite64,
                              SYS_recvmsg,
                              SYS_sendmsg,
                              SYS_ppoll,
                              SYS_close,
                              SYS_fstat,
                              SYS_newfstatat,
                              SYS_lseek,
                              SYS_ftruncate,
                              SYS_fcntl,
                              SYS_dup,
                              SYS_dup3,
                              SYS_memfd_create,
                              SYS_munmap,
                              SYS_mremap,
                              SYS_madvise,
                              SYS_brk,
                              SYS_futex,
                              SYS_clock_gettime,
                              SYS_clock_getres,
                              SYS_gettimeofday,
                              SYS_getpid,
                              SYS_gettid,
                              SYS_getrusage,
                              SYS_getrandom,
                              SYS_uname,
                              SYS_sysinfo,
                              SYS_sched_yield,
                              SYS_sched_getaffinity,
                              SYS_rt_sigaction,
                              SYS_rt_sigprocmask,
                              SYS_rt_sigreturn,
                              SYS_sigaltstack,
                              SYS_set_robust_list,
                              SYS_restart_syscall,
                              SYS_exit,
                              SYS_exit_group});
#if defined(__x86_64__)
  filter.Add(Action::kAllow, {SYS_poll, SYS_dup2, SYS_stat, SYS_lstat, SYS_access, SYS_readlink});
#endif
  filter.AddIf(Action::kAllow, SYS_mmap, 2, PROT_EXEC, 0);
  filter.AddIf(Action::kAllow, SYS_mprotect, 2, PROT_EXEC, 0);
  filter.AddIf(Action::kAllow, SYS_openat, 2, O_ACCMODE | O_CREAT | O_TRUNC | O_TMPFILE, O_RDONLY);
  filter.AddIf(Action::kAllow, SYS_tgkill, 0, ~uint32_t{0}, static_cast<uint32_t>(::getpid()));  // abort()
  filter.AddIf(Action::kAllow, SYS_clone, 0, CLONE_THREAD | CLONE_VM, CLONE_THREAD | CLONE_VM);
  filter.Add(Action::kAbsent, {SYS_clone3});  // its flags are in memory, where no filter sees them: libc falls back
  filter.Add(Action::kKill, {SYS_execve, SYS_execveat, SYS_clone, SYS_socket, SYS_connect, SYS_bind, SYS_kill,
                             SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_unshare, SYS_setns, SYS_bpf});
#if defined(__x86_64__)
  filter.Add(Action::kKill, {SYS_fork, SYS_vfork});
#endif
  // Libraries probe for much and live without: an error, not the end.
  filter.Otherwise(Action::kDeny);
  return filter;
}

}  // namespace

Result<void> EnterBuilderSandbox() {
  ::prctl(PR_SET_DUMPABLE, 0);
  DenyFiles();
  if (!BuilderFilter().Install(true)) return ErrnoError(errno, "seccomp");
  return {};
}

}  // namespace hone
