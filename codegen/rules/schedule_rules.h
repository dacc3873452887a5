// The rules of default schedules, and which of them CPUs have, in which order. Another kind of device has a table of
// its own (codegen/device_kinds.h).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "codegen/rules/schedule_planner.h"
#include "ir/target.h"

namespace hone {

// Looks at the stage that writes the named tensor, with what feeds it; true if it scheduled it. Says why to the
// planner.
using ScheduleRuleFunction = bool (*)(SchedulePlanner& planner, const std::string& stage);

struct ScheduleRule {
  std::string_view name;  // in notes
  ScheduleRuleFunction schedule;
  bool finishes = false;  // a rule for reductions that also schedules the element-wise stage that reads the result
};

// In the order in which they are tried. The last rule of each list takes every stage.
struct RuleTable {
  // Positions are options of the decision "rule", the last one's excepted: stored, so new rules for reductions come
  // before the last, and behind the others.
  std::span<const ScheduleRule> reductions;
  std::span<const ScheduleRule> elementwise;
};

extern const RuleTable kCpuRules;
extern const RuleTable kGpuRules;
extern const RuleTable kPlainGpuRules;  // that ask nothing of a GPU: a thread per output
// By the target's kind (codegen/device_kinds.h). REQUIRES: there is a row for it.
const RuleTable& RulesFor(const Target& target);

bool ScheduleContraction(SchedulePlanner& planner, const std::string& stage);
// A convolution by minimal filtering, where the kernel's accuracy allows other rounding.
bool ScheduleWinograd(SchedulePlanner& planner, const std::string& stage);
bool ScheduleWindow(SchedulePlanner& planner, const std::string& stage);
// Windows of bytes by an instruction that sums products of a window's row. schedule_window_instruction.cc.
bool ScheduleWindowOfBytes(SchedulePlanner& planner, const std::string& stage);
bool ScheduleRows(SchedulePlanner& planner, const std::string& stage);
bool ScheduleTranspose(SchedulePlanner& planner, const std::string& stage);
// Any reduction: vectors along the last axis, one register tile per vector, the reduction in serial loops.
bool ScheduleReduction(SchedulePlanner& planner, const std::string& stage);
bool ScheduleElementwise(SchedulePlanner& planner, const std::string& stage);

// Ahead of all rules: rewrites accesses by functions of axes (`clamp(i + r - 1, 0, N - 1)`) into accesses by sums.
void StraightenAccesses(SchedulePlanner& planner);

// For GPUs: schedule_gpu.cc.
bool ScheduleGpuTiles(SchedulePlanner& planner, const std::string& stage);
// A part of tiles: a sum by an instruction of warps, where the device has one that pays. schedule_gpu_warps.cc.
bool ScheduleOnGroups(SchedulePlanner& planner,
                      const std::string& stage);  // of groups of warps: schedule_gpu_groups.cc
bool ScheduleOnWarps(SchedulePlanner& planner, const std::string& stage);
// Rows by the threads of a block, with all that a row needs. schedule_gpu_rows.cc.
bool ScheduleGpuRowChains(SchedulePlanner& planner, const std::string& stage);
// Columns by the threads of a block, which divide what is reduced. schedule_gpu_columns.cc.
bool ScheduleGpuColumns(SchedulePlanner& planner, const std::string& stage);
// Windows without a sum over channels: depthwise convolutions, pooling. schedule_gpu_windows.cc.
bool ScheduleGpuWindows(SchedulePlanner& planner, const std::string& stage);
// Convolutions by minimal filtering, where the kernel's accuracy allows other rounding. schedule_gpu_winograd.cc.
bool ScheduleGpuWinograd(SchedulePlanner& planner, const std::string& stage);
bool ScheduleGpuRows(SchedulePlanner& planner, const std::string& stage);
bool ScheduleGpuOutputs(SchedulePlanner& planner, const std::string& stage);
bool ScheduleGpuElementwise(SchedulePlanner& planner, const std::string& stage);
// Any stage, on any device.
bool ScheduleGpuPlainly(SchedulePlanner& planner, const std::string& stage);

// No rule, but a part of some: loops of an element-wise stage that is computed inside another's, whole rows in vectors.
void ScheduleInPlace(SchedulePlanner& planner, const std::string& stage);

}  // namespace hone
