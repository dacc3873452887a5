// The half of ir/check.h that makes data.
#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/hash.h"
#include "ir/check.h"
#include "ir/print.h"

namespace hone {
namespace {

// splitmix64's finaliser (Steele, Lea, Flood, "Fast splittable pseudorandom number generators"): element i is made from
// i alone, so that compilers vectorise the loops below.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint32_t Word(uint64_t seed, uint64_t element) {
  uint64_t pair = Mix(seed + (element >> 1) * 0x9e3779b97f4a7c15u);
  return static_cast<uint32_t>((element & 1) != 0 ? pair >> 32 : pair);
}

enum class Spread : uint8_t { kUsual, kNearOne };

// The lowest bits choose the kind of value, the others the value.
double Real(uint32_t word, Spread spread) {
  double uniform = static_cast<int32_t>(word) * 0x1p-31;
  if (spread == Spread::kNearOne) return ((word & 1) != 0 ? -1 : 1) * (1 + uniform * 0x1p-4);
  uint32_t kind = word & 31;
  if (kind == 0) return 0;
  if (kind == 1) return uniform < 0 ? -1 : 1;
  return kind < 4 ? uniform * 0x1p-10 : uniform;
}

template <typename T, typename Make>
void FillElements(std::span<std::byte> data, const Make& make) {
  size_t count = data.size() / sizeof(T);
  for (size_t i = 0; i < count; ++i) {
    T value = make(i);
    std::memcpy(data.data() + i * sizeof(T), &value, sizeof(T));
  }
}

// Is `tensor` read inside the index of another load? Then the largest dimension that it indexes, else 0.
int64_t IndexedExtent(const Kernel& kernel, TensorId tensor) {
  int64_t extent = 0;
  for (const Stage& stage : kernel.stages)
    Walk(stage.body, [&](const Expr& load) {
      if (load.op() != Op::kLoad) return;
      std::vector<int64_t> shape = StaticShape(kernel, kernel.tensors[static_cast<size_t>(load.int_value())]);
      for (size_t d = 0; d < load.args().size(); ++d)
        Walk(load.arg(d), [&](const Expr& part) {
          if (part.op() == Op::kLoad && part.int_value() == tensor) extent = std::max(extent, shape[d]);
        });
    });
  return extent;
}

bool MultipliesUp(const Kernel& kernel) {
  return std::any_of(kernel.stages.begin(), kernel.stages.end(),
                     [](const Stage& stage) { return stage.reduction == Reduction::kProd; });
}

}  // namespace

void FillInput(const Kernel& kernel, int operand, uint64_t seed, std::span<std::byte> data) {
  TensorId id = kernel.operands[static_cast<size_t>(operand)];
  const Tensor& tensor = kernel.tensors[static_cast<size_t>(id)];
  std::span<std::byte> first = data.first(std::min(data.size(), static_cast<size_t>(kInputPeriod)));
  seed = Mix(seed + static_cast<uint64_t>(operand) + 1);
  Spread spread = MultipliesUp(kernel) ? Spread::kNearOne : Spread::kUsual;
  switch (tensor.dtype) {
    case DType::kF32:
      FillElements<float>(first, [&](size_t i) { return static_cast<float>(Real(Word(seed, i), spread)); });
      break;
    case DType::kF64: FillElements<double>(first, [&](size_t i) { return Real(Word(seed, i), spread); }); break;
    case DType::kI8:
      FillElements<int8_t>(first, [&](size_t i) { return static_cast<int8_t>(Word(seed, i) >> 24); });
      break;
    case DType::kBool:
      FillElements<uint8_t>(first, [&](size_t i) { return static_cast<uint8_t>(Word(seed, i) >> 31); });
      break;
    case DType::kI32:
    case DType::kI64: {
      int64_t extent = IndexedExtent(kernel, id);
      int64_t low = extent > 0 ? -4 : -100, range = extent > 0 ? extent + 8 : 201;
      auto make = [&](size_t i) {  // Lemire's multiply-shift: no division
        return low + static_cast<int64_t>((static_cast<uint64_t>(Word(seed, i)) * static_cast<uint64_t>(range)) >> 32);
      };
      if (tensor.dtype == DType::kI32)
        FillElements<int32_t>(first, [&](size_t i) { return static_cast<int32_t>(make(i)); });
      else
        FillElements<int64_t>(first, make);
      break;
    }
    case DType::kF16:
    case DType::kBF16: HONE_CHECK(false);  // the parser refuses them
  }
  for (size_t done = first.size(); done < data.size();) {
    size_t piece = std::min(first.size(), data.size() - done);
    std::memcpy(data.data() + done, first.data(), piece);
    done += piece;
  }
}

uint64_t InputSeed(const Kernel& kernel) { return std::bit_cast<uint64_t>(Hash64(PrintKernel(kernel))); }

}  // namespace hone
