#include "ir/steps/step_type.h"

#include <iterator>

#include "base/check.h"

namespace hone {
namespace {

// In the order of Step's alternatives.
constexpr const StepType* kTypes[] = {
    &steps::kRewrite,   &steps::kInline,    &steps::kCacheRead,    &steps::kRfactor,   &steps::kSplit,
    &steps::kFuse,      &steps::kReorder,   &steps::kParallel,     &steps::kVectorize, &steps::kUnroll,
    &steps::kComputeAt, &steps::kStore,     &steps::kRegisterTile, &steps::kTail,      &steps::kPrefetch,
    &steps::kBind,      &steps::kTensorize, &steps::kPipeline,
};
static_assert(std::size(kTypes) == std::variant_size_v<Step>);

}  // namespace

const StepType& TypeOf(const Step& step) {
  const StepType& type = *kTypes[step.index()];
  HONE_CHECK(type.index == step.index());
  return type;
}

const StepType* FindStepType(std::string_view verb) {
  for (const StepType* type : kTypes)
    if (type->verb == verb) return type;
  return verb == steps::kOldRegisterTile.verb ? &steps::kOldRegisterTile : nullptr;
}

std::string StepVerbs() {
  std::string verbs;
  for (const StepType* type : kTypes) verbs.append(verbs.empty() ? "" : " ").append(type->verb);
  return verbs;
}

const std::string& StageOf(const Step& step) {
  return std::visit([](const auto& alternative) -> const std::string& { return alternative.stage; }, step);
}

}  // namespace hone
