// Properties that hold for every kernel, on random ones: printing and parsing, canonical form, and the interpreter
// against a walk over the expression trees.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ir/graph/element.h"
#include "ir/graph/print.h"
#include "ir/graph/verify_kernel.h"
#include "ir/language/canonical.h"
#include "ir/language/parse.h"
#include "ir/reference/interpret.h"
#include "tests/support/kernel_inputs.h"
#include "tests/support/op_definitions.h"
#include "tests/support/operation_samples.h"
#include "tests/support/random_kernel.h"

namespace hone {
namespace {

constexpr uint64_t kSeed = 7;
constexpr int kKernels = 1000;
constexpr double kInfinite = std::numeric_limits<double>::infinity();

template <typename Check>
void ForRandomKernels(const Check& check) {
  for (int n = 0; n < kKernels; ++n) {
    Rng rng = Rng(kSeed).Fork(static_cast<uint64_t>(n));
    std::string text = RandomKernel(rng).Text();
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << " kernel " << n << "\n" << text);
    Result<Kernel> kernel = ParseKernel(text);
    ASSERT_TRUE(kernel) << kernel.error().Text();
    check(*kernel, rng);
    if (testing::Test::HasFatalFailure() || testing::Test::HasNonfatalFailure()) return;
  }
}

TEST(RandomKernels, PrintAndParseBack) {
  ForRandomKernels([](const Kernel& kernel, Rng&) {
    Result<Kernel> again = ParseKernel(PrintKernel(kernel));
    ASSERT_TRUE(again) << PrintKernel(kernel) << again.error().Text();
    EXPECT_TRUE(SameKernel(kernel, *again)) << PrintKernel(kernel) << PrintKernel(*again);
    EXPECT_TRUE(VerifyKernel(kernel));
  });
}

TEST(RandomKernels, CanonicalFormIgnoresNames) {
  ForRandomKernels([](const Kernel& kernel, Rng& rng) {
    Canonical canonical = Canonicalize(kernel);
    Kernel renamed = kernel;
    auto fresh = [&](std::string_view stem, size_t i) {
      return std::string(stem) + std::to_string(rng.Below(1000)) + "_" + std::to_string(i);
    };
    renamed.name = "other";
    for (TensorId id : renamed.tensors.ids()) renamed.tensors[id].name = fresh("t", id.index());
    for (size_t i = 0; i < renamed.sizes.size(); ++i) renamed.sizes[i].name = fresh("S", i);
    for (Stage& stage : renamed.stages) {
      for (size_t i = 0; i < stage.axes.size(); ++i) stage.axes[i].name = fresh("a", i);
      for (size_t i = 0; i < stage.reduce_axes.size(); ++i) stage.reduce_axes[i].name = fresh("r", i);
    }
    Result<Kernel> parsed = ParseKernel(PrintKernel(renamed));
    ASSERT_TRUE(parsed) << parsed.error().Text();
    Canonical other = Canonicalize(*parsed);
    EXPECT_EQ(canonical.text, other.text);
    EXPECT_EQ(canonical.class_text, other.class_text);
    EXPECT_EQ(canonical.shape, other.shape);
    Result<Kernel> back = ParseKernel(canonical.text);
    ASSERT_TRUE(back) << canonical.text << back.error().Text();
    EXPECT_TRUE(SameKernel(*back, WithCanonicalNames(kernel))) << canonical.text;
  });
}

// ---- the language's meaning, as directly as it can be written

class TreeWalk {
 public:
  TreeWalk(const Kernel& kernel, const std::vector<OperandView>& inputs)
      : kernel_(kernel), values_(kernel.tensors.size()) {
    size_t next = 0;
    for (TensorId id : kernel.operands) {
      const Tensor& tensor = kernel.tensors[id];
      if (tensor.kind == TensorKind::kInput) ReadInput(tensor, inputs[next++].data, &values_[id]);
    }
    for (const Stage& stage : kernel.stages) Run(stage);
  }
  const std::vector<double>& Of(TensorId id) const { return values_[id]; }

 private:
  void ReadInput(const Tensor& tensor, const void* data, std::vector<double>* out) const {
    for (int64_t i = 0; i < ElementCount(kernel_, tensor); ++i) {
      switch (tensor.dtype) {
        case DType::kF32: out->push_back(static_cast<double>(static_cast<const float*>(data)[i])); break;
        case DType::kF64: out->push_back(static_cast<const double*>(data)[i]); break;
        case DType::kI32: out->push_back(static_cast<const int32_t*>(data)[i]); break;
        case DType::kI8: out->push_back(static_cast<const int8_t*>(data)[i]); break;
        case DType::kU8: out->push_back(static_cast<const uint8_t*>(data)[i]); break;
        case DType::kBool: out->push_back(static_cast<const uint8_t*>(data)[i] != 0); break;
        default: out->push_back(LoadElement(tensor.dtype, data, static_cast<size_t>(i))); break;
      }
    }
  }

  void Run(const Stage& stage) {
    std::vector<int64_t> extents;
    for (const Axis& axis : stage.axes) extents.push_back(EvalExtent(kernel_, axis.extent));
    for (const Axis& axis : stage.reduce_axes) extents.push_back(EvalExtent(kernel_, axis.extent));
    std::vector<double>& out = values_[stage.output];
    out.resize(static_cast<size_t>(ElementCount(kernel_, kernel_.tensors[stage.output])));
    point_.assign(extents.size(), 0);
    for (double& element : out) {
      double result = stage.reduction == Reduction::kProd ? 1 : 0;
      bool first = true;
      do {
        double v = Value(stage.body);
        switch (stage.reduction) {
          case Reduction::kNone: result = v; break;
          case Reduction::kSum: result += v; break;
          case Reduction::kProd: result *= v; break;
          case Reduction::kMaxOfNumbers:
          case Reduction::kMax: result = first ? v : std::max(result, v); break;
          case Reduction::kMin: result = first ? v : std::min(result, v); break;
        }
        first = false;
      } while (Step(extents, stage.axes.size(), extents.size()));
      element = result;
      Step(extents, 0, stage.axes.size());
    }
  }

  // The next point in the dimensions begin … end-1; false once around.
  bool Step(const std::vector<int64_t>& extents, size_t begin, size_t end) {
    for (size_t d = end; d-- > begin;) {
      if (++point_[d] < extents[d]) return true;
      point_[d] = 0;
    }
    return false;
  }

  double Load(const Expr& load, const Expr* fill) {
    const Tensor& tensor = kernel_.tensors[load.tensor()];
    int64_t offset = 0;
    for (size_t d = 0; d < load.args().size(); ++d) {
      int64_t extent = EvalExtent(kernel_, tensor.shape[d]), index = static_cast<int64_t>(Value(load.arg(d)));
      if (index < 0 || index >= extent) {
        EXPECT_NE(fill, nullptr) << "out of bounds";
        return fill ? Value(*fill) : 0;
      }
      offset = offset * extent + index;
    }
    return values_[load.tensor()][static_cast<size_t>(offset)];
  }

  double Value(const Expr& e) {
    auto arg = [&](size_t i) { return Value(e.arg(i)); };
    switch (e.op()) {
      case Op::kInt: return static_cast<double>(e.int_value());
      case Op::kFloat: return e.float_value();
      case Op::kSize: return static_cast<double>(EvalExtent(kernel_, e));
      case Op::kAxis: return static_cast<double>(point_[e.axis().index()]);
      case Op::kLoad: return Load(e, nullptr);
      case Op::kPad: return Load(e.arg(0), &e.arg(1));
      case Op::kSelect: return arg(0) != 0 ? arg(1) : arg(2);
      case Op::kCast: {
        double x = arg(0);
        if (IsFloat(e.type())) return x;
        return std::clamp(std::trunc(x), -0x1p31, 0x1p31 - 1);
      }
      default: return DefinitionOf(e.op())->value(arg(0), e.args().size() > 1 ? arg(1) : 0);
    }
  }

  const Kernel& kernel_;
  IdVector<TensorId, std::vector<double>> values_;
  std::vector<int64_t> point_;
};

void ExpectInterpreterAgrees(const Kernel& kernel, Rng& rng) {
  KernelInputs inputs(kernel, rng);
  TreeWalk walk(kernel, inputs.Views());
  int output = 0;
  for (TensorId id : kernel.operands) {
    if (kernel.tensors[id].kind != TensorKind::kOutput) continue;
    std::vector<Reference> results = WholeReference(kernel, inputs, output++);
    const std::vector<double>& wanted = walk.Of(id);
    ASSERT_EQ(results.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      // A jump may fall on either side of the last bit of a double; the magnitude says so.
      double allowed = 1e-11 * std::max(1.0, std::abs(wanted[i])) + (results[i].magnitude > 1e6 ? kInfinite : 0);
      if (std::isnan(wanted[i]))
        EXPECT_TRUE(std::isnan(results[i].value));
      else
        EXPECT_TRUE(wanted[i] == results[i].value || std::abs(wanted[i] - results[i].value) <= allowed)
            << "element " << i << ": " << results[i].value << ", wanted " << wanted[i];
      EXPECT_GE(results[i].magnitude, 0);
      if (testing::Test::HasNonfatalFailure()) return;
    }
  }
}

TEST(RandomKernels, InterpreterAgreesWithATreeWalk) {
  ForRandomKernels([](const Kernel& kernel, Rng& rng) { ExpectInterpreterAgrees(kernel, rng); });
}

TEST(RandomKernels, InterpreterAgreesWithATreeWalkOnEveryOperation) {
  Rng rng(kSeed);
  for (const std::string& text : OperationSamples()) {
    SCOPED_TRACE(text);
    Result<Kernel> kernel = ParseKernel(text);
    ASSERT_TRUE(kernel);
    ExpectInterpreterAgrees(*kernel, rng);
  }
}

}  // namespace
}  // namespace hone
