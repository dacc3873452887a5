#include "ir/language/parse.h"

#include <fmt/format.h>

#include "base/check.h"
#include "ir/graph/print.h"
#include "ir/graph/verify_kernel.h"
#include "ir/language/ops.h"
#include "ir/language/parse_resolve.h"
#include "ir/language/parse_tree.h"

namespace hone {
namespace {

std::string BytesText(double bytes) {
  constexpr std::string_view kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1024;
  return fmt::format("{:.4g} {}", bytes, kUnits[unit]);
}

// Extents are positive and within the limits, and so are the bytes; nothing after this can overflow on a size.
class SizeChecker {
 public:
  SizeChecker(const Kernel& kernel, const SourceMap& map, std::string_view file, const ParseLimits& limits)
      : kernel_(kernel), map_(map), file_(file), limits_(limits) {}

  Result<void> Run() {
    double operands = 0;
    for (TensorId id : kernel_.tensors.ids()) {
      const Tensor& tensor = kernel_.tensors[id];
      for (size_t d = 0; d < tensor.declared.size(); ++d)
        HONE_TRY(
            CheckExtent(map_.tensors[id], tensor.declared[d], fmt::format("dimension {} of {}", d + 1, tensor.name)));
      double bytes = static_cast<double>(ByteSize(tensor.dtype));
      for (size_t d = 0; d < tensor.shape.size(); ++d) {
        std::string what = fmt::format("dimension {} of {}", d + 1, tensor.name);
        bytes *= static_cast<double>(HONE_TRY(CheckExtent(map_.tensors[id], tensor.shape[d], what)));
      }
      if (tensor.kind != TensorKind::kIntermediate) operands += bytes;
      double limit = static_cast<double>(limits_.tensor_bytes);
      if (bytes > limit)
        return At(map_.tensors[id], ErrorKind::kLimit,
                  fmt::format("{} takes {}, hone's limit is {}", tensor.name, BytesText(bytes), BytesText(limit)));
      if (operands > limit)
        return At(map_.tensors[id], ErrorKind::kLimit,
                  fmt::format("the operands up to {} take {} together, hone's limit is {}", tensor.name,
                              BytesText(operands), BytesText(limit)));
    }
    for (StageId id : kernel_.stages.ids()) {
      double points = 1;
      for (const Axis& axis : kernel_.stages[id].axes) points *= static_cast<double>(UpperExtent(kernel_, axis.extent));
      for (const Axis& axis : kernel_.stages[id].reduce_axes)
        points *= static_cast<double>(
            HONE_TRY(CheckExtent(map_.stages[id], axis.extent, fmt::format("the range of {}", axis.name))));
      if (points > limits_.points)
        return At(map_.stages[id], ErrorKind::kLimit,
                  fmt::format("{} takes {:.3g} steps to compute, hone's limit is {:.3g}",
                              kernel_.tensors[kernel_.stages[id].output].name, points, limits_.points));
    }
    return {};
  }

 private:
  Error At(Position position, ErrorKind kind, std::string message) const {
    return Error{kind, std::move(message), WhereText(file_, position)};
  }

  Result<int64_t> CheckExtent(Position position, const Expr& extent, const std::string& what) const {
    std::optional<ExtentRange> range = CheckedExtent(kernel_, extent);
    auto text = [&] { return Shortened(PrintExtent(kernel_, extent)); };
    if (!range)
      return At(position, ErrorKind::kInvalid,
                fmt::format("{} is {}, which divides by zero or does not fit into 64 bits", what, text()));
    if (range->lo < 1)
      return At(position, ErrorKind::kInvalid,
                fmt::format("{} is {}{}, wanted at least 1", what,
                            range->lo == range->hi ? fmt::format("{}", range->lo)
                                                   : fmt::format("{} at its smallest", range->lo),
                            extent.op() == Op::kInt ? "" : fmt::format(" ({})", text())));
    if (range->hi > limits_.size)
      return At(position, ErrorKind::kLimit,
                fmt::format("{} is {}, hone's limit for a size is {}", what, range->hi, limits_.size));
    return range->hi;
  }

  const Kernel& kernel_;
  const SourceMap& map_;
  std::string_view file_;
  const ParseLimits& limits_;
};

Result<Kernel> ParseLanguage(std::string_view text, std::string_view file, const ParseLimits& limits) {
  KernelTree tree = HONE_TRY(ParseSyntax(text, file, limits));
  SourceMap map;
  Kernel kernel = HONE_TRY(ResolveKernel(tree, file, limits, &map));
  HONE_TRY(SizeChecker(kernel, map, file, limits).Run());
  if (std::optional<Violation> violation = FindViolation(kernel)) {
    Position position = map.stages[violation->stage];
    if (auto it = map.nodes.find(violation->node); it != map.nodes.end()) position = it->second;
    violation->error.where = WhereText(file, position);
    return std::move(violation->error);
  }
  return kernel;
}

}  // namespace

Result<Kernel> ParseKernel(std::string_view text, std::string_view file, const ParseLimits& limits) {
  if (text.size() > limits.text_bytes)
    return Error{
        ErrorKind::kLimit,
        fmt::format("the text has {}, hone's limit for a kernel is {}", BytesText(static_cast<double>(text.size())),
                    BytesText(static_cast<double>(limits.text_bytes))),
        WhereText(file, {})};
  size_t offset = 0;
  Position position;
  Result<Token> first = NextToken(text, &offset, &position);
  if (first && first->IsWord("kernel")) return ParseLanguage(text, file, limits);

  Expansion expansion = HONE_TRY(ExpandOperation(text, file, limits));
  Result<Kernel> kernel = ParseLanguage(expansion.source, "expansion", limits);
  if (kernel) return kernel;
  // What is wrong with the expansion (sizes past a limit) is wrong with the operation as it was asked for.
  Error error = std::move(kernel).error();
  error.where = WhereText(file, expansion.position);
  return std::move(error).Context(expansion.name);
}

}  // namespace hone
