#include "tests/support/random_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <span>

#include "base/check.h"
#include "codegen/instructions.h"
#include "codegen/lower/lower.h"
#include "ir/graph/stage_graph.h"

namespace hone {
namespace {

std::string_view VerbOf(const Step& step, std::string& text) {
  text = PrintStep(step);
  return std::string_view(text).substr(0, text.find(' '));
}

// Unrolled and vectorised loops beyond these are refused, or take long to compile.
constexpr int64_t kMostUnrolled = 12;
constexpr int64_t kMostLanes = 32;

}  // namespace

RandomSchedule::RandomSchedule(Kernel kernel, const Target& target, Rng& rng, Schedule start)
    : kernel_(std::move(kernel)), target_(target), rng_(rng), schedule_(std::move(start)) {
  Result<ScheduledKernel> plain = ApplySchedule(kernel_, schedule_);
  HONE_CHECK(plain);
  state_ = *std::move(plain);
}

Schedule RandomSchedule::Make() {
  struct Move {
    double odds;
    void (RandomSchedule::*make)();
  };
  static constexpr Move kRewrites[] = {
      {2, &RandomSchedule::Inline},      {2, &RandomSchedule::FuseAxes},     {2, &RandomSchedule::CacheWrite},
      {2, &RandomSchedule::Im2col},      {1, &RandomSchedule::MaxIgnoreNan}, {1, &RandomSchedule::OnlineReduction},
      {1, &RandomSchedule::TrimPadding}, {2, &RandomSchedule::Rfactor},      {4, &RandomSchedule::CacheRead},
      {1, &RandomSchedule::Reindex},     {1, &RandomSchedule::SplitClamp},   {1, &RandomSchedule::ShiftSign},
      {1, &RandomSchedule::Bf16Factors}, {1, &RandomSchedule::PadReduction}};
  static constexpr Move kLoops[] = {
      {3, &RandomSchedule::TileStage},    {2, &RandomSchedule::SplitLoop},  {1, &RandomSchedule::FuseLoops},
      {1, &RandomSchedule::ReorderLoops}, {2, &RandomSchedule::UnrollLoop}, {3, &RandomSchedule::VectorizeLoop},
      {1, &RandomSchedule::ParallelLoop}, {3, &RandomSchedule::PlaceStage}, {1, &RandomSchedule::StoreStage},
      {1, &RandomSchedule::RegisterTile}, {2, &RandomSchedule::SetTail},    {1, &RandomSchedule::Prefetch},
      {1, &RandomSchedule::Tensorize}};
  auto make = [&](std::span<const Move> moves) {
    double total = 0;
    for (const Move& move : moves) total += move.odds;
    double at = rng_.Uniform() * total;
    for (const Move& move : moves) {
      at -= move.odds;
      if (at <= 0) return (this->*move.make)();
    }
  };
  for (uint64_t i = rng_.Below(4); i-- > 0;) make(kRewrites);
  for (uint64_t i = 2 + rng_.Below(14); i-- > 0;) make(kLoops);
  return schedule_;
}

bool RandomSchedule::Propose(std::vector<Step> steps) {
  std::string text;
  std::string_view verb = VerbOf(steps.front(), text);
  Schedule longer = schedule_;
  longer.insert(longer.end(), std::make_move_iterator(steps.begin()), std::make_move_iterator(steps.end()));
  on_try(longer);
  Result<ScheduledKernel> applied = ApplySchedule(kernel_, longer);
  if (!applied) {
    ++refusals_[fmt::format("apply: {}", verb)];
    return false;
  }
  if (!Lower(*applied)) {
    ++refusals_[fmt::format("lower: {}", verb)];
    return false;
  }
  schedule_ = std::move(longer);
  state_ = *std::move(applied);
  return true;
}

const Stage& RandomSchedule::AnyStage(StageId* id) {
  const StageId chosen(static_cast<int>(rng_.Below(state_.kernel.stages.size())));
  if (id) *id = chosen;
  return state_.kernel.stages[chosen];
}

const StageSchedule& RandomSchedule::LoopsOf(const Stage& stage) const {
  return state_.stages[FindStage(state_.kernel, NameOf(stage))];
}

std::vector<std::string> RandomSchedule::NamesOf(const std::vector<Axis>& axes) {
  std::vector<std::string> names;
  for (const Axis& axis : axes) names.push_back(axis.name);
  return names;
}

std::string RandomSchedule::NameOf(const Stage& stage) const { return state_.kernel.tensors[stage.output].name; }

std::string RandomSchedule::AnyLoop(const StageSchedule& stage) {
  return stage.loops.empty() ? "none" : Pick(stage.loops).path;
}

std::map<std::string, int64_t> RandomSchedule::Extents(const Stage& stage) const {
  std::map<std::string, int64_t> extents;
  for (const Axis& axis : stage.axes) extents[axis.name] = UpperExtent(state_.kernel, axis.extent);
  for (const Axis& axis : stage.reduce_axes) extents[axis.name] = UpperExtent(state_.kernel, axis.extent);
  for (const LoopRelation& relation : LoopsOf(stage).relations) {
    if (relation.parents.size() == 2) {
      extents[relation.children[0]] = extents[relation.parents[0]] * extents[relation.parents[1]];
      continue;
    }
    int64_t left = extents[relation.parents[0]];
    for (size_t i = relation.factors.size(); i-- > 0;) {
      int64_t factor = std::min(relation.factors[i], left);
      extents[relation.children[i + 1]] = factor;
      left = (left + factor - 1) / factor;
    }
    extents[relation.children[0]] = left;
  }
  return extents;
}

int64_t RandomSchedule::AnyFactor() {
  static constexpr int64_t kFactors[] = {1, 2, 2, 3, 4, 4, 5, 7, 8, 8, 16, 16, 40};
  return kFactors[rng_.Below(std::size(kFactors))];
}

std::vector<LayoutDim> RandomSchedule::AnyLayout(const Stage& stage) {
  std::vector<LayoutDim> layout;
  if (rng_.Chance(0.3)) return layout;
  auto extra = [&] { return rng_.Chance(0.2) ? rng_.Between(1, 5) : 0; };
  for (const Axis& axis : stage.axes) {
    if (rng_.Chance(0.5)) {
      layout.push_back({axis.name, LayoutDim::Part::kWhole, 1, extra()});
      continue;
    }
    int64_t factor = AnyFactor();
    layout.push_back({axis.name, LayoutDim::Part::kQuotient, factor, extra()});
    layout.push_back({axis.name, LayoutDim::Part::kRemainder, factor, extra()});
  }
  rng_.Shuffle(std::span(layout));
  return layout;
}

void RandomSchedule::SplitLoop() {
  const Stage& stage = AnyStage();
  SplitStep step{NameOf(stage), AnyLoop(LoopsOf(stage)), {}};
  for (uint64_t i = 1 + rng_.Below(3); i-- > 0;) step.factors.push_back(AnyFactor());
  Propose({step});
}

// Two or three levels of tiles, the inner ones unrolled or in vectors, perhaps in registers: what real schedules look
// like.
void RandomSchedule::TileStage() {
  StageId id;
  const Stage stage = AnyStage(&id);  // a copy: proposals replace the kernel
  if (state_.stages[id].is_rewritten) return;
  const std::string name = NameOf(stage);
  std::vector<Step> steps;
  std::vector<std::string> outer, middle, inner;
  std::vector<std::string> spatial = NamesOf(stage.axes), reduced = NamesOf(stage.reduce_axes);
  for (const std::vector<std::string>* axes : {&spatial, &reduced}) {
    for (const std::string& axis : *axes) {
      if (rng_.Chance(axes == &spatial ? 0.3 : 0.6)) {
        (axes == &spatial && rng_.Chance(0.7) ? outer : middle).push_back(axis);
        continue;
      }
      SplitStep split{name, axis, {rng_.Chance(0.5) ? rng_.Between(1, 4) : AnyFactor()}};
      if (rng_.Chance(0.3)) split.factors.insert(split.factors.begin(), rng_.Between(1, 3));
      bool is_spatial = axes == &spatial;
      (is_spatial ? outer : middle).push_back(axis + ".0");
      if (split.factors.size() > 1) middle.push_back(axis + ".1");
      inner.push_back(fmt::format("{}.{}", axis, split.factors.size()));
      steps.push_back(std::move(split));
    }
  }
  if (steps.empty()) return;
  rng_.Shuffle(std::span(outer));
  rng_.Shuffle(std::span(middle));
  rng_.Shuffle(std::span(inner));
  ReorderStep order{name, {}};
  for (const auto* loops : {&outer, &middle, &inner})
    order.loops.insert(order.loops.end(), loops->begin(), loops->end());
  const size_t above_inner = outer.size() + middle.size();
  if (order.loops.size() > 1) steps.push_back(order);
  if (!Propose(steps)) return;

  std::map<std::string, int64_t> extents = Extents(state_.kernel.stages[id]);
  UnrollStep unroll{name, {}};
  VectorizeStep vectorize{name, {}};
  int64_t copies = 1;
  for (const std::string& loop : inner) {
    if (vectorize.loops.empty() && extents[loop] <= kMostLanes && rng_.Chance(0.5)) {
      vectorize.loops = {loop};
    } else if (copies * extents[loop] <= 64 && rng_.Chance(0.85)) {
      unroll.loops.push_back(loop);
      copies *= extents[loop];
    }
  }
  if (!unroll.loops.empty()) Propose({unroll});
  if (!vectorize.loops.empty()) Propose({vectorize});
  if (stage.reduction != Reduction::kNone && above_inner > 0 && rng_.Chance(0.5)) {
    // At the last spatial loop of the outer ones, or anywhere above the tile.
    size_t at = !outer.empty() && rng_.Chance(0.7) ? outer.size() - 1 : rng_.Below(above_inner);
    Propose({RegisterTileStep{name, order.loops[at]}});
  }
}

void RandomSchedule::FuseLoops() {
  const Stage& stage = AnyStage();
  const auto& loops = LoopsOf(stage).loops;
  if (loops.size() < 2) return;
  size_t first = rng_.Below(loops.size() - 1), count = rng_.Chance(0.2) ? std::min<size_t>(3, loops.size() - first) : 2;
  FuseStep step{NameOf(stage), {}};
  for (size_t i = 0; i < count; ++i) step.loops.push_back(loops[first + i].path);
  Propose({step});
}

void RandomSchedule::ReorderLoops() {
  const Stage& stage = AnyStage();
  ReorderStep step{NameOf(stage), {}};
  for (const LoopDim& loop : LoopsOf(stage).loops) step.loops.push_back(loop.path);
  if (step.loops.size() < 2) return;
  rng_.Shuffle(std::span(step.loops));
  Propose({step});
}

void RandomSchedule::UnrollLoop() {
  const Stage& stage = AnyStage();
  std::map<std::string, int64_t> extents = Extents(stage);
  const std::string loop = AnyLoop(LoopsOf(stage));
  if (extents[loop] <= kMostUnrolled) Propose({UnrollStep{NameOf(stage), {loop}}});
}

void RandomSchedule::VectorizeLoop() {
  const Stage& stage = AnyStage();
  const StageSchedule& loops = LoopsOf(stage);
  std::map<std::string, int64_t> extents = Extents(stage);
  const std::string loop = loops.loops.empty() ? "none" : rng_.Chance(0.6) ? loops.loops.back().path : AnyLoop(loops);
  if (extents[loop] <= kMostLanes) Propose({VectorizeStep{NameOf(stage), {loop}}});
}

// Both operands in groups, the sum's loops around them, in a register tile somewhere.
void RandomSchedule::Tensorize() {
  const Stage stage = AnyStage();
  const std::string name = NameOf(stage);
  const std::vector<std::string> axes = NamesOf(stage.axes), reduced = NamesOf(stage.reduce_axes);
  if (axes.empty() || reduced.empty()) return;
  std::vector<const Instruction*> of_processors;
  for (const Instruction& each : AllInstructions())
    if (!MeaningOf(each).is_of_warp) of_processors.push_back(&each);
  const Instruction& instruction = *Pick(of_processors);
  const Result<std::vector<Expr>> operands = MatchInstruction(state_.kernel, stage, instruction);
  if (!operands) return;
  const InstructionMeaning& meaning = MeaningOf(instruction);
  const std::string lanes = Pick(axes), steps = Pick(reduced);
  std::vector<Step> proposed;
  for (const Expr& load : *operands) {
    CacheReadStep copy{state_.kernel.tensors[load.tensor()].name, FreshName(), name, Scope::kWorkspace};
    std::vector<LayoutDim> groups;
    for (const Expr& index : load.args()) {
      if (index.op() != Op::kAxis) return;
      const std::string& axis = stage.axis(index.axis()).name;
      const int64_t factor = axis == lanes ? meaning.lanes : axis == steps ? meaning.steps : 1;
      copy.layout.push_back({axis, factor > 1 ? LayoutDim::Part::kQuotient : LayoutDim::Part::kWhole, factor});
      if (factor == 1) continue;
      groups.insert(axis == steps ? groups.end() : groups.begin(), {axis, LayoutDim::Part::kRemainder, factor});
    }
    copy.layout.insert(copy.layout.end(), groups.begin(), groups.end());
    proposed.push_back(std::move(copy));
  }
  std::vector<std::string> order;
  for (const std::vector<std::string>* list : {&axes, &reduced})
    for (const std::string& axis : *list) order.push_back(axis == lanes || axis == steps ? axis + ".0" : axis);
  const std::string tile = Pick(order);
  order.insert(order.end(), {steps + ".1", lanes + ".1"});
  proposed.push_back(SplitStep{name, lanes, {meaning.lanes}});
  proposed.push_back(SplitStep{name, steps, {meaning.steps}});
  proposed.push_back(ReorderStep{name, order});
  proposed.push_back(TensorizeStep{std::string(instruction.name), name, {steps + ".1", lanes + ".1"}});
  proposed.push_back(RegisterTileStep{name, tile});
  Propose(std::move(proposed));
}

void RandomSchedule::ParallelLoop() {
  const Stage& stage = AnyStage();
  const StageSchedule& loops = LoopsOf(stage);
  const std::string loop = !loops.loops.empty() && rng_.Chance(0.7) ? loops.loops.front().path : AnyLoop(loops);
  Propose({ParallelStep{NameOf(stage), loop, rng_.Between(1, 4)}});
}

void RandomSchedule::PlaceStage() {
  StageId id;
  const Stage& stage = AnyStage(&id);
  const std::vector<StageId> readers = ReadersOf(state_.kernel, stage.output);
  if (readers.empty()) return;
  StageId consumer = Pick(readers);
  if (rng_.Chance(0.2)) AnyStage(&consumer);
  ComputeAtStep at{NameOf(stage), NameOf(state_.kernel.stages[consumer]), AnyLoop(state_.stages[consumer])};
  const StageSchedule& place = state_.stages[consumer];
  if (readers.size() > 1 && place.attach_stage && rng_.Chance(0.7)) {
    at.keep_stage = NameOf(state_.kernel.stages[place.attach_stage]);
    at.keep_loop = place.attach_loop;
  }
  if (!Propose({at})) return;
  if (!rng_.Chance(0.6)) return;
  static constexpr Scope kScopes[] = {Scope::kWorkspace, Scope::kPerWorker, Scope::kRegisters, Scope::kRegisters,
                                      Scope::kOutput};
  StoreStep store{at.stage, kScopes[rng_.Below(std::size(kScopes))]};
  if (store.scope != Scope::kOutput && rng_.Chance(0.5)) store.layout = AnyLayout(state_.kernel.stages[id]);
  Propose({store});
}

void RandomSchedule::StoreStage() {
  const Stage& stage = AnyStage();
  static constexpr Scope kScopes[] = {Scope::kWorkspace, Scope::kPerWorker, Scope::kRegisters, Scope::kOutput};
  const Scope scope = kScopes[rng_.Below(std::size(kScopes))];
  Propose({StoreStep{NameOf(stage), scope, scope == Scope::kOutput ? std::vector<LayoutDim>() : AnyLayout(stage)}});
}

void RandomSchedule::RegisterTile() {
  const Stage& stage = AnyStage();
  Propose({RegisterTileStep{NameOf(stage), AnyLoop(LoopsOf(stage))}});
}

void RandomSchedule::SetTail() {
  const Stage& stage = AnyStage();
  std::vector<std::string> axes = NamesOf(stage.axes);
  for (const Axis& axis : stage.reduce_axes) axes.push_back(axis.name);
  if (axes.empty()) return;
  static constexpr Tail kTails[] = {Tail::kPad, Tail::kGuard, Tail::kShift, Tail::kPeel};
  const std::string axis = Pick(axes);
  Propose({TailStep{NameOf(stage), axis, kTails[rng_.Below(std::size(kTails))]}});
}

void RandomSchedule::Prefetch() {
  const Stage& stage = AnyStage();
  std::vector<std::string> reads;
  Walk(stage.body, [&](const Expr& e) {
    if (e.op() == Op::kLoad) reads.push_back(state_.kernel.tensors[e.tensor()].name);
  });
  if (reads.empty()) return;
  const std::string tensor = Pick(reads);
  Propose({PrefetchStep{tensor, NameOf(stage), rng_.Between(1, 1 << 20)}});
}

Schedule ShrinkSchedule(Schedule schedule, const std::function<bool(const Schedule&)>& fails) {
  for (bool shrank = true; shrank;) {
    shrank = false;
    for (size_t i = schedule.size(); i-- > 0;) {
      Schedule shorter = schedule;
      shorter.erase(shorter.begin() + static_cast<ptrdiff_t>(i));
      if (!fails(shorter)) continue;
      schedule = std::move(shorter);
      shrank = true;
    }
  }
  return schedule;
}

}  // namespace hone
