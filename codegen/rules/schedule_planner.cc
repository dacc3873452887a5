#include "codegen/rules/schedule_planner.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/graph/affine.h"
#include "ir/graph/stage_graph.h"
#include "ir/rewrites/cache_read.h"
#include "ir/rewrites/inline_stage.h"
#include "ir/rewrites/registry.h"
#include "ir/rewrites/rfactor.h"

namespace hone {

int64_t SchedulePlanner::Choose(const std::string& stage, const Decision& decision, std::vector<int64_t> options,
                                int64_t preferred) {
  return Decide(stage, decision, std::move(options), preferred, false);
}

int64_t SchedulePlanner::Decide(const std::string& stage, const Decision& decision, std::vector<int64_t> options,
                                int64_t preferred, bool is_flag) {
  options.push_back(preferred);
  std::sort(options.begin(), options.end());
  options.erase(std::unique(options.begin(), options.end()), options.end());
  if (options.size() < 2) return preferred;
  Choice choice{
      fmt::format("{}.{}", stage, decision.name), std::move(options), preferred, preferred, is_flag, decision};
  for (const Choice& made : choices_)
    if (made.site == choice.site && std::binary_search(choice.options.begin(), choice.options.end(), made.value))
      return made.value;
  if (chooser_) choice.value = chooser_(choice);
  HONE_CHECK(std::binary_search(choice.options.begin(), choice.options.end(), choice.value));
  choices_.push_back(std::move(choice));
  return choices_.back().value;
}

void SchedulePlanner::Note(std::string_view rule, const std::string& stage, bool applied, std::string_view why) {
  RuleNote note{std::string(rule), stage, applied, std::string(why)};
  if (std::find(notes_.begin(), notes_.end(), note) == notes_.end()) notes_.push_back(std::move(note));
}

bool SchedulePlanner::Admits(std::string_view rewrite) const {
  const GraphRewrite* known = FindRewrite(rewrite);
  HONE_CHECK(known != nullptr);
  return hone::Admits(kernel_.options.accuracy, known->rounding);
}

bool SchedulePlanner::Rewrite(RewriteStep step) {
  if (!Admits(step.rewrite)) return false;
  Result<Kernel> next = ApplyRewrite(kernel_, step);
  return Take(std::move(next), std::move(step));
}

bool SchedulePlanner::Inline(std::string stage) {
  Result<Kernel> next = InlineStage(kernel_, FindStage(kernel_, stage));
  return Take(std::move(next), InlineStep{std::move(stage)});
}

bool SchedulePlanner::Rfactor(std::string stage, std::string axis, int64_t lanes, std::string result, int64_t width) {
  Result<Kernel> next = hone::Rfactor(kernel_, FindStage(kernel_, stage), axis, lanes, result, width);
  return Take(std::move(next), RfactorStep{std::move(stage), std::move(axis), lanes, std::move(result), width});
}

bool SchedulePlanner::CacheRead(std::string tensor, std::string result, std::string reader, Scope scope,
                                std::vector<LayoutDim> layout) {
  Result<Kernel> next = hone::CacheRead(kernel_, FindTensor(kernel_, tensor), FindStage(kernel_, reader), result);
  return Take(std::move(next),
              CacheReadStep{std::move(tensor), std::move(result), std::move(reader), scope, std::move(layout)});
}

bool SchedulePlanner::Take(Result<Kernel> rewritten, Step step) {
  if (!rewritten) return false;
  kernel_ = *std::move(rewritten);
  schedule_.push_back(std::move(step));
  return true;
}

std::vector<std::string> SchedulePlanner::CopyAxes(const std::string& tensor, const std::string& reader) const {
  std::string copy = FreshName("copy");
  Result<Kernel> next = hone::CacheRead(kernel_, FindTensor(kernel_, tensor), FindStage(kernel_, reader), copy);
  std::vector<std::string> names;
  if (!next) return names;
  for (const Axis& axis : next->stages[FindStage(*next, copy)].axes) names.push_back(axis.name);
  return names;
}

void SchedulePlanner::Split(const std::string& stage, const std::string& loop, std::vector<int64_t> factors) {
  schedule_.push_back(SplitStep{stage, loop, std::move(factors)});
}

void SchedulePlanner::Fuse(const std::string& stage, const std::vector<std::string>& loops) {
  schedule_.push_back(FuseStep{stage, loops});
}

void SchedulePlanner::Reorder(const std::string& stage, const std::vector<std::string>& loops) {
  if (loops.size() > 1) schedule_.push_back(ReorderStep{stage, loops});
}

void SchedulePlanner::Unroll(const std::string& stage, const std::vector<std::string>& loops) {
  if (!loops.empty()) schedule_.push_back(UnrollStep{stage, loops});
}

void SchedulePlanner::Vectorize(const std::string& stage, const std::vector<std::string>& loops) {
  if (!loops.empty()) schedule_.push_back(VectorizeStep{stage, loops});
}

void SchedulePlanner::Tensorize(const std::string& instruction, const std::string& stage,
                                const std::vector<std::string>& loops) {
  schedule_.push_back(TensorizeStep{instruction, stage, loops});
}

void SchedulePlanner::Bind(const std::string& stage, const std::string& loop, LaunchAxis axis) {
  schedule_.push_back(BindStep{stage, loop, axis});
}

void SchedulePlanner::ComputeAt(const std::string& stage, const std::string& consumer, const std::string& loop) {
  schedule_.push_back(ComputeAtStep{stage, consumer, loop});
}

void SchedulePlanner::ComputeAndKeep(const std::string& stage, const std::string& consumer, const std::string& loop,
                                     const std::string& keep_stage, const std::string& keep_loop) {
  schedule_.push_back(ComputeAtStep{stage, consumer, loop, keep_stage, keep_loop});
}

void SchedulePlanner::Store(const std::string& stage, Scope scope, std::vector<LayoutDim> layout) {
  schedule_.push_back(StoreStep{stage, scope, std::move(layout)});
}

void SchedulePlanner::Pipeline(const std::string& stage, int64_t buffers) {
  schedule_.push_back(PipelineStep{stage, buffers});
}

void SchedulePlanner::RegisterTile(const std::string& stage, const std::string& loop) {
  schedule_.push_back(RegisterTileStep{stage, loop});
}

void SchedulePlanner::SetTail(const std::string& stage, const std::string& axis, Tail tail) {
  schedule_.push_back(TailStep{stage, axis, tail});
}

void SchedulePlanner::Prefetch(const std::string& tensor, const std::string& stage, int64_t bytes_ahead) {
  schedule_.push_back(PrefetchStep{tensor, stage, bytes_ahead});
}

std::string SchedulePlanner::Parallelize(const std::string& stage, const std::vector<std::string>& loops, int64_t tasks,
                                         double cycles) {
  std::string name = loops[0];
  if (loops.size() > 1) {
    Fuse(stage, loops);
    for (size_t i = 1; i < loops.size(); ++i) name += "+" + loops[i];
  }
  bool allowed = kernel_.options.threads != 1;
  const double fork = machine_.fork_cycles;
  if (allowed && tasks > 1 && cycles > 2 * fork) {
    int64_t grain = std::max<int64_t>(1, static_cast<int64_t>(fork / 2 / (cycles / static_cast<double>(tasks))));
    schedule_.push_back(ParallelStep{stage, name, std::min(grain, tasks)});
  }
  return name;
}

bool SchedulePlanner::IndexesInPlace(const Expr& index, const Stage& producer, AxisId axis) const {
  if (index.op() == Op::kAxis) return index.axis() == axis;
  return index.op() == Op::kInt && Extent(producer, axis) == 1;
}

std::string SchedulePlanner::FinishingStage(const std::string& name) const {
  const Stage& stage = StageNamed(name);
  if (kernel_.tensors[stage.output].kind != TensorKind::kIntermediate) return "";
  const std::vector<StageId> readers = ReadersOf(kernel_, stage.output);
  if (readers.size() != 1) return "";
  const Stage& reader = kernel_.stages[readers[0]];
  bool same =
      reader.reduction == Reduction::kNone && reader.axes.size() == stage.axes.size() && !IsScheduled(NameOf(reader));
  for (size_t i = 0; same && i < stage.axes.size(); ++i) same = Extent(reader.axes[i]) == Extent(stage.axes[i]);
  if (same)
    Walk(reader.body, [&](const Expr& e) {
      if (!e.Loads(stage.output)) return;
      for (AxisId axis : stage.spatial_ids()) same &= IndexesInPlace(e.arg(axis.index()), stage, axis);
    });
  return same ? NameOf(reader) : "";
}

const Stage& SchedulePlanner::StageNamed(const std::string& name) const {
  const StageId stage = FindStage(kernel_, name);
  HONE_CHECK(stage);
  return kernel_.stages[stage];
}

std::string SchedulePlanner::FreshName(const std::string& base) const {
  if (!FindTensor(kernel_, base)) return base;
  for (int i = 2;; ++i)
    if (std::string name = fmt::format("{}{}", base, i); !FindTensor(kernel_, name)) return name;
}

bool AccessPattern::IsPlain() const {
  for (AxisId axis : uses.ids())
    if (uses[axis] && !dimension[axis]) return false;
  return true;
}

std::vector<AccessPattern> SchedulePlanner::AccessesOf(const Stage& stage) const {
  std::vector<AccessPattern> accesses;
  Walk(stage.body, [&](const Expr& load) {
    if (load.op() != Op::kLoad) return;
    AccessPattern access;
    access.tensor = load.tensor();
    access.strides.resize(stage.axis_count());
    access.uses.resize(stage.axis_count());
    access.dimension.resize(stage.axis_count());
    IdVector<AxisId, bool> moves(stage.axis_count());  // a dimension further in
    const Tensor& tensor = kernel_.tensors[access.tensor];
    int64_t stride = 1;
    for (size_t d = load.args().size(); d-- > 0;) {
      for (AxisId axis : AxesOf(load.arg(d))) access.uses[axis] = true;
      std::optional<Linear> form = AffineIndex(kernel_, load.arg(d));
      if (!form) {
        access.affine = false;
      } else {
        for (const Term& term : form->terms()) {
          const AxisId axis = AxisOf(term.var);
          access.strides[axis] += term.coef * stride;
          const bool is_alone = form->terms().size() == 1 && term.coef == 1 && form->constant() == 0;
          access.dimension[axis] = is_alone && !moves[axis] ? std::optional(d) : std::nullopt;
          moves[axis] = true;
        }
      }
      stride *= UpperExtent(kernel_, tensor.shape[d]);
    }
    accesses.push_back(std::move(access));
  });
  return accesses;
}

int64_t SchedulePlanner::Bytes(TensorId tensor) const {
  const Tensor& t = kernel_.tensors[tensor];
  int64_t bytes = ByteSize(t.dtype);
  for (const Expr& extent : t.shape) bytes *= UpperExtent(kernel_, extent);
  return bytes;
}

int SchedulePlanner::LanesFor(const Stage& stage) const {
  int64_t bytes = ByteSize(kernel_.tensors[stage.output].dtype);
  return machine_.Lanes(std::max<int64_t>(bytes, 4));
}

bool SchedulePlanner::IsScheduled(const std::string& stage) const {
  return std::find(done_.begin(), done_.end(), stage) != done_.end();
}

}  // namespace hone
