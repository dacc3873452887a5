// Data movement in registers against the obvious loops, with guard pages around what may be read or written.
#include "codegen/llvm/lanes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/codegen/llvm/harness.h"

namespace hone {
namespace {

using test::Body;
using test::Builder;

// `bytes` of memory that end (or begin) exactly at a page nobody may touch.
class GuardedBuffer {
 public:
  GuardedBuffer(size_t bytes, bool guard_after) : bytes_(bytes) {
    size_t pages = (bytes + 4095) / 4096 * 4096;
    mapped_ = pages + 8192;
    base_ = static_cast<char*>(mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_EQ(mprotect(base_ + 4096, pages, PROT_READ | PROT_WRITE), 0);
    data_ = base_ + 4096 + (guard_after ? pages - bytes : 0);
  }
  ~GuardedBuffer() { munmap(base_, mapped_); }
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  template <typename T>
  T* As() {
    return reinterpret_cast<T*>(data_);
  }
  void Fill(int seed) {
    for (size_t i = 0; i < bytes_; ++i)
      data_[i] = static_cast<char>((i * 37 + i / 251 + static_cast<size_t>(seed)) & 0xff);
  }

 private:
  size_t bytes_, mapped_;
  char *base_, *data_;
};

int CountLines(const std::string& text, const std::vector<std::string>& mnemonics) {
  int count = 0;
  for (const std::string& mnemonic : mnemonics) {
    for (size_t at = text.find("\t" + mnemonic); at != std::string::npos; at = text.find("\t" + mnemonic, at + 1))
      ++count;
  }
  return count;
}

void EmitTransposeKernel(Body& body, llvm::Type* element, int rows, int columns, int lanes) {
  auto& b = body.builder;
  auto* type = llvm::FixedVectorType::get(element, columns);
  std::vector<llvm::Value*> vectors;
  for (int r = 0; r < rows; ++r) {
    vectors.push_back(
        b.CreateAlignedLoad(type, b.CreateConstGEP1_64(element, body.buffers[0], r * columns), llvm::Align(1)));
  }
  std::vector<llvm::Value*> out = EmitTranspose(b, vectors, lanes);
  ASSERT_EQ(out.size(), static_cast<size_t>(columns));
  for (int c = 0; c < columns; ++c) {
    b.CreateAlignedStore(out[c], b.CreateConstGEP1_64(element, body.buffers[1], c * lanes), llvm::Align(1));
  }
}

TEST(Transpose, MovesEveryElementOfEveryShape) {
  for (const CpuTarget& target : test::HostTargets()) {
    Builder builder(target);
    for (int bytes : {1, 4, 8}) {
      llvm::Type* element = llvm::Type::getIntNTy(builder.context(), bytes * 8);
      for (auto [rows, columns] : std::vector<std::pair<int, int>>{
               {1, 1},   {1, 8},   {2, 2},   {3, 4},  {4, 4},  {4, 16}, {5, 16}, {6, 16}, {7, 8},   {8, 8},  {8, 16},
               {13, 16}, {14, 16}, {16, 16}, {16, 7}, {16, 4}, {12, 5}, {9, 3},  {3, 1},  {16, 32}, {32, 32}}) {
        int lanes = static_cast<int>(std::bit_ceil(static_cast<unsigned>(rows)));
        SCOPED_TRACE(testing::Message() << PrintTarget(target) << ": " << rows << "x" << columns << " of " << bytes);
        auto kernel =
            test::Load(builder, 2, [&](Body& body) { EmitTransposeKernel(body, element, rows, columns, lanes); });
        ASSERT_NE(kernel, nullptr);
        size_t in_bytes = static_cast<size_t>(rows * columns * bytes),
               out_bytes = static_cast<size_t>(columns * lanes * bytes);
        GuardedBuffer in(in_bytes, true), out(out_bytes, true);
        in.Fill(rows);
        ASSERT_EQ(kernel->Call({in.As<char>(), out.As<char>()}), 0);
        for (int r = 0; r < rows; ++r) {
          for (int c = 0; c < columns; ++c) {
            ASSERT_EQ(std::memcmp(in.As<char>() + (r * columns + c) * bytes, out.As<char>() + (c * lanes + r) * bytes,
                                  static_cast<size_t>(bytes)),
                      0)
                << "row " << r << " column " << c;
          }
        }
      }
    }
  }
}

TEST(Transpose, CostsOneShuffleAnOutputAndStage) {
  const std::vector<std::string> shuffles = {"vunpck",  "vshuf",    "vperm",  "vmovlh", "vmovhl",
                                             "vinsert", "vextract", "vblend", "vpunpck"};
  for (auto [target, size, wanted] : {std::tuple{test::Avx512Target(), 16, 64}, std::tuple{test::Avx2Target(), 8, 24},
                                      std::tuple{test::Avx2Target(), 4, 8}}) {
    Builder builder(target);
    auto text = builder.compiler().Explain(
        builder.Emit(2, [&](Body& body) { EmitTransposeKernel(body, body.builder.getFloatTy(), size, size, size); }));
    ASSERT_TRUE(text) << text.error().Text();
    EXPECT_LE(CountLines(text->assembly, shuffles), wanted) << text->assembly;
  }
}

TEST(Transpose, UsesZipsOnNeon) {
  Builder builder(test::NeonTarget());
  auto text = builder.compiler().Explain(
      builder.Emit(2, [&](Body& body) { EmitTransposeKernel(body, body.builder.getFloatTy(), 4, 4, 4); }));
  ASSERT_TRUE(text) << text.error().Text();
  EXPECT_LE(CountLines(text->assembly, {"zip", "uzp", "trn", "mov\tv", "ext", "tbl"}), 10) << text->assembly;
  EXPECT_EQ(CountLines(text->assembly, {"tbl"}), 0);
}

TEST(DeinterleavedLoads, ReadTheirSpanAndNothingElse) {
  for (const CpuTarget& target : test::HostTargets()) {
    Builder builder(target);
    for (int bytes : {1, 4, 8}) {
      llvm::Type* element = llvm::Type::getIntNTy(builder.context(), bytes * 8);
      for (int stride = 1; stride <= 6; ++stride) {
        for (int lanes : {1, 2, 4, 7, 8, 16}) {
          for (int phases : {1, 2, stride}) {
            if (phases > stride) continue;
            SCOPED_TRACE(testing::Message() << PrintTarget(target) << ": stride " << stride << " lanes " << lanes
                                            << " phases " << phases << " bytes " << bytes);
            auto kernel = test::Load(builder, 2, [&](Body& body) {
              auto out = EmitDeinterleavedLoads(body.builder, element, body.buffers[0], stride, phases, lanes, bytes);
              for (int p = 0; p < phases; ++p) {
                body.builder.CreateAlignedStore(
                    out[p], body.builder.CreateConstGEP1_64(element, body.buffers[1], p * lanes), llvm::Align(1));
              }
            });
            ASSERT_NE(kernel, nullptr);
            size_t span = static_cast<size_t>((lanes - 1) * stride + phases);
            for (bool guard_after : {true, false}) {
              GuardedBuffer in(span * static_cast<size_t>(bytes), guard_after);
              in.Fill(stride);
              std::vector<char> out(static_cast<size_t>(phases * lanes * bytes) + 64);
              ASSERT_EQ(kernel->Call({in.As<char>(), out.data()}), 0);
              for (int p = 0; p < phases; ++p) {
                for (int i = 0; i < lanes; ++i) {
                  ASSERT_EQ(std::memcmp(&out[static_cast<size_t>((p * lanes + i) * bytes)],
                                        in.As<char>() + (p + i * stride) * bytes, static_cast<size_t>(bytes)),
                            0)
                      << "phase " << p << " lane " << i;
                }
              }
            }
          }
        }
      }
    }
  }
}

// Lanes that a padded row reads: all, without the first, without the last, without both, every other, one alone.
std::vector<std::vector<bool>> Masks(int lanes) {
  std::vector<std::vector<bool>> masks(8, std::vector<bool>(static_cast<size_t>(lanes), true));
  masks[1].front() = false;
  masks[2].back() = false;
  masks[3].front() = masks[3].back() = false;
  for (size_t i = 0; i < masks[4].size(); ++i) masks[4][i] = i % 2 == 1;
  for (size_t i = 0; i < masks[5].size(); ++i) masks[5][i] = i == masks[5].size() / 2;
  for (size_t i = 0; i < masks[6].size(); ++i) masks[6][i] = i + 1 == masks[6].size();
  for (size_t i = 5; i < masks[7].size(); ++i) masks[7][i] = false;  // with a stride of 4 registers without any of them
  std::erase_if(masks,
                [](const std::vector<bool>& mask) { return std::find(mask.begin(), mask.end(), true) == mask.end(); });
  return masks;
}

enum class When { kAlways, kTrue, kFalse };

// Reads through one mask: the input holds what lies between the first lane that is on and the last, and nothing else.
void ExpectMaskedLoad(Builder& builder, int bytes, int stride, const std::vector<bool>& on, bool conditional) {
  llvm::Type* element = llvm::Type::getIntNTy(builder.context(), static_cast<unsigned>(bytes) * 8);
  const int lanes = static_cast<int>(on.size());
  const int first = static_cast<int>(std::find(on.begin(), on.end(), true) - on.begin());
  const int last = lanes - 1 - static_cast<int>(std::find(on.rbegin(), on.rend(), true) - on.rbegin());
  auto kernel = test::Load(builder, 2, [&](Body& body) {
    auto& b = body.builder;
    llvm::Value* condition = conditional ? b.CreateICmpNE(body.Size(0), b.getInt64(0)) : nullptr;
    llvm::Value* v = EmitMaskedDeinterleavedLoad(b, element, body.buffers[0], stride, on, condition, bytes);
    b.CreateAlignedStore(v, body.buffers[1], llvm::Align(1));
  });
  ASSERT_NE(kernel, nullptr);
  const size_t step = static_cast<size_t>(stride * bytes), width = static_cast<size_t>(bytes);
  for (bool guard_after : {true, false}) {
    GuardedBuffer in(static_cast<size_t>(last - first) * step + width, guard_after);
    in.Fill(stride + lanes);
    // Where lane 0 would be. Before the buffer if the first lanes are off: its page may not be touched.
    const char* lane0 = in.As<char>() - static_cast<size_t>(first) * step;
    // Nothing at all may be read where the condition does not hold.
    GuardedBuffer none(0, guard_after);
    for (When when : conditional ? std::vector{When::kTrue, When::kFalse} : std::vector{When::kAlways}) {
      SCOPED_TRACE(when == When::kFalse ? "condition false" : "read");
      std::vector<char> out(static_cast<size_t>(lanes) * width, 'x'), wanted(out.size(), 0);
      const char* from = when == When::kFalse ? none.As<char>() : lane0;
      ASSERT_EQ(kernel->Call({from, out.data()}, {when == When::kFalse ? 0 : 1}), 0);
      for (int lane = first; lane <= last && when != When::kFalse; ++lane)
        if (on[static_cast<size_t>(lane)])
          std::memcpy(&wanted[static_cast<size_t>(lane) * width], lane0 + static_cast<size_t>(lane) * step, width);
      EXPECT_EQ(out, wanted);
    }
  }
}

TEST(MaskedDeinterleavedLoads, ReadTheirLanesAndNothingElse) {
  for (const CpuTarget& target : test::HostTargets()) {
    Builder builder(target);
    for (int bytes : {1, 4, 8}) {
      for (int stride = 1; stride <= 4; ++stride) {
        for (int lanes : {4, 8, 16}) {
          for (const std::vector<bool>& on : Masks(lanes)) {
            std::string mask;
            for (bool lane : on) mask += lane ? '1' : '0';
            for (bool conditional : {false, true}) {
              SCOPED_TRACE(testing::Message() << PrintTarget(target) << ": stride " << stride << " mask " << mask
                                              << " bytes " << bytes << (conditional ? " conditional" : ""));
              ExpectMaskedLoad(builder, bytes, stride, on, conditional);
            }
          }
        }
      }
    }
  }
}

TEST(Reduce, HalvesInAFixedOrder) {
  std::vector<float> last;
  for (const CpuTarget& target : test::HostTargets()) {
    Builder builder(target);
    for (int lanes : {1, 2, 3, 4, 5, 7, 8, 12, 16, 32}) {
      SCOPED_TRACE(testing::Message() << PrintTarget(target) << " lanes " << lanes);
      auto kernel = test::Load(builder, 2, [&](Body& body) {
        auto& b = body.builder;
        auto* v =
            b.CreateAlignedLoad(llvm::FixedVectorType::get(b.getFloatTy(), lanes), body.buffers[0], llvm::Align(4));
        int i = 0;
        for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMax, ReduceOp::kMin}) {
          b.CreateStore(EmitReduce(b, op, v), b.CreateConstGEP1_64(b.getFloatTy(), body.buffers[1], i++));
        }
      });
      ASSERT_NE(kernel, nullptr);
      std::vector<float> in(static_cast<size_t>(lanes)), out(4);
      for (int i = 0; i < lanes; ++i) in[static_cast<size_t>(i)] = 1.0f + 0.37f * static_cast<float>((i * 7) % 5 - 2);
      ASSERT_EQ(kernel->Call({in.data(), out.data()}), 0);
      // The documented order, in plain C++.
      auto halve = [](std::vector<float> v, auto op) {
        std::vector<float> left;
        while (v.size() > 1) {
          if (v.size() % 2) left.push_back(v.back());
          size_t half = v.size() / 2;
          for (size_t i = 0; i < half; ++i) v[i] = op(v[i], v[half + i]);
          v.resize(half);
        }
        for (; !left.empty(); left.pop_back()) v[0] = op(v[0], left.back());
        return v[0];
      };
      EXPECT_EQ(out[0], halve(in, [](float a, float b) { return a + b; }));
      EXPECT_EQ(out[1], halve(in, [](float a, float b) { return a * b; }));
      EXPECT_EQ(out[2], *std::max_element(in.begin(), in.end()));
      EXPECT_EQ(out[3], *std::min_element(in.begin(), in.end()));
      // A NaN anywhere is the maximum and the minimum.
      for (int i = 0; i < lanes; ++i) {
        std::vector<float> with_nan = in;
        with_nan[static_cast<size_t>(i)] = std::numeric_limits<float>::quiet_NaN();
        ASSERT_EQ(kernel->Call({with_nan.data(), out.data()}), 0);
        EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[2]) && std::isnan(out[3])) << "lane " << i;
      }
    }
  }
}

TEST(Maximum, CostsOneInstructionAgainstAConstant) {
  for (const CpuTarget& target : {test::Avx2Target(), test::Avx512Target()}) {
    Builder builder(target);
    auto text = builder.compiler().Explain(builder.Emit(2, [&](Body& body) {
      auto& b = body.builder;
      auto* type = llvm::FixedVectorType::get(b.getFloatTy(), target.Lanes(4));
      auto* v = b.CreateAlignedLoad(type, body.buffers[0], llvm::Align(4));
      b.CreateAlignedStore(EmitMax(b, v, llvm::ConstantFP::get(type, 0)), body.buffers[1], llvm::Align(4));
    }));
    ASSERT_TRUE(text) << text.error().Text();
    EXPECT_EQ(CountLines(text->assembly, {"vmaxps"}), 1) << text->assembly;
    EXPECT_EQ(CountLines(text->assembly, {"vcmp", "vblend"}), 0) << text->assembly;
  }
}

TEST(Prefix, TouchesTheFirstElementsOnly) {
  for (const CpuTarget& target : test::HostTargets()) {
    Builder builder(target);
    for (int bytes : {1, 4, 8}) {
      llvm::Type* element = llvm::Type::getIntNTy(builder.context(), bytes * 8);
      for (int lanes : {2, 4, 8, 16, 32}) {
        auto* type = llvm::FixedVectorType::get(element, lanes);
        auto emit = [&](Body& body, llvm::Value* count) {
          llvm::Value* v = EmitLoadPrefix(body.builder, target, type, body.buffers[0], count, bytes);
          body.builder.CreateAlignedStore(v, body.buffers[1], llvm::Align(1));
          EmitStorePrefix(body.builder, target, v, body.buffers[2], count, bytes);
        };
        auto at_run_time = test::Load(builder, 3, [&](Body& body) { emit(body, body.Size(0)); });
        ASSERT_NE(at_run_time, nullptr);
        for (int count = 0; count <= lanes; ++count) {
          auto constant = test::Load(
              builder, 3, [&](Body& body) { emit(body, body.builder.getInt64(static_cast<uint64_t>(count))); });
          ASSERT_NE(constant, nullptr);
          for (auto* kernel : {at_run_time.get(), constant.get()}) {
            for (bool guard_after : {true, false}) {
              SCOPED_TRACE(testing::Message()
                           << PrintTarget(target) << " lanes " << lanes << " count " << count << " bytes " << bytes
                           << (kernel == constant.get() ? " constant" : " at run time"));
              size_t used = static_cast<size_t>(count * bytes), all = static_cast<size_t>(lanes * bytes);
              GuardedBuffer in(used, guard_after), out(used, guard_after);
              in.Fill(lanes);
              std::vector<char> loaded(all, 'x');
              ASSERT_EQ(kernel->Call({in.As<char>(), loaded.data(), out.As<char>()}, {count}), 0);
              EXPECT_EQ(std::memcmp(in.As<char>(), loaded.data(), used), 0);
              EXPECT_EQ(std::memcmp(in.As<char>(), out.As<char>(), used), 0);
              EXPECT_TRUE(std::all_of(loaded.begin() + static_cast<std::ptrdiff_t>(used), loaded.end(),
                                      [](char c) { return c == 0; }));
            }
          }
        }
      }
    }
  }
}

TEST(Prefix, LimitsCountsOutOfRange) {
  for (const CpuTarget& target : test::HostTargets()) {
    Builder builder(target);
    auto kernel = test::Load(builder, 2, [&](Body& body) {
      auto* type = llvm::FixedVectorType::get(body.builder.getInt32Ty(), 8);
      llvm::Value* v = EmitLoadPrefix(body.builder, target, type, body.buffers[0], body.Size(0), 4);
      body.builder.CreateAlignedStore(v, body.buffers[1], llvm::Align(4));
    });
    ASSERT_NE(kernel, nullptr);
    std::vector<int32_t> in = {1, 2, 3, 4, 5, 6, 7, 8}, out(8), zero(8);
    for (int64_t count : {int64_t{9}, int64_t{1} << 40, int64_t{1} << 32, std::numeric_limits<int64_t>::max()}) {
      ASSERT_EQ(kernel->Call({in.data(), out.data()}, {count}), 0);
      EXPECT_EQ(out, in) << count;
    }
    for (int64_t count : {int64_t{0}, int64_t{-1}, -(int64_t{1} << 40), std::numeric_limits<int64_t>::min()}) {
      ASSERT_EQ(kernel->Call({in.data(), out.data()}, {count}), 0);
      EXPECT_EQ(out, zero) << count;
    }
  }
}

TEST(Masked, LeavesMemoryUnderOffLanesAlone) {
  for (const CpuTarget& target : test::HostTargets()) {
    Builder builder(target);
    auto kernel = test::Load(builder, 3, [&](Body& body) {
      auto& b = body.builder;
      auto* type = llvm::FixedVectorType::get(b.getInt32Ty(), 8);
      llvm::Value* mask = b.CreateICmpNE(b.CreateAlignedLoad(type, body.buffers[2], llvm::Align(4)),
                                         llvm::Constant::getNullValue(type));
      EmitMaskedStore(b, EmitMaskedLoad(b, target, type, body.buffers[0], mask, 4, 8), body.buffers[1], mask, 4);
    });
    ASSERT_NE(kernel, nullptr);
    std::vector<int32_t> in = {1, 2, 3, 4, 5, 6, 7, 8}, mask = {1, 0, 1, 1, 0, 0, 0, 1}, out(8, -1);
    ASSERT_EQ(kernel->Call({in.data(), out.data(), mask.data()}), 0);
    EXPECT_THAT(out, testing::ElementsAre(1, -1, 3, 4, -1, -1, -1, 8));
  }
}

}  // namespace
}  // namespace hone
