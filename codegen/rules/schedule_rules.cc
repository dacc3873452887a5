#include "codegen/rules/schedule_rules.h"

namespace hone {
namespace {

bool ScheduleProducts(SchedulePlanner& planner, const std::string& stage) {
  return ScheduleWinograd(planner, stage) || ScheduleContraction(planner, stage);
}

bool ScheduleWindows(SchedulePlanner& planner, const std::string& stage) {
  return ScheduleWindowOfBytes(planner, stage) || ScheduleWindow(planner, stage);
}

constexpr ScheduleRule kCpuReductions[] = {
    {"contraction", ScheduleProducts, true},
    {"window", ScheduleWindows, true},
    {"rows", ScheduleRows},
    {"reduction", ScheduleReduction},
};
constexpr ScheduleRule kCpuElementwise[] = {
    {"rows", ScheduleRows},
    {"transpose", ScheduleTranspose},
    {"elementwise", ScheduleElementwise},
};

bool ScheduleGpuRowsOrBlocks(SchedulePlanner& planner, const std::string& stage) {
  return ScheduleGpuRowChains(planner, stage) || ScheduleGpuRows(planner, stage);
}

bool ScheduleGpuProducts(SchedulePlanner& planner, const std::string& stage) {
  return ScheduleGpuColumns(planner, stage) || ScheduleGpuWindows(planner, stage) ||
         ScheduleGpuWinograd(planner, stage) || ScheduleGpuTiles(planner, stage);
}

constexpr ScheduleRule kGpuReductions[] = {
    {"tiles", ScheduleGpuProducts, true},
    {"block_rows", ScheduleGpuRowsOrBlocks},
    {"outputs", ScheduleGpuOutputs},
};
constexpr ScheduleRule kGpuElementwise[] = {
    {"rows", ScheduleGpuRowChains},
    {"elementwise", ScheduleGpuElementwise},
};

constexpr ScheduleRule kPlainGpuRule[] = {{"plain", ScheduleGpuPlainly}};

}  // namespace

constinit const RuleTable kCpuRules{kCpuReductions, kCpuElementwise};
constinit const RuleTable kGpuRules{kGpuReductions, kGpuElementwise};
constinit const RuleTable kPlainGpuRules{kPlainGpuRule, kPlainGpuRule};

}  // namespace hone
