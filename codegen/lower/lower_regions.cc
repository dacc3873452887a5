// Places each stage: which part of its tensor it must compute there, by which loops, stored where. Stages are placed
// from the last to the first, so that every reader's loops are known.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "base/arithmetic.h"
#include "base/check.h"
#include "codegen/lower/lower_internal.h"
#include "ir/graph/stage_graph.h"

namespace hone::lowering {
namespace {

// Of a dimension: more is the range of a type, not of an index.
constexpr int64_t kWidestRegion = std::numeric_limits<int32_t>::max();

bool Contains(const std::vector<VarId>& list, VarId var) {
  return std::find(list.begin(), list.end(), var) != list.end();
}

}  // namespace

size_t Lowering::LoopIndex(StageId stage, const std::string& path) const {
  const auto& loops = scheduled_.stages[stage].loops;
  for (size_t i = 0; i < loops.size(); ++i)
    if (loops[i].path == path) return i;
  HONE_CHECK(!"loop exists");
  return 0;
}

std::vector<VarId> Lowering::VisibleInside(StageId stage, size_t depth) const {
  std::vector<VarId> visible = states_[stage].visible;
  for (size_t i = 0; i <= depth; ++i) visible.push_back(states_[stage].loops[i].var);
  return visible;
}

// Widen for an axis of which the visible loops fix a part. The start of the tile is known better than its terms show:
// it lies within the axis' range, if some element of the tile really is there; and so does all of the tile, where the
// hidden loops are unrolled or vectorised.
Lowering::Span Lowering::TileStart(VarId axis, const std::vector<VarId>& visible) {
  VarTable& vars = program_.vars;
  const Var var = vars[axis];
  const Linear expanded = vars.ExpandAxes(var.a);
  Span span = Widen(expanded, visible);
  if (span.min.IsConstant()) return span;
  bool exact = true;  // the hull's ends are elements: what the hidden loops add has nothing to do with the visible ones
  bool whole = true;
  for (const Term& term : expanded.terms()) {
    if (vars[term.var].kind != VarKind::kLoop) exact &= Visibility(term.var, visible) == std::pair(true, false);
    if (vars[term.var].kind != VarKind::kLoop || Contains(visible, term.var)) continue;
    LoopKind kind = loop_kinds_.at(term.var);
    whole &= kind == LoopKind::kUnrolled || kind == LoopKind::kVectorized;
  }
  Interval known = vars.Range(span.min);
  Interval tight = known;
  if (exact) tight.lo = std::max(known.lo, var.range.lo);
  tight.hi = std::min(known.hi, var.range.hi - (exact && whole ? span.extent - 1 : 0));
  if (tight.lo <= known.lo && tight.hi >= known.hi) return span;
  span.min = Linear::Of(vars.AddAxis(var.name + "'", span.min, tight));
  return span;
}

std::pair<bool, bool> Lowering::Visibility(VarId id, const std::vector<VarId>& visible) const {
  const Var& var = program_.vars[id];
  switch (var.kind) {
    case VarKind::kSize: return {true, false};
    case VarKind::kLoop: return Contains(visible, id) ? std::pair(true, false) : std::pair(false, true);
    case VarKind::kOpaque: return {false, true};
    default: break;
  }
  bool any = false, hidden = false;
  for (const Linear* part : {&var.a, &var.b})
    for (const Term& term : part->terms()) {
      auto [v, h] = Visibility(term.var, visible);
      any |= v;
      hidden |= h;
    }
  return {any, hidden};
}

Lowering::Span Lowering::Widen(const Linear& e, const std::vector<VarId>& visible) {
  Span span{Linear(e.constant()), 1};
  Linear unknown(0);  // the part that the visible loops say nothing about
  for (const Term& term : e.terms()) {
    const Var& var = program_.vars[term.var];
    auto [any, hidden] = Visibility(term.var, visible);
    if (!hidden) {
      span.min += Linear::Of(term.var, term.coef);
    } else if (any && var.kind == VarKind::kAxis) {
      Span inner = TileStart(term.var, visible);
      if (term.coef < 0) inner.min += Linear(inner.extent - 1);
      span.min.AddScaled(inner.min, term.coef);
      span.extent += (term.coef > 0 ? term.coef : -term.coef) * (inner.extent - 1);
    } else {
      unknown += Linear::Of(term.var, term.coef);
    }
  }
  // Together: terms that belong together, such as those of a remainder, reach less far than each alone.
  Interval range = program_.vars.Range(unknown);
  span.min += Linear(range.lo);
  span.extent += range.hi - range.lo;
  return span;
}

Linear Lowering::ExtentForm(const Expr& extent) {
  switch (extent.op()) {
    case Op::kInt: return Linear(extent.int_value());
    case Op::kSize: {
      size_t index = static_cast<size_t>(extent.int_value());
      if (kernel_.sizes[index].is_constant()) return Linear(kernel_.sizes[index].lo);
      return Linear::Of(program_.size_vars[index]);
    }
    default: break;
  }
  Linear a = ExtentForm(extent.arg(0)), b = ExtentForm(extent.arg(1));
  switch (extent.op()) {
    case Op::kAdd: return a + b;
    case Op::kSub: return a - b;
    case Op::kMul: return program_.vars.Product(a, b);
    case Op::kFloorDiv: return program_.vars.DivFloor(a, b.constant());
    case Op::kMod: return program_.vars.Mod(a, b.constant());
    case Op::kMin: return program_.vars.Min(a, b);
    case Op::kMax: return program_.vars.Max(a, b);
    default: HONE_CHECK(!"an extent");
  }
  return {};
}

Result<void> Lowering::InferRegion(StageId index) {
  const Stage& stage = kernel_.stages[index];
  const StageSchedule& schedule = scheduled_.stages[index];
  StageState& state = states_[index];
  const bool is_output = kernel_.tensors[stage.output].kind == TensorKind::kOutput;

  state.axes.resize(stage.axis_count());
  for (AxisId axis : stage.axis_ids()) {
    state.axes[axis].origin = state.axes[axis].min = Linear(0);
    state.axes[axis].extent = ExtentForm(stage.axis(axis).extent);
  }
  if (schedule.attach_stage) {
    const StageId consumer = schedule.attach_stage;
    state.visible = VisibleInside(consumer, LoopIndex(consumer, schedule.attach_loop));
    // What a block shares is there for all of its threads: the region spans them.
    if (EffectiveScope(scheduled_, index) == Scope::kBlock)
      std::erase_if(state.visible, [&](VarId var) { return thread_loops_.contains(var); });
  }
  if (is_output) return {};

  std::vector<StageId> readers = ReadersOf(kernel_, stage.output);
  std::vector<Span> kept;
  if (schedule.keep_stage) {
    kept = HONE_TRY(
        HullOf(index, readers, VisibleInside(schedule.keep_stage, LoopIndex(schedule.keep_stage, schedule.keep_loop))));
    std::erase_if(readers, [&](StageId reader) {
      while (reader && reader != schedule.attach_stage) reader = scheduled_.stages[reader].attach_stage;
      return !reader;
    });
  }
  std::vector<Span> hull = HONE_TRY(HullOf(index, readers, state.visible));
  std::vector<int64_t> room(hull.size(), 0);
  if (schedule.keep_stage) room = HONE_TRY(JoinParts(index, hull, kept));
  if (hull.empty()) return {};  // read by nobody: the whole tensor
  if (IsInOutput(index)) HONE_TRY(CheckInOutput(index, kept.empty() ? hull : kept));
  for (size_t d = 0; d < hull.size(); ++d) {
    AxisState& axis = state.axes[AxisId(d)];
    if (hull[d].extent > kWidestRegion)
      return Error{ErrorKind::kUnsupported,
                   fmt::format("{} is read at an index without bounds: clamp it", kernel_.tensors[stage.output].name),
                   ""};
    if (schedule.scope == Scope::kConst) {
      const Interval start = program_.vars.Range(program_.vars.ExpandAxes(hull[d].min));
      const int64_t begin = std::min<int64_t>(0, start.lo), end = start.hi + hull[d].extent;
      hull[d] = {Linear(begin), std::max(end, program_.vars.Range(axis.extent).hi) - begin};
    }
    axis.min = hull[d].min;
    axis.extent = Linear(hull[d].extent);
    axis.origin = kept.empty() ? axis.min : kept[d].min;
    axis.kept = room[d];
  }
  // Whole tiles of a split storage dimension are computed, so that nothing in a panel is left unwritten.
  for (const LayoutDim& dim : schedule.layout) {
    if (dim.part != LayoutDim::Part::kQuotient) continue;
    Linear& extent = state.axes[FindAxis(stage, dim.axis)].extent;
    extent = Linear(RoundUp(extent.constant(), dim.factor));
  }
  return {};
}

Result<std::vector<Lowering::Span>> Lowering::HullOf(StageId index, const std::vector<StageId>& readers,
                                                     const std::vector<VarId>& visible) {
  const Stage& stage = kernel_.stages[index];
  const StageState& state = states_[index];
  const size_t rank = stage.axes.size();
  std::vector<Span> hull;
  bool first = true;
  for (StageId reader : readers) {
    Result<void> outcome;
    auto visit = [&](auto&& self, const Expr& e, bool padded) -> void {
      if (!outcome) return;
      if (e.Loads(stage.output)) {
        for (size_t d = 0; d < rank; ++d) {
          const Linear& whole = state.axes[AxisId(d)].extent;
          // Data that stages make lie nowhere yet: those are placed after this one.
          Result<Linear> form = IndexForm(reader, e.arg(d), false);
          if (!form) {
            outcome = std::move(form).error();
            return;
          }
          Span span = Widen(*form, visible);
          if (padded && span.min.IsConstant() && whole.IsConstant()) {
            // The guard of pad() keeps reads inside the domain.
            const int64_t last = whole.constant() - 1;
            const int64_t lo = std::clamp<int64_t>(span.min.constant(), 0, last);
            const int64_t hi = std::clamp<int64_t>(span.min.constant() + span.extent - 1, lo, last);
            span = {Linear(lo), hi - lo + 1};
          }
          if (first) {
            hull.push_back(span);
            continue;
          }
          Span& have = hull[d];
          Linear delta = program_.vars.ExpandAxes(span.min - have.min);
          if (!delta.IsConstant()) {
            // Two readers far apart: everything that either can reach.
            auto reach = [&](const Span& s) {
              Interval range = program_.vars.Range(s.min);
              return Interval{range.lo, range.hi + s.extent - 1};
            };
            Interval a = reach(have), b = reach(span);
            have = {Linear(std::min(a.lo, b.lo)), std::max(a.hi, b.hi) - std::min(a.lo, b.lo) + 1};
          } else {
            int64_t lo = std::min<int64_t>(0, delta.constant());
            int64_t hi = std::max(have.extent, delta.constant() + span.extent);
            have.min += Linear(lo);
            have.extent = hi - lo;
          }
        }
        first = false;
      }
      for (const Expr& arg : e.args()) self(self, arg, e.op() == Op::kPad);
    };
    visit(visit, kernel_.stages[reader].body, false);
    HONE_TRY(std::move(outcome));
  }
  return hull;
}

// Whether the stage's loops outside of number `loop` decide a variable.
bool Lowering::KnownBefore(StageId stage, VarId id, size_t loop) const {
  const Var& var = program_.vars[id];
  if (var.kind == VarKind::kLoop) {
    const std::vector<LoopState>& loops = states_[stage].loops;
    for (size_t l = 0; l < loops.size(); ++l)
      if (loops[l].var == id) return l < loop;
    return true;  // encloses the stage
  }
  for (const Linear* part : {&var.a, &var.b})
    for (const Term& term : part->terms())
      if (!KnownBefore(stage, term.var, loop)) return false;
  return true;
}

// Whether each tile of an axis is finished before the next begins, so that elements of two tiles may be computed twice.
// A reduction must not come back to a tile, nor work in memory that another worker works in.
bool Lowering::ComputesTilesWhole(StageId index, AxisId axis, int64_t granule) const {
  const Stage& stage = kernel_.stages[index];
  const StageSchedule& schedule = scheduled_.stages[index];
  const StageState& state = states_[index];
  if (stage.reduction == Reduction::kNone) return true;
  size_t first_reducing = 0;
  while (first_reducing < state.loops.size() &&
         !(state.loops[first_reducing].reduces && state.loops[first_reducing].extent > 1))
    ++first_reducing;
  for (const Term& term : state.axes[axis].local.terms())
    if (std::abs(term.coef) >= granule && !KnownBefore(index, term.var, first_reducing)) return false;
  if (state.loops.empty() || schedule.loops[0].kind != LoopKind::kParallel) return true;
  return !schedule.promote_loop.empty() && LoopIndex(index, schedule.promote_loop) < first_reducing;
}

void Lowering::MakeLoops(StageId index) {
  const Stage& stage = kernel_.stages[index];
  const StageSchedule& schedule = scheduled_.stages[index];
  StageState& state = states_[index];
  VarTable& vars = program_.vars;
  const std::string& name = kernel_.tensors[stage.output].name;

  // Forward: extents of what each split and fusion makes.
  std::map<std::string, Linear> extents;
  std::map<std::string, std::vector<int64_t>> factors;  // of each split, after small extents shrank them
  for (AxisId axis : stage.axis_ids()) {
    state.axes[axis].extent_max = vars.Range(state.axes[axis].extent).hi;
    extents[stage.axis(axis).name] = state.axes[axis].extent;
  }
  for (const LoopRelation& relation : schedule.relations) {
    if (relation.parents.size() == 2) {
      // Of an inner loop whose extent is dynamic as many trips as it has at most: quotient and remainder are constants.
      extents[relation.children[0]] =
          vars.Product(extents[relation.parents[0]], Linear(vars.Range(extents[relation.parents[1]]).hi));
      continue;
    }
    Linear extent = extents[relation.parents[0]];
    std::vector<int64_t> inner = relation.factors;
    int64_t left = vars.Range(extent).hi, product = 1;
    for (size_t i = inner.size(); i-- > 0;) {
      // An instruction does all its lanes, those beyond the end as well, and so does a run of threads.
      const auto loop = std::ranges::find(schedule.loops, relation.children[i + 1], &LoopDim::path);
      const bool is_whole =
          loop != schedule.loops.end() &&
          (loop->is_instruction || (loop->kind == LoopKind::kBound && loop->axis == LaunchAxis::kLaneX));
      if (!is_whole) inner[i] = std::max<int64_t>(1, std::min(inner[i], left));
      left = CeilDiv(left, inner[i]);
      product *= inner[i];
    }
    extents[relation.children[0]] = vars.DivCeil(extent, product);
    for (size_t i = 0; i < inner.size(); ++i) extents[relation.children[i + 1]] = Linear(inner[i]);
    factors[relation.parents[0]] = std::move(inner);
  }

  // Backward: each axis as a form over the leaf loops.
  std::map<std::string, Linear> values;
  state.loops.assign(schedule.loops.size(), {});
  for (size_t i = 0; i < schedule.loops.size(); ++i) {
    const std::string& path = schedule.loops[i].path;
    LoopState& loop = state.loops[i];
    loop.exact = extents[path];
    loop.extent = vars.Range(loop.exact).hi;
    loop.var = vars.AddLoop(name + "." + path, std::max<int64_t>(1, loop.extent));
    loop_kinds_[loop.var] = schedule.loops[i].is_instruction ? LoopKind::kUnrolled : schedule.loops[i].kind;
    if (schedule.loops[i].kind == LoopKind::kBound && !IsBlockAxis(schedule.loops[i].axis))
      thread_loops_.insert(loop.var);
    values[path] = loop.extent <= 1 ? Linear(0) : Linear::Of(loop.var);
  }
  for (auto relation = schedule.relations.rbegin(); relation != schedule.relations.rend(); ++relation) {
    if (relation->parents.size() == 2) {
      Linear fused = values[relation->children[0]];
      int64_t inner = vars.Range(extents[relation->parents[1]]).hi;
      values[relation->parents[0]] = vars.DivFloor(fused, inner);
      values[relation->parents[1]] = vars.Mod(fused, inner);
      continue;
    }
    const std::vector<int64_t>& inner = factors[relation->parents[0]];
    Linear value = values[relation->children.back()];
    int64_t stride = 1;
    for (size_t i = inner.size(); i-- > 0;) {
      stride *= inner[i];
      value.AddScaled(values[relation->children[i]], stride);
    }
    values[relation->parents[0]] = value;
  }

  for (AxisId axis : stage.axis_ids()) state.axes[axis].local = values[stage.axis(axis).name];
  for (size_t l = 0; l < state.loops.size(); ++l)
    for (AxisId a : stage.reduce_ids()) {
      // A loop reduces if a reduction axis depends on it, directly or through a fusion.
      bool by_name = false;
      if (state.loops[l].extent <= 1) {
        // No trace in the form: go by the name, whose head is the axis.
        const std::string& path = schedule.loops[l].path;
        const std::string& axis_name = stage.axis(a).name;
        by_name = path == axis_name || path.starts_with(axis_name + ".") || path.starts_with(axis_name + "+");
      }
      state.loops[l].reduces |= by_name || Moves(state.axes[a].local, state.loops[l].var);
    }
  for (AxisId a : stage.axis_ids()) {
    AxisState& axis = state.axes[a];
    const std::string& axis_name = stage.axis(a).name;
    // Whether the axis takes a remainder or a quotient of the loop.
    auto is_divided = [&](VarId loop) {
      return std::ranges::any_of(axis.local.terms(), [&](const Term& term) {
        return vars[term.var].kind != VarKind::kLoop && Moves(Linear::Of(term.var), loop);
      });
    };
    // Direct loops of the axis, and the span that unrolled and vectorised ones cover, and threads.
    int64_t granule = 1;
    for (size_t l = 0; l < state.loops.size(); ++l) {
      int64_t coef = axis.local.CoefOf(state.loops[l].var);
      if (coef == 0 || is_divided(state.loops[l].var)) continue;
      state.loops[l].axis = a;
      state.loops[l].coef = coef;
      if (!StopsAtTheEnd(schedule.loops[l])) granule = std::max(granule, coef * state.loops[l].extent);
    }
    // Serial loops stop at the end of the axis if each steps over whole granules, and what fused loops contribute is
    // known before them. Without one, no granule may start behind the end.
    axis.granule = granule;
    axis.shifts = false;
    axis.clamps = true;
    bool has_serial = false;
    Linear fused(0);
    for (const Term& term : axis.local.terms()) {
      size_t l = 0;
      while (l < state.loops.size() && (state.loops[l].var != term.var || is_divided(term.var))) ++l;
      if (l == state.loops.size()) {
        fused += Linear::Of(term.var, term.coef);
        axis.clamps &= term.coef % granule == 0;
        continue;
      }
      if (!StopsAtTheEnd(schedule.loops[l])) continue;
      has_serial = true;
      axis.clamps &= term.coef >= granule && term.coef % granule == 0;
      for (const Term& other : axis.local.terms())
        if (vars[other.var].kind != VarKind::kLoop || is_divided(other.var))
          axis.clamps &= KnownBefore(index, other.var, l);
    }
    const int64_t fused_reach = vars.Range(fused).hi;
    if (fused_reach > 0 && !has_serial) axis.clamps &= fused_reach < axis.extent_max;
    axis.unshifted = axis.local;
    int64_t total = vars.Range(axis.local).hi + 1;
    bool is_static = axis.extent.IsConstant();
    if (total <= axis.extent_max && is_static)
      axis.padded = axis.extent_max;
    else if (axis.clamps)
      axis.padded = RoundUp(axis.extent_max, granule);
    else
      axis.padded = std::max(total, axis.extent_max);

    auto tail = schedule.tails.find(axis_name);
    const int64_t extent_min = is_static ? axis.extent_max : vars.Range(axis.extent).lo;
    if (tail != schedule.tails.end() && tail->second == Tail::kShift && axis.clamps &&
        (!is_static || axis.padded > axis.extent_max) && extent_min >= granule &&
        ComputesTilesWhole(index, a, granule)) {
      Linear outer, inner(axis.local.constant());
      for (const Term& term : axis.local.terms()) {
        bool is_outer = std::abs(term.coef) >= granule;
        (is_outer ? outer : inner) += Linear::Of(term.var, term.coef);
      }
      // The loops still count whole tiles; only the coordinate of the last one moves.
      axis.local = vars.Min(outer, axis.extent - Linear(granule)) + inner;
      axis.padded = axis.extent_max;
      axis.shifts = true;
    }
    Interval start = vars.Range(axis.min);
    axis.var = vars.AddAxis(name + ":" + axis_name, axis.min + axis.local, {start.lo, start.hi + axis.padded - 1});
  }
}

Result<void> Lowering::PlaceStage(StageId stage) {
  HONE_TRY(InferRegion(stage));
  MakeLoops(stage);
  HONE_TRY(MakeBuffer(stage));
  return MakeTile(stage);
}

std::vector<Lowering::Part> Lowering::PartsOf(StageId index) const {
  const Stage& stage = kernel_.stages[index];
  std::vector<Part> parts{Part(stage.axes.size())};
  for (const auto& [name, tail] : scheduled_.stages[index].tails) {
    if (tail != Tail::kPeel) continue;
    const AxisId a = FindAxis(stage, name);
    const AxisState& axis = states_[index].axes[a];
    if (!axis.extent.IsConstant()) continue;
    const int64_t extent = axis.extent.constant(), left = extent % axis.granule;
    if (left == 0 || left == extent) continue;
    for (size_t i = parts.size(); i-- > 0;) {
      parts[i][a] = {0, extent - left};
      Part rest = parts[i];
      rest[a] = {extent - left, left};
      parts.push_back(std::move(rest));
    }
  }
  return parts;
}

Result<void> Lowering::PlacePart(StageId stage, const Part& part, bool fresh) {
  StageState& state = states_[stage];
  HONE_TRY(InferRegion(stage));
  for (AxisId axis : part.ids()) {
    if (part[axis].length == 0) continue;
    state.axes[axis].min += Linear(part[axis].start);
    state.axes[axis].extent = Linear(part[axis].length);
  }
  MakeLoops(stage);
  if (fresh) state.tile = {};
  HONE_TRY(MakeTile(stage));
  IdVector<StageId, bool> inside(kernel_.stages.size());
  inside[stage] = true;
  for (StageId p = stage; --p;) {
    const StageId consumer = scheduled_.stages[p].attach_stage;
    inside[p] = consumer && inside[consumer];
    if (!inside[p]) continue;
    if (fresh) states_[p].buffer = states_[p].tile = {};
    HONE_TRY(PlaceStage(p));
  }
  return {};
}

}  // namespace hone::lowering
