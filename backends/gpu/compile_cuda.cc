#include "backends/gpu/compile_cuda.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <regex>
#include <utility>
#include <vector>

#include "backends/gpu/find_nvrtc.h"

namespace hone {
namespace {

// What we call of NVRTC, declared here: no package of Debian's main archive has nvrtc.h.
using NvrtcProgram = struct NvrtcProgramOf*;  // nvrtcProgram
using NvrtcStatus = int;                      // nvrtcResult
constexpr NvrtcStatus kNvrtcSuccess = 0;

// X(name, parameters…): each returns a status.
#define HONE_NVRTC_FUNCTIONS(X)                                                                               \
  X(nvrtcVersion, int*, int*)                                                                                 \
  X(nvrtcCreateProgram, NvrtcProgram*, const char*, const char*, int, const char* const*, const char* const*) \
  X(nvrtcDestroyProgram, NvrtcProgram*)                                                                       \
  X(nvrtcCompileProgram, NvrtcProgram, int, const char* const*)                                               \
  X(nvrtcGetCUBINSize, NvrtcProgram, size_t*)                                                                 \
  X(nvrtcGetCUBIN, NvrtcProgram, char*)                                                                       \
  X(nvrtcGetPTXSize, NvrtcProgram, size_t*)                                                                   \
  X(nvrtcGetPTX, NvrtcProgram, char*)                                                                         \
  X(nvrtcGetProgramLogSize, NvrtcProgram, size_t*)                                                            \
  X(nvrtcGetProgramLog, NvrtcProgram, char*)

struct Nvrtc {
#define HONE_DECLARE(name, ...) NvrtcStatus (*name)(__VA_ARGS__) = nullptr;
  HONE_NVRTC_FUNCTIONS(HONE_DECLARE)
#undef HONE_DECLARE
};

// Set by OpenNvrtc, before there are other threads.
std::optional<Nvrtc> opened;
std::string why_not;

struct Compiled {
  std::string cubin, log, ptx;
};

// What a group of warps does together is there for an architecture by itself, "sm_90a", which no later device runs. So
// is a cubin for "sm_90": its devices run both. NVRTC before CUDA 12 knows the former not.
std::string ArchitectureFor(const std::string& source, std::string_view arch) {
  return fmt::format("{}{}", arch, source.find("wgmma.") != std::string::npos && !arch.ends_with('a') ? "a" : "");
}

// `extra`: one more option, or none. Asked for reports, NVRTC forgets what else ptxas says, such as why it refuses.
Result<Compiled> CompileWith(const Nvrtc& nvrtc, const std::string& source, std::string_view arch, const char* extra) {
  NvrtcProgram program = nullptr;
  if (nvrtc.nvrtcCreateProgram(&program, source.c_str(), "kernel.cu", 0, nullptr, nullptr) != kNvrtcSuccess)
    return Error{ErrorKind::kBuildFailed, "NVRTC does not take the source", ""};
  const auto destroy = [&nvrtc](NvrtcProgram made) { nvrtc.nvrtcDestroyProgram(&made); };
  const std::unique_ptr<NvrtcProgramOf, decltype(destroy)> owned(program, destroy);
  const std::string architecture = fmt::format("--gpu-architecture={}", ArchitectureFor(source, arch));
  // Sums of products are fused where the source says so, and nowhere else; nothing of denormals, roots and quotients is
  // given away.
  std::vector<const char*> options = {architecture.c_str(), "--fmad=false", "--ftz=false", "--prec-div=true",
                                      "--prec-sqrt=true"};
  if (extra != nullptr) options.push_back(extra);
  const NvrtcStatus status = nvrtc.nvrtcCompileProgram(program, static_cast<int>(options.size()), options.data());
  size_t size = 0;
  Compiled compiled;
  if (nvrtc.nvrtcGetProgramLogSize(program, &size) == kNvrtcSuccess && size > 1) {
    compiled.log.resize(size);
    nvrtc.nvrtcGetProgramLog(program, compiled.log.data());
    compiled.log.resize(std::strlen(compiled.log.c_str()));
  }
  if (status != kNvrtcSuccess)
    return Error{ErrorKind::kBuildFailed, fmt::format("NVRTC refuses the code for {}: {}", arch, compiled.log), ""};
  if (nvrtc.nvrtcGetCUBINSize(program, &size) != kNvrtcSuccess || size == 0)
    return Error{ErrorKind::kBuildFailed, fmt::format("NVRTC made no code for {}", arch), ""};
  compiled.cubin.resize(size);
  if (nvrtc.nvrtcGetCUBIN(program, compiled.cubin.data()) != kNvrtcSuccess)
    return Error{ErrorKind::kBuildFailed, "NVRTC keeps the code to itself", ""};
  if (nvrtc.nvrtcGetPTXSize(program, &size) == kNvrtcSuccess && size > 1) {
    compiled.ptx.resize(size);
    nvrtc.nvrtcGetPTX(program, compiled.ptx.data());
    compiled.ptx.resize(size - 1);
  }
  return compiled;
}

Result<void> Open(const std::string& path) {
  const auto failed = [&](std::string_view what) {
    return Error{ErrorKind::kUnsupported, fmt::format("NVRTC ({}) cannot be used: {}", path, what), ""};
  };
  // The Python package's library would look for these in the working directory first.
  for (const char* own : {"libpthread.so.0", "librt.so.1", "libdl.so.2"}) ::dlopen(own, RTLD_NOW | RTLD_GLOBAL);
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return failed(::dlerror());
  Nvrtc nvrtc;
#define HONE_FIND(name, ...)                                                    \
  nvrtc.name = reinterpret_cast<decltype(nvrtc.name)>(::dlsym(library, #name)); \
  if (nvrtc.name == nullptr) return failed("it has no " #name ", so it is older than CUDA 11.2");
  HONE_NVRTC_FUNCTIONS(HONE_FIND)
#undef HONE_FIND
  // It opens its library of built-in functions with the first program.
  const Result<Compiled> tried = CompileWith(nvrtc, "extern \"C\" __global__ void nothing() {}", "sm_80", nullptr);
  if (!tried) return failed(tried.error().message);
  opened = nvrtc;
  return {};
}

Result<const Nvrtc*> Opened() {
  if (!opened) return Error{ErrorKind::kUnsupported, why_not.empty() ? std::string(kHowToGetNvrtc) : why_not, ""};
  return &*opened;
}

}  // namespace

Result<void> OpenNvrtc(const std::string& path) {
  Result<void> result = Open(path);
  if (!result) why_not = result.error().message;
  return result;
}

Result<std::string> CompileCuda(const std::string& source, std::string_view arch) {
  return HONE_TRY(CompileWith(*HONE_TRY(Opened()), source, arch, nullptr)).cubin;
}

Result<std::string> PtxOfCuda(const std::string& source, std::string_view arch) {
  return HONE_TRY(CompileWith(*HONE_TRY(Opened()), source, arch, nullptr)).ptx;
}

// The report is lines such as "ptxas info : Compiling entry function 'f' for 'sm_80'", and then of f "0 bytes spill
// stores, 0 bytes spill loads" and "Used 66 registers, 1600 bytes smem, …"; block storage is left out where there is
// none. Before them comes, of products of a group of warps for which it has threads wait, "… instructions are
// serialized due to … in function 'f'" or "warpgroup.wait is injected … in function 'f'".
Result<std::map<std::string, PtxasCounts>> CountsOfPtxas(const std::string& source, std::string_view arch) {
  const std::string report = HONE_TRY(CompileWith(*HONE_TRY(Opened()), source, arch, "--ptxas-options=-v")).log;
  static const std::regex words(
      "Compiling entry function '([^']+)'|([0-9]+) (registers|bytes smem|bytes spill)|"
      "(?:are serialized|is injected)[^\n]* in function '([^']+)'");
  std::map<std::string, PtxasCounts> launches;
  PtxasCounts* counts = nullptr;
  for (std::sregex_iterator at(report.begin(), report.end(), words), end; at != end; ++at) {
    const std::smatch& found = *at;
    if (found[4].matched) launches[found[4]].serializes = true;
    if (found[1].matched) counts = &launches[found[1]];
    if (counts == nullptr || !found[2].matched) continue;
    const int64_t number = std::stoll(found[2]);
    if (found[3] == "registers")
      counts->registers = number;
    else if (found[3] == "bytes smem")
      counts->shared_bytes = number;
    else
      counts->spilled_bytes += number;
  }
  if (launches.empty() || std::ranges::any_of(launches, [](const auto& of) { return of.second.registers == 0; }))
    return Error{ErrorKind::kCorrupt, "ptxas does not say what a launch takes:\n" + report, ""};
  return launches;
}

}  // namespace hone
