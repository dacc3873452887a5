#include "ir/reference/check_output.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "base/rng.h"
#include "ir/graph/element.h"
#include "ir/reference/accuracy.h"

namespace hone {
namespace {

// A quiet NaN of every float type, with a payload of its own: arithmetic makes the default NaN and keeps payloads that
// it is given.
constexpr uint64_t kScratch = 0x7ffe7ffe7ffe7ffe;
constexpr double kElementCost = 30;  // of the reference, in multiply-adds
constexpr int64_t kSuspects = 64;    // elements asked about that were not sampled

template <typename T>
void FillWith(T pattern, std::span<std::byte> data) {
  for (size_t at = 0; at + sizeof(T) <= data.size(); at += sizeof(T))
    std::memcpy(data.data() + at, &pattern, sizeof(T));
}

struct Output {
  const Tensor* tensor;
  std::vector<int64_t> shape;
  int64_t elements;
};

std::vector<Output> OutputsOf(const Kernel& kernel) {
  std::vector<Output> outputs;
  for (TensorId id : kernel.operands) {
    const Tensor& tensor = kernel.tensors[id];
    if (tensor.kind == TensorKind::kOutput)
      outputs.push_back({&tensor, StaticShape(kernel, tensor), ElementCount(kernel, tensor)});
  }
  return outputs;
}

// "y[0,3,5]"
std::string ElementName(const Output& output, int64_t index) {
  std::vector<int64_t> coordinates(output.shape.size());
  for (size_t d = output.shape.size(); d-- > 0; index /= output.shape[d]) coordinates[d] = index % output.shape[d];
  return fmt::format("{}[{}]", output.tensor->name, fmt::join(coordinates, ","));
}

double ValueAt(DType type, std::span<const std::byte> data, int64_t index) {
  return LoadElement(type, data.data(), static_cast<size_t>(index));
}

// The unsigned integer of an element's bits.
template <typename T>
using BitsOf = std::conditional_t<
    sizeof(T) == 8, uint64_t,
    std::conditional_t<sizeof(T) == 4, uint32_t, std::conditional_t<sizeof(T) == 2, uint16_t, uint8_t>>>;

// Coordinates along one dimension where code that works in tiles goes wrong: the ends, and both sides of the first and
// the last border of tiles of each power of two, and of three times one (12, 24, 48: other register tiles).
std::vector<int64_t> BorderCoordinates(int64_t extent) {
  std::vector<int64_t> coordinates = {0, 1, extent / 2, extent - 2, extent - 1};
  for (int64_t tile = 4; tile <= 1024; tile *= 2)
    for (int64_t size : {tile, tile * 3 / 2})
      for (int64_t border : {size, extent / size * size}) coordinates.insert(coordinates.end(), {border - 1, border});
  std::erase_if(coordinates, [&](int64_t c) { return c < 0 || c >= extent; });
  std::sort(coordinates.begin(), coordinates.end());
  coordinates.erase(std::unique(coordinates.begin(), coordinates.end()), coordinates.end());
  return coordinates;
}

std::vector<int64_t> ChooseElements(const Output& output, int64_t wanted, Rng rng) {
  std::vector<std::vector<int64_t>> borders;
  for (int64_t extent : output.shape) borders.push_back(BorderCoordinates(extent));
  std::vector<int64_t> chosen;
  size_t rank = output.shape.size();
  auto add = [&](const auto& pick) {
    int64_t index = 0;
    for (size_t d = 0; d < rank; ++d) index = index * output.shape[d] + pick(d);
    chosen.push_back(index);
  };
  for (uint64_t corner = 0; corner < uint64_t{1} << std::min<size_t>(rank, 5); ++corner)
    add([&](size_t d) { return (corner >> std::min<size_t>(d, 4) & 1) != 0 ? output.shape[d] - 1 : 0; });
  while (static_cast<int64_t>(chosen.size()) < wanted)
    add([&](size_t d) {
      if (chosen.size() % 3 != 0) return borders[d][rng.Below(borders[d].size())];
      return static_cast<int64_t>(rng.Below(static_cast<uint64_t>(output.shape[d])));
    });
  std::sort(chosen.begin(), chosen.end());
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  return chosen;
}

// Elements that look as if they were not written, or are not finite. Never more than a few in a correct output, unless
// the kernel means it.
struct Scan {
  int64_t unwritten = 0, first_unwritten = -1;  // certain
  int64_t scratch = 0, first_scratch = -1;      // computed from memory that was not written
  std::vector<int64_t> suspects;                // first ones, then a random choice: only the reference can tell
  int64_t suspected = 0;
};

class Scanner {
 public:
  explicit Scanner(Rng rng) : rng_(rng) {}

  Scan Run(DType type, std::span<const std::byte> data) {
    VisitElement(type, [&]<typename T>(std::type_identity<T>) {
      const auto unwritten = static_cast<BitsOf<T>>(TraitsOf(type).unwritten);
      if constexpr (!std::is_integral_v<T>)
        Floats<T>(data, unwritten);
      else if (type == DType::kBool)
        Truths(data, unwritten);
      else
        Whole(data, unwritten);
    });
    return std::move(scan_);
  }

 private:
  // Looks at blocks for any exponent of all ones; only those that have one are looked at one by one.
  template <typename T, typename Bits = BitsOf<T>>
  void Floats(std::span<const std::byte> data, Bits unwritten) {
    constexpr size_t kBlock = 1024;
    constexpr Bits kSign = Bits{1} << (8 * sizeof(Bits) - 1);
    const Bits exponent = std::bit_cast<Bits>(static_cast<T>(std::numeric_limits<double>::infinity()));
    size_t count = data.size() / sizeof(Bits);
    for (size_t begin = 0; begin < count; begin += kBlock) {
      size_t size = std::min(kBlock, count - begin);
      Bits block[kBlock];
      std::memcpy(block, data.data() + begin * sizeof(Bits), size * sizeof(Bits));
      Bits odd = 0;
      for (size_t i = 0; i < size; ++i) odd |= (block[i] & exponent) == exponent ? 1 : 0;
      if (odd == 0) continue;
      for (size_t i = 0; i < size; ++i) {
        const auto index = static_cast<int64_t>(begin + i);
        if ((block[i] & exponent) != exponent) continue;
        if (block[i] == unwritten)
          Unwritten(index);
        else if ((block[i] & ~kSign) == static_cast<Bits>(kScratch))
          Scratch(index);
        else
          Suspect(index);
      }
    }
  }

  void Truths(std::span<const std::byte> data, uint8_t unwritten) {
    for (size_t i = 0; i < data.size(); ++i)
      if (static_cast<uint8_t>(data[i]) == unwritten)
        Unwritten(static_cast<int64_t>(i));
      else if (static_cast<uint8_t>(data[i]) > 1)
        Suspect(static_cast<int64_t>(i));
  }

  template <typename Bits>
  void Whole(std::span<const std::byte> data, Bits pattern) {
    for (size_t i = 0; i < data.size() / sizeof(Bits); ++i) {
      Bits bits;
      std::memcpy(&bits, data.data() + i * sizeof(Bits), sizeof(Bits));
      if (bits == pattern) Suspect(static_cast<int64_t>(i));
    }
  }

  void Unwritten(int64_t index) {
    if (scan_.unwritten++ == 0) scan_.first_unwritten = index;
  }
  void Scratch(int64_t index) {
    if (scan_.scratch++ == 0) scan_.first_scratch = index;
  }
  void Suspect(int64_t index) {  // reservoir sampling, the first half kept
    int64_t seen = scan_.suspected++;
    if (seen < kSuspects) {
      scan_.suspects.push_back(index);
    } else if (int64_t slot = static_cast<int64_t>(rng_.Below(static_cast<uint64_t>(seen + 1))); slot < kSuspects / 2) {
      scan_.suspects[static_cast<size_t>(kSuspects / 2 + slot)] = index;
    }
  }

  Rng rng_;
  Scan scan_;
};

Error Wrong(std::string message) { return Error{ErrorKind::kWrongResult, std::move(message), ""}; }

std::string Others(int64_t count) { return count > 1 ? fmt::format(" and {} more", count - 1) : ""; }

std::optional<Error> CheckWritten(const Output& output, const Scan& scan) {
  if (scan.unwritten > 0)
    return Wrong(fmt::format("{}{} of {} elements were never written", ElementName(output, scan.first_unwritten),
                             Others(scan.unwritten), output.elements));
  if (scan.scratch > 0)
    return Wrong(fmt::format("{}{} of {} elements were computed from workspace that was never written",
                             ElementName(output, scan.first_scratch), Others(scan.scratch), output.elements));
  return std::nullopt;
}

// Compares the sampled elements, and those that look odd.
void CompareElements(const Output& output, const Samples& sampled, std::span<const std::byte> data, double tolerance,
                     const Scan& scan, Interpreter& interpreter, Comparison& comparison) {
  DType type = output.tensor->dtype;
  int64_t wrong = 0, compared = 0, worst = -1;
  double worst_error = 0, allowed = 0;
  Reference wanted;
  auto compare = [&](int64_t index, const Reference& reference) {
    double error = RelativeError(ValueAt(type, data, index), reference, type);
    comparison.max_rel_err = std::max(comparison.max_rel_err, error);
    ++compared;
    const double most = Allowed(reference, type, tolerance);
    if (error <= most) return;
    if (wrong++ == 0 || error > worst_error) worst = index, worst_error = error, wanted = reference, allowed = most;
  };
  for (size_t i = 0; i < sampled.indices.size(); ++i) compare(sampled.indices[i], sampled.references[i]);
  // After a failure there is nothing to learn from more of them.
  if (wrong == 0 && !comparison.failure && !sampled.full)
    for (int64_t index : scan.suspects)
      if (!std::binary_search(sampled.indices.begin(), sampled.indices.end(), index))
        compare(index, interpreter.At(sampled.output, index));
  comparison.samples += compared;
  if (wrong == 0 || comparison.failure) return;
  comparison.failure = Wrong(fmt::format(
      "{} of {} compared elements are wrong; the worst is {} = {:.9g}, wanted {:.9g} ± {:.3g} (error {:.3g} "
      "of its magnitude {:.6g}, allowed {:.3g})",
      wrong, compared, ElementName(output, worst), ValueAt(type, data, worst), wanted.value,
      IsFloat(type) ? allowed * wanted.magnitude : wanted.magnitude, worst_error, wanted.magnitude, allowed));
}

std::optional<Error> CheckProjection(const Output& output, const Projection& projection,
                                     std::span<const std::byte> data) {
  const ProjectedSum sum = ProjectionOf(projection, data.data(), output.tensor->dtype);
  const double bound = projection.bound + sum.rounding;
  if (std::abs(sum.value - projection.value) <= bound) return std::nullopt;
  return Wrong(
      fmt::format("the compared elements of {} are right, but the sum of all under random signs is {:.9g}, "
                  "wanted {:.9g} ± {:.3g}",
                  output.tensor->name, sum.value, projection.value, bound));
}

}  // namespace

void FillUnwritten(DType type, std::span<std::byte> data) {
  VisitElement(type, [&]<typename T>(std::type_identity<T>) {
    FillWith(static_cast<BitsOf<T>>(TraitsOf(type).unwritten), data);
  });
}

void FillScratch(std::span<std::byte> data) {
  const size_t words = data.size() / sizeof kScratch * sizeof kScratch;
  FillWith(kScratch, data.first(words));
  FillWith(static_cast<uint16_t>(kScratch), data.subspan(words));
}

std::vector<Samples> ComputeSamples(const Kernel& kernel, Interpreter& interpreter, const SampleOptions& options,
                                    uint64_t seed, std::span<const OperandView> inputs) {
  std::vector<Samples> all;
  std::vector<Output> outputs = OutputsOf(kernel);
  for (size_t i = 0; i < outputs.size(); ++i) {
    Samples samples;
    samples.output = static_cast<int>(i);
    double cost = std::max(1.0, interpreter.CostPerElement(samples.output));
    double share = 1.0 / static_cast<double>(outputs.size());
    int64_t affordable = static_cast<int64_t>(options.budget * share / cost);
    int64_t wanted = std::clamp(affordable, std::min(kFewestSamples, options.samples), options.samples);
    // Each element has a price of its own beside its multiply-adds.
    double whole = (cost + kElementCost) * static_cast<double>(outputs[i].elements);
    samples.full = options.full || whole <= options.full_budget * share || outputs[i].elements <= wanted;
    if (samples.full) {
      samples.indices.resize(static_cast<size_t>(outputs[i].elements));
      std::iota(samples.indices.begin(), samples.indices.end(), int64_t{0});
    } else {
      samples.indices = ChooseElements(outputs[i], wanted, Rng(seed).Fork(i));
    }
    samples.references.resize(samples.indices.size());
    interpreter.Evaluate(samples.output, samples.indices, samples.references);
    if (!samples.full && !inputs.empty()) {
      Rng rng = Rng(seed).Fork(outputs.size() + i);
      samples.projection = ProjectOutput(kernel, inputs, samples.output, rng, options.projection_budget * share);
    }
    all.push_back(std::move(samples));
  }
  return all;
}

Comparison CompareOutputs(const Kernel& kernel, Interpreter& interpreter, std::span<const Samples> samples,
                          std::span<const std::span<const std::byte>> buffers) {
  Comparison comparison;
  comparison.full = true;
  std::vector<Output> outputs = OutputsOf(kernel);
  double tolerance = Tolerance(kernel);
  for (const Samples& sampled : samples) {
    const Output& output = outputs[static_cast<size_t>(sampled.output)];
    std::span<const std::byte> data = buffers[static_cast<size_t>(sampled.output)];
    HONE_CHECK(data.size() == static_cast<size_t>(output.elements * ByteSize(output.tensor->dtype)));
    comparison.full &= sampled.full;
    // The first thing that is wrong is the one that is told; the error is gathered from all outputs.
    Scan scan = Scanner(Rng(static_cast<uint64_t>(output.elements))).Run(output.tensor->dtype, data);
    if (!comparison.failure) comparison.failure = CheckWritten(output, scan);
    CompareElements(output, sampled, data, tolerance, scan, interpreter, comparison);
    if (!comparison.failure && sampled.projection)
      comparison.failure = CheckProjection(output, *sampled.projection, data);
  }
  return comparison;
}

}  // namespace hone
