// kernel_lab: builds one kernel in this process with a given or the default schedule, checks it and times it. A tool
// for whoever works on schedules and code generation: nothing stands between the text and the code.
//
//   kernel_lab [--schedule FILE | --choices TEXT] [--show] [--repeat N] [--threads N] [--target TEXT] [--out FILE]
//   KERNEL…
//
// --out keeps the code, as honed would serve it.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>
#include <vector>

#include "backends/cpu/build_for_cpu.h"
#include "backends/cpu/host_target.h"
#include "base/generated_code.h"
#include "codegen/rules/choices.h"
#include "codegen/rules/default_schedule.h"
#include "ir/graph/element.h"
#include "ir/graph/specialize.h"
#include "ir/language/parse.h"
#include "ir/reference/accuracy.h"
#include "ir/reference/interpret.h"

namespace hone {
namespace {

struct Lab {
  std::string schedule, choices, out;
  bool show = false;
  int repeat = 0;
  int threads = 1;
  Target target;
};

int ParallelFor(void* pool, int64_t n, int64_t grain, void (*body)(int64_t, int64_t, int32_t, void*), void* ctx) {
  int threads = *static_cast<int*>(pool);
  int64_t chunk = std::max(grain, (n + threads - 1) / threads);
  std::vector<std::thread> workers;
  for (int t = 1; t < threads; ++t)
    if (t * chunk < n) workers.emplace_back([=] { body(t * chunk, std::min(n, (t + 1) * chunk), t, ctx); });
  body(0, std::min(n, chunk), 0, ctx);
  for (std::thread& worker : workers) worker.join();
  return 0;
}

void* Allocate(int64_t bytes) {
  void* p = nullptr;
  if (posix_memalign(&p, 64, static_cast<size_t>(std::max<int64_t>(64, (bytes + 63) / 64 * 64))) != 0) std::abort();
  return p;
}

double Seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

int Run(const Lab& lab, const std::string& text) {
  BuildRequest request{text, lab.schedule, lab.target};
  if (!lab.choices.empty()) {
    Result<Kernel> kernel = ParseKernel(text);
    Result<Chooser> chooser = ParseChoices(lab.choices);
    if (!kernel || !chooser)
      return std::fprintf(stderr, "%s\n", (kernel ? chooser.error() : kernel.error()).Text().c_str()), 1;
    Result<Plan> plan = PlanSchedule(Specialize(*kernel), lab.target, *chooser);
    if (!plan) return std::fprintf(stderr, "%s\n", plan.error().Text().c_str()), 1;
    request.schedule = PrintSchedule(plan->schedule);
  }
  if (lab.show) {
    Result<std::string> code = ExplainCode(request);
    if (!code) return std::fprintf(stderr, "%s\n", code.error().Text().c_str()), 1;
    std::printf("%s\n", code->c_str());
  }
  double start = Seconds();
  Result<BuildOutput> built = BuildForCpu(request);
  double build_ms = (Seconds() - start) * 1e3;
  if (!built) return std::printf("%-60s %s\n", text.c_str(), built.error().Text().c_str()), 1;
  if (!lab.out.empty())
    std::ofstream(lab.out, std::ios::binary)
        .write(reinterpret_cast<const char*>(built->object.data()), static_cast<std::streamsize>(built->object.size()));
  int fd = memfd_create("kernel", 0);
  if (write(fd, built->object.data(), built->object.size()) < 0) return 1;
  std::string path = "/proc/self/fd/" + std::to_string(fd);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return std::fprintf(stderr, "%s\n", dlerror()), 1;
  auto entry = reinterpret_cast<hone_entry_fn>(dlsym(library, "hone_entry"));
  auto pack = reinterpret_cast<hone_pack_fn>(dlsym(library, "hone_pack"));

  Result<Kernel> kernel = ParseKernel(text);
  std::mt19937 rng(1);
  std::vector<void*> raw, buffers;
  std::vector<OperandView> inputs;
  int threads = lab.threads;
  hone_env env{sizeof(hone_env), HONE_ABI_VERSION, &threads, threads, ParallelFor, nullptr};
  env.workspace = Allocate(built->manifest.workspace_common + threads * built->manifest.workspace_per_worker);
  for (size_t i = 0; i < kernel->operands.size(); ++i) {
    const Tensor& tensor = kernel->tensors[kernel->operands[i]];
    int64_t count = ElementCount(*kernel, tensor);
    void* data = Allocate(count * ByteSize(tensor.dtype));
    if (tensor.kind == TensorKind::kOutput)
      std::memset(data, 0xff, static_cast<size_t>(count * ByteSize(tensor.dtype)));
    else
      for (int64_t j = 0; j < count; ++j) {
        const double real = static_cast<double>(rng() >> 8) / (1 << 23) - 1;
        const double value = IsFloat(tensor.dtype)          ? real
                             : tensor.dtype == DType::kBool ? static_cast<double>(rng() & 1)
                             : tensor.dtype == DType::kI8   ? std::floor(real * 128)
                             : tensor.dtype == DType::kU8   ? std::floor((real + 1) * 128)
                                                            : static_cast<double>(rng() % 1000);
        StoreElement(tensor.dtype, value, data, static_cast<size_t>(j));
      }
    raw.push_back(data);
    buffers.push_back(data);
    if (tensor.kind == TensorKind::kInput) inputs.push_back({data});
    if (int64_t packed = built->manifest.operands[i].packed_bytes) {
      buffers.back() = Allocate(packed);
      pack(&env, static_cast<int32_t>(i), data, buffers.back());
    }
  }
  entry(&env, buffers.data(), nullptr);

  // Check every element where that is cheap, else a sample with the ends.
  Interpreter reference(*kernel, inputs);
  const double tolerance = Tolerance(*kernel);
  double worst = 0;  // over what is allowed
  int64_t worst_index = 0;
  int output = 0;
  for (size_t i = 0; i < kernel->operands.size(); ++i) {
    const Tensor& tensor = kernel->tensors[kernel->operands[i]];
    if (tensor.kind != TensorKind::kOutput) continue;
    int64_t count = ElementCount(*kernel, tensor);
    int64_t samples =
        static_cast<int64_t>((lab.repeat == 1 ? 3e7 : 1e6) / std::max(1.0, reference.CostPerElement(output)));
    for (int64_t s = 0; s < std::min(count, samples); ++s) {
      int64_t index = count <= samples ? s
                      : s < 16         ? s
                      : s < 32         ? count - 1 - (s - 16)
                                       : static_cast<int64_t>(rng()) % count;
      Reference r = reference.At(output, index);
      double y = LoadElement(tensor.dtype, buffers[i], static_cast<size_t>(index));
      const double wrong = RelativeError(y, r, tensor.dtype), most = Allowed(r, tensor.dtype, tolerance);
      const double error = wrong == 0 ? 0 : wrong / most;
      if (!(error <= worst)) worst = error, worst_index = index;
      if (std::isnan(error)) break;
    }
    ++output;
  }
  bool verified = worst <= 1;

  std::vector<double> times;
  double deadline = Seconds() + (lab.repeat == 1 ? 0.0 : 0.1);
  while (times.size() < 3 ||
         (Seconds() < deadline && times.size() < static_cast<size_t>(lab.repeat ? lab.repeat : 1000))) {
    double t0 = Seconds();
    entry(&env, buffers.data(), nullptr);
    times.push_back(Seconds() - t0);
  }
  std::sort(times.begin(), times.end());
  double median = times[times.size() / 2];
  const BuildTimes& t = built->times;
  std::printf(
      "%-64s %9.1f us %7.1f GFLOP/s  err/tol %5.2f %s  build %5.1f ms (parse %.1f sched %.1f lower %.1f emit %.1f opt "
      "%.1f cg %.1f link %.1f) %zu B\n",
      text.substr(0, 64).c_str(), median * 1e6, FlopCount(*kernel) / median / 1e9, worst, verified ? "ok" : "WRONG",
      build_ms, t.parse / 1e3, t.schedule / 1e3, t.lower / 1e3, t.emit / 1e3, t.optimize / 1e3, t.codegen / 1e3,
      t.link / 1e3, built->object.size());
  if (!verified) std::printf("  worst at element %ld\n", static_cast<long>(worst_index));
  std::fflush(stdout);
  dlclose(library);
  close(fd);
  std::free(env.workspace);
  for (size_t i = 0; i < raw.size(); ++i) {
    if (buffers[i] != raw[i]) std::free(buffers[i]);
    std::free(raw[i]);
  }
  return verified ? 0 : 1;
}

}  // namespace
}  // namespace hone

int main(int argc, char** argv) {
  hone::Lab lab;
  lab.target = hone::HostTarget().value();
  int failures = 0;
  for (int i = 1; i < argc; ++i) {
    std::string arg = argv[i];
    auto read = [](const std::string& path) {
      std::ifstream file(path);
      std::stringstream text;
      text << file.rdbuf();
      return text.str();
    };
    if (arg == "--schedule")
      lab.schedule = read(argv[++i]);
    else if (arg == "--choices")
      lab.choices = argv[++i];
    else if (arg == "--show")
      lab.show = true;
    else if (arg == "--out")
      lab.out = argv[++i];
    else if (arg == "--repeat")
      lab.repeat = std::atoi(argv[++i]);
    else if (arg == "--threads")
      lab.threads = std::atoi(argv[++i]);
    else if (arg == "--target")
      lab.target = *hone::ParseTarget(argv[++i]);
    else if (arg.ends_with(".kernels")) {
      std::istringstream lines(read(arg));
      for (std::string line; std::getline(lines, line);)
        if (!line.empty() && line[0] != '#') failures += hone::Run(lab, line.substr(line.find(' ') + 1));
    } else if (arg.ends_with(".hone"))
      failures += hone::Run(lab, read(arg));
    else
      failures += hone::Run(lab, arg);
  }
  return failures != 0;
}
