// The rewrites of ir/rewrites/registry.h on a stage, one function each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/rewrites/registry.h"

namespace hone {

inline Result<Kernel> RewriteStage(const Kernel& kernel, const char* rewrite, StageId stage,
                                   std::vector<std::string> names = {}, std::vector<int64_t> numbers = {}) {
  const TensorId output = kernel.stages[stage].output;
  return ApplyRewrite(kernel, {rewrite, kernel.tensors[output].name, std::move(names), std::move(numbers)});
}

inline Result<Kernel> FuseAxes(const Kernel& kernel, StageId stage, const std::vector<std::string>& axes) {
  return RewriteStage(kernel, "fuse_axes", stage, axes);
}
inline Result<Kernel> FlattenAxes(const Kernel& kernel, StageId stage, const std::vector<std::string>& axes) {
  return RewriteStage(kernel, "flatten_axes", stage, axes);
}
inline Result<Kernel> SplitReduction(const Kernel& kernel, StageId stage, const std::string& axis, int64_t run) {
  return RewriteStage(kernel, "split_reduction", stage, {axis}, {run});
}
inline Result<Kernel> CacheWrite(const Kernel& kernel, StageId stage, const std::string& result) {
  return RewriteStage(kernel, "cache_write", stage, {result});
}
inline Result<Kernel> Im2col(const Kernel& kernel, StageId stage, const std::string& tensor, const std::string& result,
                             const std::vector<std::string>& axes) {
  std::vector<std::string> names = {tensor, result};
  names.insert(names.end(), axes.begin(), axes.end());
  return RewriteStage(kernel, "im2col", stage, std::move(names));
}
inline Result<Kernel> TrimPadding(const Kernel& kernel, StageId stage, const std::string& tensor,
                                  const std::string& base, const std::vector<std::string>& axes) {
  std::vector<std::string> names = {tensor, base};
  names.insert(names.end(), axes.begin(), axes.end());
  return RewriteStage(kernel, "trim_padding", stage, std::move(names));
}
inline Result<Kernel> Winograd(const Kernel& kernel, StageId stage, const std::string& base, int64_t m,
                               int64_t columns) {
  return RewriteStage(kernel, "winograd", stage, {base}, {m, columns});
}
inline Result<Kernel> OnlineReduction(const Kernel& kernel, StageId stage, const std::string& base, int64_t block) {
  return RewriteStage(kernel, "online_reduction", stage, {base}, {block});
}
inline Result<Kernel> MaxIgnoreNan(const Kernel& kernel, StageId stage) {
  return RewriteStage(kernel, "max_ignore_nan", stage);
}

}  // namespace hone
