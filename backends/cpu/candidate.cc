#include "backends/cpu/candidate.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>

#include "backends/cpu/candidate_threads.h"
#include "backends/sandbox/seccomp_filter.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/generated_code.h"
#include "base/subprocess.h"
#include "base/tiles.h"
#include "ir/native_artifact.h"
#include "ir/reference/check_output.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace hone {
namespace {

using Action = SeccompFilter::Action;

CandidateStatus* status = nullptr;  // of this process

[[noreturn]] void Exit(int code) {
  ::syscall(SYS_exit_group, code);
  __builtin_unreachable();
}

[[noreturn]] void ExitSaying(int code, const char* what, const char* why) {
  std::snprintf(status->setup_error, sizeof status->setup_error, "%s: %s", what, why);
  Exit(code);
}

// For want of something that another run may find.
[[noreturn]] void FailSetup(const char* what, const char* why) { ExitSaying(kExitSetup, what, why); }

// Records the first fault and ends the process. Runs on the thread's alternate stack, under the filter; a sanitizer
// would have something to say about both.
__attribute__((no_sanitize("address", "thread"))) void OnFault(int signal, siginfo_t* info, void* context) {
  uint32_t none = 0;
  if (status->fault_signal.compare_exchange_strong(none, static_cast<uint32_t>(signal))) {
    auto* registers = static_cast<ucontext_t*>(context);
    status->fault_address = reinterpret_cast<uint64_t>(info->si_addr);
#if defined(__x86_64__)
    status->fault_stack = static_cast<uint64_t>(registers->uc_mcontext.gregs[REG_RSP]);
    status->fault_is_write = (registers->uc_mcontext.gregs[REG_ERR] & 2) != 0;
#elif defined(__aarch64__)
    status->fault_stack = registers->uc_mcontext.sp;
    status->fault_is_write = 0;
#endif
  }
  Exit(kExitFault);
}

// An alternate stack for the calling thread, so that a stack that overflowed can still be reported.
void PrepareThread() {
  constexpr size_t kBytes = 64 << 10;
  stack_t stack{};
  stack.ss_sp = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  stack.ss_size = kBytes;
  if (stack.ss_sp != MAP_FAILED) ::sigaltstack(&stack, nullptr);
}

void CatchFaults() {
  struct sigaction action{};
  action.sa_sigaction = OnFault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigfillset(&action.sa_mask);
  for (int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE}) ::sigaction(signal, &action, nullptr);
}

// Any use of a system call that is not on this list ends the process. All that generated code needs of the kernel is
// what the threads use to wait; clocks and getrusage are for our own measuring.
const SeccompFilter& CandidateFilter() {
  static const SeccompFilter filter = [] {
    SeccompFilter f;
    f.Add(Action::kAllow, {SYS_futex, SYS_sched_yield, SYS_clock_gettime, SYS_getrusage, SYS_exit, SYS_exit_group,
                           SYS_rt_sigreturn, SYS_restart_syscall});
    // AddressSanitizer asks where the stack is whenever a function does not return. ThreadSanitizer has a thread that
    // wakes up now and then, of which the first steps may come after this filter, and allocates memory for signals and
    // for what it remembers of each thread.
    if (kShadowMemory) {
      f.Add(Action::kAllow, {SYS_sigaltstack, SYS_nanosleep, SYS_gettimeofday, SYS_rseq, SYS_set_robust_list,
                             SYS_rt_sigprocmask, SYS_madvise, SYS_munmap});
      f.AddIf(Action::kAllow, SYS_mmap, 2, PROT_EXEC, 0);
    }
    f.Otherwise(Action::kKill);
    return f;
  }();
  return filter;
}

void Limit(__rlimit_resource resource, uint64_t value, uint64_t hard) {
  struct rlimit limit{value, hard};
  ::setrlimit(resource, &limit);
}

void LimitResources(const CandidateSpec& spec) {
  Limit(RLIMIT_CORE, 0, 0);
  uint64_t seconds = static_cast<uint64_t>(spec.limit_ns / 1'000'000'000) + 2;
  // The launcher's clock comes first. SIGXCPU says that it was this limit; at the hard one the kernel sends SIGKILL, as
  // others do who want the memory.
  seconds *= static_cast<uint64_t>(spec.workers);
  Limit(RLIMIT_CPU, seconds, seconds + 2);
  if (kShadowMemory) return;
  uint64_t bytes = (uint64_t{512} << 20) + static_cast<uint64_t>(spec.workers) * (4 << 20) + spec.workspace;
  for (const BufferPlan& plan : spec.operands) bytes += plan.pages() * kPageBytes + 2 * kGuardBytes;
  for (uint64_t packed : spec.packed) bytes += packed + 2 * kGuardBytes;
  Limit(RLIMIT_AS, bytes, bytes);
}

// What the entry gets, and the packing that comes first.
struct Call {
  hone_env env{};
  hone_entry_fn entry = nullptr;
  hone_pack_fn pack = nullptr;
  std::vector<void*> sources;  // the operands as the caller has them
  std::vector<void*> packed;   // nullptr: not packed
  std::vector<void*> buffers;  // for the entry
  const int64_t* sizes = nullptr;
};

CandidateStatus::Range RangeOf(const void* data, uint64_t bytes) {
  uint64_t begin = reinterpret_cast<uint64_t>(data);
  return {begin, begin + bytes};
}

std::byte* MapPrivate(uint64_t bytes, uint64_t alignment, const char* what) {
  BufferPlan plan;
  plan.bytes = bytes;
  plan.slack = SlackToEnd(bytes, alignment);
  plan.in_arena = false;
  plan.writable = true;
  Result<MappedBuffer> mapped = MapBuffer(plan, -1, false);
  if (!mapped) FailSetup(what, mapped.error().message.c_str());
  return mapped->data;
}

void MapBuffers(const CandidateSpec& spec, int arena_fd, Call& call) {
  for (size_t i = 0; i < spec.operands.size(); ++i) {
    Result<MappedBuffer> mapped = MapBuffer(spec.operands[i], arena_fd, true);
    if (!mapped) FailSetup("mapping an operand", mapped.error().message.c_str());
    call.sources.push_back(mapped->data);
    status->operands[i] = RangeOf(mapped->data, spec.operands[i].bytes);
    std::byte* packed = spec.packed[i] > 0 ? MapPrivate(spec.packed[i], 64, "mapping a packed operand") : nullptr;
    if (packed != nullptr) status->packed[i] = RangeOf(packed, spec.packed[i]);
    call.packed.push_back(packed);
    call.buffers.push_back(packed != nullptr ? packed : mapped->data);
  }
  if (spec.workspace > 0) {
    call.env.workspace = MapPrivate(spec.workspace, 64, "mapping the workspace");
    status->workspace = RangeOf(call.env.workspace, spec.workspace);
  }
}

// As the client library does it: what passes here loads there.
void LoadCode(int artifact_fd, Call& call) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", artifact_fd);
  errno = 0;
  void* library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) ExitSaying(errno == ENOMEM ? kExitSetup : kExitRefused, "loading the code", ::dlerror());
  call.entry = reinterpret_cast<hone_entry_fn>(::dlsym(library, kEntryName));
  call.pack = reinterpret_cast<hone_pack_fn>(::dlsym(library, kPackName));
  if (call.entry == nullptr) ExitSaying(kExitRefused, "loading the code", "no hone_entry");
}

// Rounding, flush-to-zero, exception masks and the rest of ModeChange, as they are now.
struct Mode {
  uint32_t vector_control = 0, x87_control = 0, x87_tags = 0;
  uint64_t flags = 0;
  bool tiles = HasTilesInUse();

  // Reads them, and makes string instructions run forwards again.
  Mode() {
#if defined(__x86_64__)
    constexpr uint64_t kDirection = 0x400;
    flags = __builtin_ia32_readeflags_u64() & kDirection;
    asm volatile("cld" ::: "cc");
    vector_control = _mm_getcsr() & ~0x3fu;
    uint32_t environment[7];
    asm volatile("fnstenv %0" : "=m"(environment));  // masks all exceptions
    asm volatile("fldenv %0" ::"m"(environment));
    x87_control = environment[0] & 0xffff;
    x87_tags = environment[2] & 0xffff;
#elif defined(__aarch64__)
    uint64_t fpcr = 0;
    asm volatile("mrs %0, fpcr" : "=r"(fpcr));
    vector_control = static_cast<uint32_t>(fpcr);
#endif
  }
};

// Notes what changed since `before`, the first time that something did.
void NoteChange(const Mode& before) {
  const Mode now;
  const ModeChange change{now.vector_control ^ before.vector_control, now.x87_control ^ before.x87_control,
                          now.x87_tags ^ before.x87_tags, static_cast<uint32_t>(now.flags ^ before.flags),
                          static_cast<uint32_t>(now.tiles && !before.tiles)};
  if (!status->mode.any()) status->mode = change;
}

// One call of the entry, in nanoseconds; ends the process if it does not return 0.
int64_t TimedCall(const Call& call) {
  int64_t start = NowNs();
  int code = call.entry(&call.env, call.buffers.data(), call.sizes);
  int64_t time = NowNs() - start;
  if (code != 0) {
    status->return_code = code;
    Exit(kExitDone);
  }
  return time;
}

void Pack(const Call& call) {
  int64_t start = NowNs();
  for (size_t i = 0; i < call.packed.size(); ++i) {
    if (call.packed[i] == nullptr) continue;
    status->operand = static_cast<int32_t>(i);
    status->return_code = call.pack(&call.env, static_cast<int32_t>(i), call.sources[i], call.packed[i]);
    if (status->return_code != 0) Exit(kExitDone);
  }
  status->pack_ns = NowNs() - start;
}

struct Clocks {
  int64_t wall = NowNs(), processor = NowNs(CLOCK_THREAD_CPUTIME_ID);
  int64_t switches = 0;
  Clocks() {
    struct rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    switches = usage.ru_nivcsw;
  }
  bool DisturbedUntil(const Clocks& end) const {
    return IsDisturbed(end.wall - wall, end.processor - processor, end.switches - switches);
  }
};

constexpr int kMostAgain = 8;  // disturbed ends of a warm-up
constexpr int kMostTries = 4;  // calls that are to tell whether it is worth being measured

void Measure(const CandidateSpec& spec, const Call& call) {
  // Warm up, and see how many calls a sample needs. The count doubles until it is long enough.
  int64_t begin = NowNs(), calls = 1, once = TimedCall(call);
  status->best_ns = once;
  // The first touched cold memory; one that was disturbed says nothing.
  for (int tries = 0; spec.give_up_ns > 0 && static_cast<double>(once) > spec.give_up_ns; ++tries) {
    if (tries == kMostTries) return;
    const Clocks before;
    once = TimedCall(call);
    if (before.DisturbedUntil(Clocks())) {
      ++status->disturbed;
    } else if (static_cast<double>(once) > spec.give_up_ns) {
      status->samples = 1, status->calls_per_sample = 1;
      status->sample_ns[0] = static_cast<double>(once);
      return;
    }
  }
  int again = kMostAgain;
  while (true) {
    Clocks before;
    for (int64_t i = 0; i < calls; ++i) TimedCall(call);
    Clocks after;
    if (after.wall - before.wall < spec.min_sample_ns && calls < (1 << 20))
      calls *= 2;
    else if (before.DisturbedUntil(after) && again > 0)
      --again;  // a pause makes any number of calls look long enough
    else if (after.wall - begin >= spec.warmup_ns)
      break;
  }
  status->calls_per_sample = static_cast<int32_t>(calls);
  int64_t deadline = begin + spec.limit_ns * 9 / 10;  // what is measured by then counts
  double least = std::numeric_limits<double>::infinity(), most = 0;
  for (int32_t taken = 0; taken < spec.max_samples && status->samples < spec.samples; ++taken) {
    Clocks before;
    for (int64_t i = 0; i < calls; ++i) TimedCall(call);
    Clocks after;
    if (before.DisturbedUntil(after)) {
      ++status->disturbed;
    } else {
      const double sample = static_cast<double>(after.wall - before.wall) / static_cast<double>(calls);
      status->sample_ns[status->samples++] = sample;
      least = std::min(least, sample), most = std::max(most, sample);
    }
    const bool is_beaten = spec.contender_ns > 0 && least > spec.contender_ns;
    const bool is_narrow = most - least < spec.narrow * least;
    if (after.wall > deadline || ((is_beaten || is_narrow) && status->samples >= kFewestTimeSamples)) break;
  }
}

}  // namespace

bool IsDisturbed(int64_t wall_ns, int64_t processor_ns, int64_t preemptions) {
  constexpr int64_t kNsAPreemption = 4'000'000;
  return preemptions > wall_ns / kNsAPreemption || wall_ns > processor_ns + wall_ns / 50 + 5'000;
}

void PrepareForCandidates() { CandidateFilter(); }

void RunCandidate(const CandidateSpec& spec, int artifact_fd, int arena_fd) {
  BufferPlan status_plan;
  status_plan.bytes = kStatusBytes;
  status_plan.writable = true;
  Result<MappedBuffer> shared = MapBuffer(status_plan, arena_fd, true);
  if (!shared) Exit(kExitSetup);
  status = reinterpret_cast<CandidateStatus*>(shared->data);

  LimitResources(spec);
  Call call;
  call.sizes = spec.sizes.data();
  MapBuffers(spec, arena_fd, call);
  LoadCode(artifact_fd, call);
  CandidateThreads threads;
  PrepareThread();
  CatchFaults();
  if (!threads.Start(spec.workers, PrepareThread)) FailSetup("starting threads", std::strerror(errno));
  call.env.struct_size = sizeof call.env;
  call.env.abi_version = HONE_ABI_VERSION;
  call.env.pool = &threads;
  call.env.workers = spec.workers;
  call.env.parallel_for = CandidateThreads::ParallelFor;

  // The last of our rights.
  ::close_range(0, ~0u, 0);
  ::prctl(PR_SET_DUMPABLE, 0);
  if (!CandidateFilter().Install(true)) FailSetup("seccomp", std::strerror(errno));

  const Mode before;
  status->stage = RunStage::kPack;
  if (call.pack != nullptr) Pack(call);
  NoteChange(before);
  status->stage = RunStage::kEntry;
  if (spec.mode == RunMode::kMeasure) {
    Measure(spec, call);
  } else {
    status->first_ns = TimedCall(call);
    NoteChange(before);
    status->stage = RunStage::kRepeat;
    for (int32_t i = 0; i < spec.timed_runs; ++i) {
      int64_t time = TimedCall(call);
      status->best_ns = i == 0 ? time : std::min(status->best_ns, time);
    }
  }
  NoteChange(before);
  status->stage = RunStage::kDone;
  Exit(kExitDone);
}

}  // namespace hone
