#include "backends/sandbox/sandbox.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "backends/sandbox/landlock.h"
#include "backends/sandbox/seccomp_filter.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/subprocess.h"
#include "base/unique_fd.h"

namespace hone {
namespace {

using Action = SeccompFilter::Action;

// What all of them need: memory, their channel, memfds that they have, threads of their own.
void AllowComputing(SeccompFilter& filter) {
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
                              SYS_newfstatat,  // libc's fstat
                              SYS_lseek,
                              SYS_ftruncate,
                              SYS_fallocate,
                              SYS_fcntl,
                              SYS_munmap,
                              SYS_mremap,
                              SYS_madvise,
                              SYS_brk,
                              SYS_futex,
                              SYS_clock_gettime,
                              SYS_clock_getres,
                              SYS_clock_nanosleep,
                              SYS_nanosleep,
                              SYS_gettimeofday,
                              SYS_getpid,
                              SYS_gettid,
                              SYS_getrusage,
                              SYS_getrandom,
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
  filter.Add(Action::kAllow, {SYS_poll});
#endif
  if (kShadowMemory) filter.Add(Action::kAllow, {SYS_pipe2});  // sanitizers write memory to one, to see if it is there
#if defined(__x86_64__)
  if (kShadowMemory) filter.Add(Action::kAllow, {SYS_pipe});
#endif
  filter.AddIf(Action::kAllow, SYS_mmap, 2, PROT_EXEC, 0);
  filter.AddIf(Action::kAllow, SYS_mprotect, 2, PROT_EXEC, 0);
  filter.AddIf(Action::kAllow, SYS_clone, 0, CLONE_THREAD | CLONE_VM, CLONE_THREAD | CLONE_VM);
  filter.Add(Action::kAbsent, {SYS_clone3});  // its flags are in memory, where no filter sees them: libc falls back
}

// What nothing of ours does: an attempt ends the process.
void KillAtAttacks(SeccompFilter& filter) {
  filter.Add(Action::kKill, {SYS_execve, SYS_execveat, SYS_clone, SYS_socket, SYS_connect, SYS_bind, SYS_kill,
                             SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_unshare, SYS_setns, SYS_bpf});
#if defined(__x86_64__)
  filter.Add(Action::kKill, {SYS_fork, SYS_vfork});
#endif
  // Libraries probe for much and live without: an error, not the end.
  filter.Otherwise(Action::kDeny);
}

void AllowOpening(SeccompFilter& filter) {
  filter.AddIf(Action::kAllow, SYS_openat, 2, O_ACCMODE | O_CREAT | O_TRUNC | O_TMPFILE, O_RDONLY);
}

SeccompFilter BuilderFilter() {
  SeccompFilter filter;
  AllowComputing(filter);
  AllowOpening(filter);
  filter.Add(Action::kAllow, {SYS_dup, SYS_dup3, SYS_memfd_create, SYS_uname, SYS_sysinfo});
#if defined(__x86_64__)
  filter.Add(Action::kAllow, {SYS_dup2, SYS_stat, SYS_lstat, SYS_access, SYS_readlink});
#endif
  filter.AddIf(Action::kAllow, SYS_tgkill, 0, ~uint32_t{0}, static_cast<uint32_t>(::getpid()));  // abort()
  KillAtAttacks(filter);
  return filter;
}

SeccompFilter RunnerFilter() {
  SeccompFilter filter;
  AllowComputing(filter);
  filter.AddIf(Action::kAllow, SYS_tgkill, 0, ~uint32_t{0}, static_cast<uint32_t>(::getpid()));
  KillAtAttacks(filter);
  return filter;
}

// Its candidates get their rights from it before they give them up: to map code, to start threads, to lower limits and
// to install a filter of their own.
SeccompFilter LauncherFilter() {
  constexpr uint32_t kNamespaces = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC |
                                   CLONE_NEWUTS | CLONE_NEWCGROUP | CLONE_VFORK;
  SeccompFilter filter;
  AllowComputing(filter);
  AllowOpening(filter);
  filter.AddIf(Action::kAllow, SYS_clone, 0, kNamespaces, 0);
  filter.Add(Action::kAllow, {SYS_mmap, SYS_mprotect, SYS_wait4, SYS_waitid, SYS_pidfd_open, SYS_kill, SYS_getppid,
                              SYS_prlimit64, SYS_setrlimit, SYS_prctl, SYS_seccomp, SYS_close_range, SYS_rseq,
                              SYS_set_tid_address, SYS_tgkill, SYS_getcpu});
  KillAtAttacks(filter);
  return filter;
}

uint64_t LimitOf(__rlimit_resource resource) {
  struct rlimit limit{};
  return ::getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY ? limit.rlim_cur : 0;
}

Confinement Describe(const char* child, const Result<int>& landlock) {
  Confinement found;
  found.child = child;
  found.address_space = LimitOf(RLIMIT_AS);
  found.file_size = LimitOf(RLIMIT_FSIZE);
  found.descriptors = LimitOf(RLIMIT_NOFILE);
  if (landlock) {
    found.landlock = *landlock;
  } else {
    found.no_landlock = landlock.error().Text();
    found.is_refused = landlock.error().kind != ErrorKind::kUnsupported;
  }
  return found;
}

Confinement GiveUpFiles(const char* child) {
  ::prctl(PR_SET_DUMPABLE, 0);
  return Describe(child, DenyFiles());
}

// All but what reaches others: drivers ask the kernel for much, and a list of it would be another one for each of them.
SeccompFilter DeviceFilter() {
  SeccompFilter filter;
  for (const uint32_t family : {AF_INET, AF_INET6, AF_PACKET, AF_VSOCK})
    filter.AddIf(Action::kDeny, SYS_socket, 0, ~uint32_t{0}, family);
  filter.Add(Action::kKill, {SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_bpf, SYS_setns, SYS_unshare,
                             SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_init_module, SYS_finit_module,
                             SYS_delete_module, SYS_kexec_load, SYS_keyctl, SYS_add_key, SYS_request_key});
  filter.Otherwise(Action::kAllow);
  return filter;
}

Result<void> Install(const SeccompFilter& filter) {
  if (!filter.Install(true)) return ErrnoError(errno, "seccomp");
  return {};
}

}  // namespace

std::string Confinement::Text() const {
  std::string text =
      child + (is_emulated ? ": system calls not filtered, since it is emulated, " : ": system calls filtered, ");
  const char* held = reads_files ? "no files but to read (Landlock {})" : "no files (Landlock {})";
  text += landlock > 0 ? fmt::format(fmt::runtime(held), landlock) : "files that this user can read: " + no_landlock;
  if (address_space > 0) text += fmt::format(", {} MiB of memory", address_space >> 20);
  if (file_size > 0) text += fmt::format(", {} MiB a file", file_size >> 20);
  return text + fmt::format(", {} descriptors", descriptors);
}

Result<Confinement> EnterBuilderSandbox() {
  Confinement found = GiveUpFiles("builder");
  HONE_TRY(Install(BuilderFilter()));
  return found;
}

Result<Confinement> EnterDeviceSandbox(const std::string& own) {
  std::vector<std::string> writable{own, "/dev", "/proc"};
  Confinement found = Describe("device", DenyWritingFiles(writable));
  found.reads_files = true;
  HONE_TRY(Install(DeviceFilter()));
  return found;
}

Result<void> NarrowDeviceSandbox(const std::string& own) {
  constexpr const char* kOwnThreads = "/proc/self/task";
  // Kept open: the rule is of this very directory, which the kernel makes anew when nobody has it.
  static const UniqueFd& threads = *new UniqueFd(::open(kOwnThreads, O_PATH | O_CLOEXEC));
  if (!threads) return ErrnoError(errno, kOwnThreads);
  const Result<int> landlock = DenyWritingFiles({own, "/dev", kOwnThreads});
  if (!landlock && landlock.error().kind != ErrorKind::kUnsupported) return landlock.error();
  return {};
}

Result<Confinement> EnterEmulatorSandbox() {
  Confinement found = Describe("emulator", DenyWritingFiles({}));
  found.reads_files = true;
  HONE_TRY(Install(DeviceFilter()));
  return found;
}

Result<Confinement> EnterStdioSandbox() {
  Confinement found = Describe("stdio", DenyWritingFiles({"/dev/null"}));  // which what it starts has for its output
  found.reads_files = true;
  HONE_TRY(Install(DeviceFilter()));
  return found;
}

Confinement DenyRunnerFiles() { return GiveUpFiles("runner"); }
Result<void> FilterRunner() { return Install(RunnerFilter()); }

Result<Confinement> EnterLauncherSandbox() {
  Confinement found = GiveUpFiles("launcher");
  HONE_TRY(Install(LauncherFilter()));
  found.is_emulated = IsUnfiltered();
  return found;
}

// confined ::= count:varint (child:string reads_files:bool landlock:varint no_landlock:string refused:bool
//              address_space:varint file_size:varint descriptors:varint)*
std::string EncodeConfinements(const std::vector<Confinement>& confinements) {
  ByteWriter writer;
  writer.Varint(confinements.size());
  for (const Confinement& each : confinements) {
    writer.String(each.child);
    writer.Bool(each.reads_files);
    writer.Bool(each.is_emulated);
    writer.Varint(static_cast<uint64_t>(each.landlock));
    writer.String(each.no_landlock);
    writer.Bool(each.is_refused);
    for (uint64_t limit : {each.address_space, each.file_size, each.descriptors}) writer.Varint(limit);
  }
  return writer.Take();
}

Result<std::vector<Confinement>> DecodeConfinements(std::string_view body) {
  constexpr size_t kMostText = 1024;
  ByteReader reader(body);
  std::vector<Confinement> confinements(HONE_TRY(reader.Count(4)));
  for (Confinement& each : confinements) {
    each.child = HONE_TRY(reader.String(kMostText));
    each.reads_files = HONE_TRY(reader.Bool());
    each.is_emulated = HONE_TRY(reader.Bool());
    each.landlock = static_cast<int>(std::min<uint64_t>(HONE_TRY(reader.Varint()), 1000));
    each.no_landlock = HONE_TRY(reader.String(kMostText));
    each.is_refused = HONE_TRY(reader.Bool());
    for (uint64_t* limit : {&each.address_space, &each.file_size, &each.descriptors})
      *limit = HONE_TRY(reader.Varint());
  }
  HONE_TRY(reader.Finish());
  return confinements;
}

}  // namespace hone
