// Threads along x as runs that lie in one sub-group: a thread's place in its run, and the run's number. Lanes of a run
// reduce together: each some terms in a register, which they then exchange, every second one's first, so that in the
// end all of them have the whole. For that they must be at the same statement and mean the same element.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "codegen/gpu/launch_maker.h"
#include "ir/steps/step_reader.h"

namespace hone::straight {

bool LaunchMaker::DependsOn(const Linear& form, VarId on) const {
  const Linear known = out_.vars.ExpandAxes(form);
  return std::ranges::any_of(known.terms(), [&](const Term& term) {
    const Var& var = out_.vars[term.var];
    if (term.var == on) return true;
    const bool is_of_others = var.kind != VarKind::kLoop && var.kind != VarKind::kSize && var.kind != VarKind::kOpaque;
    return is_of_others && (DependsOn(var.a, on) || DependsOn(var.b, on));
  });
}

// How many threads that follow each other along x, from a multiple of that number on, compute the same in the store; 1:
// each may compute something else, by `what`.
int64_t LaunchMaker::ThreadsThatAgree(const Stmt& store, std::string* what) const {
  const VarId thread = has_thread_[0] ? threads_x_ : VarId();
  const auto depends = [&](const std::vector<Linear>& forms) {
    return thread && std::ranges::any_of(forms, [&](const Linear& form) { return DependsOn(form, thread); });
  };
  int64_t threads = INT64_MAX;
  const auto at_most = [&](int64_t agree, std::string of) {
    if (agree < threads) *what = std::move(of);
    threads = std::min(threads, agree);
  };
  if (depends(store.guard)) at_most(1, "its condition");
  std::vector<const ValueNode*> open{store.value.get()};
  while (!open.empty()) {
    const ValueNode& value = *open.back();
    open.pop_back();
    const bool is_load = value.kind == ValueNode::Kind::kLoad;
    const std::string name = is_load ? program_.buffer(value.buffer).name : "";
    if (depends(value.index) || depends(value.guard)) at_most(1, is_load ? "the element of " + name : "an index");
    if (is_load && program_.InRegisters(value.buffer)) {
      const auto known = agreeing_.find(value.buffer);
      at_most(known == agreeing_.end() ? 1 : known->second, name);
    }
    for (const ValuePtr& arg : value.args) open.push_back(arg.get());
  }
  return threads;
}

// Refused where lanes would reduce terms of different elements.
Result<void> LaunchMaker::CheckLanesAgree(const Stmt& stmt, int64_t lanes) const {
  std::string what;
  if (stmt.kind == Stmt::Kind::kStore && ThreadsThatAgree(stmt, &what) < lanes)
    return Error{ErrorKind::kInvalid,
                 fmt::format("lanes reduce {} together, but {} is another one in each thread",
                             program_.buffer(stmt.buffer).name, what),
                 ""};
  for (const StmtPtr& child : stmt.body) HONE_TRY(CheckLanesAgree(*child, lanes));
  return {};
}

// A register is the same in as many threads as what it was set to last; within a loop of lanes it is not.
void LaunchMaker::NoteAgreement(const Stmt& store) {
  std::string what;
  int64_t& agree = agreeing_[store.buffer];
  const int64_t now = in_lanes_ ? 1 : ThreadsThatAgree(store, &what);
  agree = store.across_lanes > 0 ? store.across_lanes : store.combine == Reduction::kNone ? now : std::min(agree, now);
}

Result<void> LaunchMaker::EmitOfSubGroup(const Stmt& stmt) {
  const int64_t lanes = LanesIn(stmt);
  const std::string& name = out_.vars[stmt.var].name;
  if (lanes < 1 || !std::has_single_bit(static_cast<uint64_t>(lanes)))
    return Error{
        ErrorKind::kInvalid,
        fmt::format("{} is bound to {}: lanes are a power of two, and not {}", name, LaunchAxisName(stmt.axis), lanes),
        ""};
  if (lanes > limits_.sub_group || launch_.Threads() % limits_.sub_group != 0 || launch_.block[0] % lanes != 0)
    return Error{
        ErrorKind::kLimit,
        fmt::format("{} is bound to {}, in runs of {} of {} threads, {} along x: the device's sub-groups have {}", name,
                    LaunchAxisName(stmt.axis), lanes, launch_.Threads(), launch_.block[0], limits_.sub_group),
        ""};
  const ValueId thread = builder_.Given({.what = Do::kThread, .type = DType::kI32, .number = 0, .varies = true});
  const ValueId lane = builder_.Make(Do::kBitAnd, DType::kI32, {thread, builder_.Int(lanes - 1)});
  if (stmt.axis == LaunchAxis::kLaneX) {
    HONE_TRY(CheckLanesAgree(stmt, lanes));
    known_[stmt.var] = lane;
    in_lanes_ = true;
    HONE_TRY(EmitAll(stmt.body));
    in_lanes_ = false;
    return {};
  }
  // The first lane stores for its run.
  const ValueId pending = pending_;
  const bool had_thread = std::exchange(has_thread_[0], true);
  threads_x_ = {};
  pending_ = builder_.And(pending_, builder_.Make(Do::kEq, DType::kBool, {lane, builder_.Int(0)}));
  const ValueId run = builder_.Make(Do::kShiftRight, DType::kI32,
                                    {thread, builder_.Int(std::countr_zero(static_cast<uint64_t>(lanes)))});
  known_[stmt.var] = run;
  if (out_.vars.Range(stmt.extent).lo < launch_.block[0] / lanes) {
    const ValueId extent = HONE_TRY(IndexValue(stmt.extent)), last = HONE_TRY(IndexValue(stmt.extent - Linear(1)));
    pending_ = builder_.And(pending_, builder_.Make(Do::kLt, DType::kBool, {run, extent}));
    known_[stmt.var] = builder_.Make(Do::kMin, DType::kI32, {run, last});
  }
  HONE_TRY(EmitAll(stmt.body));
  pending_ = pending;
  has_thread_[0] = had_thread;
  return {};
}

Result<ValueId> LaunchMaker::AcrossLanes(const Stmt& stmt) {
  const DType type = TypeInCode(program_.buffer(stmt.buffer).dtype);
  ValueId whole = HONE_TRY(ValueOf(*stmt.value));
  if (type != DType::kF32 && type != DType::kF64 && type != DType::kI32)
    return Error{ErrorKind::kUnsupported, fmt::format("lanes that reduce {} together", Name(type)), ""};
  for (int64_t bit = 1; bit < stmt.across_lanes; bit *= 2)
    whole =
        Combine(builder_, stmt.combine, type, whole,
                builder_.Make({.what = Do::kShuffle, .type = type, .args = {whole}, .number = bit, .varies = true}));
  return whole;
}

}  // namespace hone::straight
