#include "tests/support/run_kernel.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "backends/cpu/build_for_cpu.h"
#include "backends/cpu/host_target.h"
#include "base/check.h"
#include "ir/graph/element.h"
#include "ir/language/parse.h"
#include "ir/reference/accuracy.h"
#include "tests/support/guarded_buffer.h"

namespace hone {
namespace {

// The object, loaded. Unloads it.
class Library {
 public:
  explicit Library(std::span<const std::byte> elf) {
    int fd = memfd_create("kernel", MFD_CLOEXEC);
    HONE_CHECK(fd >= 0 && write(fd, elf.data(), elf.size()) == static_cast<ssize_t>(elf.size()));
    handle_ = dlopen(fmt::format("/proc/self/fd/{}", fd).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle_) error_ = dlerror();
    close(fd);
  }
  Library(const Library&) = delete;
  ~Library() {
    if (handle_) dlclose(handle_);
  }
  const std::string& error() const { return error_; }
  hone_entry_fn entry() const { return reinterpret_cast<hone_entry_fn>(dlsym(handle_, "hone_entry")); }
  hone_pack_fn pack() const { return reinterpret_cast<hone_pack_fn>(dlsym(handle_, "hone_pack")); }

 private:
  void* handle_ = nullptr;
  std::string error_;
};

struct Mode {
  int workers;
  GuardedBuffer::Against against;
  uint8_t scratch;  // what outputs, workspace and packed operands hold before; as floats a NaN, and a large number
};
constexpr Mode kModes[] = {{1, GuardedBuffer::Against::kEnd, 0xff}, {3, GuardedBuffer::Against::kStart, 0x6b}};

// hone_env::parallel_for on one thread: more ranges than workers, the last first. Two ranges that leave different
// values in one place would race on threads, and are noticed.
class BackwardPool {
 public:
  explicit BackwardPool(int workers) : workers_(workers) {}
  // Memory that all workers see.
  void Watch(void* data, int64_t bytes) {
    watched_.push_back({static_cast<std::byte*>(data), static_cast<size_t>(bytes)});
  }
  bool raced() const { return raced_; }

  static int ParallelFor(void* pool, int64_t n, int64_t grain, void (*body)(int64_t, int64_t, int32_t, void*),
                         void* ctx) {
    auto& self = *static_cast<BackwardPool*>(pool);
    std::vector<std::vector<bool>> written;
    for (std::span<std::byte> memory : self.watched_) written.emplace_back(memory.size());
    int64_t range = std::max(grain, (n + 2 * self.workers_ - 1) / (2 * self.workers_));
    for (int64_t i = (n + range - 1) / range; i-- > 0;) {
      std::vector<std::vector<std::byte>> before;
      for (std::span<std::byte> memory : self.watched_) before.emplace_back(memory.begin(), memory.end());
      body(i * range, std::min(n, (i + 1) * range), static_cast<int32_t>(i % self.workers_), ctx);
      for (size_t m = 0; m < before.size(); ++m) {
        for (size_t at = 0; at < before[m].size(); ++at) {
          if (before[m][at] == self.watched_[m][at]) continue;
          self.raced_ |= written[m][at];
          written[m][at] = true;
        }
      }
    }
    return 0;
  }

 private:
  int workers_;
  std::vector<std::span<std::byte>> watched_;
  bool raced_ = false;
};

// One run's outputs, or what went wrong.
struct Outputs {
  std::vector<std::vector<std::byte>> bytes;
  std::string failure;
};

Outputs RunOnce(const Library& library, const Manifest& manifest, KernelCase& kernel, const std::vector<int64_t>& sizes,
                const Mode& mode) {
  Outputs outputs;
  auto fail = [&](std::string message) {
    if (outputs.failure.empty()) outputs.failure = fmt::format("{} ({} workers)", std::move(message), mode.workers);
  };
  const int workers = mode.workers;
  GuardedBuffer workspace(manifest.workspace_common + workers * manifest.workspace_per_worker, 64, mode.against,
                          mode.scratch);
  BackwardPool pool(workers);
  pool.Watch(workspace.data(), manifest.workspace_common);
  hone_env env{sizeof(hone_env), HONE_ABI_VERSION, &pool, workers, BackwardPool::ParallelFor, workspace.data()};
  const Kernel& k = kernel.kernel();
  std::vector<GuardedBuffer> buffers, packed;
  packed.reserve(k.operands.size());
  std::vector<void*> pointers;
  size_t input = 0;
  for (size_t i = 0; i < k.operands.size(); ++i) {
    const Tensor& tensor = k.tensors[k.operands[i]];
    int64_t bytes = ElementCount(k, tensor) * ByteSize(tensor.dtype);
    GuardedBuffer& buffer = buffers.emplace_back(bytes, ByteSize(tensor.dtype), mode.against, mode.scratch);
    pointers.push_back(buffer.data());
    if (tensor.kind != TensorKind::kInput) {
      pool.Watch(buffer.data(), bytes);
      continue;
    }
    std::memcpy(buffer.data(), kernel.inputs().buffer(input++), static_cast<size_t>(bytes));
    buffer.MakeReadOnly();
    if (manifest.operands[i].packed_bytes == 0) continue;
    packed.emplace_back(manifest.operands[i].packed_bytes, 64, mode.against, mode.scratch);
    if (library.pack()(&env, static_cast<int32_t>(i), pointers.back(), packed.back().data()) != 0)
      fail("hone_pack refused " + tensor.name);
    packed.back().MakeReadOnly();
    pointers.back() = packed.back().data();
  }
  if (library.entry()(&env, pointers.data(), sizes.data()) != 0) fail("hone_entry failed");
  for (size_t i = 0; i < k.operands.size(); ++i) {
    const Tensor& tensor = k.tensors[k.operands[i]];
    if (!buffers[i].Intact()) fail("wrote outside " + tensor.name);
    if (tensor.kind != TensorKind::kOutput) continue;
    const auto* data = static_cast<const std::byte*>(buffers[i].data());
    outputs.bytes.emplace_back(data, data + buffers[i].size());
  }
  for (const GuardedBuffer& buffer : packed)
    if (!buffer.Intact()) fail("wrote outside a packed operand");
  if (!workspace.Intact()) fail("wrote outside the workspace");
  if (pool.raced()) fail("two workers write the same place");
  return outputs;
}

// The first wrong element, in words; "" if there is none. `worst`: largest error over what is allowed.
std::string Compare(const KernelCase& kernel, const Outputs& outputs, double* worst) {
  const Kernel& k = kernel.kernel();
  const double tolerance = Tolerance(k) * kernel.slack();
  std::string failure;
  size_t output = 0;
  for (TensorId id : k.operands) {
    const Tensor& tensor = k.tensors[id];
    if (tensor.kind != TensorKind::kOutput) continue;
    const std::vector<Reference>& references = kernel.references(output);
    for (size_t e = 0; e < references.size(); ++e) {
      double y = LoadElement(tensor.dtype, outputs.bytes[output].data(), e);
      double error = RelativeError(y, references[e], tensor.dtype);
      const double allowed = Allowed(references[e], tensor.dtype, tolerance);
      if (allowed > 0) *worst = std::max(*worst, error / allowed);
      if (error <= allowed || !failure.empty()) continue;
      failure = fmt::format("element {} of {} is {}, wanted {} (magnitude {}, error {} of what is allowed)", e,
                            tensor.name, y, references[e].value, references[e].magnitude, error / allowed);
    }
    ++output;
  }
  return failure;
}

}  // namespace

KernelCase::KernelCase(std::string text, uint64_t seed, double slack,
                       const std::function<void(const Kernel& kernel, KernelInputs& inputs)>& change)
    : text_(std::move(text)), slack_(slack) {
  Result<Kernel> kernel = ParseKernel(text_);
  HONE_CHECK(kernel);
  kernel_ = *std::move(kernel);
  Rng rng(seed);
  inputs_ = std::make_unique<KernelInputs>(kernel_, rng);
  if (change) change(kernel_, *inputs_);
  int outputs = static_cast<int>(std::count_if(kernel_.operands.begin(), kernel_.operands.end(), [&](TensorId id) {
    return kernel_.tensors[id].kind == TensorKind::kOutput;
  }));
  for (int output = 0; output < outputs; ++output) references_.push_back(WholeReference(kernel_, *inputs_, output));
}

RunOutcome RunBuilt(const BuildOutput& built, KernelCase& kernel, const std::vector<int64_t>& sizes) {
  RunOutcome outcome;
  outcome.schedule = built.schedule;
  Library library(built.object);
  if (!library.error().empty()) {
    outcome.failure = library.error();
    return outcome;
  }
  Outputs alone = RunOnce(library, built.manifest, kernel, sizes, kModes[0]);
  Outputs shared = RunOnce(library, built.manifest, kernel, sizes, kModes[1]);
  outcome.failure = !alone.failure.empty() ? alone.failure : shared.failure;
  if (std::string wrong = Compare(kernel, alone, &outcome.worst); outcome.failure.empty()) outcome.failure = wrong;
  if (outcome.failure.empty() && alone.bytes != shared.bytes)
    outcome.failure = "the result depends on the number of workers, or on what memory held before";
  return outcome;
}

RunOutcome BuildAndRun(KernelCase& kernel, std::string_view schedule, const Target& target) {
  Result<BuildOutput> built = BuildForCpu({kernel.text(), std::string(schedule), target});
  if (built) return RunBuilt(*built, kernel);
  const Error& error = built.error();
  bool refused =
      error.kind == ErrorKind::kInvalid || error.kind == ErrorKind::kLimit || error.kind == ErrorKind::kUnsupported;
  RunOutcome outcome;
  outcome.schedule = schedule;
  (refused && !schedule.empty() ? outcome.refusal : outcome.failure) =
      fmt::format("{}: {}", ErrorKindName(error.kind), error.Text());
  return outcome;
}

std::vector<Target> TestTargets() {
  Result<Target> host = HostTarget();
  HONE_CHECK(host);
  std::vector<Target> targets{*host};
  if (host->cpu()->isa == Isa::kAvx512) {
    CpuTarget avx2;
    avx2.cpu = "haswell";
    avx2.cores = 2;
    targets.push_back(avx2);
  }
  for (size_t i = 0, count = targets.size(); i < count; ++i) {
    CpuTarget small = *targets[i].cpu();
    small.l1_bytes = 4 << 10;
    small.l2_bytes = 16 << 10;
    small.l3_bytes = 64 << 10;
    small.cores = 4;
    targets.push_back(small);
  }
  return targets;
}

}  // namespace hone
