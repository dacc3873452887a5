#include "ir/rewrites/registry.h"

#include <fmt/format.h>

#include "ir/graph/stage_graph.h"
#include "ir/schedule/refuse.h"

namespace hone {
namespace rewrites {

extern const GraphRewrite kFuseAxes, kCacheWrite, kIm2col, kWinograd, kTrimPadding, kOnlineReduction, kMaxIgnoreNan,
    kReindex, kSplitClamp, kShiftSign, kPadReduction, kWiden, kFlattenAxes, kSplitReduction, kBf16Factors, kBf16Pieces;

}  // namespace rewrites

namespace {

constexpr const GraphRewrite* kRewrites[] = {
    &rewrites::kFuseAxes,     //
    &rewrites::kCacheWrite,   //
    &rewrites::kIm2col,       //
    &rewrites::kWinograd,     //
    &rewrites::kTrimPadding,  //
    &rewrites::kOnlineReduction, &rewrites::kMaxIgnoreNan, &rewrites::kReindex,     &rewrites::kSplitClamp,
    &rewrites::kShiftSign,  //
    &rewrites::kPadReduction,    &rewrites::kWiden,        &rewrites::kFlattenAxes, &rewrites::kSplitReduction,
    &rewrites::kBf16Factors,     &rewrites::kBf16Pieces,
};

std::string NamesOfAll() {
  std::string names;
  for (size_t i = 0; i < std::size(kRewrites); ++i) {
    const bool is_last = i + 1 == std::size(kRewrites);
    names.append(i == 0 ? "" : is_last ? " and " : ", ").append(kRewrites[i]->name);
  }
  return names;
}

}  // namespace

std::span<const GraphRewrite* const> AllRewrites() { return kRewrites; }

const GraphRewrite* FindRewrite(std::string_view name) {
  for (const GraphRewrite* rewrite : kRewrites)
    if (rewrite->name == name) return rewrite;
  return nullptr;
}

Result<Kernel> ApplyRewrite(const Kernel& kernel, const RewriteStep& step) {
  const GraphRewrite* rewrite = FindRewrite(step.rewrite);
  if (rewrite == nullptr)
    return Refuse(fmt::format("there is no rewrite {}; there are {}", step.rewrite, NamesOfAll()));
  const bool enough_names =
      step.names.size() == rewrite->names || (rewrite->or_more_names && step.names.size() > rewrite->names);
  if (!enough_names || step.numbers.size() != rewrite->numbers)
    return Refuse(fmt::format("{} takes {}", rewrite->name, rewrite->takes));
  const StageId stage = FindStage(kernel, step.stage);
  if (!stage) return Refuse("there is no stage " + step.stage);
  return rewrite->apply(kernel, stage, step);
}

bool Admits(Accuracy accuracy, Rounding rounding) {
  if (rounding == Rounding::kCoarsest) return accuracy == Accuracy::kFast;
  return rounding != Rounding::kCoarser || accuracy != Accuracy::kStrict;
}

}  // namespace hone
