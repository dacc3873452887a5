// `prefetch x for t panel`: a packed constant is read panel by panel, each of them in several passes, one for each tile
// that reads it. While one is read, the next is asked for, evenly over all passes. Asked for under the first pass
// alone, a little ahead of what is read, it would have to come from memory as fast as instructions take it.
#include <algorithm>

#include "base/arithmetic.h"
#include "codegen/lower/lower_internal.h"

namespace hone::lowering {
namespace {

constexpr int64_t kUsualAhead = 4096;  // bytes, where there is one pass alone, or no panel

}  // namespace

void Lowering::PrefetchNextPanel(StageId stage, ValueNode& load) {
  VarTable& vars = program_.vars;
  load.prefetch = kUsualAhead;
  const Linear flat = vars.ExpandAxes(program_.FlatIndex(load.buffer, load.index));
  const StageState& state = states_[stage];
  const StageSchedule& schedule = scheduled_.stages[stage];
  // A pass: what the stage's own loops run over, trip after trip.
  Linear own(0), start = flat, trip(0);
  int64_t trips = 1;
  for (size_t l = 0; l < state.loops.size(); ++l) {
    const LoopState& loop = state.loops[l];
    const std::optional<int64_t> step = StepOf(flat, loop.var);
    if (!step) return;
    own += Linear::Of(loop.var, *step);
    const bool is_instruction = schedule.loops[l].is_instruction;
    if (schedule.loops[l].kind != LoopKind::kSerial && !is_instruction) continue;
    start -= Linear::Of(loop.var, *step);
    if (is_instruction) continue;
    trip = trip * loop.extent + Linear::Of(loop.var);
    trips *= std::max<int64_t>(loop.extent, 1);
  }
  const int64_t panel = vars.Range(own).hi + 1;
  // Passes: loops around the stage, from inside, up to the one that goes on to the next panel.
  Linear pass(0);
  int64_t passes = 1;
  size_t outer = state.visible.size();
  for (; outer > 0 && !Moves(flat, state.visible[outer - 1]); --outer) {
    pass += Linear::Of(state.visible[outer - 1], passes);
    passes *= vars[state.visible[outer - 1]].range.hi + 1;
  }
  if (outer == 0 || passes < 2 || trips < 2) return;
  load.prefetch = panel * ByteSize(program_.buffer(load.buffer).dtype);
  load.prefetch_step = CeilDiv(panel, passes * trips);
  load.prefetch_at = start + Linear(panel) + (pass * trips + trip) * load.prefetch_step;
}

}  // namespace hone::lowering
