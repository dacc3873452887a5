#include "codegen/schedule_planner.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/affine.h"
#include "ir/rewrite.h"
#include "ir/rewrite_expand.h"
#include "ir/rewrite_numbers.h"
#include "ir/rewrite_online.h"
#include "ir/rewrite_trim.h"
#include "ir/rewrite_winograd.h"

namespace hone {
namespace {

Step MakeStep(StepKind kind, const std::string& stage) {
  Step step;
  step.kind = kind;
  step.stage = stage;
  return step;
}

}  // namespace

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

bool SchedulePlanner::Inline(std::string stage) {
  Result<Kernel> next = InlineStage(kernel_, FindStage(kernel_, stage));
  if (!next) return false;
  kernel_ = *std::move(next);
  schedule_.push_back(MakeStep(StepKind::kInline, stage));
  return true;
}

bool SchedulePlanner::Collapse(std::string stage, const std::vector<std::string>& axes) {
  Result<Kernel> next = CollapseAxes(kernel_, FindStage(kernel_, stage), axes);
  if (!next) return false;
  kernel_ = *std::move(next);
  Step step = MakeStep(StepKind::kRewrite, stage);
  step.other = "collapse";
  step.names = axes;
  schedule_.push_back(std::move(step));
  return true;
}

bool SchedulePlanner::Separate(std::string stage, std::string result) {
  Result<Kernel> next = SeparateReduction(kernel_, FindStage(kernel_, stage), result);
  if (!next) return false;
  kernel_ = *std::move(next);
  Step step = MakeStep(StepKind::kRewrite, stage);
  step.other = "separate";
  step.names = {result};
  schedule_.push_back(std::move(step));
  return true;
}

bool SchedulePlanner::Winograd(std::string stage, const std::string& base, int64_t tile, int64_t columns) {
  Result<Kernel> next = WinogradConvolution(kernel_, FindStage(kernel_, stage), base, tile, columns);
  if (!next) return false;
  kernel_ = *std::move(next);
  Step step = MakeStep(StepKind::kRewrite, stage);
  step.other = "winograd";
  step.names = {base};
  step.factors = {tile, columns};
  schedule_.push_back(std::move(step));
  return true;
}

bool SchedulePlanner::Expand(std::string stage, std::string tensor, std::string result,
                             const std::vector<std::string>& axes) {
  Result<Kernel> next = ExpandAccess(kernel_, FindStage(kernel_, stage), FindTensor(kernel_, tensor), result, axes);
  if (!next) return false;
  kernel_ = *std::move(next);
  Step step = MakeStep(StepKind::kRewrite, stage);
  step.other = "expand";
  step.names = {std::move(tensor), std::move(result)};
  step.names.insert(step.names.end(), axes.begin(), axes.end());
  schedule_.push_back(std::move(step));
  return true;
}

bool SchedulePlanner::Trim(std::string stage, std::string tensor, const std::string& base,
                           const std::vector<std::string>& axes) {
  Result<Kernel> next = TrimPadding(kernel_, FindStage(kernel_, stage), FindTensor(kernel_, tensor), base, axes);
  if (!next) return false;
  kernel_ = *std::move(next);
  Step step = MakeStep(StepKind::kRewrite, stage);
  step.other = "trim";
  step.names = {std::move(tensor), base};
  step.names.insert(step.names.end(), axes.begin(), axes.end());
  schedule_.push_back(std::move(step));
  return true;
}

bool SchedulePlanner::MaxOfNumbers(std::string stage) {
  Result<Kernel> next = hone::MaxOfNumbers(kernel_, FindStage(kernel_, stage));
  if (!next) return false;
  kernel_ = *std::move(next);
  Step step = MakeStep(StepKind::kRewrite, stage);
  step.other = "numbers";
  schedule_.push_back(std::move(step));
  return true;
}

bool SchedulePlanner::Online(std::string stage, const std::string& base, int64_t block) {
  Result<Kernel> next = OnlineReductions(kernel_, FindStage(kernel_, stage), base, block);
  if (!next) return false;
  kernel_ = *std::move(next);
  Step step = MakeStep(StepKind::kRewrite, stage);
  step.other = "online";
  step.names = {base};
  step.factors = {block};
  schedule_.push_back(std::move(step));
  return true;
}

bool SchedulePlanner::Rfactor(std::string stage, std::string axis, int64_t lanes, std::string result) {
  Result<Kernel> next = hone::Rfactor(kernel_, FindStage(kernel_, stage), axis, lanes, result);
  if (!next) return false;
  kernel_ = *std::move(next);
  Step step = MakeStep(StepKind::kRfactor, stage);
  step.other = axis;
  step.factors = {lanes};
  step.result = result;
  schedule_.push_back(std::move(step));
  return true;
}

bool SchedulePlanner::CacheRead(std::string tensor, std::string result, std::string reader, Scope scope,
                                std::vector<LayoutDim> layout) {
  Result<Kernel> next = hone::CacheRead(kernel_, FindTensor(kernel_, tensor), FindStage(kernel_, reader), result);
  if (!next) return false;
  kernel_ = *std::move(next);
  Step step = MakeStep(StepKind::kCacheRead, reader);
  step.other = tensor;
  step.result = result;
  step.scope = scope;
  step.layout = std::move(layout);
  schedule_.push_back(std::move(step));
  return true;
}

std::vector<std::string> SchedulePlanner::CopyAxes(const std::string& tensor, const std::string& reader) const {
  std::string copy = FreshName("copy");
  Result<Kernel> next = hone::CacheRead(kernel_, FindTensor(kernel_, tensor), FindStage(kernel_, reader), copy);
  std::vector<std::string> names;
  if (!next) return names;
  for (const Axis& axis : next->stages[static_cast<size_t>(FindStage(*next, copy))].axes) names.push_back(axis.name);
  return names;
}

void SchedulePlanner::Split(const std::string& stage, const std::string& loop, std::vector<int64_t> factors) {
  Step step = MakeStep(StepKind::kSplit, stage);
  step.names = {loop};
  step.factors = std::move(factors);
  schedule_.push_back(std::move(step));
}

void SchedulePlanner::Fuse(const std::string& stage, const std::vector<std::string>& loops) {
  Step step = MakeStep(StepKind::kFuse, stage);
  step.names = loops;
  schedule_.push_back(std::move(step));
}

void SchedulePlanner::Reorder(const std::string& stage, const std::vector<std::string>& loops) {
  if (loops.size() < 2) return;
  Step step = MakeStep(StepKind::kReorder, stage);
  step.names = loops;
  schedule_.push_back(std::move(step));
}

void SchedulePlanner::Annotate(StepKind kind, const std::string& stage, const std::vector<std::string>& loops,
                               int64_t grain) {
  if (loops.empty()) return;
  Step step = MakeStep(kind, stage);
  step.names = loops;
  if (kind == StepKind::kParallel) step.factors = {grain};
  schedule_.push_back(std::move(step));
}

void SchedulePlanner::ComputeAt(const std::string& stage, const std::string& consumer, const std::string& loop) {
  Step step = MakeStep(StepKind::kComputeAt, stage);
  step.other = consumer;
  step.names = {loop};
  schedule_.push_back(std::move(step));
}

void SchedulePlanner::Store(const std::string& stage, Scope scope, std::vector<LayoutDim> layout) {
  Step step = MakeStep(StepKind::kStore, stage);
  step.scope = scope;
  step.layout = std::move(layout);
  schedule_.push_back(std::move(step));
}

void SchedulePlanner::CacheWrite(const std::string& stage, const std::string& loop) {
  Step step = MakeStep(StepKind::kCacheWrite, stage);
  step.names = {loop};
  schedule_.push_back(std::move(step));
}

void SchedulePlanner::SetTail(const std::string& stage, const std::string& axis, Tail tail) {
  Step step = MakeStep(StepKind::kTail, stage);
  step.names = {axis};
  step.tail = tail;
  schedule_.push_back(std::move(step));
}

void SchedulePlanner::Prefetch(const std::string& tensor, const std::string& stage, int64_t bytes_ahead) {
  Step step = MakeStep(StepKind::kPrefetch, stage);
  step.other = tensor;
  step.factors = {bytes_ahead};
  schedule_.push_back(std::move(step));
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
    Annotate(StepKind::kParallel, stage, {name}, std::min(grain, tasks));
  }
  return name;
}

bool SchedulePlanner::IndexesInPlace(const Expr& index, const Stage& producer, size_t position) const {
  if (index.op() == Op::kAxis) return index.int_value() == static_cast<int64_t>(position);
  return index.op() == Op::kInt && Extent(producer.axes[position]) == 1;
}

std::string SchedulePlanner::FinishingStage(const std::string& name) const {
  const Stage& stage = StageNamed(name);
  if (kernel_.tensors[static_cast<size_t>(stage.output)].kind != TensorKind::kIntermediate) return "";
  std::vector<int> readers = ReadersOf(kernel_, stage.output);
  if (readers.size() != 1) return "";
  const Stage& reader = kernel_.stages[static_cast<size_t>(readers[0])];
  bool same =
      reader.reduction == Reduction::kNone && reader.axes.size() == stage.axes.size() && !IsScheduled(NameOf(reader));
  for (size_t i = 0; same && i < stage.axes.size(); ++i) same = Extent(reader.axes[i]) == Extent(stage.axes[i]);
  if (same)
    Walk(reader.body, [&](const Expr& e) {
      if (e.op() != Op::kLoad || e.int_value() != stage.output) return;
      for (size_t i = 0; i < e.args().size(); ++i) same &= IndexesInPlace(e.arg(i), stage, i);
    });
  return same ? NameOf(reader) : "";
}

const Stage& SchedulePlanner::StageNamed(const std::string& name) const {
  int index = FindStage(kernel_, name);
  HONE_CHECK(index >= 0);
  return kernel_.stages[static_cast<size_t>(index)];
}

std::string SchedulePlanner::FreshName(const std::string& base) const {
  if (FindTensor(kernel_, base) < 0) return base;
  for (int i = 2;; ++i)
    if (std::string name = fmt::format("{}{}", base, i); FindTensor(kernel_, name) < 0) return name;
}

const Axis& SchedulePlanner::AxisAt(const Stage& stage, size_t position) const {
  return position < stage.axes.size() ? stage.axes[position] : stage.reduce_axes[position - stage.axes.size()];
}

std::vector<AccessPattern> SchedulePlanner::AccessesOf(const Stage& stage) const {
  std::vector<AccessPattern> accesses;
  size_t count = stage.axes.size() + stage.reduce_axes.size();
  Walk(stage.body, [&](const Expr& load) {
    if (load.op() != Op::kLoad) return;
    AccessPattern access;
    access.tensor = static_cast<TensorId>(load.int_value());
    access.strides.assign(count, 0);
    access.uses.assign(count, false);
    access.dimension.assign(count, -1);
    const Tensor& tensor = kernel_.tensors[static_cast<size_t>(access.tensor)];
    int64_t stride = 1;
    for (size_t d = load.args().size(); d-- > 0;) {
      Walk(load.arg(d), [&](const Expr& e) {
        if (e.op() == Op::kAxis) access.uses[static_cast<size_t>(e.int_value())] = true;
      });
      std::optional<Linear> form = AffineIndex(kernel_, load.arg(d));
      if (!form) {
        access.affine = false;
      } else {
        for (const Term& term : form->terms()) {
          const size_t axis = term.var.index();
          access.strides[axis] += term.coef * stride;
          bool alone = form->terms().size() == 1 && term.coef == 1 && form->constant() == 0;
          access.dimension[axis] = alone && access.dimension[axis] == -1 ? static_cast<int>(d) : -2;
        }
      }
      stride *= UpperExtent(kernel_, tensor.shape[d]);
    }
    accesses.push_back(std::move(access));
  });
  return accesses;
}

int64_t SchedulePlanner::Bytes(TensorId tensor) const {
  const Tensor& t = kernel_.tensors[static_cast<size_t>(tensor)];
  int64_t bytes = ByteSize(t.dtype);
  for (const Expr& extent : t.shape) bytes *= UpperExtent(kernel_, extent);
  return bytes;
}

int SchedulePlanner::LanesFor(const Stage& stage) const {
  int64_t bytes = ByteSize(kernel_.tensors[static_cast<size_t>(stage.output)].dtype);
  return machine_.Lanes(std::max<int64_t>(bytes, 4));
}

bool SchedulePlanner::IsScheduled(const std::string& stage) const {
  return std::find(done_.begin(), done_.end(), stage) != done_.end();
}

}  // namespace hone
