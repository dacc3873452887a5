// Any text is a kernel or an error with a place. A kernel prints, has a canonical form, and both read back to it; where
// it is small, its reference can be computed without touching memory that is not its own.
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "ir/canonical.h"
#include "ir/interpret.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"

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
    const Tensor& tensor = kernel.tensors[static_cast<size_t>(id)];
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
    const Tensor& tensor = kernel.tensors[static_cast<size_t>(id)];
    if (tensor.kind != TensorKind::kOutput) continue;
    if (interpreter.CostPerElement(output) <= kSmallCost) {
      interpreter.At(output, 0);
      interpreter.At(output, ElementCount(kernel, tensor) - 1);
    }
    ++output;
  }
  HONE_CHECK(output == outputs);
}

void ExpectReadsBack(const Kernel& kernel, const std::string& text) {
  Result<Kernel> again = ParseKernel(text);
  HONE_CHECK(again.has_value());
  HONE_CHECK(SameKernel(kernel, *again));
}

}  // namespace
}  // namespace hone

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hone;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  Result<Kernel> kernel = ParseKernel(text);
  if (!kernel) {
    HONE_CHECK(!kernel.error().message.empty() && kernel.error().where.starts_with("kernel:"));
    HONE_CHECK(kernel.error().kind != ErrorKind::kInternal);
    return 0;
  }
  HONE_CHECK(VerifyKernel(*kernel).has_value());
  ExpectReadsBack(*kernel, PrintKernel(*kernel));
  ExpectReadsBack(WithCanonicalNames(*kernel), Canonicalize(*kernel).text);
  Interpret(*kernel);
  return 0;
}
