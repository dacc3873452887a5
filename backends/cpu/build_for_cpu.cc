// Kernel text + schedule text -> ELF shared object, step by step, each step timed.
#include <fmt/format.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>

#include "backends/cpu/build_for_cpu.h"
#include "backends/processes/kernel_source.h"
#include "codegen/llvm/emitter.h"
#include "codegen/llvm/object.h"
#include "codegen/lower/dispatch.h"
#include "codegen/lower/lower.h"
#include "codegen/rules/plan_cases.h"
#include "ir/graph/specialize.h"
#include "ir/language/canonical.h"
#include "ir/language/parse.h"
#include "ir/schedule/apply.h"
#include "ir/schedule/schedule_cases.h"

namespace hone {
namespace {

// A size and the program for it, or one of the programs for a range of sizes.
struct Body {
  ScheduledKernel scheduled;
  LoopProgram program;
};

struct Emitted {
  std::deque<Body> bodies;
  Dispatch dispatch;  // of the bodies' programs
  std::unique_ptr<llvm::Module> module;
};

Result<Manifest> MakeManifest(const std::string& canonical, const Kernel& kernel, const Emitted& emitted,
                              const Target& target) {
  Manifest manifest = HONE_TRY(DescribeKernel(canonical, kernel, target));
  for (size_t i = 0; i < manifest.operands.size(); ++i) {
    manifest.operands[i].packed_bytes = emitted.dispatch.PackedBytes(static_cast<int>(i));
    manifest.operands[i].packed_layout = emitted.dispatch.PackedLayout(static_cast<int>(i));
  }
  manifest.workspace_common = emitted.bodies.front().program.workspace_common;
  manifest.workspace_per_worker = emitted.bodies.front().program.workspace_per_worker;
  return manifest;
}

// Creating a target machine costs more than linking: one is kept for the target used last.
Result<ObjectCompiler*> CompilerFor(const CpuTarget& target) {
  static std::string open_for;
  static std::unique_ptr<ObjectCompiler> compiler;
  std::string name = PrintTarget(target);
  if (!compiler || open_for != name) {
    compiler = HONE_TRY(ObjectCompiler::Open(target));
    open_for = name;
  }
  return compiler.get();
}

// The schedules' way to a module.
Result<Emitted> EmitWith(const Kernel& kernel, const ScheduleCases& cases, const CpuTarget& target,
                         const ObjectCompiler& compiler, llvm::LLVMContext& context, BuildTimes& times,
                         const LowerLimits& limits = {}) {
  LapClock watch;
  const int size = HONE_TRY(FindCaseSize(kernel, cases));
  Emitted emitted;
  std::vector<ProgramBody> bodies;
  for (const ScheduleCase& scheduled : cases.cases) {
    auto lower = [&]() -> Result<void> {
      ScheduledKernel applied = HONE_TRY(ApplySchedule(KernelOfCase(kernel, size, scheduled), scheduled.steps));
      LoopProgram program = HONE_TRY(Lower(applied, limits));
      emitted.bodies.push_back({std::move(applied), std::move(program)});
      return {};
    };
    if (Result<void> lowered = lower(); !lowered) {
      if (size < 0) return std::move(lowered).error();
      return std::move(lowered).error().Context(fmt::format("case {}={}", cases.size, scheduled.Hull().lo));
    }
    bodies.push_back({&emitted.bodies.back().program, scheduled.ranges, {}});
  }
  // One workspace serves whichever body is called.
  int64_t shared = 0, own = 0;
  for (const Body& body : emitted.bodies) {
    shared = std::max(shared, body.program.workspace_common);
    own = std::max(own, body.program.workspace_per_worker);
  }
  for (Body& body : emitted.bodies) {
    body.program.workspace_common = shared;
    body.program.workspace_per_worker = own;
  }
  emitted.dispatch = PlanDispatch(size, std::move(bodies));
  times.lower += watch.Lap();
  emitted.module = HONE_TRY(EmitModule(kernel, emitted.dispatch, target, compiler, context));
  times.emit += watch.Lap();
  return emitted;
}

// A default schedule is compiled while somebody waits: as much code as LLVM makes in some 50 ms. Of a kernel with a
// range of sizes each case may be as long.
constexpr int64_t kServedInstructions = 1'600;

Result<const CpuTarget*> CpuOf(const BuildRequest& request) {
  if (const CpuTarget* cpu = request.target.cpu()) return cpu;
  return Error{ErrorKind::kUnsupported,
               fmt::format("builds for CPUs, and was asked to for a device of kind \"{}\"", request.target.kind()),
               "target"};
}

// The requested schedule, or the default one, or its modest form. A default that is refused for another reason is a gap
// in its rules and no reason to leave the user without a kernel: plain loops always lower.
Result<Emitted> EmitRequest(const BuildRequest& request, const Kernel& kernel, const ObjectCompiler& compiler,
                            llvm::LLVMContext& context, BuildTimes& times, std::string& schedule_text) {
  const CpuTarget& target = *HONE_TRY(CpuOf(request));
  LapClock watch;
  if (!request.schedule.empty()) {
    ScheduleCases cases = HONE_TRY(ParseScheduleCases(request.schedule));
    for (ScheduleCase& scheduled : cases.cases) scheduled.choices.clear();
    schedule_text = PrintScheduleCases(cases);
    times.schedule = watch.Lap();
    return EmitWith(kernel, cases, target, compiler, context, times);
  }
  std::string refusal;
  LowerLimits limits;
  limits.instructions = kServedInstructions;
  for (bool modest : {false, true}) {
    ScheduleCases cases = HONE_TRY(PlanCases(kernel, request.target, modest));
    schedule_text = PrintScheduleCases(cases);
    times.schedule += watch.Lap();
    Result<Emitted> emitted = EmitWith(kernel, cases, target, compiler, context, times, limits);
    if (emitted || emitted.error().kind == ErrorKind::kUnsupported) return emitted;
    refusal = emitted.error().message;
    watch.Lap();
    limits = {};
  }
  schedule_text = "# plain loops: the default schedule was refused: " + refusal + "\n";
  return EmitWith(kernel, {"", {{}}}, target, compiler, context, times);
}

}  // namespace

Result<BuildOutput> BuildForCpu(const BuildRequest& request) {
  BuildOutput output;
  ObjectCompiler* compiler = HONE_TRY(CompilerFor(*HONE_TRY(CpuOf(request))));
  LapClock watch;
  KernelSource source = HONE_TRY(ReadKernel(request.kernel));
  output.times.parse = watch.Lap();
  llvm::LLVMContext context;
  Emitted emitted = HONE_TRY(EmitRequest(request, source.kernel, *compiler, context, output.times, output.schedule));
  output.manifest = HONE_TRY(MakeManifest(source.canonical, source.kernel, emitted, request.target));
  std::string manifest = EncodeManifest(output.manifest);
  CompileOptions options;
#ifdef NDEBUG
  options.verify = false;
#endif
  CompiledObject object =
      HONE_TRY(compiler->Compile(std::move(emitted.module), std::as_bytes(std::span(manifest)), options));
  output.times.optimize = object.times.optimize + object.times.verify;
  output.times.codegen = object.times.codegen;
  output.times.link = object.times.link;
  output.object = std::move(object.elf);
  return output;
}

Result<std::string> ExplainCode(const BuildRequest& request) {
  BuildTimes times;
  ObjectCompiler* compiler = HONE_TRY(CompilerFor(*HONE_TRY(CpuOf(request))));
  KernelSource source = HONE_TRY(ReadKernel(request.kernel));
  llvm::LLVMContext context;
  std::string schedule;
  Emitted emitted = HONE_TRY(EmitRequest(request, source.kernel, *compiler, context, times, schedule));
  CodeText text = HONE_TRY(compiler->Explain(std::move(emitted.module)));
  std::string programs;
  for (size_t i = 0; i < emitted.bodies.size(); ++i)
    programs += (emitted.bodies.size() > 1 ? fmt::format("\n# loop program of case {}\n", i) : "\n# loop program\n") +
                PrintProgram(emitted.bodies[i].program);
  return "# schedule\n" + schedule + programs + "\n; LLVM IR\n" + text.ir + "\n# assembly\n" + text.assembly;
}

}  // namespace hone
