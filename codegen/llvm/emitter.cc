#include "codegen/llvm/emitter.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <deque>
#include <map>
#include <span>

#include "base/check.h"
#include "base/generated_code.h"
#include "codegen/llvm/function_emitter.h"
#include "codegen/llvm/object.h"
#include "codegen/lower/split_guards.h"

namespace hone {
namespace {

// Field of hone_env, by its offset.
llvm::Value* EnvField(llvm::IRBuilder<>& builder, llvm::Value* env, size_t offset, llvm::Type* type) {
  return builder.CreateLoad(type, builder.CreateConstGEP1_64(builder.getInt8Ty(), env, offset));
}

llvm::Function* NewFunction(llvm::Module& module, const ObjectCompiler& compiler, const std::string& name,
                            llvm::Type* result, std::vector<llvm::Type*> params, bool external) {
  auto* function = llvm::Function::Create(
      llvm::FunctionType::get(result, params, false),
      external ? llvm::GlobalValue::ExternalLinkage : llvm::GlobalValue::InternalLinkage, name, module);
  compiler.PrepareFunction(*function);
  return function;
}

// An internal function for a nest and what it takes: begin, end, then a pointer per buffer, then the dynamic sizes.
struct NestFunction {
  llvm::Function* function;
  std::vector<BufferId> buffers;
  bool parallel = false;
  int64_t grain = 1;
  Linear extent;
};

// Emits one program's functions. Their names begin with `prefix`.
class BodyEmitter {
 public:
  BodyEmitter(const Kernel& kernel, const ProgramBody& body, const CpuTarget& target, const ObjectCompiler& compiler,
              llvm::Module& module, std::string prefix)
      : program_(*body.program),
        offsets_(body.offsets),
        vars_(program_.vars),
        target_(target),
        compiler_(compiler),
        context_(module.getContext()),
        module_(module),
        prefix_(std::move(prefix)),
        builder_(module.getContext()) {
    ptr_ = llvm::PointerType::getUnqual(context_);
    i64_ = llvm::Type::getInt64Ty(context_);
    i32_ = llvm::Type::getInt32Ty(context_);
    for (const Size& size : kernel.sizes) {
      positions_.push_back(size_count_);
      if (!size.is_constant()) ++size_count_;
    }
  }

  // int name(env, buffers, sizes)
  Result<llvm::Function*> EmitEntry(const std::string& name, bool external);
  Result<NestFunction> EmitPackNest(size_t index) {
    return EmitNest(*program_.pack[index], prefix_ + "pack" + std::to_string(index));
  }
  // Calls a pack nest: `source` is the operand, `packed` where its packed form goes.
  void CallPackNest(llvm::IRBuilder<>& builder, const NestFunction& nest, llvm::Value* source,
                    llvm::Value* packed) const;

 private:
  Result<NestFunction> EmitNest(const Stmt& nest, const std::string& name);
  llvm::Function* NewFunction(const std::string& name, llvm::Type* result, std::vector<llvm::Type*> params,
                              bool external) {
    return hone::NewFunction(module_, compiler_, name, result, std::move(params), external);
  }
  llvm::Value* SizeValue(llvm::Value* sizes, int size) {
    return builder_.CreateLoad(
        i64_, builder_.CreateConstGEP1_64(i64_, sizes, static_cast<uint64_t>(positions_[static_cast<size_t>(size)])));
  }
  llvm::Value* BufferPointer(BufferId buffer, llvm::Value* buffers, llvm::Value* workspace, llvm::Value* worker);
  std::vector<llvm::Value*> NestArguments(const NestFunction& nest, llvm::Value* begin, llvm::Value* end,
                                          llvm::Value* buffers, llvm::Value* workspace, llvm::Value* worker,
                                          llvm::Value* sizes);
  llvm::Function* EmitWorkerBody(const NestFunction& nest, const std::string& name);
  // Of an outermost loop: a constant, or what follows from dynamic sizes. Emitted at the end of the current block.
  llvm::Value* EmitTripCount(const Linear& extent, llvm::Function& entry, llvm::Value* sizes);
  std::vector<int> DynamicSizes() const {
    std::vector<int> dynamic;
    for (size_t s = 0; s < program_.size_vars.size(); ++s)
      if (program_.size_vars[s]) dynamic.push_back(static_cast<int>(s));
    return dynamic;
  }

  const LoopProgram& program_;
  const IdVector<BufferId, int64_t>& offsets_;
  VarTable vars_;
  const CpuTarget& target_;
  const ObjectCompiler& compiler_;
  llvm::LLVMContext& context_;
  llvm::Module& module_;
  const std::string prefix_;
  llvm::IRBuilder<> builder_;
  std::vector<int> positions_;  // in hone_entry's sizes, by index into Kernel::sizes
  int size_count_ = 0;
  llvm::Type* ptr_;
  llvm::Type* i64_;
  llvm::Type* i32_;
};

Result<NestFunction> BodyEmitter::EmitNest(const Stmt& nest, const std::string& name) {
  NestFunction result{nullptr, {}, false, 1, {}};
  const Stmt* outermost =
      nest.body.size() == 1 && nest.body[0]->kind == Stmt::Kind::kLoop ? nest.body[0].get() : nullptr;
  if (outermost && outermost->loop == LoopKind::kParallel && !outermost->RunsOnce()) {
    result.parallel = true;
    result.grain = outermost->grain;
    result.extent = outermost->extent;
  }
  for (BufferId buffer : UsedBuffers(program_, nest))
    if (!program_.InRegisters(buffer)) result.buffers.push_back(buffer);
  std::vector<int> dynamic = DynamicSizes();
  std::vector<llvm::Type*> params{i64_, i64_};
  params.insert(params.end(), result.buffers.size(), ptr_);
  params.insert(params.end(), dynamic.size(), i64_);
  result.function = NewFunction(name, llvm::Type::getVoidTy(context_), params, false);
  result.function->addFnAttr(llvm::Attribute::NoInline);
  IdVector<BufferId, llvm::Value*> bases(program_.buffers.size());
  std::vector<llvm::Value*> sizes(program_.size_vars.size(), nullptr);
  unsigned arg = 2;
  for (BufferId id : result.buffers) {
    const Buffer& buffer = program_.buffer(id);
    // Operands and workspace buffers never overlap; what a nest only reads stays as it is.
    result.function->addParamAttr(arg, llvm::Attribute::NoAlias);
    result.function->addParamAttr(arg, llvm::Attribute::NoUndef);
    uint64_t alignment = buffer.scope == Scope::kDefault ? static_cast<uint64_t>(ByteSize(buffer.dtype)) : 64;
    result.function->addParamAttr(arg, llvm::Attribute::getWithAlignment(context_, llvm::Align(alignment)));
    llvm::Argument* value = result.function->getArg(arg++);
    value->setName(buffer.name);
    bases[id] = value;
  }
  for (int size : dynamic) sizes[static_cast<size_t>(size)] = result.function->getArg(arg++);
  FunctionEmitter emitter(program_, vars_, target_, *result.function, bases, sizes);
  HONE_TRY(emitter.Emit(nest, result.parallel ? result.function->getArg(0) : nullptr,
                        result.parallel ? result.function->getArg(1) : nullptr));
  return result;
}

llvm::Value* BodyEmitter::BufferPointer(BufferId id, llvm::Value* buffers, llvm::Value* workspace,
                                        llvm::Value* worker) {
  const Buffer& buffer = program_.buffer(id);
  if (buffer.operand >= 0) {
    llvm::Value* operand = builder_.CreateLoad(
        ptr_, builder_.CreateConstGEP1_64(ptr_, buffers, static_cast<uint64_t>(buffer.operand)), buffer.name);
    const int64_t offset = offsets_[id];
    return offset == 0
               ? operand
               : builder_.CreateConstGEP1_64(builder_.getInt8Ty(), operand, static_cast<uint64_t>(offset), buffer.name);
  }
  llvm::Value* offset = builder_.getInt64(static_cast<uint64_t>(buffer.offset));
  if (buffer.scope == Scope::kPerWorker || buffer.scope == Scope::kFragments) {
    llvm::Value* own = builder_.CreateMul(builder_.CreateSExt(worker, i64_),
                                          builder_.getInt64(static_cast<uint64_t>(program_.workspace_per_worker)));
    offset =
        builder_.CreateAdd(own, builder_.getInt64(static_cast<uint64_t>(program_.workspace_common + buffer.offset)));
  }
  return builder_.CreateGEP(builder_.getInt8Ty(), workspace, offset, buffer.name);
}

std::vector<llvm::Value*> BodyEmitter::NestArguments(const NestFunction& nest, llvm::Value* begin, llvm::Value* end,
                                                     llvm::Value* buffers, llvm::Value* workspace, llvm::Value* worker,
                                                     llvm::Value* sizes) {
  std::vector<llvm::Value*> args{begin, end};
  for (BufferId buffer : nest.buffers) args.push_back(BufferPointer(buffer, buffers, workspace, worker));
  for (int size : DynamicSizes()) args.push_back(SizeValue(sizes, size));
  return args;
}

// void body(begin, end, worker, ctx): ctx holds buffers, workspace, sizes.
llvm::Function* BodyEmitter::EmitWorkerBody(const NestFunction& nest, const std::string& name) {
  llvm::Function* body = NewFunction(name, llvm::Type::getVoidTy(context_), {i64_, i64_, i32_, ptr_}, false);
  llvm::IRBuilderBase::InsertPointGuard restore(builder_);
  builder_.SetInsertPoint(llvm::BasicBlock::Create(context_, "entry", body));
  llvm::Value* ctx = body->getArg(3);
  auto field = [&](uint64_t i) { return builder_.CreateLoad(ptr_, builder_.CreateConstGEP1_64(ptr_, ctx, i)); };
  llvm::Value* buffers = field(0);
  llvm::Value* workspace = field(1);
  llvm::Value* sizes = field(2);
  builder_.CreateCall(
      nest.function, NestArguments(nest, body->getArg(0), body->getArg(1), buffers, workspace, body->getArg(2), sizes));
  builder_.CreateRetVoid();
  return body;
}

llvm::Value* BodyEmitter::EmitTripCount(const Linear& extent, llvm::Function& entry, llvm::Value* sizes) {
  if (extent.IsConstant()) return builder_.getInt64(static_cast<uint64_t>(extent.constant()));
  std::vector<llvm::Value*> values(program_.size_vars.size(), nullptr);
  for (int size : DynamicSizes()) values[static_cast<size_t>(size)] = SizeValue(sizes, size);
  FunctionEmitter emitter(program_, vars_, target_, entry, {}, std::move(values));
  return emitter.EmitIndex(extent, builder_.GetInsertBlock());
}

Result<llvm::Function*> BodyEmitter::EmitEntry(const std::string& name, bool external) {
  llvm::Function* entry = NewFunction(name, i32_, {ptr_, ptr_, ptr_}, external);
  std::vector<NestFunction> nests;
  std::vector<llvm::Function*> bodies;
  for (size_t i = 0; i < program_.entry.size(); ++i) {
    const StmtPtr nest = SplitGuardedLoops(program_, *program_.entry[i]);
    nests.push_back(HONE_TRY(EmitNest(*nest, prefix_ + "nest" + std::to_string(i))));
    bodies.push_back(nests.back().parallel ? EmitWorkerBody(nests.back(), prefix_ + "body" + std::to_string(i))
                                           : nullptr);
  }
  llvm::Value* env = entry->getArg(0);
  llvm::Value* buffers = entry->getArg(1);
  llvm::Value* sizes = entry->getArg(2);
  builder_.SetInsertPoint(llvm::BasicBlock::Create(context_, "entry", entry));
  llvm::Value* workspace = EnvField(builder_, env, offsetof(hone_env, workspace), ptr_);
  llvm::Value* context = nullptr;
  for (size_t i = 0; i < nests.size(); ++i) {
    const NestFunction& nest = nests[i];
    if (!nest.parallel) {
      builder_.CreateCall(nest.function, NestArguments(nest, builder_.getInt64(0), builder_.getInt64(0), buffers,
                                                       workspace, builder_.getInt32(0), sizes));
      continue;
    }
    if (!context) {
      context = builder_.CreateAlloca(llvm::ArrayType::get(ptr_, 3));
      llvm::Value* fields[] = {buffers, workspace, sizes};
      for (uint64_t f = 0; f < 3; ++f) builder_.CreateStore(fields[f], builder_.CreateConstGEP1_64(ptr_, context, f));
    }
    llvm::Value* count = EmitTripCount(nest.extent, *entry, sizes);
    auto* direct = llvm::BasicBlock::Create(context_, "", entry);
    auto* forked = llvm::BasicBlock::Create(context_, "", entry);
    auto* failed = llvm::BasicBlock::Create(context_, "", entry);
    auto* next = llvm::BasicBlock::Create(context_, "", entry);
    llvm::Value* workers = EnvField(builder_, env, offsetof(hone_env, workers), i32_);
    llvm::Value* alone =
        builder_.CreateOr(builder_.CreateICmpSLE(workers, builder_.getInt32(1)),
                          builder_.CreateICmpSLE(count, builder_.getInt64(static_cast<uint64_t>(nest.grain))));
    builder_.CreateCondBr(alone, direct, forked);
    builder_.SetInsertPoint(direct);
    builder_.CreateCall(nest.function, NestArguments(nest, builder_.getInt64(0), count, buffers, workspace,
                                                     builder_.getInt32(0), sizes));
    builder_.CreateBr(next);
    builder_.SetInsertPoint(forked);
    llvm::Value* pool = EnvField(builder_, env, offsetof(hone_env, pool), ptr_);
    llvm::Value* parallel_for = EnvField(builder_, env, offsetof(hone_env, parallel_for), ptr_);
    llvm::FunctionType* type = llvm::FunctionType::get(i32_, {ptr_, i64_, i64_, ptr_, ptr_}, false);
    llvm::Value* status = builder_.CreateCall(
        type, parallel_for, {pool, count, builder_.getInt64(static_cast<uint64_t>(nest.grain)), bodies[i], context});
    builder_.CreateCondBr(builder_.CreateICmpEQ(status, builder_.getInt32(0)), next, failed);
    builder_.SetInsertPoint(failed);
    builder_.CreateRet(status);
    builder_.SetInsertPoint(next);
  }
  builder_.CreateRet(builder_.getInt32(0));
  return entry;
}

void BodyEmitter::CallPackNest(llvm::IRBuilder<>& builder, const NestFunction& nest, llvm::Value* source,
                               llvm::Value* packed) const {
  std::vector<llvm::Value*> args{builder.getInt64(0), builder.getInt64(static_cast<uint64_t>(nest.extent.constant()))};
  for (BufferId buffer : nest.buffers) args.push_back(program_.buffer(buffer).scope == Scope::kConst ? packed : source);
  for (size_t d = 0; d < DynamicSizes().size(); ++d) args.push_back(builder.getInt64(0));
  builder.CreateCall(nest.function, args);
}

// Emits what the bodies share: the way to one of them, and packing.
class ModuleEmitter {
 public:
  ModuleEmitter(const Kernel& kernel, const Dispatch& dispatch, const CpuTarget& target, const ObjectCompiler& compiler,
                llvm::LLVMContext& context)
      : kernel_(kernel),
        dispatch_(dispatch),
        compiler_(compiler),
        context_(context),
        module_(std::make_unique<llvm::Module>("hone", context)),
        builder_(context) {
    compiler_.PrepareModule(*module_);
    ptr_ = llvm::PointerType::getUnqual(context);
    i64_ = llvm::Type::getInt64Ty(context);
    i32_ = llvm::Type::getInt32Ty(context);
    const bool is_alone = IsStatic(kernel);
    for (size_t i = 0; i < dispatch.bodies.size(); ++i)
      bodies_.emplace_back(kernel, dispatch.bodies[i], target, compiler, *module_,
                           is_alone ? "" : "case" + std::to_string(i) + ".");
  }

  Result<std::unique_ptr<llvm::Module>> Run() {
    if (IsStatic(kernel_)) {
      HONE_TRY(bodies_[0].EmitEntry(kEntrySymbol, true));
    } else {
      HONE_TRY(EmitChoice());
    }
    HONE_TRY(EmitPack());
    return std::move(module_);
  }

 private:
  // Where sizes of another case begin, ascending.
  struct Border {
    int64_t from;
    size_t body;
  };

  Result<void> EmitChoice();
  void EmitTree(llvm::Function* entry, llvm::Value* size, std::span<const Border> borders,
                const std::vector<llvm::Function*>& entries);
  Result<void> EmitPack();
  void EmitCopy(llvm::Function* pack, const PackedCopy& copy, llvm::Value* packed);

  const Kernel& kernel_;
  const Dispatch& dispatch_;
  const ObjectCompiler& compiler_;
  llvm::LLVMContext& context_;
  std::unique_ptr<llvm::Module> module_;
  llvm::IRBuilder<> builder_;
  llvm::Type* ptr_;
  llvm::Type* i64_;
  llvm::Type* i32_;
  std::deque<BodyEmitter> bodies_;
};

// hone_entry of a kernel with dynamic sizes: refuses what is out of range before anything is touched, then goes to the
// body for the size.
Result<void> ModuleEmitter::EmitChoice() {
  llvm::Function* entry = NewFunction(*module_, compiler_, kEntrySymbol, i32_, {ptr_, ptr_, ptr_}, true);
  std::vector<llvm::Function*> entries;
  for (size_t i = 0; i < bodies_.size(); ++i)
    entries.push_back(HONE_TRY(bodies_[i].EmitEntry("case" + std::to_string(i), false)));
  builder_.SetInsertPoint(llvm::BasicBlock::Create(context_, "entry", entry));
  llvm::Value *inside = nullptr, *chosen_by = nullptr;
  uint64_t position = 0;
  for (size_t s = 0; s < kernel_.sizes.size(); ++s) {
    const Size& size = kernel_.sizes[s];
    if (size.is_constant()) continue;
    llvm::Value* value = builder_.CreateLoad(i64_, builder_.CreateConstGEP1_64(i64_, entry->getArg(2), position++));
    if (static_cast<int>(s) == dispatch_.size) chosen_by = value;
    llvm::Value* from_lo = builder_.CreateSub(value, builder_.getInt64(static_cast<uint64_t>(size.lo)));
    llvm::Value* fits = builder_.CreateICmpULE(from_lo, builder_.getInt64(static_cast<uint64_t>(size.hi - size.lo)));
    inside = inside ? builder_.CreateAnd(inside, fits) : fits;
  }
  auto* choose = llvm::BasicBlock::Create(context_, "choose", entry);
  auto* refuse = llvm::BasicBlock::Create(context_, "refuse", entry);
  builder_.CreateCondBr(inside, choose, refuse);
  builder_.SetInsertPoint(refuse);
  builder_.CreateRet(builder_.getInt32(HONE_SIZE_OUT_OF_RANGE));
  builder_.SetInsertPoint(choose);
  std::vector<Border> borders;
  for (size_t i = 0; i < dispatch_.bodies.size(); ++i)
    for (const SizeRange& range : dispatch_.bodies[i].ranges) borders.push_back({range.lo, i});
  if (chosen_by == nullptr) borders = {{0, 0}};
  std::sort(borders.begin(), borders.end(), [](const Border& a, const Border& b) { return a.from < b.from; });
  EmitTree(entry, chosen_by, borders, entries);
  return {};
}

// A binary search as code.
void ModuleEmitter::EmitTree(llvm::Function* entry, llvm::Value* size, std::span<const Border> borders,
                             const std::vector<llvm::Function*>& entries) {
  if (borders.size() == 1) {
    llvm::CallInst* call =
        builder_.CreateCall(entries[borders[0].body], {entry->getArg(0), entry->getArg(1), entry->getArg(2)});
    builder_.CreateRet(call);
    return;
  }
  const size_t middle = borders.size() / 2;
  auto* below = llvm::BasicBlock::Create(context_, "", entry);
  auto* above = llvm::BasicBlock::Create(context_, "", entry);
  builder_.CreateCondBr(builder_.CreateICmpSLT(size, builder_.getInt64(static_cast<uint64_t>(borders[middle].from))),
                        below, above);
  builder_.SetInsertPoint(below);
  EmitTree(entry, size, borders.first(middle), entries);
  builder_.SetInsertPoint(above);
  EmitTree(entry, size, borders.subspan(middle), entries);
}

Result<void> ModuleEmitter::EmitPack() {
  llvm::Function* pack = NewFunction(*module_, compiler_, kPackSymbol, i32_, {ptr_, i32_, ptr_, ptr_}, true);
  std::map<std::pair<size_t, int>, NestFunction> nests;
  for (const PackedCopy& copy : dispatch_.copies)
    if (copy.nest >= 0) nests.emplace(std::pair(copy.body, copy.nest), NestFunction{nullptr, {}, false, 1, {}});
  for (auto& [which, nest] : nests)
    nest = HONE_TRY(bodies_[which.first].EmitPackNest(static_cast<size_t>(which.second)));
  auto* entry = llvm::BasicBlock::Create(context_, "entry", pack);
  auto* unknown = llvm::BasicBlock::Create(context_, "unknown", pack);
  builder_.SetInsertPoint(entry);
  llvm::SwitchInst* choose = builder_.CreateSwitch(pack->getArg(1), unknown);
  for (size_t i = 0; i < dispatch_.copies.size(); ++i) {
    const PackedCopy& copy = dispatch_.copies[i];
    if (i == 0 || dispatch_.copies[i - 1].operand != copy.operand) {
      auto* block = llvm::BasicBlock::Create(context_, "", pack);
      choose->addCase(builder_.getInt32(static_cast<uint32_t>(copy.operand)), block);
      builder_.SetInsertPoint(block);
    }
    llvm::Value* packed = pack->getArg(3);
    if (copy.offset > 0)
      packed = builder_.CreateConstGEP1_64(builder_.getInt8Ty(), packed, static_cast<uint64_t>(copy.offset));
    if (copy.nest >= 0)
      bodies_[copy.body].CallPackNest(builder_, nests.at({copy.body, copy.nest}), pack->getArg(2), packed);
    else
      EmitCopy(pack, copy, packed);
    if (i + 1 == dispatch_.copies.size() || dispatch_.copies[i + 1].operand != copy.operand)
      builder_.CreateRet(builder_.getInt32(0));
  }
  builder_.SetInsertPoint(unknown);
  builder_.CreateRet(builder_.getInt32(1));
  return {};
}

// The operand as it is, element by element.
void ModuleEmitter::EmitCopy(llvm::Function* pack, const PackedCopy& copy, llvm::Value* packed) {
  llvm::Type* element = llvm::Type::getIntNTy(context_, static_cast<unsigned>(copy.element_bytes * 8));
  const llvm::Align alignment(static_cast<uint64_t>(copy.element_bytes));
  llvm::BasicBlock* before = builder_.GetInsertBlock();
  auto* loop = llvm::BasicBlock::Create(context_, "", pack);
  auto* after = llvm::BasicBlock::Create(context_, "", pack);
  builder_.CreateBr(loop);
  builder_.SetInsertPoint(loop);
  llvm::PHINode* i = builder_.CreatePHI(i64_, 2);
  i->addIncoming(builder_.getInt64(0), before);
  llvm::Value* value = builder_.CreateAlignedLoad(element, builder_.CreateGEP(element, pack->getArg(2), i), alignment);
  builder_.CreateAlignedStore(value, builder_.CreateGEP(element, packed, i), alignment);
  llvm::Value* next = builder_.CreateAdd(i, builder_.getInt64(1));
  i->addIncoming(next, loop);
  builder_.CreateCondBr(
      builder_.CreateICmpULT(next, builder_.getInt64(static_cast<uint64_t>(copy.bytes / copy.element_bytes))), loop,
      after);
  builder_.SetInsertPoint(after);
}

}  // namespace

Result<std::unique_ptr<llvm::Module>> EmitModule(const Kernel& kernel, const Dispatch& dispatch,
                                                 const CpuTarget& target, const ObjectCompiler& compiler,
                                                 llvm::LLVMContext& context) {
  for (const ProgramBody& body : dispatch.bodies)
    if (body.program->for_gpu)
      return Error{ErrorKind::kUnsupported,
                   "the schedule binds loops to blocks and threads of a GPU: a processor runs loops as parallel", ""};
  return ModuleEmitter(kernel, dispatch, target, compiler, context).Run();
}

Result<std::unique_ptr<llvm::Module>> EmitModule(const LoopProgram& program, const CpuTarget& target,
                                                 const ObjectCompiler& compiler, llvm::LLVMContext& context) {
  return EmitModule(program.kernel, PlanDispatch(program), target, compiler, context);
}

}  // namespace hone
