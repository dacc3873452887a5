#include "codegen/llvm/object.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "codegen/llvm/link.h"
#include "llvm/Analysis/CGSCCPassManager.h"
#include "llvm/Analysis/LoopAnalysisManager.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/DiagnosticPrinter.h"
#include "llvm/IR/GlobalVariable.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Verifier.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Object/ELFObjectFile.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/CrashRecoveryContext.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/SmallVectorMemoryBuffer.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Target/TargetOptions.h"

namespace hone {
namespace {

Error BuildError(std::string message, std::string where) {
  return Error{.kind = ErrorKind::kBuildFailed, .message = std::move(message), .where = std::move(where)};
}

void InitializeTargets() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    LLVMInitializeAArch64TargetInfo();
    LLVMInitializeAArch64Target();
    LLVMInitializeAArch64TargetMC();
    LLVMInitializeAArch64AsmPrinter();
  });
}

// The emitter's loops carry their pointers already; looking for better ones takes a quarter of code generation. LLVM
// has a switch for that among its command line's, all of which lld resets.
void LeaveLoopsAsTheyAre() {
  const auto found = llvm::cl::getRegisteredOptions().find("disable-lsr");
  HONE_CHECK(found != llvm::cl::getRegisteredOptions().end());
  static_cast<llvm::cl::opt<bool>*>(found->second)->setValue(true);
}

const char* TripleOf(Isa isa) { return isa == Isa::kNeon ? "aarch64-unknown-linux-gnu" : "x86_64-unknown-linux-gnu"; }

// The instruction set is the ISA's base and the target's features, and no more: the CPU's name chooses only how code is
// scheduled, because a virtual machine may hide features that its CPU's name implies.
const char* BaseCpu(Isa isa) { return isa == Isa::kNeon ? "generic" : "x86-64"; }

std::string FeatureString(const CpuTarget& target) {
  std::string features;
  switch (target.isa) {
    case Isa::kAvx2: features = "+avx2,+fma"; break;
    case Isa::kAvx512: features = "+avx2,+fma,+avx512f,+avx512bw,+avx512dq,+avx512vl"; break;
    case Isa::kNeon: features = "+neon"; break;
  }
  // f16 is computed with in f32 alone, and the conversions are those of the base.
  for (const std::string& feature : target.features)
    if (feature != "avx512fp16") features += ",+" + feature;
  return features;
}

double MicrosecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

// Runs `body` so that LLVM's fatal errors and crashes come back as an Error. What it held is leaked and LLVM's state
// may be damaged: `crashed` is set, and the process should be replaced.
std::string& FatalMessage() {
  static std::string message;
  return message;
}

void OnFatalError(void*, const char* reason, bool) {
  FatalMessage() = reason;
  if (llvm::CrashRecoveryContext* context = llvm::CrashRecoveryContext::GetCurrent()) context->HandleExit(70);
}

Result<void> RunGuarded(const char* step, bool& crashed, llvm::function_ref<void()> body) {
  FatalMessage().clear();
  llvm::CrashRecoveryContext::Enable();
  llvm::install_fatal_error_handler(OnFatalError);
  llvm::CrashRecoveryContext context;
  bool ok = context.RunSafely(body);
  llvm::remove_fatal_error_handler();
  llvm::CrashRecoveryContext::Disable();
  if (ok) return {};
  crashed = true;
  return BuildError(FatalMessage().empty() ? "LLVM crashed" : "LLVM gave up: " + FatalMessage(), step);
}

// Collects the errors that LLVM reports through the context while it lives.
class DiagnosticCollector : public llvm::DiagnosticHandler {
 public:
  explicit DiagnosticCollector(std::string& errors) : errors_(errors) {}
  bool handleDiagnostics(const llvm::DiagnosticInfo& info) override {
    if (info.getSeverity() != llvm::DS_Error) return true;
    if (!errors_.empty()) errors_ += "; ";
    llvm::raw_string_ostream stream(errors_);
    llvm::DiagnosticPrinterRawOStream printer(stream);
    info.print(printer);
    return true;
  }

 private:
  std::string& errors_;
};

void EmbedManifest(llvm::Module& module, std::span<const std::byte> manifest) {
  llvm::StringRef bytes(reinterpret_cast<const char*>(manifest.data()), manifest.size());
  llvm::Constant* data = llvm::ConstantDataArray::getString(module.getContext(), bytes, /*AddNull=*/false);
  auto* global = new llvm::GlobalVariable(module, data->getType(), /*isConstant=*/true,
                                          llvm::GlobalValue::ExternalLinkage, data, kManifestSymbol);
  global->setSection(kManifestSection);
  global->setAlignment(llvm::Align(8));
}

// Leaves the entry points visible and nothing else: whatever is visible is exported.
void HideHelpers(llvm::Module& module) {
  for (llvm::GlobalValue& value : module.global_values()) {
    llvm::StringRef name = value.getName();
    if (value.isDeclaration() || name == kEntrySymbol || name == kPackSymbol || name == kManifestSymbol) continue;
    value.setLinkage(llvm::GlobalValue::InternalLinkage);
  }
}

// Names what the object needs from outside; empty if it is closed.
Result<std::string> UndefinedSymbols(llvm::StringRef object) {
  auto file = llvm::object::ObjectFile::createObjectFile(llvm::MemoryBufferRef(object, "kernel.o"));
  if (!file) return BuildError(llvm::toString(file.takeError()), "codegen");
  std::string names;
  for (const llvm::object::SymbolRef& symbol : (*file)->symbols()) {
    auto flags = symbol.getFlags();
    auto name = symbol.getName();
    if (!flags || !name) { return BuildError(llvm::toString(flags ? name.takeError() : flags.takeError()), "codegen"); }
    if (!(*flags & llvm::object::SymbolRef::SF_Undefined) || name->empty()) continue;
    if (!names.empty()) names += ", ";
    names += *name;
  }
  return names;
}

}  // namespace

struct ObjectCompiler::Impl {
  CpuTarget target;
  std::string features;
  std::unique_ptr<llvm::TargetMachine> machine;
  bool crashed = false;

  Result<void> Verify(const llvm::Module& module) const;
  Result<void> Optimize(llvm::Module& module, const CompileOptions& options);
  Result<llvm::SmallVector<char, 0>> Generate(llvm::Module& module, const CompileOptions& options,
                                              llvm::CodeGenFileType type);
};

Result<void> ObjectCompiler::Impl::Verify(const llvm::Module& module) const {
  std::string problems;
  llvm::raw_string_ostream stream(problems);
  if (llvm::verifyModule(module, &stream)) return BuildError("malformed IR: " + problems, "verify");
  return {};
}

Result<void> ObjectCompiler::Impl::Optimize(llvm::Module& module, const CompileOptions& options) {
  if (options.passes.empty()) return {};
  std::string errors;
  HONE_TRY(RunGuarded("optimize", crashed, [&] {
    llvm::LoopAnalysisManager loops;
    llvm::FunctionAnalysisManager functions;
    llvm::CGSCCAnalysisManager sccs;
    llvm::ModuleAnalysisManager modules;
    llvm::PassBuilder builder(machine.get());
    builder.registerModuleAnalyses(modules);
    builder.registerCGSCCAnalyses(sccs);
    builder.registerFunctionAnalyses(functions);
    builder.registerLoopAnalyses(loops);
    builder.crossRegisterProxies(loops, functions, sccs, modules);
    llvm::ModulePassManager module_passes;
    llvm::FunctionPassManager function_passes;
    if (llvm::Error error = builder.parsePassPipeline(function_passes, options.passes)) {
      errors = llvm::toString(std::move(error));
      return;
    }
    module_passes.addPass(llvm::createModuleToFunctionPassAdaptor(std::move(function_passes)));
    module_passes.run(module, modules);
  }));
  if (!errors.empty()) return Error{.kind = ErrorKind::kInvalid, .message = errors, .where = "optimize"};
  return {};
}

Result<llvm::SmallVector<char, 0>> ObjectCompiler::Impl::Generate(llvm::Module& module, const CompileOptions& options,
                                                                  llvm::CodeGenFileType type) {
  llvm::SmallVector<char, 0> bytes;
  bool supported = true;
  std::string errors;
  llvm::LLVMContext& context = module.getContext();
  std::unique_ptr<llvm::DiagnosticHandler> previous = context.getDiagnosticHandler();
  context.setDiagnosticHandler(std::make_unique<DiagnosticCollector>(errors));
  machine->setOptLevel(static_cast<llvm::CodeGenOptLevel>(std::clamp(options.codegen_level, 0, 3)));
  Result<void> ran = RunGuarded("codegen", crashed, [&] {
    llvm::raw_svector_ostream stream(bytes);
    llvm::legacy::PassManager passes;
    LeaveLoopsAsTheyAre();
    supported = !machine->addPassesToEmitFile(passes, stream, nullptr, type, /*DisableVerify=*/true);
    if (supported) passes.run(module);
  });
  context.setDiagnosticHandler(std::move(previous));
  if (!ran) return std::move(ran).error();
  if (!supported) return BuildError("this LLVM cannot emit this kind of file", "codegen");
  if (!errors.empty()) return BuildError(errors, "codegen");
  return bytes;
}

ObjectCompiler::ObjectCompiler(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ObjectCompiler::~ObjectCompiler() = default;

Result<std::unique_ptr<ObjectCompiler>> ObjectCompiler::Open(const CpuTarget& target) {
  InitializeTargets();
  std::string problem;
  const llvm::Target* architecture = llvm::TargetRegistry::lookupTarget(TripleOf(target.isa), problem);
  if (architecture == nullptr) return Error{.kind = ErrorKind::kUnsupported, .message = problem, .where = "target"};

  // LLVM only warns about names that it does not know, on standard error: refuse them here.
  std::unique_ptr<llvm::MCSubtargetInfo> known(
      architecture->createMCSubtargetInfo(TripleOf(target.isa), BaseCpu(target.isa), ""));
  HONE_CHECK(known != nullptr);
  if (!target.cpu.empty() && !known->isCPUStringValid(target.cpu)) {
    return Error{.kind = ErrorKind::kInvalid,
                 .message = "LLVM does not know the CPU '" + target.cpu + "'; try 'generic'",
                 .where = "target"};
  }
  std::vector<std::string> names;
  for (const llvm::SubtargetFeatureKV& feature : known->getAllProcessorFeatures()) names.emplace_back(feature.Key);
  for (const std::string& feature : target.features) {
    if (std::find(names.begin(), names.end(), feature) == names.end()) {
      return Error{.kind = ErrorKind::kInvalid,
                   .message = "LLVM does not know the feature '" + feature + "'",
                   .where = "target"};
    }
  }

  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;  // the emitter writes llvm.fma where it means it
  auto impl = std::make_unique<Impl>();
  impl->target = target;
  impl->features = FeatureString(target);
  impl->machine.reset(architecture->createTargetMachine(TripleOf(target.isa), BaseCpu(target.isa), impl->features,
                                                        options, llvm::Reloc::PIC_, llvm::CodeModel::Small));
  if (impl->machine == nullptr) {
    return Error{.kind = ErrorKind::kUnsupported, .message = "LLVM has no code generator for it", .where = "target"};
  }
  return std::unique_ptr<ObjectCompiler>(new ObjectCompiler(std::move(impl)));
}

void ObjectCompiler::PrepareModule(llvm::Module& module) const {
  module.setTargetTriple(TripleOf(impl_->target.isa));
  module.setDataLayout(impl_->machine->createDataLayout());
  module.setPICLevel(llvm::PICLevel::SmallPIC);
}

void ObjectCompiler::PrepareFunction(llvm::Function& function) const {
  function.addFnAttr("target-cpu", BaseCpu(impl_->target.isa));
  if (!impl_->target.cpu.empty()) function.addFnAttr("tune-cpu", impl_->target.cpu);
  function.addFnAttr("target-features", impl_->features);
  if (impl_->target.isa == Isa::kAvx512) {
    // LLVM prefers 256 bits on several CPUs, for fear of lower clocks: a third of the speed of a full register tile.
    function.addFnAttr("prefer-vector-width", "512");
    function.addFnAttr("min-legal-vector-width", "512");
  }
  function.addFnAttr("no-jump-tables", "true");  // indirect jumps are refused by the gate: base/code_check.h
  function.addFnAttr("no-builtins");             // loops stay loops: nobody provides memset, memcpy or libm
  function.addFnAttr("frame-pointer", "none");
  function.addFnAttr("no-trapping-math", "true");
  function.addFnAttr(llvm::Attribute::NoUnwind);
  function.setUWTableKind(llvm::UWTableKind::None);
}

Result<CompiledObject> ObjectCompiler::Compile(std::unique_ptr<llvm::Module> module,
                                               std::span<const std::byte> manifest, const CompileOptions& options) {
  if (impl_->crashed) {
    return Error{.kind = ErrorKind::kInternal, .message = "LLVM crashed before in this process", .where = "codegen"};
  }
  const llvm::Function* entry = module->getFunction(kEntrySymbol);
  if (entry == nullptr || entry->isDeclaration() || !entry->hasExternalLinkage()) {
    return BuildError(std::string("the module does not define and export ") + kEntrySymbol, "verify");
  }
  CompiledObject result;
  auto start = std::chrono::steady_clock::now();
  EmbedManifest(*module, manifest);
  HideHelpers(*module);
  if (options.verify) HONE_TRY(impl_->Verify(*module));
  result.times.verify = MicrosecondsSince(start);

  start = std::chrono::steady_clock::now();
  HONE_TRY(impl_->Optimize(*module, options));
  result.times.optimize = MicrosecondsSince(start);

  start = std::chrono::steady_clock::now();
  llvm::SmallVector<char, 0> object = HONE_TRY(impl_->Generate(*module, options, llvm::CodeGenFileType::ObjectFile));
  std::string undefined = HONE_TRY(UndefinedSymbols(llvm::StringRef(object.data(), object.size())));
  if (!undefined.empty()) return BuildError("the code needs symbols that nothing defines: " + undefined, "codegen");
  result.times.codegen = MicrosecondsSince(start);

  start = std::chrono::steady_clock::now();
  result.elf = HONE_TRY(LinkSharedObject(std::as_bytes(std::span(object)), impl_->target.isa));
  result.times.link = MicrosecondsSince(start);
  return result;
}

Result<CodeText> ObjectCompiler::Explain(std::unique_ptr<llvm::Module> module, const CompileOptions& options) {
  if (impl_->crashed) {
    return Error{.kind = ErrorKind::kInternal, .message = "LLVM crashed before in this process", .where = "codegen"};
  }
  if (options.verify) HONE_TRY(impl_->Verify(*module));
  HONE_TRY(impl_->Optimize(*module, options));
  CodeText text;
  llvm::raw_string_ostream stream(text.ir);
  module->print(stream, nullptr);
  llvm::SmallVector<char, 0> assembly =
      HONE_TRY(impl_->Generate(*module, options, llvm::CodeGenFileType::AssemblyFile));
  text.assembly.assign(assembly.begin(), assembly.end());
  return text;
}

}  // namespace hone
