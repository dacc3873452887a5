// Kernel text + schedule text -> ELF shared object, step by step, each step timed.
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>

#include <chrono>
#include <map>

#include "backends/builder.h"
#include "codegen/default_schedule.h"
#include "codegen/llvm_emitter.h"
#include "codegen/llvm_object.h"
#include "codegen/lower.h"
#include "ir/apply.h"
#include "ir/canonical.h"
#include "ir/parse.h"
#include "ir/specialize.h"

namespace hone {
namespace {

class Stopwatch {
 public:
  // Microseconds since the last call.
  double Lap() {
    auto now = std::chrono::steady_clock::now();
    double us = std::chrono::duration<double, std::micro>(now - last_).count();
    last_ = now;
    return us;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// "f32[2,64,3,3,32] (o/32, c, r, s, o%32)": equal texts, equal bytes for equal operands.
std::string LayoutId(const LoopProgram& program, const ScheduledKernel& scheduled, const Buffer& buffer) {
  std::string text(Name(buffer.dtype));
  for (size_t d = 0; d < buffer.extents.size(); ++d) text += (d ? "," : "[") + std::to_string(buffer.extents[d]);
  text += "]";
  for (size_t s = 0; s < scheduled.kernel.stages.size(); ++s) {
    const Stage& stage = scheduled.kernel.stages[s];
    if (scheduled.kernel.tensors[static_cast<size_t>(stage.output)].name != buffer.name) continue;
    for (const LayoutDim& dim : scheduled.stages[s].layout) {
      size_t position = 0;
      while (stage.axes[position].name != dim.axis) ++position;
      text += " d" + std::to_string(position);
      if (dim.part == LayoutDim::Part::kQuotient) text += "/" + std::to_string(dim.factor);
      if (dim.part == LayoutDim::Part::kRemainder) text += "%" + std::to_string(dim.factor);
      if (dim.extra) text += "+" + std::to_string(dim.extra);
    }
  }
  (void)program;
  return text;
}

Manifest MakeManifest(const std::string& canonical, const Kernel& kernel, const ScheduledKernel& scheduled,
                      const LoopProgram& program, const Target& target) {
  Manifest manifest;
  manifest.kernel = canonical;
  manifest.target = PrintTarget(target);
  std::map<int64_t, int32_t> dynamic;  // index into Kernel::sizes -> index into hone_entry's sizes
  for (size_t s = 0; s < kernel.sizes.size(); ++s)
    if (!kernel.sizes[s].is_constant()) {
      dynamic[static_cast<int64_t>(s)] = static_cast<int32_t>(manifest.dynamic_sizes.size());
      manifest.dynamic_sizes.push_back(kernel.sizes[s].name);
    }
  for (size_t i = 0; i < kernel.operands.size(); ++i) {
    const Tensor& tensor = kernel.tensors[static_cast<size_t>(kernel.operands[i])];
    ManifestOperand operand;
    operand.name = tensor.name;
    operand.dtype = tensor.dtype;
    for (const Expr& extent : tensor.declared.empty() ? tensor.shape : tensor.declared) {
      ManifestDim dim{LowerExtent(kernel, extent), UpperExtent(kernel, extent), -1};
      if (extent.op() == Op::kSize && dim.lo != dim.hi) dim.size_index = dynamic.at(extent.int_value());
      operand.shape.push_back(dim);
    }
    operand.is_output = tensor.kind == TensorKind::kOutput;
    operand.is_const = tensor.is_const;
    operand.alignment = ByteSize(tensor.dtype);
    for (const Buffer& buffer : program.buffers)
      if (buffer.scope == Scope::kConst && buffer.operand == static_cast<int>(i)) {
        operand.packed_bytes = (buffer.elements * ByteSize(buffer.dtype) + 63) / 64 * 64;
        operand.packed_layout = LayoutId(program, scheduled, buffer);
      }
    manifest.operands.push_back(std::move(operand));
  }
  manifest.workspace_shared = program.workspace_shared;
  manifest.workspace_private = program.workspace_private;
  manifest.accuracy = kernel.options.accuracy;
  if (IsStatic(kernel)) manifest.flops = FlopCount(kernel);
  return manifest;
}

// A kernel as a build sees it.
struct Source {
  std::string canonical;
  Kernel kernel;  // at its sizes
};

Result<Source> ReadKernel(const std::string& text) {
  Kernel kernel = HONE_TRY(ParseKernel(text));
  std::string canonical = Canonicalize(kernel).text;
  return Source{std::move(canonical), Specialize(std::move(kernel))};
}

// Creating a target machine costs more than linking: one is kept for the target used last.
Result<ObjectCompiler*> CompilerFor(const Target& target) {
  static std::string open_for;
  static std::unique_ptr<ObjectCompiler> compiler;
  std::string name = PrintTarget(target);
  if (!compiler || open_for != name) {
    compiler = HONE_TRY(ObjectCompiler::Open(target));
    open_for = name;
  }
  return compiler.get();
}

// One schedule's way to a module.
struct Emitted {
  ScheduledKernel scheduled;
  LoopProgram program;
  std::unique_ptr<llvm::Module> module;
};

Result<Emitted> EmitWith(const Kernel& kernel, const Schedule& schedule, const Target& target,
                         const ObjectCompiler& compiler, llvm::LLVMContext& context, BuildTimes& times,
                         const LowerLimits& limits = {}) {
  Stopwatch watch;
  ScheduledKernel scheduled = HONE_TRY(ApplySchedule(kernel, schedule));
  LoopProgram program = HONE_TRY(Lower(scheduled, target, limits));
  times.lower += watch.Lap();
  std::unique_ptr<llvm::Module> module = HONE_TRY(EmitModule(program, target, compiler, context));
  times.emit += watch.Lap();
  return Emitted{std::move(scheduled), std::move(program), std::move(module)};
}

// A default schedule is compiled while somebody waits: as much code as LLVM makes in some 50 ms.
constexpr int64_t kServedInstructions = 1'600;

// The requested schedule, or the default one, or its modest form. A default that is refused for another reason is a gap
// in its rules and no reason to leave the user without a kernel: plain loops always lower.
Result<Emitted> EmitRequest(const BuildRequest& request, const Kernel& kernel, const ObjectCompiler& compiler,
                            llvm::LLVMContext& context, BuildTimes& times, std::string& schedule_text) {
  Stopwatch watch;
  if (!request.schedule.empty()) {
    Schedule schedule = HONE_TRY(ParseSchedule(request.schedule));
    schedule_text = PrintSchedule(schedule);
    times.schedule = watch.Lap();
    return EmitWith(kernel, schedule, request.target, compiler, context, times);
  }
  std::string refusal;
  LowerLimits limits;
  limits.instructions = kServedInstructions;
  for (auto* plan : {&DefaultSchedule, &ModestSchedule}) {
    Schedule schedule = HONE_TRY(plan(kernel, request.target));
    schedule_text = PrintSchedule(schedule);
    times.schedule += watch.Lap();
    Result<Emitted> emitted = EmitWith(kernel, schedule, request.target, compiler, context, times, limits);
    if (emitted || emitted.error().kind == ErrorKind::kUnsupported) return emitted;
    refusal = emitted.error().message;
    watch.Lap();
    limits = {};
  }
  schedule_text = "# plain loops: the default schedule was refused: " + refusal + "\n";
  return EmitWith(kernel, {}, request.target, compiler, context, times);
}

}  // namespace

Result<BuildOutput> BuildForCpu(const BuildRequest& request) {
  BuildOutput output;
  ObjectCompiler* compiler = HONE_TRY(CompilerFor(request.target));
  Stopwatch watch;
  Source source = HONE_TRY(ReadKernel(request.kernel));
  output.times.parse = watch.Lap();
  llvm::LLVMContext context;
  Emitted emitted = HONE_TRY(EmitRequest(request, source.kernel, *compiler, context, output.times, output.schedule));
  output.manifest = MakeManifest(source.canonical, source.kernel, emitted.scheduled, emitted.program, request.target);
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
  ObjectCompiler* compiler = HONE_TRY(CompilerFor(request.target));
  Source source = HONE_TRY(ReadKernel(request.kernel));
  llvm::LLVMContext context;
  std::string schedule;
  Emitted emitted = HONE_TRY(EmitRequest(request, source.kernel, *compiler, context, times, schedule));
  CodeText text = HONE_TRY(compiler->Explain(std::move(emitted.module)));
  return "# schedule\n" + schedule + "\n# loop program\n" + PrintProgram(emitted.program) + "\n; LLVM IR\n" + text.ir +
         "\n# assembly\n" + text.assembly;
}

}  // namespace hone
