#include "bench/model_collect.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "backends/cpu/build_for_cpu.h"
#include "base/generated_code.h"
#include "base/hash.h"
#include "base/rng.h"
#include "codegen/lower/lower.h"
#include "codegen/rules/default_schedule.h"
#include "ir/graph/specialize.h"
#include "ir/language/parse.h"

namespace hone {
namespace {

double Seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Of this thread: a candidate that was set aside for another program is not slower for it.
double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}
int RunHere(void*, int64_t n, int64_t, void (*body)(int64_t, int64_t, int32_t, void*), void* ctx) {
  body(0, n, 0, ctx);
  return 0;
}

class Memory {
 public:
  explicit Memory(int64_t bytes) {
    const size_t size = static_cast<size_t>(std::max<int64_t>(64, (bytes + 63) / 64 * 64));
    if (posix_memalign(&data_, 64, size) != 0) std::abort();
    float* values = static_cast<float*>(data_);
    for (size_t i = 0; i < size / 4; ++i) values[i] = static_cast<float>(i % 61) / 61 - 0.5f;
  }
  Memory(Memory&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  ~Memory() { std::free(data_); }
  void* get() const { return data_; }

 private:
  void* data_ = nullptr;
};

// Least of some calls, warm, one thread: µs of its processor time. A call that is far above `best_us` is not repeated.
double TimeOf(const BuildOutput& built, const Kernel& kernel, double best_us) {
  int fd = memfd_create("candidate", MFD_CLOEXEC);
  if (write(fd, built.object.data(), built.object.size()) != static_cast<ssize_t>(built.object.size())) std::abort();
  void* library = dlopen(("/proc/self/fd/" + std::to_string(fd)).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) std::abort();
  auto entry = reinterpret_cast<hone_entry_fn>(dlsym(library, "hone_entry"));
  auto pack = reinterpret_cast<hone_pack_fn>(dlsym(library, "hone_pack"));
  std::vector<Memory> memory;
  std::vector<void*> buffers;
  memory.emplace_back(built.manifest.workspace_common + built.manifest.workspace_per_worker);
  hone_env env{sizeof(hone_env), HONE_ABI_VERSION, nullptr, 1, RunHere, memory[0].get()};
  for (size_t i = 0; i < kernel.operands.size(); ++i) {
    const Tensor& tensor = kernel.tensors[kernel.operands[i]];
    memory.emplace_back(ElementCount(kernel, tensor) * ByteSize(tensor.dtype));
    buffers.push_back(memory.back().get());
    if (int64_t packed = built.manifest.operands[i].packed_bytes) {
      void* raw = buffers.back();
      memory.emplace_back(packed);
      buffers.back() = memory.back().get();
      pack(&env, static_cast<int32_t>(i), raw, buffers.back());
    }
  }
  double least = 1e30;
  const double deadline = Seconds() + 0.03;
  for (int call = 0; call < 300 && (call < 3 || Seconds() < deadline); ++call) {
    const double start = CpuSeconds();
    entry(&env, buffers.data(), nullptr);
    const double us = (CpuSeconds() - start) * 1e6;
    least = std::min(least, us);
    if (us > 20 * best_us && us > 20'000) break;
  }
  dlclose(library);
  close(fd);
  return least;
}

// Follows the rules' preferences but for a share of decisions; with a parent, but for a few of the parent's.
Chooser RandomChooser(Rng& rng, double share, const std::vector<Choice>* parent) {
  return [&rng, share, parent](const Choice& choice) {
    if (rng.Chance(share)) return choice.options[rng.Below(choice.options.size())];
    if (parent)
      for (const Choice& other : *parent)
        if (other.site == choice.site &&
            std::find(choice.options.begin(), choice.options.end(), other.value) != choice.options.end())
          return other.value;
    return choice.preferred;
  };
}

void CollectKernel(const CollectOptions& options, const std::string& text, FILE* out) {
  Result<Kernel> parsed = ParseKernel(text);
  if (!parsed) return static_cast<void>(std::fprintf(stderr, "%s: %s\n", text.c_str(), parsed.error().Text().c_str()));
  const Kernel kernel = Specialize(*parsed);
  Rng rng(options.seed);
  std::set<Digest128> seen;
  std::vector<std::pair<double, std::vector<Choice>>> best;  // the fastest eight
  const double deadline = Seconds() + options.seconds;
  int timed = 0, refused = 0, repeated = 0;
  for (int attempt = 0; attempt < options.per_kernel * 20 && timed < options.per_kernel && Seconds() < deadline;
       ++attempt) {
    const bool mutate = timed > options.per_kernel / 3 && rng.Chance(0.6);
    static constexpr double kShares[] = {0.15, 0.3, 0.6, 1.0};
    const double share = attempt == 0 ? 0 : mutate ? 0.15 : kShares[rng.Below(4)];
    Result<Plan> plan = PlanSchedule(
        kernel, options.target, RandomChooser(rng, share, mutate ? &best[rng.Below(best.size())].second : nullptr));
    if (!plan) {
      ++refused;
      continue;
    }
    Result<ScheduledKernel> scheduled = ApplySchedule(kernel, plan->schedule);
    if (!scheduled) {
      ++refused;
      continue;
    }
    Result<LoopProgram> program = Lower(*scheduled);
    if (!program) {
      ++refused;
      continue;
    }
    if (!seen.insert(Hash128(PrintProgram(*program))).second) {
      ++repeated;
      continue;
    }
    const std::string schedule = PrintSchedule(plan->schedule);
    Result<BuildOutput> built = BuildForCpu({text, schedule, options.target});
    if (!built) {
      ++refused;
      continue;
    }
    const double us = TimeOf(*built, kernel, best.empty() ? 1e30 : best[0].first);
    ++timed;
    best.emplace_back(us, plan->choices);
    std::sort(best.begin(), best.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    if (best.size() > 8) best.pop_back();
    nlohmann::json line{
        {"kernel", text}, {"target", PrintTarget(options.target)}, {"schedule", schedule}, {"time_us", us}};
    std::fprintf(out, "%s\n", line.dump().c_str());
    std::fflush(out);
  }
  std::fprintf(stderr, "%-70s %4d timed, best %.1f us; %d refused, %d repeated\n", text.substr(0, 70).c_str(), timed,
               best.empty() ? 0 : best[0].first, refused, repeated);
}

}  // namespace

int Remeasure(const CollectOptions& options, const std::string& path, const std::string& out_path) {
  FILE* out = std::fopen(out_path.c_str(), "w");
  if (!out) return std::perror(out_path.c_str()), 1;
  std::ifstream file(path);
  std::map<std::string, int> count;
  for (std::string line; std::getline(file, line);) {
    nlohmann::json data = nlohmann::json::parse(line, nullptr, false);
    if (data.is_discarded() || ++count[data["kernel"]] > options.per_kernel) continue;
    Result<Target> target = ParseTarget(data["target"].get<std::string>());
    Result<Kernel> kernel = ParseKernel(data["kernel"].get<std::string>());
    if (!target || !kernel) continue;
    Result<BuildOutput> built = BuildForCpu({data["kernel"], data["schedule"], *target});
    if (!built) continue;
    data["time_us"] = TimeOf(*built, Specialize(*kernel), data["time_us"]);
    std::fprintf(out, "%s\n", data.dump().c_str());
  }
  std::fclose(out);
  return 0;
}

int Collect(const CollectOptions& options, const std::string& path, const std::vector<std::string>& kernels) {
  FILE* out = std::fopen(path.c_str(), "a");
  if (!out) return std::perror(path.c_str()), 1;
  for (const std::string& kernel : kernels) {
    pid_t child = fork();
    if (child == 0) {
      CollectKernel(options, kernel, out);
      std::fflush(out);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFEXITED(status)) std::fprintf(stderr, "%s: signal %d\n", kernel.c_str(), WTERMSIG(status));
  }
  std::fclose(out);
  return 0;
}

}  // namespace hone
