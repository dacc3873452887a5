#include "tuner/features_loops.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace hone::features {

OpenLoops::OpenLoops(const LoopProgram& program, const MachineModel& machine)
    : program_(program), vars_(program.vars), machine_(machine), position_(vars_.size(), -1), at_(vars_.size(), 0) {}

void OpenLoops::Push(const Loop& loop, bool is_vector) {
  vectors_.push_back(vector_);
  if (is_vector) vector_ = static_cast<int>(loops_.size());
  position_[loop.var] = static_cast<int>(loops_.size());
  loops_.push_back(loop);
}

void OpenLoops::Pop() {
  position_[loops_.back().var] = -1;
  loops_.pop_back();
  vector_ = vectors_.back();
  vectors_.pop_back();
}

LoopMask OpenLoops::RuntimeBits() const {
  LoopMask mask = 0;
  for (size_t p = 0; p < loops_.size(); ++p)
    if (loops_[p].node >= 0) mask |= LoopMask{1} << p;
  return mask;
}

int64_t OpenLoops::Evaluate(VarId id) const {
  const Var& var = vars_[id];
  switch (var.kind) {
    case VarKind::kLoop: return at_[id];
    case VarKind::kSize: return var.range.hi;
    case VarKind::kAxis: return Evaluate(var.a);
    case VarKind::kFloorDiv: return FloorDiv(Evaluate(var.a), var.divisor);
    case VarKind::kMin: return std::min(Evaluate(var.a), Evaluate(var.b));
    case VarKind::kMax: return std::max(Evaluate(var.a), Evaluate(var.b));
    case VarKind::kProduct: return Evaluate(var.a) * Evaluate(var.b);
    case VarKind::kOpaque: return std::clamp<int64_t>(0, var.range.lo, var.range.hi);
  }
  return 0;
}

int64_t OpenLoops::Evaluate(const Linear& form) const {
  int64_t sum = form.constant();
  for (const Term& term : form.terms()) sum += term.coef * Evaluate(term.var);
  return sum;
}

LoopMask OpenLoops::MaskOf(VarId id) const {
  const Var& var = vars_[id];
  switch (var.kind) {
    case VarKind::kLoop: return position_[id] < 0 ? 0 : LoopMask{1} << position_[id];
    case VarKind::kSize: return 0;
    case VarKind::kOpaque: return var.payload < 0 ? 0 : LoadedMask(program_.OpaqueValue(var));
    default: return MaskOf(var.a) | MaskOf(var.b);
  }
}

LoopMask OpenLoops::MaskOf(const Linear& form) const {
  LoopMask mask = 0;
  for (const Term& term : form.terms()) mask |= MaskOf(term.var);
  return mask;
}

LoopMask OpenLoops::MaskOf(const std::vector<Linear>& forms) const {
  LoopMask mask = 0;
  for (const Linear& form : forms) mask |= MaskOf(form);
  return mask;
}

LoopMask OpenLoops::LoadedMask(const ValueNode& value) const {
  LoopMask mask = MaskOf(value.index) | MaskOf(value.guard);
  for (const ValuePtr& arg : value.args) mask |= LoadedMask(*arg);
  return mask;
}

double OpenLoops::AverageExtent(const Linear& extent) {
  if (extent.IsConstant()) return static_cast<double>(std::max<int64_t>(1, extent.constant()));
  constexpr int64_t kSamples = 12;  // per loop, evenly spaced with both ends
  std::vector<VarId> loops;
  LoopMask mask = MaskOf(extent);
  for (size_t p = 0; p < loops_.size(); ++p)
    if (mask >> p & 1 && loops.size() < 2) loops.push_back(loops_[p].var);
  double sum = 0, count = 0;
  auto visit = [&](const auto& self, size_t i) -> void {
    if (i == loops.size()) {
      sum += static_cast<double>(std::max<int64_t>(0, Evaluate(extent)));
      count += 1;
      return;
    }
    const int64_t last = vars_[loops[i]].range.hi;
    const int64_t samples = std::min(kSamples, last + 1);
    for (int64_t s = 0; s < samples; ++s) {
      at_[loops[i]] = samples == 1 ? 0 : s * last / (samples - 1);
      self(self, i + 1);
    }
    at_[loops[i]] = 0;
  };
  visit(visit, 0);
  return std::max(sum / count, 1e-3);
}

double OpenLoops::ActiveShare(const std::vector<Linear>& guard) {
  const LoopMask mask = MaskOf(guard);
  if (guard.empty() || (mask & (RuntimeBits() | VectorBit())) != 0) return 1;
  double active = 0, count = 0;
  auto visit = [&](const auto& self, size_t position) -> void {
    while (position < loops_.size() && !(mask >> position & 1)) ++position;
    if (position == loops_.size()) {
      count += 1;
      active += std::ranges::all_of(guard, [&](const Linear& form) { return Evaluate(form) >= 0; });
      return;
    }
    const VarId var = loops_[position].var;
    for (int64_t i = 0; i <= vars_[var].range.hi; ++i) {
      at_[var] = i;
      self(self, position + 1);
    }
    at_[var] = 0;
  };
  visit(visit, 0);
  return active / count;
}

bool OpenLoops::IsDerived(const Linear& form) const {
  for (const Term& term : form.terms()) {
    const Var& var = vars_[term.var];
    if (var.kind == VarKind::kAxis ? IsDerived(var.a) : var.kind != VarKind::kLoop && var.kind != VarKind::kSize)
      return true;
  }
  return false;
}

void OpenLoops::AddCoefficients(const Linear& form, int64_t factor, double* step) const {
  for (const Term& term : form.terms()) {
    const Var& var = vars_[term.var];
    if (var.kind == VarKind::kAxis)
      AddCoefficients(var.a, factor * term.coef, step);
    else if (int p = position_[term.var]; p >= 0)
      step[p] += static_cast<double>(factor * term.coef);
  }
}

void OpenLoops::Steps(const Linear& form, double* step) {
  std::fill_n(step, loops_.size(), 0.0);
  if (!IsDerived(form)) return AddCoefficients(form, 1, step);
  LoopMask mask = MaskOf(form);
  const int64_t start = Evaluate(form);
  for (size_t p = 0; p < loops_.size(); ++p) {
    if (!(mask >> p & 1)) continue;
    const int64_t last = vars_[loops_[p].var].range.hi;
    if (last <= 0) continue;
    double widest = 0;
    for (int64_t i : {int64_t{1}, last / 4, last / 2, last - 1, last}) {
      if (i < 1 || i > last) continue;
      at_[loops_[p].var] = i;
      double moved = static_cast<double>(Evaluate(form) - start);
      if (std::abs(moved) > std::abs(widest)) widest = moved;
    }
    at_[loops_[p].var] = 0;
    step[p] = widest / static_cast<double>(last);
  }
}

std::optional<int64_t> OpenLoops::LaneStep(BufferId buffer, const std::vector<Linear>& index) {
  if (vector_ < 0) return 0;
  const VarId lane = loops_[static_cast<size_t>(vector_)].var;
  const int64_t last = vars_[lane].range.hi;
  const std::vector<int64_t>& strides = program_.buffer(buffer).strides;
  auto flat = [&](int64_t i) {
    at_[lane] = i;
    int64_t offset = 0;
    for (size_t d = 0; d < index.size(); ++d) offset += strides[d] * Evaluate(index[d]);
    at_[lane] = 0;
    return offset;
  };
  const int64_t first = flat(0), step = flat(std::min<int64_t>(1, last)) - first;
  if (flat(last) - first != step * last || flat(last / 2) - first != step * (last / 2)) return std::nullopt;
  return step;
}

double OpenLoops::Copies(LoopMask mask) const {
  double copies = 1;
  for (size_t p = loops_.size(); p-- > 0 && loops_[p].node < 0;)
    if (mask >> p & 1 && static_cast<int>(p) != vector_) copies *= loops_[p].trips;
  return copies;
}

double OpenLoops::Widths(DType type) const {
  if (vector_ < 0) return 1;
  const double lanes = static_cast<double>(std::bit_ceil(static_cast<uint64_t>(ActiveLanes())));
  return std::max(1.0, lanes / machine_.Lanes(ByteSize(type)));
}

}  // namespace hone::features
