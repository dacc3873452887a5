// LLVM module -> machine code -> ELF shared object, all in memory. The last step of a build, used by builder processes
// only: everything here may take LLVM and lld down with it.
//
// The emitted object is minimal and closed: it exports hone_entry, hone_pack and hone_manifest, needs no library, calls
// no function that it does not define, and has no constructor, TLS or writable code. Same module, target and manifest:
// same bytes, in any process.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/target.h"

namespace llvm {
class Function;
class Module;
}  // namespace llvm

namespace hone {

inline constexpr char kEntrySymbol[] = "hone_entry";
inline constexpr char kPackSymbol[] = "hone_pack";
inline constexpr char kManifestSymbol[] = "hone_manifest";
inline constexpr char kManifestSection[] = ".hone.manifest";

struct CompileOptions {
  // Function passes in LLVM's text form, run on every function before code generation; "" runs none. The emitter's code
  // is already vectorised and unrolled: what is left is folding its address arithmetic. On a 14×2-vector register tile
  // these take 0.3 ms of 3.5 (tests/codegen/llvm/object_test.cc prints it). LLVM takes it for a fatal error if
  // instcombine leaves anything to a second run, unless told otherwise.
  std::string passes = "early-cse,instcombine<no-verify-fixpoint>";
  // 0 … 3: none, less, default, aggressive. 1 to 3 give the same code and time on register tiles and elementary
  // functions; 0 spills everything. Code generation takes about 1.5 ms and 18 µs for every vector instruction.
  int codegen_level = 1;
  bool verify = true;  // llvm::verifyModule first, so that an emitter's bug is an Error and not a crash in a pass
};

// Microseconds.
struct ObjectTimes {
  double verify = 0, optimize = 0, codegen = 0, link = 0;
};

struct CompiledObject {
  std::vector<std::byte> elf;
  ObjectTimes times;
};

struct CodeText {
  std::string ir;        // after CompileOptions::passes
  std::string assembly;  // of the same module
};

// Compiles modules for one target. Keeps LLVM's target machine between calls (creating it takes 0.1 ms).
// One thread at a time per process: lld has global state.
class ObjectCompiler {
 public:
  // kInvalid: a CPU or feature that LLVM does not know; kUnsupported: this LLVM lacks the architecture.
  static Result<std::unique_ptr<ObjectCompiler>> Open(const CpuTarget& target);
  ~ObjectCompiler();

  // Triple, data layout, PIC level. Call before emitting into `module`.
  void PrepareModule(llvm::Module& module) const;

  // The attributes every function of the module must have: ISA, vector width, nounwind, no invented libcalls, no frame
  // pointer, no unwind table, no stack probes.
  void PrepareFunction(llvm::Function& function) const;

  // Compiles and links. `manifest` becomes the section .hone.manifest, symbol hone_manifest. Functions other than
  // hone_entry and hone_pack become internal. The module is used up.
  // kBuildFailed: the module is malformed, LLVM or lld complained, the code needs a symbol that nothing defines (the
  // message names it), or hone_entry is missing.
  // After an error that LLVM itself called fatal, or a crash in it, this object refuses further work (kInternal):
  // replace the process. REQUIRES: `module` was prepared by this object; hone_entry (and hone_pack, if any) have
  // external linkage.
  Result<CompiledObject> Compile(std::unique_ptr<llvm::Module> module, std::span<const std::byte> manifest,
                                 const CompileOptions& options = {});

  // The same code as text, for people. The module is used up.
  Result<CodeText> Explain(std::unique_ptr<llvm::Module> module, const CompileOptions& options = {});

 private:
  struct Impl;
  explicit ObjectCompiler(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hone
