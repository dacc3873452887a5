// The half of ir/reference/check_output.h that makes data.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/hash.h"
#include "ir/graph/element.h"
#include "ir/graph/print.h"
#include "ir/reference/check_output.h"
#include "ir/reference/input_scale.h"

namespace hone {
namespace {

// splitmix64's finaliser (Steele, Lea, Flood, "Fast splittable pseudorandom number generators").
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

constexpr size_t kBlock = 1024;

// Random words of elements first … first + kBlock-1: made from the element's number alone. REQUIRES: first is even.
void FillWords(uint64_t seed, uint64_t first, std::array<uint32_t, kBlock>& words) {
  uint64_t state = seed + (first >> 1) * 0x9e3779b97f4a7c15u;
  for (size_t i = 0; i < kBlock; i += 2, state += 0x9e3779b97f4a7c15u) {
    uint64_t pair = Mix(state);
    words[i] = static_cast<uint32_t>(pair);
    words[i + 1] = static_cast<uint32_t>(pair >> 32);
  }
}

enum class Spread : uint8_t { kUsual, kNearOne };

// The lowest bits choose the kind of value, the others the value. Branch-free, so that loops over it vectorise.
template <typename T>
T Real(uint32_t word, Spread spread) {
  T uniform = static_cast<T>(static_cast<int32_t>(word)) * static_cast<T>(0x1p-31);
  if (spread == Spread::kNearOne) return ((word & 1) != 0 ? T{-1} : T{1}) * (1 + uniform * static_cast<T>(0x1p-4));
  uint32_t kind = word & 31;
  T scale = kind == 0 ? T{0} : kind < 4 ? static_cast<T>(0x1p-10) : T{1};
  T sign = uniform < 0 ? T{-1} : T{1};
  return kind == 1 ? sign : uniform * scale;
}

// Just beyond what an index of `extent` elements is clamped to, and now and then an end of the type; 0: within a
// hundred of zero. By Lemire's multiply-shift: no division.
template <typename T>
int64_t Whole(uint32_t word, int64_t extent) {
  const uint32_t kind = word & 31;
  if (extent > 0 && kind < 2) return kind == 0 ? std::numeric_limits<T>::min() : std::numeric_limits<T>::max();
  const int64_t low = extent > 0 ? -4 : -100, range = extent > 0 ? extent + 8 : 201;
  return low + static_cast<int64_t>((static_cast<uint64_t>(word) * static_cast<uint64_t>(range)) >> 32);
}

template <typename T, typename Make>
void FillElements(std::span<std::byte> data, uint64_t seed, const Make& make) {
  size_t count = data.size() / sizeof(T);
  std::array<uint32_t, kBlock> words;
  std::array<T, kBlock> values;
  for (size_t first = 0; first < count; first += kBlock) {
    FillWords(seed, first, words);
    for (size_t i = 0; i < kBlock; ++i) values[i] = make(words[i]);
    std::memcpy(data.data() + first * sizeof(T), values.data(), std::min(kBlock, count - first) * sizeof(T));
  }
}

// Is `tensor`, or what stages make of it, read inside the index of another load? Then the largest dimension that it
// indexes, else 0.
int64_t IndexedExtent(const Kernel& kernel, TensorId tensor) {
  IdVector<TensorId, int64_t> extents(kernel.tensors.size());
  auto indexes = [&](const Expr& e, int64_t extent) {
    Walk(e, [&](const Expr& part) {
      if (part.op() == Op::kLoad) extents[part.tensor()] = std::max(extents[part.tensor()], extent);
    });
  };
  // Readers come after what they read: from the last stage on, all that is known of a stage's output is known.
  for (StageId s = kernel.stages.last(); s; --s) {
    const Stage& stage = kernel.stages[s];
    indexes(stage.body, extents[stage.output]);
    Walk(stage.body, [&](const Expr& load) {
      if (load.op() != Op::kLoad) return;
      const std::vector<int64_t> shape = StaticShape(kernel, kernel.tensors[load.tensor()]);
      for (size_t d = 0; d < load.args().size(); ++d) indexes(load.arg(d), shape[d]);
    });
  }
  return extents[tensor];
}

bool MultipliesUp(const Kernel& kernel) {
  return std::any_of(kernel.stages.begin(), kernel.stages.end(),
                     [](const Stage& stage) { return stage.reduction == Reduction::kProd; });
}

}  // namespace

void FillInput(const Kernel& kernel, int operand, uint64_t seed, std::span<std::byte> data) {
  TensorId id = kernel.operands[static_cast<size_t>(operand)];
  const Tensor& tensor = kernel.tensors[id];
  std::span<std::byte> first = data.first(std::min(data.size(), static_cast<size_t>(kInputPeriod)));
  seed = Mix(seed + static_cast<uint64_t>(operand) + 1);
  Spread spread = MultipliesUp(kernel) ? Spread::kNearOne : Spread::kUsual;
  const int64_t extent = IndexedExtent(kernel, id);
  const double scale = IsFloat(tensor.dtype) && spread == Spread::kUsual ? InputScale(kernel) : 1;
  VisitElement(tensor.dtype, [&]<typename T>(std::type_identity<T>) {
    if constexpr (std::is_floating_point_v<T>)
      FillElements<T>(first, seed, [&](uint32_t w) { return Real<T>(w, spread) * static_cast<T>(scale); });
    else if constexpr (!std::is_integral_v<T>)
      FillElements<T>(first, seed, [&](uint32_t w) { return T(static_cast<double>(Real<float>(w, spread)) * scale); });
    else if (tensor.dtype == DType::kBool)
      FillElements<T>(first, seed, [](uint32_t w) { return static_cast<T>(w >> 31); });
    else if (sizeof(T) == 1)
      FillElements<T>(first, seed, [](uint32_t w) { return static_cast<T>(w >> 24); });
    else
      FillElements<T>(first, seed, [&](uint32_t w) { return static_cast<T>(Whole<T>(w, extent)); });
  });
  for (size_t done = first.size(); done < data.size();) {
    size_t piece = std::min(first.size(), data.size() - done);
    std::memcpy(data.data() + done, first.data(), piece);
    done += piece;
  }
}

uint64_t InputSeed(const Kernel& kernel) { return std::bit_cast<uint64_t>(Hash64(PrintKernel(kernel))); }

}  // namespace hone
