#include "codegen/llvm_emitter.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>

#include <set>

#include "base/check.h"
#include "base/generated_code.h"
#include "codegen/llvm_function_emitter.h"
#include "codegen/llvm_object.h"

namespace hone {
namespace {

void CollectBuffers(const ValueNode& value, const LoopProgram& program, const VarTable& vars, std::set<int>& used);

void CollectForms(const std::vector<Linear>& forms, const LoopProgram& program, const VarTable& vars,
                  std::set<int>& used) {
  auto visit = [&](auto&& self, VarId id) -> void {
    const Var& var = vars[id];
    if (var.kind == VarKind::kOpaque)
      CollectBuffers(*program.opaque[static_cast<size_t>(var.payload)], program, vars, used);
    for (const Linear* part : {&var.a, &var.b})
      for (const Term& term : part->terms()) self(self, term.var);
  };
  for (const Linear& form : forms)
    for (const Term& term : form.terms()) visit(visit, term.var);
}

void CollectBuffers(const ValueNode& value, const LoopProgram& program, const VarTable& vars, std::set<int>& used) {
  if (value.buffer >= 0) used.insert(value.buffer);
  CollectForms(value.index, program, vars, used);
  CollectForms(value.guard, program, vars, used);
  for (const ValuePtr& arg : value.args) CollectBuffers(*arg, program, vars, used);
}

void CollectBuffers(const Stmt& stmt, const LoopProgram& program, const VarTable& vars, std::set<int>& used) {
  if (stmt.kind == Stmt::Kind::kStore) {
    used.insert(stmt.buffer);
    CollectForms(stmt.index, program, vars, used);
    CollectBuffers(*stmt.value, program, vars, used);
  }
  for (const StmtPtr& child : stmt.body) CollectBuffers(*child, program, vars, used);
}

// Field of hone_env, by its offset.
llvm::Value* EnvField(llvm::IRBuilder<>& builder, llvm::Value* env, size_t offset, llvm::Type* type) {
  return builder.CreateLoad(type, builder.CreateConstGEP1_64(builder.getInt8Ty(), env, offset));
}

class ModuleEmitter {
 public:
  ModuleEmitter(const LoopProgram& program, const Target& target, const ObjectCompiler& compiler,
                llvm::LLVMContext& context)
      : program_(program),
        vars_(program.vars),
        target_(target),
        compiler_(compiler),
        context_(context),
        module_(std::make_unique<llvm::Module>("hone", context)),
        builder_(context) {
    compiler_.PrepareModule(*module_);
    ptr_ = llvm::PointerType::getUnqual(context);
    i64_ = llvm::Type::getInt64Ty(context);
    i32_ = llvm::Type::getInt32Ty(context);
  }

  Result<std::unique_ptr<llvm::Module>> Run() {
    HONE_TRY(EmitEntry());
    HONE_TRY(EmitPack());
    return std::move(module_);
  }

 private:
  // An internal function for a nest and what it takes: begin, end, then a pointer per buffer, then the dynamic sizes.
  struct NestFunction {
    llvm::Function* function;
    std::vector<int> buffers;
    bool parallel = false;
    int64_t grain = 1;
    Linear extent;
  };

  Result<NestFunction> EmitNest(const Stmt& nest, const std::string& name);
  llvm::Function* NewFunction(const std::string& name, llvm::Type* result, std::vector<llvm::Type*> params,
                              bool external);
  llvm::Value* BufferPointer(int buffer, llvm::Value* buffers, llvm::Value* workspace, llvm::Value* worker);
  std::vector<llvm::Value*> NestArguments(const NestFunction& nest, llvm::Value* begin, llvm::Value* end,
                                          llvm::Value* buffers, llvm::Value* workspace, llvm::Value* worker,
                                          llvm::Value* sizes);
  llvm::Function* EmitWorkerBody(const NestFunction& nest, const std::string& name);
  Result<void> EmitEntry();
  Result<void> EmitPack();
  std::vector<int> DynamicSizes() const {
    std::vector<int> dynamic;
    for (size_t s = 0; s < program_.size_vars.size(); ++s)
      if (program_.size_vars[s] >= 0) dynamic.push_back(static_cast<int>(s));
    return dynamic;
  }

  const LoopProgram& program_;
  VarTable vars_;
  const Target& target_;
  const ObjectCompiler& compiler_;
  llvm::LLVMContext& context_;
  std::unique_ptr<llvm::Module> module_;
  llvm::IRBuilder<> builder_;
  llvm::Type* ptr_;
  llvm::Type* i64_;
  llvm::Type* i32_;
};

llvm::Function* ModuleEmitter::NewFunction(const std::string& name, llvm::Type* result, std::vector<llvm::Type*> params,
                                           bool external) {
  auto* function = llvm::Function::Create(
      llvm::FunctionType::get(result, params, false),
      external ? llvm::GlobalValue::ExternalLinkage : llvm::GlobalValue::InternalLinkage, name, *module_);
  compiler_.PrepareFunction(*function);
  return function;
}

Result<ModuleEmitter::NestFunction> ModuleEmitter::EmitNest(const Stmt& nest, const std::string& name) {
  NestFunction result{nullptr, {}, false, 1, {}};
  const Stmt* outermost =
      nest.body.size() == 1 && nest.body[0]->kind == Stmt::Kind::kLoop ? nest.body[0].get() : nullptr;
  if (outermost && outermost->loop == LoopKind::kParallel && !(outermost->extent == Linear(1))) {
    result.parallel = true;
    result.grain = outermost->grain;
    result.extent = outermost->extent;
  }
  std::set<int> used;
  CollectBuffers(nest, program_, vars_, used);
  for (int buffer : used)
    if (program_.buffers[static_cast<size_t>(buffer)].scope != Scope::kRegisters) result.buffers.push_back(buffer);
  std::vector<int> dynamic = DynamicSizes();
  std::vector<llvm::Type*> params{i64_, i64_};
  params.insert(params.end(), result.buffers.size(), ptr_);
  params.insert(params.end(), dynamic.size(), i64_);
  result.function = NewFunction(name, llvm::Type::getVoidTy(context_), params, false);
  result.function->addFnAttr(llvm::Attribute::NoInline);
  std::vector<llvm::Value*> bases(program_.buffers.size(), nullptr), sizes(program_.size_vars.size(), nullptr);
  unsigned arg = 2;
  for (int index : result.buffers) {
    const Buffer& buffer = program_.buffers[static_cast<size_t>(index)];
    // Operands and workspace buffers never overlap; what a nest only reads stays as it is.
    result.function->addParamAttr(arg, llvm::Attribute::NoAlias);
    result.function->addParamAttr(arg, llvm::Attribute::NoUndef);
    uint64_t alignment = buffer.scope == Scope::kDefault ? static_cast<uint64_t>(ByteSize(buffer.dtype)) : 64;
    result.function->addParamAttr(arg, llvm::Attribute::getWithAlignment(context_, llvm::Align(alignment)));
    llvm::Argument* value = result.function->getArg(arg++);
    value->setName(buffer.name);
    bases[static_cast<size_t>(index)] = value;
  }
  for (int size : dynamic) sizes[static_cast<size_t>(size)] = result.function->getArg(arg++);
  FunctionEmitter emitter(program_, vars_, target_, *result.function, bases, sizes);
  HONE_TRY(emitter.Emit(nest, result.parallel ? result.function->getArg(0) : nullptr,
                        result.parallel ? result.function->getArg(1) : nullptr));
  return result;
}

llvm::Value* ModuleEmitter::BufferPointer(int index, llvm::Value* buffers, llvm::Value* workspace,
                                          llvm::Value* worker) {
  const Buffer& buffer = program_.buffers[static_cast<size_t>(index)];
  if (buffer.operand >= 0)
    return builder_.CreateLoad(ptr_, builder_.CreateConstGEP1_64(ptr_, buffers, static_cast<uint64_t>(buffer.operand)),
                               buffer.name);
  llvm::Value* offset = builder_.getInt64(static_cast<uint64_t>(buffer.offset));
  if (buffer.scope == Scope::kPrivate) {
    llvm::Value* own = builder_.CreateMul(builder_.CreateSExt(worker, i64_),
                                          builder_.getInt64(static_cast<uint64_t>(program_.workspace_private)));
    offset =
        builder_.CreateAdd(own, builder_.getInt64(static_cast<uint64_t>(program_.workspace_shared + buffer.offset)));
  }
  return builder_.CreateGEP(builder_.getInt8Ty(), workspace, offset, buffer.name);
}

std::vector<llvm::Value*> ModuleEmitter::NestArguments(const NestFunction& nest, llvm::Value* begin, llvm::Value* end,
                                                       llvm::Value* buffers, llvm::Value* workspace,
                                                       llvm::Value* worker, llvm::Value* sizes) {
  std::vector<llvm::Value*> args{begin, end};
  for (int buffer : nest.buffers) args.push_back(BufferPointer(buffer, buffers, workspace, worker));
  for (size_t i = 0; i < DynamicSizes().size(); ++i)
    args.push_back(builder_.CreateLoad(i64_, builder_.CreateConstGEP1_64(i64_, sizes, i)));
  return args;
}

// void body(begin, end, worker, ctx): ctx holds buffers, workspace, sizes.
llvm::Function* ModuleEmitter::EmitWorkerBody(const NestFunction& nest, const std::string& name) {
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

Result<void> ModuleEmitter::EmitEntry() {
  llvm::Function* entry = NewFunction(kEntrySymbol, i32_, {ptr_, ptr_, ptr_}, true);
  std::vector<NestFunction> nests;
  std::vector<llvm::Function*> bodies;
  for (size_t i = 0; i < program_.entry.size(); ++i) {
    nests.push_back(HONE_TRY(EmitNest(*program_.entry[i], "nest" + std::to_string(i))));
    bodies.push_back(nests.back().parallel ? EmitWorkerBody(nests.back(), "body" + std::to_string(i)) : nullptr);
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
    // The trip count of an outermost loop is a constant or follows from a dynamic size.
    llvm::Value* count = builder_.getInt64(static_cast<uint64_t>(nest.extent.constant()));
    for (const Term& term : nest.extent.terms()) {
      auto value = [&](auto&& self, const Linear& form) -> llvm::Value* {
        llvm::Value* sum = builder_.getInt64(static_cast<uint64_t>(form.constant()));
        for (const Term& t : form.terms()) {
          const Var& var = vars_[t.var];
          llvm::Value* x = nullptr;
          if (var.kind == VarKind::kSize) {
            std::vector<int> dynamic = DynamicSizes();
            for (size_t d = 0; d < dynamic.size(); ++d)
              if (program_.size_vars[static_cast<size_t>(dynamic[d])] == t.var)
                x = builder_.CreateLoad(i64_, builder_.CreateConstGEP1_64(i64_, sizes, d));
          } else if (var.kind == VarKind::kFloorDiv) {
            x = builder_.CreateSDiv(self(self, var.a), builder_.getInt64(static_cast<uint64_t>(var.divisor)));
          } else if (var.kind == VarKind::kMin || var.kind == VarKind::kMax) {
            x = builder_.CreateBinaryIntrinsic(
                var.kind == VarKind::kMin ? llvm::Intrinsic::smin : llvm::Intrinsic::smax, self(self, var.a),
                self(self, var.b));
          }
          HONE_CHECK(x != nullptr);
          sum = builder_.CreateAdd(sum, builder_.CreateMul(x, builder_.getInt64(static_cast<uint64_t>(t.coef))));
        }
        return sum;
      };
      count = builder_.CreateAdd(count, value(value, Linear::Of(term.var, term.coef)));
    }
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
  return {};
}

Result<void> ModuleEmitter::EmitPack() {
  llvm::Function* pack = NewFunction(kPackSymbol, i32_, {ptr_, i32_, ptr_, ptr_}, true);
  std::vector<std::pair<int, NestFunction>> nests;  // by operand
  for (size_t i = 0; i < program_.pack.size(); ++i) {
    NestFunction nest = HONE_TRY(EmitNest(*program_.pack[i], "pack" + std::to_string(i)));
    int operand = -1;
    for (int buffer : nest.buffers)
      if (program_.buffers[static_cast<size_t>(buffer)].scope == Scope::kConst)
        operand = program_.buffers[static_cast<size_t>(buffer)].operand;
    HONE_CHECK(operand >= 0);
    nests.emplace_back(operand, std::move(nest));
  }
  auto* entry = llvm::BasicBlock::Create(context_, "entry", pack);
  auto* unknown = llvm::BasicBlock::Create(context_, "unknown", pack);
  builder_.SetInsertPoint(entry);
  llvm::SwitchInst* choose = builder_.CreateSwitch(pack->getArg(1), unknown);
  for (auto& [operand, nest] : nests) {
    auto* block = llvm::BasicBlock::Create(context_, "", pack);
    choose->addCase(builder_.getInt32(static_cast<uint32_t>(operand)), block);
    builder_.SetInsertPoint(block);
    std::vector<llvm::Value*> args{builder_.getInt64(0),
                                   builder_.getInt64(static_cast<uint64_t>(nest.extent.constant()))};
    for (int buffer : nest.buffers)
      args.push_back(program_.buffers[static_cast<size_t>(buffer)].scope == Scope::kConst ? pack->getArg(3)
                                                                                          : pack->getArg(2));
    for (size_t d = 0; d < DynamicSizes().size(); ++d) args.push_back(builder_.getInt64(0));
    builder_.CreateCall(nest.function, args);
    builder_.CreateRet(builder_.getInt32(0));
  }
  builder_.SetInsertPoint(unknown);
  builder_.CreateRet(builder_.getInt32(1));
  return {};
}

}  // namespace

Result<std::unique_ptr<llvm::Module>> EmitModule(const LoopProgram& program, const Target& target,
                                                 const ObjectCompiler& compiler, llvm::LLVMContext& context) {
  return ModuleEmitter(program, target, compiler, context).Run();
}

}  // namespace hone
