// Any text is a kernel or a short error with a place, and a look-up can do with it all that it does. A kernel keeps the
// limits, prints, has a canonical form, and both read back to it; where it is small, its reference can be computed
// without touching memory that is not its own.
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "ir/graph/print.h"
#include "ir/graph/verify_kernel.h"
#include "ir/language/canonical.h"
#include "ir/language/parse.h"
#include "ir/reference/interpret.h"
#include "tests/fuzz/grow_text.h"

namespace hone {
namespace {

constexpr int64_t kSmallOperands = 1 << 20;  // bytes
constexpr double kSmallCost = 1e5;

void Interpret(const Kernel& kernel) {
  if (!IsStatic(kernel)) return;
  int64_t bytes = 0;
  for (const Tensor& tensor : kernel.tensors) {
    bytes += ElementCount(kernel, tensor) * ByteSize(tensor.dtype);
    if (bytes > kSmallOperands) return;
  }
  for (const Stage& stage : kernel.stages) {
    double points = 1;
    for (const Axis& axis : stage.reduce_axes) points *= static_cast<double>(EvalExtent(kernel, axis.extent));
    if (points > kSmallCost) return;
  }
  std::vector<std::vector<char>> buffers;  // of exact size, so that the sanitizer sees every overrun
  std::vector<OperandView> views;
  int outputs = 0;
  for (TensorId id : kernel.operands) {
    const Tensor& tensor = kernel.tensors[id];
    if (tensor.kind == TensorKind::kOutput) {
      ++outputs;
      continue;
    }
    buffers.emplace_back(static_cast<size_t>(ElementCount(kernel, tensor) * ByteSize(tensor.dtype)), 1);
    views.push_back({buffers.back().data()});
  }
  Interpreter interpreter(kernel, views);
  int output = 0;
  for (TensorId id : kernel.operands) {
    const Tensor& tensor = kernel.tensors[id];
    if (tensor.kind != TensorKind::kOutput) continue;
    if (interpreter.CostPerElement(output) <= kSmallCost) {
      interpreter.At(output, 0);
      interpreter.At(output, ElementCount(kernel, tensor) - 1);
    }
    ++output;
  }
  HONE_CHECK(output == outputs);
}

constexpr size_t kLongestMessage = 4096;

constexpr Brackets kBrackets[] = {
    {"(", ")"},       {"-", ""},        {"not ", ""},           {"exp(", ")"},       {"relu6(", ")"},
    {"gelu(", ")"},   {"min(1, ", ")"}, {"if(i < 1, ", ", 0)"}, {"sum(q < 2) ", ""}, {"x[clamp(", ",0,0)]"},
    {"(N + ", ")/2"}, {"1.0 + ", ""}};

void ExpectReadsBack(const Kernel& kernel, const std::string& text) {
  Result<Kernel> again = ParseKernel(text);
  HONE_CHECK(again.has_value());
  HONE_CHECK(SameKernel(kernel, *again));
}

}  // namespace
}  // namespace hone

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  return hone::GrowText(data, size, max_size, seed, hone::HostileReader::kKernel, hone::kBrackets);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hone;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  Result<Kernel> kernel = ParseKernel(text);
  if (!kernel) {
    HONE_CHECK(!kernel.error().message.empty() && kernel.error().where.starts_with("kernel:"));
    HONE_CHECK(kernel.error().kind != ErrorKind::kInternal);
    HONE_CHECK(kernel.error().Text().size() <= kLongestMessage);
    return 0;
  }
  const ParseLimits limits;
  HONE_CHECK(NodesOf(*kernel) <= static_cast<size_t>(limits.nodes));
  HONE_CHECK(VerifyKernel(*kernel).has_value());
  HONE_CHECK(LookUpKernel(text).empty());
  // Names of 64 letters may make more of the text than is read; the canonical ones never do.
  if (std::string printed = PrintKernel(*kernel); printed.size() <= limits.text_bytes)
    ExpectReadsBack(*kernel, printed);
  ExpectReadsBack(WithCanonicalNames(*kernel), Canonicalize(*kernel).text);
  Interpret(*kernel);
  return 0;
}
