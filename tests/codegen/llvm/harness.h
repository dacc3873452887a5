// For the tests of codegen/llvm_*: builds a module by hand, maps the shared object and calls it. Only the host's own
// code can be called; Host() says what that is.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/generated_code.h"
#include "codegen/llvm/object.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Module.h"

namespace hone::test {

inline CpuTarget Avx2Target() {
  CpuTarget target;
  target.isa = Isa::kAvx2;
  target.cpu = "haswell";
  return target;
}

inline CpuTarget Avx512Target() {
  CpuTarget target;
  target.isa = Isa::kAvx512;
  target.cpu = "sapphirerapids";
  return target;
}

inline CpuTarget NeonTarget() {
  CpuTarget target;
  target.isa = Isa::kNeon;
  target.cpu = "neoverse-n1";
  return target;
}

// Whether this machine can run code for `target`.
inline bool CanRun(const CpuTarget& target) {
#if defined(__x86_64__)
  bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return target.isa == Isa::kAvx2 ? avx2 : target.isa == Isa::kAvx512 && avx512;
#elif defined(__aarch64__)
  return target.isa == Isa::kNeon;
#else
  return false;
#endif
}

// The targets that this machine can run code for.
inline std::vector<CpuTarget> HostTargets() {
  std::vector<CpuTarget> targets;
  for (const CpuTarget& target : {Avx2Target(), Avx512Target(), NeonTarget()}) {
    if (CanRun(target)) targets.push_back(target);
  }
  return targets;
}

// A module with hone_entry(env, buffers, sizes), whose body a test emits.
struct Body {
  llvm::IRBuilder<>& builder;
  std::vector<llvm::Value*> buffers;  // pointers to the operands
  llvm::Value* sizes;                 // pointer to i64

  llvm::Value* Size(int i) {
    return builder.CreateLoad(builder.getInt64Ty(), builder.CreateConstGEP1_64(builder.getInt64Ty(), sizes, i));
  }
};

// Compiles for one target; keeps LLVM's context and target machine. Fails the test when something cannot be built.
class Builder {
 public:
  explicit Builder(CpuTarget target) : target_(std::move(target)) {
    auto compiler = ObjectCompiler::Open(target_);
    if (!compiler) ADD_FAILURE() << compiler.error().Text();
    compiler_ = *std::move(compiler);
  }

  const CpuTarget& target() const { return target_; }
  ObjectCompiler& compiler() { return *compiler_; }
  llvm::LLVMContext& context() { return context_; }

  std::unique_ptr<llvm::Module> Emit(int buffer_count, const std::function<void(Body&)>& emit) {
    auto module = std::make_unique<llvm::Module>("kernel", context_);
    compiler_->PrepareModule(*module);
    llvm::Type* ptr = llvm::PointerType::get(context_, 0);
    llvm::IRBuilder<> builder(context_);
    auto* type = llvm::FunctionType::get(builder.getInt32Ty(), {ptr, ptr, ptr}, false);
    auto* function = llvm::Function::Create(type, llvm::Function::ExternalLinkage, kEntrySymbol, *module);
    compiler_->PrepareFunction(*function);
    builder.SetInsertPoint(llvm::BasicBlock::Create(context_, "entry", function));
    Body body{builder, {}, function->getArg(2)};
    for (int i = 0; i < buffer_count; ++i) {
      body.buffers.push_back(builder.CreateLoad(ptr, builder.CreateConstGEP1_64(ptr, function->getArg(1), i)));
    }
    emit(body);
    builder.CreateRet(builder.getInt32(0));
    return module;
  }

 private:
  CpuTarget target_;
  llvm::LLVMContext context_;
  std::unique_ptr<ObjectCompiler> compiler_;
};

// A shared object mapped into this process. Each under a path of its own: glibc takes equal paths for the same object.
class LoadedObject {
 public:
  explicit LoadedObject(std::span<const std::byte> elf) {
    static int count = 0;
    fd_ = memfd_create("kernel", MFD_CLOEXEC);
    if (write(fd_, elf.data(), elf.size()) != static_cast<ssize_t>(elf.size())) ADD_FAILURE() << "short write";
    std::string path = "/proc/self/fd/" + std::to_string(fd_);
    for (int i = 0; i < count; ++i) path.insert(1, "/");
    ++count;
    handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) ADD_FAILURE() << dlerror();
  }
  ~LoadedObject() {
    if (handle_ != nullptr) dlclose(handle_);
    close(fd_);
  }
  LoadedObject(const LoadedObject&) = delete;
  LoadedObject& operator=(const LoadedObject&) = delete;

  void* Symbol(const char* name) const { return handle_ == nullptr ? nullptr : dlsym(handle_, name); }

  int Call(std::vector<const void*> buffers, std::vector<int64_t> sizes = {}) const {
    auto entry = reinterpret_cast<hone_entry_fn>(Symbol(kEntrySymbol));
    if (entry == nullptr) return -1;
    hone_env env{};
    env.struct_size = sizeof env;
    env.abi_version = HONE_ABI_VERSION;
    return entry(&env, const_cast<void* const*>(buffers.data()), sizes.data());
  }

 private:
  int fd_ = -1;
  void* handle_ = nullptr;
};

inline std::unique_ptr<LoadedObject> Load(Builder& builder, int buffer_count, const std::function<void(Body&)>& emit) {
  auto object = builder.compiler().Compile(builder.Emit(buffer_count, emit), {});
  if (!object) {
    ADD_FAILURE() << object.error().Text();
    return nullptr;
  }
  return std::make_unique<LoadedObject>(object->elf);
}

// A counted loop 0 … count-1 around `emit`, which gets the index.
inline void EmitLoop(llvm::IRBuilder<>& builder, llvm::Value* count, const std::function<void(llvm::Value*)>& emit) {
  llvm::LLVMContext& context = builder.getContext();
  llvm::Function* function = builder.GetInsertBlock()->getParent();
  llvm::BasicBlock* before = builder.GetInsertBlock();
  auto* loop = llvm::BasicBlock::Create(context, "loop", function);
  auto* after = llvm::BasicBlock::Create(context, "after", function);
  builder.CreateCondBr(builder.CreateICmpSGT(count, builder.getInt64(0)), loop, after);
  builder.SetInsertPoint(loop);
  llvm::PHINode* index = builder.CreatePHI(builder.getInt64Ty(), 2);
  index->addIncoming(builder.getInt64(0), before);
  emit(index);
  llvm::Value* next = builder.CreateNUWAdd(index, builder.getInt64(1));
  index->addIncoming(next, builder.GetInsertBlock());
  builder.CreateCondBr(builder.CreateICmpULT(next, count), loop, after);
  builder.SetInsertPoint(after);
}

}  // namespace hone::test
