// Storage layouts of stages, as cache_read and store give them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ir/schedule/schedule.h"
#include "ir/steps/fit_context.h"
#include "ir/steps/schedule_state.h"

namespace hone {

// Whether the layout has each axis of the stage once: whole, or as its quotient and remainder by one factor. Empty:
// yes.
Result<void> CheckLayout(const ScheduleState& state, StageId stage, const std::vector<LayoutDim>& layout);

// A layout whose last dimension is swizzled has rows of 128 bytes, in parts of 16: of row r, part p is where part
// p XOR (r modulo 8) would be. Block storage alone is.
constexpr int64_t kSwizzledRowBytes = 128;
inline bool IsSwizzled(const std::vector<LayoutDim>& layout) { return !layout.empty() && layout.back().is_swizzled; }

// Factors follow the tiles that the layout was made for. Why they changed; "" if they did not.
std::string FitLayout(std::vector<LayoutDim>& layout, const FitContext& context);

}  // namespace hone
