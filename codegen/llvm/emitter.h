// Loop programs -> LLVM module for the CPU: hone_entry, hone_pack and one internal function per nest. A kernel with
// dynamic sizes has an entry per case, and hone_entry refuses sizes that are out of range and chooses among them.
//
// What is emitted is meant: vectors have explicit types, unrolled loops are expanded, accumulators are SSA values
// carried by phis, addresses are base pointers computed in the loop they depend on plus constant offsets. LLVM only
// selects and schedules instructions.
#pragma once

#include <memory>

#include "base/result.h"
#include "codegen/lower/dispatch.h"
#include "codegen/lower/program.h"
#include "ir/target.h"

namespace llvm {
class LLVMContext;
class Module;
}  // namespace llvm

namespace hone {

class ObjectCompiler;

// kInvalid: a program cannot be emitted as scheduled (a register tile indexed by a serial loop), with the reason.
// `kernel`: as the caller knows it.
Result<std::unique_ptr<llvm::Module>> EmitModule(const Kernel& kernel, const Dispatch& dispatch,
                                                 const CpuTarget& target, const ObjectCompiler& compiler,
                                                 llvm::LLVMContext& context);
// One program for all sizes.
Result<std::unique_ptr<llvm::Module>> EmitModule(const LoopProgram& program, const CpuTarget& target,
                                                 const ObjectCompiler& compiler, llvm::LLVMContext& context);

}  // namespace hone
