// Operators that draw numbers. They run on the host, once a run of the network; what they draw is no function of what
// they read, so nothing of it is computed ahead. With `seed` a session draws the same numbers as every other one that
// runs as often; without it the system's source of randomness decides.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <random>

#include "base/mutex.h"
#include "base/rng.h"
#include "network/onnx/translate.h"

namespace hone {
namespace {

using Drawn = Result<std::vector<Numbers>>;
using Arguments = std::span<const Numbers* const>;

// A generator for each time that an operator runs. Thread-safe.
class Generators {
 public:
  explicit Generators(const OperatorCall& call) : seeds_(SeedOf(call)) {}
  Rng Next() {
    MutexLock lock(mutex_);
    return Rng(seeds_.Next());
  }

 private:
  static uint64_t SeedOf(const OperatorCall& call) {
    if (call.Find("seed") != nullptr) return std::bit_cast<uint64_t>(call.Real("seed", 0));
    std::random_device source;
    return uint64_t{source()} << 32 | source();
  }

  Mutex mutex_;
  Rng seeds_ HONE_GUARDED_BY(mutex_);
};

Result<Outputs> Draw(OperatorCall& call, TensorType type, OperandTypes takes, const std::vector<ValueId>& inputs,
                     std::function<void(Rng&, Arguments, Numbers&)> draw) {
  HONE_TRY(CheckShape(type.shape));
  HostOperation host{call.node().op, takes, {type}};
  host.is_random = true;
  host.compute = [type, draw = std::move(draw),
                  generators = std::make_shared<Generators>(call)](Arguments in) -> Drawn {
    Numbers out = MakeNumbers(type.dtype, type.shape);
    Rng rng = generators->Next();
    draw(rng, in, out);
    return std::vector<Numbers>{std::move(out)};
  };
  return call.build.Host(std::move(host), inputs);
}

// Of `dtype`, an attribute, or else of `standard`.
Result<DType> DTypeOf(const OperatorCall& call, DType standard) {
  const int64_t given = call.Whole("dtype", 0);
  if (given == 0) return standard;
  const std::optional<DType> dtype = ElementTypeOf(given);
  if (!dtype) return call.build.Unsupported(fmt::format("ONNX's element type {}", given));
  return *dtype;
}

using Distribution = std::function<double(Rng&)>;

Distribution Normal(const OperatorCall& call) {
  return [mean = call.Real("mean", 0), scale = call.Real("scale", 1)](Rng& rng) { return mean + scale * rng.Normal(); };
}
Distribution Uniform(const OperatorCall& call) {
  return
      [low = call.Real("low", 0), high = call.Real("high", 1)](Rng& rng) { return low + (high - low) * rng.Uniform(); };
}

template <Distribution (*distribution)(const OperatorCall&), bool is_like>
Result<Outputs> RandomTensor(OperatorCall& call) {
  const DType standard = is_like ? call.build.dtype(call.In(0)) : DType::kF32;
  TensorType type{HONE_TRY(DTypeOf(call, standard)), is_like ? call.shape(0) : call.Wholes("shape", {})};
  if (!IsFloat(type.dtype)) return call.build.Invalid(fmt::format("random numbers of {}", Name(type.dtype)));
  const ValueId shape = call.build.Constant(WholeNumbers(type.shape, {static_cast<int64_t>(type.shape.size())}));
  return Draw(call, type, ".", {shape}, [draw = distribution(call)](Rng& rng, Arguments, Numbers& out) {
    for (double& element : out.real) element = draw(rng);
  });
}

Result<Outputs> OfTraining(OperatorCall& call) {
  return call.build.Unsupported(
      "hone draws no numbers for it; if it is dropout of a model exported while it was trained, export it in "
      "evaluation mode");
}

// From logarithms [batch, classes] of what is in proportion to probabilities, the numbers of `sample_size` classes
// each.
Result<Outputs> Multinomial(OperatorCall& call) {
  const Shape x = call.shape(0);
  const int64_t count = call.Whole("sample_size", 1);
  const DType dtype = HONE_TRY(DTypeOf(call, DType::kI32));
  if (x.size() != 2 || x[1] < 1 || count < 0 || !IsFloat(call.build.dtype(call.In(0))) || IsFloat(dtype))
    return call.build.Invalid(fmt::format("{} samples of {} as {}", count, ShapeText(x), Name(dtype)));
  const auto classes = static_cast<size_t>(x[1]);
  return Draw(call, {dtype, {x[0], count}}, "r", {call.In(0)}, [=](Rng& rng, Arguments in, Numbers& out) {
    std::vector<double> ends(classes);  // of the classes' parts of their sum
    for (int64_t row = 0; row < x[0]; ++row) {
      const double* logs = in[0]->real.data() + static_cast<size_t>(row) * classes;
      const double largest = *std::max_element(logs, logs + classes);
      double sum = 0;
      for (size_t i = 0; i < classes; ++i) ends[i] = sum += std::exp(logs[i] - largest);
      for (int64_t i = 0; i < count; ++i) {
        const auto found = std::upper_bound(ends.begin(), ends.end() - 1, rng.Uniform() * sum);
        out.whole[static_cast<size_t>(row * count + i)] = found - ends.begin();
      }
    }
  });
}

}  // namespace

std::vector<Operator> RandomOperators() {
  return {{"RandomNormal", 0, RandomTensor<Normal, false>},
          {"RandomNormalLike", 1, RandomTensor<Normal, true>},
          {"RandomUniform", 0, RandomTensor<Uniform, false>},
          {"RandomUniformLike", 1, OfTraining},
          {"Bernoulli", 1, OfTraining},
          {"Multinomial", 1, Multinomial}};
}

}  // namespace hone
