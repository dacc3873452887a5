// The moves of RandomSchedule that change a kernel's stages; random_schedule.cc has those of its loops.
#include <algorithm>
#include <iterator>

#include "ir/rewrites/online_reduction.h"
#include "tests/support/random_schedule.h"

namespace hone {

void RandomSchedule::Inline() { Propose({InlineStep{NameOf(AnyStage())}}); }

void RandomSchedule::FuseAxes() {
  const Stage& stage = AnyStage();
  std::vector<std::string> axes = NamesOf(rng_.Chance(0.7) ? stage.axes : stage.reduce_axes);
  if (axes.size() < 2) return;
  size_t first = rng_.Below(axes.size() - 1);
  size_t count = rng_.Chance(0.2) ? axes.size() - first : 2;
  const auto begin = axes.begin() + static_cast<ptrdiff_t>(first);
  Propose({RewriteStep{"fuse_axes", NameOf(stage), {begin, begin + static_cast<ptrdiff_t>(count)}}});
}

void RandomSchedule::CacheWrite() {
  const std::string stage = NameOf(AnyStage());
  Propose({RewriteStep{"cache_write", stage, {FreshName()}}});
}

void RandomSchedule::Im2col() {
  const Stage& stage = AnyStage();
  std::vector<Expr> reads;
  Walk(stage.body, [&](const Expr& e) {
    if (e.op() == Op::kLoad) reads.push_back(e);
  });
  if (reads.empty()) return;
  const Expr& read = Pick(reads);
  std::vector<std::string> used;
  Walk(read, [&](const Expr& e) {
    if (e.op() != Op::kAxis) return;
    const std::string& name = stage.axis(e.axis()).name;
    if (std::find(used.begin(), used.end(), name) == used.end()) used.push_back(name);
  });
  RewriteStep step{"im2col", NameOf(stage)};
  step.names = {state_.kernel.tensors[read.tensor()].name, FreshName()};
  step.names.insert(step.names.end(), used.begin(), used.end());
  Propose({step});
}

void RandomSchedule::MaxIgnoreNan() { Propose({RewriteStep{"max_ignore_nan", NameOf(AnyStage())}}); }

void RandomSchedule::SplitClamp() { Propose({RewriteStep{"split_clamp", NameOf(AnyStage())}}); }

void RandomSchedule::Reindex() {
  const Stage& stage = AnyStage();
  std::vector<std::string> tensors;
  Walk(stage.body, [&](const Expr& e) {
    if (e.op() == Op::kLoad) tensors.push_back(state_.kernel.tensors[e.tensor()].name);
  });
  if (!tensors.empty()) Propose({RewriteStep{"reindex", NameOf(stage), {Pick(tensors), FreshName()}}});
}

void RandomSchedule::OnlineReduction() {
  // Few stages are such a reduction: one that is, if there is one.
  for (size_t tries = 2 * state_.kernel.stages.size(); tries-- > 0;) {
    StageId id;
    const Stage& stage = AnyStage(&id);
    if (!FirstOfOnline(state_.kernel, id)) continue;
    const std::string base = FreshName();
    Propose({RewriteStep{"online_reduction", NameOf(stage), {base}, {AnyFactor()}}});
    return;
  }
}

void RandomSchedule::TrimPadding() {
  const Stage& stage = AnyStage();
  std::vector<TensorId> padded;
  Walk(stage.body, [&](const Expr& e) {
    const Stage* producer = e.op() == Op::kLoad ? ProducerOf(state_.kernel, e.tensor()) : nullptr;
    if (producer && producer->body.op() == Op::kPad) padded.push_back(producer->output);
  });
  if (padded.empty() || stage.reduce_axes.empty()) return;
  RewriteStep step{"trim_padding", NameOf(stage)};
  step.names = {state_.kernel.tensors[Pick(padded)].name, FreshName()};
  for (const Axis& axis : stage.reduce_axes)
    if (rng_.Chance(0.5)) step.names.push_back(axis.name);
  Propose({step});
}

void RandomSchedule::ShiftSign() {
  const Stage& stage = AnyStage();
  std::vector<std::string> bytes;
  Walk(stage.body, [&](const Expr& e) {
    if (e.op() == Op::kLoad && ByteSize(e.type()) == 1) bytes.push_back(state_.kernel.tensors[e.tensor()].name);
  });
  if (bytes.empty() || stage.reduce_axes.empty()) return;
  const std::string base = FreshName();
  Propose({RewriteStep{"shift_sign", NameOf(stage), {Pick(bytes), base + "x", base + "t", base + "c"}}});
}

void RandomSchedule::Bf16Factors() {
  const Accuracy accuracy = state_.kernel.options.accuracy;
  const Stage& stage = AnyStage();
  if (stage.reduce_axes.empty() || accuracy == Accuracy::kStrict) return;
  const std::string base = FreshName();
  const bool is_rounded = accuracy == Accuracy::kFast && rng_.Chance(0.5);
  Propose({RewriteStep{is_rounded ? "bf16_factors" : "bf16_pieces", NameOf(stage), {base + "a", base + "b"}}});
}

void RandomSchedule::PadReduction() {
  const Stage& stage = AnyStage();
  if (stage.reduce_axes.empty()) return;
  const std::string axis = Pick(stage.reduce_axes).name, base = FreshName();
  Propose({RewriteStep{"pad_reduction", NameOf(stage), {axis, base + "a", base + "b"}, {AnyFactor()}}});
}

void RandomSchedule::Rfactor() {
  const Stage& stage = AnyStage();
  if (stage.reduce_axes.empty()) return;
  const std::string axis = Pick(stage.reduce_axes).name;
  const int64_t lanes = AnyFactor();
  Propose({RfactorStep{NameOf(stage), axis, lanes, FreshName(), rng_.Chance(0.3) ? AnyFactor() : 1}});
}

void RandomSchedule::CacheRead() {
  const Stage& stage = AnyStage();
  std::vector<TensorId> read;
  Walk(stage.body, [&](const Expr& e) {
    if (e.op() == Op::kLoad) read.push_back(e.tensor());
  });
  if (read.empty()) return;
  const Tensor& tensor = state_.kernel.tensors[Pick(read)];
  CacheReadStep step{tensor.name, FreshName(), NameOf(stage), Scope::kWorkspace};
  if (tensor.is_const && rng_.Chance(0.6)) step.scope = Scope::kConst;
  // The copy's axes have names once it is there.
  Schedule with_copy = schedule_;
  with_copy.push_back(step);
  Result<ScheduledKernel> applied = ApplySchedule(kernel_, with_copy);
  if (!applied) return;
  for (const Stage& copy : applied->kernel.stages)
    if (applied->kernel.tensors[copy.output].name == step.result) step.layout = AnyLayout(copy);
  if (step.scope != Scope::kWorkspace || LoopsOf(stage).loops.empty() || !rng_.Chance(0.6)) {
    Propose({step});
    return;
  }
  static constexpr Scope kScopes[] = {Scope::kWorkspace, Scope::kPerWorker, Scope::kPerWorker, Scope::kRegisters};
  step.scope = kScopes[rng_.Below(std::size(kScopes))];
  const ComputeAtStep at{step.result, step.stage, AnyLoop(LoopsOf(stage))};
  if (step.scope == Scope::kWorkspace || rng_.Chance(0.5)) {
    Propose({step, at});
    return;
  }
  // Per worker and in registers is legal below the root only: store says so after the copy has its place.
  const StoreStep store{step.result, step.scope, step.layout};
  step.scope = Scope::kWorkspace;
  Propose({step, at, store});
}

}  // namespace hone
