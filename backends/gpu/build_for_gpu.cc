#include "backends/gpu/build_for_gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "backends/gpu/compile_cuda.h"
#include "backends/gpu/compile_glsl.h"
#include "backends/processes/kernel_source.h"
#include "base/bytes.h"
#include "base/check.h"
#include "codegen/device_kinds.h"
#include "codegen/gpu/print_launch.h"
#include "codegen/gpu/straighten.h"
#include "codegen/lower/lower.h"
#include "codegen/rules/default_schedule.h"
#include "ir/device_artifact.h"
#include "ir/graph/dtype_traits.h"
#include "ir/graph/specialize.h"
#include "ir/schedule/apply.h"
#include "ir/schedule/schedule_cases.h"

namespace hone {
namespace {

Error Unsupported(std::string message, std::string where = "") {
  return {ErrorKind::kUnsupported, std::move(message), std::move(where)};
}

// A type that devices may lack, and the fact that says so.
struct OptionalType {
  DType type;
  std::string_view fact, instead;
};
constexpr OptionalType kOptionalTypes[] = {
    {DType::kF64, "f64", "f32"}, {DType::kI64, "i64", "i32"}, {DType::kI8, "i8", "i32"},   {DType::kU8, "i8", "i32"},
    {DType::kBool, "i8", "i32"}, {DType::kF16, "i16", "f32"}, {DType::kBF16, "i16", "f32"}};

struct Printed {
  std::string schedule;
  LoopProgram loops;
  straight::Program program;
  std::vector<std::string> sources;
};

// What the language may say and this device cannot. A bool in memory is a byte.
Result<void> CheckTypes(const straight::Program& program, const DeviceTarget& device) {
  std::set<DType> used;
  for (BufferId id : program.buffers.ids()) used.insert(program.buffers[id].dtype);
  for (const auto* launches : {&program.pack, &program.launches})
    for (const straight::Launch& launch : *launches)
      for (const straight::Value& value : launch.code.values)
        if (value.type != DType::kBool) used.insert(value.type);
  for (const straight::Function& function : program.functions)
    for (const straight::Value& value : function.code.values)
      if (value.type != DType::kBool) used.insert(value.type);
  for (const OptionalType& optional : kOptionalTypes)
    if (used.contains(optional.type) && device.Number(optional.fact).value_or(1) == 0)
      return Unsupported(fmt::format("this device computes no {}; ask for another target or for {}",
                                     Name(optional.type), optional.instead));
  return {};
}

Result<Printed> PrintWith(const Kernel& kernel, const Schedule& schedule, const Target& target, BuildTimes& times) {
  LapClock watch;
  Printed printed;
  printed.loops = HONE_TRY(Lower(HONE_TRY(ApplySchedule(kernel, schedule))));
  times.lower += watch.Lap();
  printed.program = HONE_TRY(Straighten(printed.loops, straight::LimitsOf(ModelMachine(target))));
  HONE_TRY(CheckTypes(printed.program, *target.device()));
  printed.sources = PrintSources(printed.program, *FindDialect(LanguageOf(target.kind())));
  times.emit += watch.Lap();
  return printed;
}

// What is built where the request names no schedule: the first that fits. Code of the default may be too much for the
// device, or a rule may not know one of its limits.
constexpr Result<Schedule> (*kDefaults[])(const Kernel&, const Target&) = {DefaultSchedule, ModestSchedule,
                                                                           PlainSchedule};

// By the request's schedule, or a default one.
Result<Printed> Print(const BuildRequest& request, const Kernel& kernel, BuildTimes& times) {
  HONE_TRY(DeviceKindOf(request.target));
  HONE_CHECK(request.target.device() != nullptr);
  if (!IsStatic(kernel))
    return Unsupported(fmt::format("code for devices of kind \"{}\" is of fixed sizes; ask for each size by itself",
                                   request.target.kind()));
  LapClock watch;
  if (!request.schedule.empty()) {
    const ScheduleCases cases = HONE_TRY(ParseScheduleCases(request.schedule));
    if (cases.cases.size() != 1) return Unsupported("a schedule of several cases is for ranges of sizes", "schedule");
    times.schedule = watch.Lap();
    Printed printed = HONE_TRY(PrintWith(kernel, cases.cases.front().steps, request.target, times));
    ScheduleCases stated = cases;
    stated.cases.front().choices.clear();
    printed.schedule = PrintScheduleCases(stated);
    return printed;
  }
  std::string refusal;
  for (const auto& plan : kDefaults) {
    const Schedule schedule = HONE_TRY(plan(kernel, request.target));
    times.schedule += watch.Lap();
    Result<Printed> printed = PrintWith(kernel, schedule, request.target, times);
    watch.Lap();
    if (printed) {
      printed->schedule = PrintSchedule(schedule);
      return printed;
    }
    if (printed.error().kind == ErrorKind::kUnsupported) return printed;
    refusal = printed.error().Text();
  }
  return Error{ErrorKind::kLimit, "no default schedule fits this device: " + refusal, ""};
}

Result<std::string> ShaderOf(const std::string& source, const DeviceTarget&) { return CompileGlsl(source); }

Result<std::string> CubinOf(const std::string& source, const DeviceTarget& device) {
  const auto arch = device.facts.find("arch");
  if (arch == device.facts.end()) return Error{ErrorKind::kInvalid, "for which architecture, as arch=sm_90?", "target"};
  return CompileCuda(source, arch->second);
}

// Languages that drivers do not take, and what is made of their texts.
struct CompiledLanguage {
  std::string_view name, compiled;
  Result<std::string> (*compile)(const std::string& source, const DeviceTarget& device);
};
constexpr CompiledLanguage kCompiledLanguages[] = {{"glsl", kSpirv, ShaderOf}, {"cuda", kCubin, CubinOf}};

// What the driver takes: the texts, or what a compiler of ours makes of them.
Result<void> AddCode(const std::vector<std::string>& sources, const Dialect& dialect, const DeviceTarget& device,
                     DeviceArtifact& artifact) {
  const auto* compiled = std::ranges::find(kCompiledLanguages, dialect.name, &CompiledLanguage::name);
  const bool is_text = compiled == std::end(kCompiledLanguages);
  artifact.language = is_text ? dialect.name : compiled->compiled;
  for (const std::string& source : sources)
    artifact.sources.push_back(is_text ? source : HONE_TRY(compiled->compile(source, device)));
  return {};
}

Result<DeviceArtifact> MakeArtifact(Manifest manifest, const Printed& printed, const Dialect& dialect,
                                    const DeviceTarget& device) {
  const straight::Program& program = printed.program;
  DeviceArtifact artifact;
  artifact.manifest = std::move(manifest);
  HONE_TRY(AddCode(printed.sources, dialect, device, artifact));
  std::map<BufferId, int32_t> positions;
  for (BufferId id : program.buffers.ids()) {
    const Buffer& buffer = program.buffers[id];
    if (!straight::IsInGlobalMemory(buffer)) continue;
    positions[id] = static_cast<int32_t>(artifact.buffers.size());
    const bool is_operand = buffer.scope == Scope::kDefault;
    artifact.buffers.push_back({buffer.elements * ByteSize(buffer.dtype),
                                is_operand ? static_cast<int32_t>(buffer.operand) : -1, buffer.written});
  }
  const size_t packs = program.pack.size();
  for (size_t i = 0; i < packs + program.launches.size(); ++i) {
    const straight::Launch& from = i < packs ? program.pack[i] : program.launches[i - packs];
    DeviceLaunch launch;
    launch.entry = LaunchName(program, i);
    launch.source = artifact.sources.size() > 1 ? static_cast<int32_t>(i) : 0;
    launch.packs = i < packs;
    for (size_t d = 0; d < 3; ++d) launch.grid[d] = straight::BlocksAlong(program, from, d, {});
    launch.block = from.block;
    launch.shared_bytes = from.shared_bytes;
    for (BufferId id : from.params) launch.buffers.push_back(positions.at(id));
    artifact.launches.push_back(std::move(launch));
  }
  artifact.manifest.launches = static_cast<int32_t>(program.launches.size());
  return artifact;
}

}  // namespace

std::string_view LanguageOf(std::string_view kind) {
  const DeviceKind* known = FindDeviceKind(kind);
  return known == nullptr ? std::string_view() : known->language;
}

Result<BuildOutput> BuildForGpu(const BuildRequest& request) {
  BuildOutput output;
  LapClock watch;
  const KernelSource source = HONE_TRY(ReadKernel(request.kernel));
  output.times.parse = watch.Lap();
  Printed printed = HONE_TRY(Print(request, source.kernel, output.times));
  Manifest manifest = HONE_TRY(DescribeKernel(source.canonical, source.kernel, request.target));
  const Dialect& dialect = *FindDialect(LanguageOf(request.target.kind()));
  watch.Lap();
  const DeviceArtifact artifact =
      HONE_TRY(MakeArtifact(std::move(manifest), printed, dialect, *request.target.device()));
  output.times.codegen = watch.Lap();
  output.schedule = std::move(printed.schedule);
  output.manifest = artifact.manifest;
  const std::string bytes = EncodeDeviceArtifact(artifact);
  output.object.assign(AsBytes(bytes).begin(), AsBytes(bytes).end());
  return output;
}

Result<std::string> ExplainGpuCode(const BuildRequest& request) {
  BuildTimes times;
  const KernelSource source = HONE_TRY(ReadKernel(request.kernel));
  const Printed printed = HONE_TRY(Print(request, source.kernel, times));
  std::string text = "# schedule\n" + printed.schedule + "\n# loop program\n" + PrintProgram(printed.loops);
  for (const std::string& unit : printed.sources)
    text += fmt::format("\n// {}\n{}", LanguageOf(request.target.kind()), unit);
  return text;
}

}  // namespace hone
