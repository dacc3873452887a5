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

Manifest MakeManifest(const std::string& canonical, const Kernel& kernel, const ScheduledKernel& scheduled, const LoopProgram& program, const Target& target) {
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

// What a build makes before LLVM's part.
struct Lowered {
  std::string canonical;
  Kernel kernel;  // at its sizes
  Schedule schedule;
  ScheduledKernel scheduled;
  LoopProgram program;
};

Result<Lowered> LowerRequest(const BuildRequest& request, BuildTimes& times) {
  Stopwatch watch;
  Lowered lowered;
  Kernel kernel = HONE_TRY(ParseKernel(request.kernel));
  lowered.canonical = Canonicalize(kernel).text;
  lowered.kernel = Specialize(std::move(kernel));
  times.parse = watch.Lap();
  lowered.schedule = request.schedule.empty() ? HONE_TRY(DefaultSchedule(lowered.kernel, request.target)) : HONE_TRY(ParseSchedule(request.schedule));
  times.schedule = watch.Lap();
  lowered.scheduled = HONE_TRY(ApplySchedule(lowered.kernel, lowered.schedule));
  lowered.program = HONE_TRY(Lower(lowered.scheduled, request.target));
  times.lower = watch.Lap();
  return lowered;
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

}  // namespace

Result<BuildOutput> BuildForCpu(const BuildRequest& request) {
  BuildOutput output;
  ObjectCompiler* compiler = HONE_TRY(CompilerFor(request.target));
  Lowered lowered = HONE_TRY(LowerRequest(request, output.times));
  Stopwatch watch;
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> module = HONE_TRY(EmitModule(lowered.program, request.target, *compiler, context));
  output.manifest = MakeManifest(lowered.canonical, lowered.kernel, lowered.scheduled, lowered.program, request.target);
  std::string manifest = EncodeManifest(output.manifest);
  output.times.emit = watch.Lap();
  CompileOptions options;
#ifdef NDEBUG
  options.verify = false;
#endif
  CompiledObject object = HONE_TRY(compiler->Compile(std::move(module), std::as_bytes(std::span(manifest)), options));
  output.times.optimize = object.times.optimize + object.times.verify;
  output.times.codegen = object.times.codegen;
  output.times.link = object.times.link;
  output.object = std::move(object.elf);
  output.schedule = PrintSchedule(lowered.schedule);
  return output;
}

Result<std::string> ExplainCode(const BuildRequest& request) {
  BuildTimes times;
  ObjectCompiler* compiler = HONE_TRY(CompilerFor(request.target));
  Lowered lowered = HONE_TRY(LowerRequest(request, times));
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> module = HONE_TRY(EmitModule(lowered.program, request.target, *compiler, context));
  CodeText text = HONE_TRY(compiler->Explain(std::move(module)));
  return "# schedule\n" + PrintSchedule(lowered.schedule) + "\n# loop program\n" + PrintProgram(lowered.program) + "\n; LLVM IR\n" + text.ir +
         "\n# assembly\n" + text.assembly;
}

}  // namespace hone
