// The code for NEON, run on a machine that has none.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "codegen/llvm/math.h"
#include "llvm/Object/ELFObjectFile.h"
#include "tests/codegen/llvm/harness.h"
#include "tests/support/temporary_directory.h"

namespace hone {
namespace {

using test::Body;
using test::Builder;

// NEON code on an x86 machine, under qemu-user: a freestanding program maps the object and calls it.
TEST(Neon, RunsUnderAnEmulator) {
  if (std::system("command -v qemu-aarch64 > /dev/null && command -v clang-19 > /dev/null && command -v ld.lld-19 > "
                  "/dev/null") != 0) {
    GTEST_SKIP() << "no qemu-aarch64, clang-19 or ld.lld-19 here: NEON code is compiled, not run";
  }
  TemporaryDirectory folder;
  const std::string directory = folder.path();
  std::string compile =
      "clang-19 --target=aarch64-linux-gnu -O1 -nostdlib -static -ffreestanding -fno-stack-protector "
      "--ld-path=ld.lld-19 -o " +
      directory + "/call " HONE_SOURCE_DIR "/tests/codegen/llvm/neon_call.c";
  ASSERT_EQ(std::system(compile.c_str()), 0);

  struct Case {
    const char* name;
    llvm::Value* (*emit)(llvm::IRBuilderBase&, const CpuTarget&, llvm::Value*);
    double (*reference)(double);
  };
  Builder builder(test::NeonTarget());
  for (const Case& c :
       {Case{"exp", EmitExp, std::exp}, Case{"log", EmitLog, std::log}, Case{"tanh", EmitTanh, std::tanh},
        Case{"erf", EmitErf, std::erf}, Case{"rsqrt", EmitRsqrt, [](double x) { return 1 / std::sqrt(x); }}}) {
    SCOPED_TRACE(c.name);
    auto object = builder.compiler().Compile(
        builder.Emit(2,
                     [&](Body& body) {
                       auto& b = body.builder;
                       auto* type = llvm::FixedVectorType::get(b.getFloatTy(), 4);
                       test::EmitLoop(b, body.Size(0), [&](llvm::Value* i) {
                         llvm::Value* x =
                             b.CreateAlignedLoad(type, b.CreateGEP(type, body.buffers[0], i), llvm::Align(4));
                         b.CreateAlignedStore(c.emit(b, builder.target(), x), b.CreateGEP(type, body.buffers[1], i),
                                              llvm::Align(4));
                       });
                     }),
        {});
    ASSERT_TRUE(object) << object.error().Text();
    llvm::StringRef code(reinterpret_cast<const char*>(object->elf.data()), object->elf.size());
    auto elf = llvm::cantFail(llvm::object::ELF64LEObjectFile::create(llvm::MemoryBufferRef(code, "kernel.so")));
    uint64_t entry = 0;
    for (const auto& symbol : elf.getDynamicSymbolIterators()) {
      if (llvm::cantFail(symbol.getName()) == kEntrySymbol) entry = llvm::cantFail(symbol.getAddress());
    }
    std::vector<float> x = {0.0f, -0.0f, 1, -1, INFINITY, -INFINITY, NAN, 1e-40f, 88.5f, -100, 3e38f, 1e-30f};
    for (int i = 0; i < 4084; ++i)
      x.push_back(std::ldexp(1 + static_cast<float>(i % 97) / 97, i % 61 - 30) * (i % 3 ? 1.0f : -1.0f));
    std::ofstream(directory + "/object", std::ios::binary) << code.str();
    std::ofstream(directory + "/in", std::ios::binary)
        .write(reinterpret_cast<const char*>(x.data()), static_cast<std::streamsize>(x.size() * 4));
    std::string run = "qemu-aarch64 " + directory + "/call " + directory + "/object " + std::to_string(entry) + " " +
                      std::to_string(x.size() / 4) + " < " + directory + "/in > " + directory + "/out";
    ASSERT_EQ(std::system(run.c_str()), 0);
    std::ifstream file(directory + "/out", std::ios::binary);
    std::string out{std::istreambuf_iterator<char>(file), {}};
    ASSERT_EQ(out.size(), x.size() * 4);
    for (size_t i = 0; i < x.size(); ++i) {
      float y;
      std::memcpy(&y, out.data() + i * 4, 4);
      double want = c.reference(x[i]);
      if (std::isnan(want)) {
        EXPECT_TRUE(std::isnan(y)) << x[i] << ": " << y;
      } else if (std::isinf(static_cast<float>(want))) {
        EXPECT_EQ(y, static_cast<float>(want)) << x[i];
      } else {
        EXPECT_NEAR(y, want, 4 * 0x1p-24 * std::abs(want) + 0x1p-149) << x[i];
      }
    }
  }
}

}  // namespace
}  // namespace hone
