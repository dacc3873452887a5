#include "backends/processes/kernel_source.h"

#include <fmt/format.h>

#include <map>

#include "ir/graph/specialize.h"
#include "ir/graph/stage_graph.h"
#include "ir/language/canonical.h"
#include "ir/language/parse.h"

namespace hone {

Result<KernelSource> ReadKernel(const std::string& text) {
  Kernel kernel = HONE_TRY(ParseKernel(text));
  std::string canonical = Canonicalize(kernel).text;
  return KernelSource{std::move(canonical), Specialize(std::move(kernel))};
}

Result<Manifest> DescribeKernel(const std::string& canonical, const Kernel& kernel, const Target& target) {
  Manifest manifest;
  manifest.kernel = canonical;
  manifest.target = PrintTarget(target);
  std::map<int64_t, int32_t> dynamic;  // index into Kernel::sizes -> index into hone_entry's sizes
  for (size_t s = 0; s < kernel.sizes.size(); ++s)
    if (!kernel.sizes[s].is_constant()) {
      dynamic[static_cast<int64_t>(s)] = static_cast<int32_t>(manifest.dynamic_sizes.size());
      manifest.dynamic_sizes.push_back(kernel.sizes[s].name);
    }
  for (size_t i = 0; i < kernel.operands.size(); ++i) {
    const Tensor& tensor = kernel.tensors[kernel.operands[i]];
    ManifestOperand operand;
    operand.name = tensor.name;
    operand.dtype = tensor.dtype;
    for (const Expr& extent : tensor.declared.empty() ? tensor.shape : tensor.declared) {
      ManifestDim dim{LowerExtent(kernel, extent), UpperExtent(kernel, extent), -1};
      if (extent.op() == Op::kSize && dim.lo != dim.hi) dim.size_index = dynamic.at(extent.int_value());
      if (dim.lo != dim.hi && dim.size_index < 0)
        return Error{
            ErrorKind::kUnsupported,
            fmt::format("a dimension of {} is computed from a size that is a range: it must be the size itself",
                        tensor.name),
            ""};
      operand.shape.push_back(dim);
    }
    operand.is_output = tensor.kind == TensorKind::kOutput;
    operand.is_const = tensor.is_const;
    operand.alignment = ByteSize(tensor.dtype);
    manifest.operands.push_back(std::move(operand));
  }
  manifest.accuracy = kernel.options.accuracy;
  if (IsStatic(kernel)) manifest.flops = FlopCount(kernel);
  return manifest;
}

}  // namespace hone
