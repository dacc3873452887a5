// What comes out of ObjectCompiler: a minimal closed shared object, the same bytes in every process, errors in words.
#include "codegen/llvm/object.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/elf_check.h"
#include "codegen/llvm/link.h"
#include "codegen/llvm/math.h"
#include "llvm/IR/IntrinsicsX86.h"
#include "llvm/IR/Verifier.h"
#include "llvm/Object/ELFObjectFile.h"
#include "tests/codegen/llvm/harness.h"
#include "tests/support/temporary_directory.h"

namespace hone {
namespace {

using test::Body;
using test::Builder;
using testing::HasSubstr;

std::vector<std::byte> BytesOf(const std::string& text) {
  auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// out[i] = exp(in[i]) · 3.25 for a few vectors: has constants, a loop and a helper of internal linkage.
std::unique_ptr<llvm::Module> ExampleModule(Builder& builder) {
  return builder.Emit(2, [&](Body& body) {
    auto& b = body.builder;
    auto* type = llvm::FixedVectorType::get(b.getFloatTy(), builder.target().Lanes(4));
    test::EmitLoop(b, body.Size(0), [&](llvm::Value* i) {
      llvm::Value* x = b.CreateAlignedLoad(type, b.CreateGEP(type, body.buffers[0], i), llvm::Align(4));
      llvm::Value* y = b.CreateFMul(EmitExp(b, builder.target(), x), llvm::ConstantFP::get(type, 3.25));
      b.CreateAlignedStore(y, b.CreateGEP(type, body.buffers[1], i), llvm::Align(4));
    });
  });
}

// One SSA register tile of `rows` × `vectors`, as the emitter writes it: C[rows][vectors] = Σk A[k][rows] ·
// B[k][vectors].
void EmitMicroKernel(Body& body, const CpuTarget& target, int rows, int vectors) {
  auto& b = body.builder;
  int lanes = target.Lanes(4);
  llvm::Type* f32 = b.getFloatTy();
  auto* type = llvm::FixedVectorType::get(f32, lanes);
  llvm::Value* k_count = body.Size(0);
  llvm::BasicBlock* before = b.GetInsertBlock();
  auto* loop = llvm::BasicBlock::Create(b.getContext(), "k", before->getParent());
  auto* after = llvm::BasicBlock::Create(b.getContext(), "done", before->getParent());
  b.CreateBr(loop);
  b.SetInsertPoint(loop);
  llvm::PHINode* k = b.CreatePHI(b.getInt64Ty(), 2);
  k->addIncoming(b.getInt64(0), before);
  std::vector<llvm::PHINode*> tile;
  for (int i = 0; i < rows * vectors; ++i) {
    tile.push_back(b.CreatePHI(type, 2));
    tile.back()->addIncoming(llvm::Constant::getNullValue(type), before);
  }
  llvm::Value* a =
      b.CreateInBoundsGEP(f32, body.buffers[0], b.CreateNUWMul(k, b.getInt64(static_cast<uint64_t>(rows))));
  llvm::Value* panel =
      b.CreateInBoundsGEP(f32, body.buffers[1], b.CreateNUWMul(k, b.getInt64(static_cast<uint64_t>(vectors * lanes))));
  std::vector<llvm::Value*> columns, sums;
  for (int v = 0; v < vectors; ++v) {
    columns.push_back(b.CreateAlignedLoad(
        type, b.CreateConstInBoundsGEP1_64(f32, panel, static_cast<uint64_t>(v * lanes)), llvm::Align(64)));
  }
  for (int r = 0; r < rows; ++r) {
    llvm::Value* element =
        b.CreateAlignedLoad(f32, b.CreateConstInBoundsGEP1_64(f32, a, static_cast<uint64_t>(r)), llvm::Align(4));
    llvm::Value* row = b.CreateVectorSplat(static_cast<unsigned>(lanes), element);
    for (int v = 0; v < vectors; ++v) {
      sums.push_back(b.CreateIntrinsic(llvm::Intrinsic::fma, {type}, {row, columns[v], tile[r * vectors + v]}));
    }
  }
  llvm::Value* next = b.CreateNUWAdd(k, b.getInt64(1));
  k->addIncoming(next, loop);
  for (size_t i = 0; i < tile.size(); ++i) tile[i]->addIncoming(sums[i], loop);
  b.CreateCondBr(b.CreateICmpULT(next, k_count), loop, after);
  b.SetInsertPoint(after);
  for (size_t i = 0; i < sums.size(); ++i) {
    b.CreateAlignedStore(sums[i], b.CreateConstInBoundsGEP1_64(type, body.buffers[2], i), llvm::Align(64));
  }
}

// As many independent FMAs as the hardware can have in flight: what the core can do at most.
void EmitFmaPeak(Body& body, const CpuTarget& target, int chains) {
  auto& b = body.builder;
  auto* type = llvm::FixedVectorType::get(b.getFloatTy(), target.Lanes(4));
  llvm::Value* x = b.CreateAlignedLoad(type, body.buffers[0], llvm::Align(4));
  llvm::BasicBlock* before = b.GetInsertBlock();
  auto* loop = llvm::BasicBlock::Create(b.getContext(), "k", before->getParent());
  auto* after = llvm::BasicBlock::Create(b.getContext(), "done", before->getParent());
  llvm::Value* count = body.Size(0);
  b.CreateBr(loop);
  b.SetInsertPoint(loop);
  llvm::PHINode* k = b.CreatePHI(b.getInt64Ty(), 2);
  k->addIncoming(b.getInt64(0), before);
  std::vector<llvm::PHINode*> sums;
  llvm::Value* total = nullptr;
  for (int i = 0; i < chains; ++i) {
    llvm::PHINode* sum = b.CreatePHI(type, 2);
    sum->addIncoming(llvm::ConstantFP::get(type, i), before);
    sums.push_back(sum);
  }
  llvm::Value* next = b.CreateNUWAdd(k, b.getInt64(1));
  k->addIncoming(next, loop);
  std::vector<llvm::Value*> results;
  for (llvm::PHINode* sum : sums) {
    results.push_back(b.CreateIntrinsic(llvm::Intrinsic::fma, {type}, {x, x, sum}));
    sum->addIncoming(results.back(), loop);
  }
  b.CreateCondBr(b.CreateICmpULT(next, count), loop, after);
  b.SetInsertPoint(after);
  for (llvm::Value* result : results) total = total == nullptr ? result : b.CreateFAdd(total, result);
  b.CreateAlignedStore(total, body.buffers[2], llvm::Align(4));
}

using Elf = llvm::object::ELF64LEObjectFile;

Elf Parse(const std::vector<std::byte>& bytes) {
  llvm::StringRef text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return llvm::cantFail(Elf::create(llvm::MemoryBufferRef(text, "kernel.so")));
}

TEST(ObjectCompiler, EmitsAMinimalClosedSharedObject) {
  const std::string manifest("a manifest, \0 and all", 22);
  for (const CpuTarget& target : {test::Avx2Target(), test::Avx512Target(), test::NeonTarget()}) {
    SCOPED_TRACE(PrintTarget(target));
    Builder builder(target);
    auto object = builder.compiler().Compile(ExampleModule(builder), BytesOf(manifest));
    ASSERT_TRUE(object) << object.error().Text();
    EXPECT_LT(object->elf.size(), 4096u);
    Elf elf = Parse(object->elf);
    EXPECT_EQ(elf.getELFFile().getHeader().e_machine,
              target.isa == Isa::kNeon ? llvm::ELF::EM_AARCH64 : llvm::ELF::EM_X86_64);
    EXPECT_EQ(elf.getELFFile().getHeader().e_type, llvm::ELF::ET_DYN);

    std::set<std::string> exported;
    for (const auto& symbol : elf.getDynamicSymbolIterators()) {
      exported.insert(llvm::cantFail(symbol.getName()).str());
      EXPECT_FALSE(llvm::cantFail(symbol.getFlags()) & llvm::object::SymbolRef::SF_Undefined);
    }
    EXPECT_THAT(exported, testing::ElementsAre(kEntrySymbol, kManifestSymbol));
    EXPECT_TRUE(elf.symbols().begin() == elf.symbols().end()) << "not stripped";

    for (const auto& segment : llvm::cantFail(elf.getELFFile().program_headers())) {
      EXPECT_FALSE((segment.p_flags & llvm::ELF::PF_W) && (segment.p_flags & llvm::ELF::PF_X));
      EXPECT_NE(segment.p_type, llvm::ELF::PT_TLS);
      EXPECT_NE(segment.p_type, llvm::ELF::PT_INTERP);
      EXPECT_FALSE(segment.p_type == llvm::ELF::PT_GNU_STACK && (segment.p_flags & llvm::ELF::PF_X));
    }
    for (const auto& entry : llvm::cantFail(elf.getELFFile().dynamicEntries())) {
      EXPECT_THAT(entry.getTag(),
                  testing::AnyOf(llvm::ELF::DT_FLAGS, llvm::ELF::DT_SYMTAB, llvm::ELF::DT_SYMENT, llvm::ELF::DT_STRTAB,
                                 llvm::ELF::DT_STRSZ, llvm::ELF::DT_GNU_HASH, llvm::ELF::DT_NULL))
          << "relocations, constructors or dependencies";
    }
    bool found = false;
    for (const llvm::object::SectionRef& section : elf.sections()) {
      if (llvm::cantFail(section.getName()) != kManifestSection) continue;
      found = true;
      EXPECT_EQ(llvm::cantFail(section.getContents()).str(), manifest);
    }
    EXPECT_TRUE(found);
  }
}

TEST(ObjectCompiler, WhatItEmitsPassesTheGateLoadsAndRuns) {
  const std::string manifest = "the manifest";
  for (const CpuTarget& target : test::HostTargets()) {
    Builder builder(target);
    auto object = builder.compiler().Compile(ExampleModule(builder), BytesOf(manifest));
    ASSERT_TRUE(object) << object.error().Text();
    auto layout = CheckArtifact(object->elf, {});
    ASSERT_TRUE(layout) << layout.error().Text();
    EXPECT_TRUE(std::ranges::equal(layout->manifest, BytesOf(manifest)));
    test::LoadedObject loaded(object->elf);
    std::vector<float> in(static_cast<size_t>(target.Lanes(4)) * 3, 1.0f), out(in.size());
    ASSERT_EQ(loaded.Call({in.data(), out.data()}, {3}), 0);
    for (float value : out) EXPECT_FLOAT_EQ(value, 3.25f * 2.7182818f);
    ASSERT_NE(loaded.Symbol(kManifestSymbol), nullptr);
    EXPECT_EQ(std::memcmp(loaded.Symbol(kManifestSymbol), manifest.data(), manifest.size()), 0);
  }
}

TEST(ObjectCompiler, SameInputGivesTheSameBytesWhateverCameBefore) {
  for (const CpuTarget& target : {test::Avx2Target(), test::Avx512Target(), test::NeonTarget()}) {
    Builder first(target), second(target);
    auto one = first.compiler().Compile(ExampleModule(first), BytesOf("m"));
    // Other work on the same target machine and context in between.
    ASSERT_TRUE(second.compiler().Compile(second.Emit(3, [&](Body& body) { EmitMicroKernel(body, target, 6, 2); }),
                                          BytesOf("other")));
    auto two = second.compiler().Compile(ExampleModule(second), BytesOf("m"));
    ASSERT_TRUE(one && two);
    EXPECT_EQ(one->elf, two->elf);
  }
}

// Not a test: what SameInputGivesTheSameBytesInAnotherProcess runs in that process.
TEST(ObjectCompiler, DISABLED_WritesAnObject) {
  Builder builder(test::Avx512Target());
  auto object = builder.compiler().Compile(ExampleModule(builder), BytesOf("m"));
  ASSERT_TRUE(object);
  std::ofstream(std::getenv("HONE_TEST_OUTPUT"), std::ios::binary)
      .write(reinterpret_cast<const char*>(object->elf.data()), static_cast<std::streamsize>(object->elf.size()));
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ObjectCompiler, SameInputGivesTheSameBytesInAnotherProcess) {
  TemporaryDirectory directory;
  const std::string output = directory / "object";
  std::string command =
      "HONE_TEST_OUTPUT=" + output + " " + std::filesystem::read_symlink("/proc/self/exe").string() +
      " --gtest_also_run_disabled_tests --gtest_filter=ObjectCompiler.DISABLED_WritesAnObject > /dev/null";
  ASSERT_EQ(std::system(command.c_str()), 0);
  Builder builder(test::Avx512Target());
  auto object = builder.compiler().Compile(ExampleModule(builder), BytesOf("m"));
  ASSERT_TRUE(object);
  std::string mine(reinterpret_cast<const char*>(object->elf.data()), object->elf.size());
  EXPECT_EQ(ReadFile(output), mine);
}

TEST(ObjectCompiler, RefusesCodeThatNeedsOthersAndNamesThem) {
  Builder builder(test::Avx512Target());
  auto call = [&](Body& body, const char* name) {
    auto& b = body.builder;
    auto* type = llvm::FunctionType::get(b.getFloatTy(), {b.getFloatTy()}, false);
    llvm::Module* module = b.GetInsertBlock()->getModule();
    b.CreateStore(
        b.CreateCall(module->getOrInsertFunction(name, type), {b.CreateLoad(b.getFloatTy(), body.buffers[0])}),
        body.buffers[0]);
  };
  auto external = builder.compiler().Compile(builder.Emit(1, [&](Body& body) { call(body, "their_function"); }), {});
  ASSERT_FALSE(external);
  EXPECT_EQ(external.error().kind, ErrorKind::kBuildFailed);
  EXPECT_THAT(external.error().message, HasSubstr("their_function"));

  auto libm = builder.compiler().Compile(builder.Emit(1, [&](Body& body) { call(body, "llvm.sin.f32"); }), {});
  ASSERT_FALSE(libm);
  EXPECT_THAT(libm.error().message, HasSubstr("sinf"));

  auto memcpy_call = builder.compiler().Compile(builder.Emit(2,
                                                             [&](Body& body) {
                                                               body.builder.CreateMemCpy(
                                                                   body.buffers[0], llvm::MaybeAlign(4),
                                                                   body.buffers[1], llvm::MaybeAlign(4), body.Size(0));
                                                             }),
                                                {});
  ASSERT_FALSE(memcpy_call);
  EXPECT_THAT(memcpy_call.error().message, HasSubstr("memcpy"));
}

TEST(ObjectCompiler, LoopsStayLoopsUnderAnyPipeline) {
  Builder builder(test::Avx512Target());
  CompileOptions options;
  options.passes = "loop-simplify,lcssa,loop(indvars,loop-idiom),early-cse,instcombine";
  auto zero = builder.Emit(1, [&](Body& body) {
    auto& b = body.builder;
    test::EmitLoop(b, body.Size(0), [&](llvm::Value* i) {
      b.CreateAlignedStore(llvm::ConstantFP::get(b.getFloatTy(), 0),
                           b.CreateInBoundsGEP(b.getFloatTy(), body.buffers[0], i), llvm::Align(4));
    });
  });
  auto object = builder.compiler().Compile(std::move(zero), {}, options);
  EXPECT_TRUE(object) << object.error().Text();
}

TEST(ObjectCompiler, ErrorsSayWhatIsWrong) {
  CpuTarget target = test::Avx2Target();
  target.cpu = "pentium-9";
  auto cpu = ObjectCompiler::Open(target);
  ASSERT_FALSE(cpu);
  EXPECT_EQ(cpu.error().kind, ErrorKind::kInvalid);
  EXPECT_THAT(cpu.error().message, HasSubstr("pentium-9"));

  target = test::Avx2Target();
  target.features = {"avx1024"};
  auto feature = ObjectCompiler::Open(target);
  ASSERT_FALSE(feature);
  EXPECT_THAT(feature.error().message, HasSubstr("avx1024"));

  Builder builder(test::Avx2Target());
  auto no_entry = std::make_unique<llvm::Module>("kernel", builder.context());
  builder.compiler().PrepareModule(*no_entry);
  auto missing = builder.compiler().Compile(std::move(no_entry), {});
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message, HasSubstr(kEntrySymbol));

  auto malformed = builder.Emit(1, [&](Body&) {});
  llvm::BasicBlock::Create(builder.context(), "open", malformed->getFunction(kEntrySymbol));
  auto invalid = builder.compiler().Compile(std::move(malformed), {});
  ASSERT_FALSE(invalid);
  EXPECT_EQ(invalid.error().kind, ErrorKind::kBuildFailed);
  EXPECT_THAT(invalid.error().message, HasSubstr("terminator"));

  CompileOptions options;
  options.passes = "no-such-pass";
  auto pipeline = builder.compiler().Compile(builder.Emit(1, [&](Body&) {}), {}, options);
  ASSERT_FALSE(pipeline);
  EXPECT_THAT(pipeline.error().message, HasSubstr("no-such-pass"));
}

// The process that saw one goes on only to report it.
[[noreturn]] void CompileForAnotherIsa() {
  Builder builder(test::Avx2Target());
  auto module = builder.Emit(1, [&](Body& body) {
    auto& b = body.builder;
    auto* type = llvm::FixedVectorType::get(b.getFloatTy(), 16);
    llvm::Value* x = b.CreateAlignedLoad(type, body.buffers[0], llvm::Align(4));
    llvm::Value* y = b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_rsqrt14_ps_512, {}, {x, x, b.getInt16(-1)});
    b.CreateAlignedStore(y, body.buffers[0], llvm::Align(4));
  });
  auto object = builder.compiler().Compile(std::move(module), {});
  auto again = builder.compiler().Compile(builder.Emit(1, [&](Body&) {}), {});
  bool right =
      !object && object.error().kind == ErrorKind::kBuildFailed && !again && again.error().kind == ErrorKind::kInternal;
  if (!object) std::fprintf(stderr, "%s\n", object.error().Text().c_str());
  _exit(right ? 0 : 1);
}

TEST(ObjectCompiler, FatalErrorsOfLlvmComeBackAsErrors) {
  EXPECT_EXIT(CompileForAnotherIsa(), testing::ExitedWithCode(0), "codegen: LLVM gave up: .*split");
}

TEST(ObjectCompiler, ExportsNoHelpers) {
  Builder builder(test::Avx2Target());
  auto module = ExampleModule(builder);
  auto* helper = llvm::Function::Create(llvm::FunctionType::get(llvm::Type::getVoidTy(builder.context()), false),
                                        llvm::Function::ExternalLinkage, "helper", *module);
  builder.compiler().PrepareFunction(*helper);
  llvm::ReturnInst::Create(builder.context(), llvm::BasicBlock::Create(builder.context(), "entry", helper));
  auto object = builder.compiler().Compile(std::move(module), {});
  ASSERT_TRUE(object) << object.error().Text();
  Elf elf = Parse(object->elf);
  for (const auto& symbol : elf.getDynamicSymbolIterators()) EXPECT_NE(llvm::cantFail(symbol.getName()), "helper");
}

TEST(LinkSharedObject, RefusesWhatIsNoObject) {
  auto garbage = LinkSharedObject(BytesOf("this is no object file"), Isa::kAvx2);
  ASSERT_FALSE(garbage);
  EXPECT_EQ(garbage.error().kind, ErrorKind::kBuildFailed);
  auto empty = LinkSharedObject({}, Isa::kAvx2);
  ASSERT_FALSE(empty);
  // And works afterwards.
  Builder builder(test::Avx2Target());
  EXPECT_TRUE(builder.compiler().Compile(ExampleModule(builder), {}));
}

TEST(LinkSharedObject, LeavesStandardOutputAlone) {
  Builder builder(test::Avx2Target());
  testing::internal::CaptureStdout();
  ASSERT_TRUE(builder.compiler().Compile(ExampleModule(builder), {}));
  std::fputs("after", stdout);
  std::fflush(stdout);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "after");
  // Also where nothing is open there.
  int saved = dup(STDOUT_FILENO);
  close(STDOUT_FILENO);
  bool linked = builder.compiler().Compile(ExampleModule(builder), {}).has_value();
  bool still_closed = fcntl(STDOUT_FILENO, F_GETFD) == -1;
  dup2(saved, STDOUT_FILENO);
  close(saved);
  EXPECT_TRUE(linked);
  EXPECT_TRUE(still_closed);
}

TEST(Explain, ShowsIrAndAssembly) {
  Builder builder(test::Avx512Target());
  auto text = builder.compiler().Explain(ExampleModule(builder));
  ASSERT_TRUE(text) << text.error().Text();
  EXPECT_THAT(text->ir, HasSubstr("define i32 @hone_entry"));
  EXPECT_THAT(text->ir, HasSubstr("prefer-vector-width"));
  EXPECT_THAT(text->assembly, HasSubstr("vfmadd"));
  EXPECT_THAT(text->assembly, HasSubstr("zmm"));
}

size_t Count(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

double BestSeconds(const test::LoadedObject& kernel, std::vector<const void*> buffers, std::vector<int64_t> sizes,
                   int calls) {
  auto entry = reinterpret_cast<hone_entry_fn>(kernel.Symbol(kEntrySymbol));
  hone_env env{};
  double best = 1e9;
  for (int round = 0; round < 20; ++round) {
    auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) entry(&env, const_cast<void* const*>(buffers.data()), sizes.data());
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / calls);
  }
  return best;
}

// The register tile of a matrix product is what most of the speed hangs on: every accumulator in a register, one
// broadcast a row, and nothing else but the loop. Speed itself is printed, not asserted.
TEST(MicroKernel, KeepsItsTileInRegistersAndIsRight) {
  for (auto [target, rows] :
       {std::pair{test::Avx512Target(), 14}, std::pair{test::Avx2Target(), 6}, std::pair{test::NeonTarget(), 8}}) {
    SCOPED_TRACE(PrintTarget(target));
    const int vectors = 2, lanes = target.Lanes(4), k = 256;
    Builder builder(target);
    auto emit = [&](Body& body) { EmitMicroKernel(body, target, rows, vectors); };
    auto text = builder.compiler().Explain(builder.Emit(3, emit));
    ASSERT_TRUE(text) << text.error().Text();
    const std::string& assembly = text->assembly;
    bool x86 = target.isa != Isa::kNeon;
    EXPECT_EQ(Count(assembly, x86 ? "vfmadd" : "fmla"), static_cast<size_t>(rows * vectors));
    EXPECT_EQ(Count(assembly, x86 ? "(%rsp)" : "[sp"), 0u) << "spills:\n" << assembly;
    EXPECT_EQ(Count(assembly, "vbroadcastss"), x86 ? static_cast<size_t>(rows) : 0);
    if (!test::CanRun(target)) continue;

    auto object = builder.compiler().Compile(builder.Emit(3, emit), {});
    ASSERT_TRUE(object) << object.error().Text();
    test::LoadedObject kernel(object->elf);
    auto aligned = [](size_t count) {
      return std::unique_ptr<float, decltype(&std::free)>(
          static_cast<float*>(std::aligned_alloc(4096, (count * 4 + 4095) / 4096 * 4096)), std::free);
    };
    size_t a_count = static_cast<size_t>(k * rows), b_count = static_cast<size_t>(k * vectors * lanes),
           c_count = static_cast<size_t>(rows * vectors * lanes);
    auto a = aligned(a_count), b = aligned(b_count), c = aligned(c_count);
    for (size_t i = 0; i < a_count; ++i) a.get()[i] = static_cast<float>(i % 7) - 3;
    for (size_t i = 0; i < b_count; ++i) b.get()[i] = static_cast<float>(i % 11) - 5;
    ASSERT_EQ(kernel.Call({a.get(), b.get(), c.get()}, {k}), 0);
    for (int r = 0; r < rows; ++r) {
      for (int j = 0; j < vectors * lanes; ++j) {
        double sum = 0;
        for (int i = 0; i < k; ++i) sum += a.get()[i * rows + r] * b.get()[i * vectors * lanes + j];
        ASSERT_EQ(c.get()[r * vectors * lanes + j], sum) << r << ", " << j;
      }
    }

    auto peak = test::Load(builder, 3, [&](Body& body) { EmitFmaPeak(body, target, 12); });
    ASSERT_NE(peak, nullptr);
    double flops = 2.0 * rows * vectors * lanes * k, peak_flops = 2.0 * 12 * lanes * 4096;
    double rate = flops / BestSeconds(kernel, {a.get(), b.get(), c.get()}, {k}, 200) / 1e9;
    double peak_rate = peak_flops / BestSeconds(*peak, {a.get(), b.get(), c.get()}, {4096}, 20) / 1e9;
    const ObjectTimes& t = object->times;
    std::printf("%dx%d: %.1f GFLOP/s of %.1f (%.3f); verify %.2f optimize %.2f codegen %.2f link %.2f ms; %zu bytes\n",
                rows, vectors, rate, peak_rate, rate / peak_rate, t.verify / 1e3, t.optimize / 1e3, t.codegen / 1e3,
                t.link / 1e3, object->elf.size());
  }
}

}  // namespace
}  // namespace hone
