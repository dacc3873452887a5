// Loops that an instruction does: whether it means what they compute, and whether its operands lie in memory as it
// takes them. What is built is a statement that holds both, the instruction and the loops.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "codegen/instructions.h"
#include "codegen/lower/lower_internal.h"
#include "ir/schedule/refuse.h"

namespace hone::lowering {

size_t Lowering::InstructionDepth(StageId stage) const {
  const StageSchedule& schedule = scheduled_.stages[stage];
  return schedule.instruction.empty() ? schedule.loops.size() : schedule.loops.size() - schedule.instruction_loops;
}

// The stage's body, its two loops, and where it keeps its sums.
Result<const Instruction*> Lowering::CheckInstruction(StageId stage) const {
  const StageSchedule& schedule = scheduled_.stages[stage];
  const StageState& state = states_[stage];
  const Instruction* instruction = FindInstruction(schedule.instruction);
  if (instruction == nullptr)
    return Refuse(fmt::format("there is no instruction {}; there are {}", schedule.instruction, InstructionNames()));
  const InstructionMeaning& meaning = MeaningOf(*instruction);
  const size_t depth = InstructionDepth(stage);
  const std::vector<InstructionMeaning::Loop> meant = meaning.Loops();
  bool matches = schedule.instruction_loops == meant.size();
  for (size_t i = 0; matches && i < meant.size(); ++i) matches = state.loops[depth + i].reduces == meant[i].reduces;
  if (!matches) {
    std::string loops;
    for (const InstructionMeaning::Loop& loop : meant)
      loops += fmt::format("{} over {} {}", loops.empty() ? "one" : ", in it one", loop.trips, loop.over);
    constexpr std::string_view kCounts[] = {"two", "three", "four"};
    return Refuse(fmt::format("{} does {} loops: {}", instruction->name, kCounts[meant.size() - 2], loops));
  }
  for (size_t i = 0; i < meant.size(); ++i)
    if (state.loops[depth + i].extent != meant[i].trips)
      return Refuse(fmt::format("{} does {} trips of {}, which has {}", instruction->name, meant[i].trips,
                                schedule.loops[depth + i].path, state.loops[depth + i].extent));
  if (meaning.is_of_warp && !IsFragments(state.buffer))
    return Refuse(
        fmt::format("{} is done by the threads of a warp, whose registers hold the sums: store {} registers, "
                    "and bind loops of what reads it",
                    instruction->name, program_.buffer(state.buffer).name));
  if (meaning.is_on_tiles() && !state.tile)
    return Refuse(fmt::format("{} adds to tiles in registers of their own: {} wants a register_tile", instruction->name,
                              program_.buffer(state.buffer).name));
  if (meaning.is_on_tiles() &&
      program_.buffer(state.tile).elements > InstructionMeaning::kMostFragments * meaning.rows * meaning.lanes)
    return Refuse(fmt::format("{} has {} tiles for sums: place register_tile further inside", instruction->name,
                              InstructionMeaning::kMostFragments));
  if (!state.tile && !meaning.is_of_warp && !program_.InRegisters(state.buffer))
    return Refuse(fmt::format("{} adds to registers, where {} is not: store it there, or a register_tile",
                              instruction->name, program_.buffer(state.buffer).name));
  if (state.has_condition)
    return Refuse(fmt::format("{} adds every term: this sum has a condition", instruction->name));
  const Stage& s = kernel_.stages[stage];
  for (AxisId a : s.reduce_ids())
    if (state.axes[a].padded > program_.vars.Range(state.axes[a].extent).lo)
      return Refuse(fmt::format("{} adds every term, but tiles do not divide {}: pad_reduction makes them",
                                instruction->name, s.axis(a).name));
  return instruction;
}

std::optional<int64_t> Lowering::StepOf(const Linear& offset, VarId loop) const {
  for (const Term& term : offset.terms())
    if (term.var != loop && program_.vars[term.var].kind != VarKind::kLoop && DependsOn(term.var, loop))
      return std::nullopt;
  return offset.CoefOf(loop);
}

// Whether the operand's elements of one trip are a register's: those of a lane side by side, and so are the lanes, or
// all lanes have the same, or each begins within the one before, as where a window moves along them.
Result<void> Lowering::CheckOperand(const Instruction& instruction, const ValueNode& load, VarId steps,
                                    VarId lanes) const {
  const InstructionMeaning& meaning = MeaningOf(instruction);
  const std::string& name = program_.buffer(load.buffer).name;
  if (program_.InRegisters(load.buffer))
    return Refuse(fmt::format("{} reads memory, {} is in registers", instruction.name, name));
  const Linear offset = program_.vars.ExpandAxes(program_.FlatIndex(load.buffer, load.index));
  const std::optional<int64_t> step = StepOf(offset, steps), lane = StepOf(offset, lanes);
  if (step != 1)
    return Refuse(fmt::format("{} takes {} elements of a lane side by side, {} has them {}", instruction.name,
                              meaning.steps, name, step ? fmt::format("{} apart", *step) : "here and there"));
  if (!lane || *lane < 0 || *lane > meaning.steps)
    return Refuse(fmt::format("{} takes lanes that lie side by side, overlap or are all the same, in {} they are {}",
                              instruction.name, name,
                              lane ? fmt::format("{} elements apart", *lane) : "here and there"));
  for (const Linear& form : load.guard) {
    const Linear expanded = program_.vars.ExpandAxes(form);
    if (StepOf(expanded, steps) != 0 || StepOf(expanded, lanes) != 0)
      return Refuse(fmt::format("{} takes whole registers, of which some lie outside {}: read a padded copy",
                                instruction.name, name));
  }
  for (const ValuePtr& fill : load.args)
    if (!fill->IsConstant() || fill->int_value != 0 || fill->float_value != 0)
      return Refuse(fmt::format("{} is padded with other than zeros", name));
  return {};
}

// Whether an operand is a tile: [rows, groups, steps] of the first, [groups, lanes, steps] of the second, of which the
// first dimension moves by any stride and the others lie side by side.
Result<void> Lowering::CheckTile(const Instruction& instruction, const ValueNode& load, bool has_rows,
                                 const std::vector<VarId>& loops) const {
  const InstructionMeaning& meaning = MeaningOf(instruction);
  const std::string& name = program_.buffer(load.buffer).name;
  if (program_.InRegisters(load.buffer))
    return Refuse(fmt::format("{} reads memory, {} is in registers", instruction.name, name));
  if (!load.guard.empty())
    return Refuse(
        fmt::format("{} takes whole tiles, of which some lie outside {}: read a padded copy", instruction.name, name));
  const Linear offset = program_.vars.ExpandAxes(program_.FlatIndex(load.buffer, load.index));
  struct Wanted {
    std::string_view over;
    std::optional<int64_t> step;  // nullopt: any
  };
  const std::optional<int64_t> any;
  const Wanted wanted[] = {{"groups of steps", has_rows ? meaning.steps : any},
                           {"rows", has_rows ? any : 0},
                           {"steps of the sum", 1},
                           {"lanes", has_rows ? 0 : meaning.steps}};
  for (size_t i = 0; i < loops.size(); ++i) {
    const std::optional<int64_t> step = StepOf(offset, loops[i]);
    if (step && (!wanted[i].step || step == wanted[i].step)) continue;
    return Refuse(fmt::format("{} takes {} {} elements apart, {} has them {}", instruction.name, wanted[i].over,
                              wanted[i].step ? fmt::format("{}", *wanted[i].step) : "the same number of", name,
                              step ? fmt::format("{} apart", *step) : "here and there"));
  }
  return {};
}

const Instruction* Lowering::OnTiles(StageId stage) const {
  const StageSchedule& schedule = scheduled_.stages[stage];
  const Instruction* instruction = schedule.promote_loop.empty() ? nullptr : FindInstruction(schedule.instruction);
  return instruction && MeaningOf(*instruction).is_on_tiles() ? instruction : nullptr;
}

const Instruction* Lowering::OfWarp(StageId stage) const {
  const Instruction* instruction = program_.for_gpu ? FindInstruction(scheduled_.stages[stage].instruction) : nullptr;
  return instruction && MeaningOf(*instruction).is_of_warp ? instruction : nullptr;
}

// Whether the operand's elements lie where its loops say: [rows, steps] of the first, [steps, columns] of the second.
Result<void> Lowering::CheckWarpOperand(const Instruction& instruction, const ValueNode& load, bool has_rows,
                                        const std::vector<VarId>& loops) const {
  const std::string& name = program_.buffer(load.buffer).name;
  if (program_.InRegisters(load.buffer) || IsFragments(load.buffer))
    return Refuse(fmt::format("{} reads memory, {} is in registers", instruction.name, name));
  if (!load.guard.empty())
    return Refuse(
        fmt::format("{} takes whole tiles, of which some lie outside {}: read a padded copy", instruction.name, name));
  const Linear offset = program_.vars.ExpandAxes(program_.FlatIndex(load.buffer, load.index));
  const size_t other = has_rows ? 2 : 1;
  if (MeaningOf(instruction).is_of_group) {
    const bool is_shared = program_.buffer(load.buffer).scope == Scope::kBlock;
    const bool moves =
        std::ranges::any_of(offset.terms(), [&](const Term& t) { return DependsOn(t.var, loops[other]); });
    if (is_shared && !moves) return {};  // how its elements lie there is looked at by who makes code of it
    return Refuse(fmt::format("{} takes its {} from block storage, {} is {}", instruction.name,
                              has_rows ? "rows" : "columns", name, is_shared ? "no such" : "not there"));
  }
  for (size_t i = 0; i < loops.size(); ++i) {
    const std::optional<int64_t> step = StepOf(offset, loops[i]);
    if (!step || (i == other && *step != 0))
      return Refuse(fmt::format("{} takes a tile of {} along its {} and steps, {} is no such", instruction.name, name,
                                has_rows ? "rows" : "columns", name));
  }
  return {};
}

Result<StmtPtr> Lowering::WrapTile(const Instruction& instruction, StmtPtr loops) const {
  auto only = [](const Stmt* loop) {
    return loop != nullptr && loop->kind == Stmt::Kind::kLoop && loop->body.size() == 1 ? loop->body[0].get() : nullptr;
  };
  const Stmt *inner = only(loops.get()), *innermost = only(inner);
  if (innermost == nullptr || innermost->kind != Stmt::Kind::kStore)
    return Refuse(fmt::format("{} begins and ends with rows of lanes", instruction.name));
  const Stmt &lanes = *inner, &store = *innermost;
  const bool begins = program_.buffer(store.buffer).scope == Scope::kFragments;
  if (begins && !store.value->IsConstant())
    return Refuse(
        fmt::format("{} begins with zeros: place register_tile outside of all loops of the sum", instruction.name));
  if (!begins) {
    const std::string& name = program_.buffer(store.buffer).name;
    const Linear offset = program_.vars.ExpandAxes(program_.FlatIndex(store.buffer, store.index));
    if (!store.guard.empty())
      return Refuse(fmt::format("{} stores whole tiles, of which some lie outside {}", instruction.name, name));
    if (!StepOf(offset, loops->var) || StepOf(offset, lanes.var) != 1)
      return Refuse(fmt::format("{} stores lanes side by side, in {} they are apart", instruction.name, name));
  }
  auto stmt = std::make_unique<Stmt>();
  stmt->kind = Stmt::Kind::kInstruction;
  stmt->instruction = &instruction;
  stmt->body.push_back(std::move(loops));
  return stmt;
}

bool Lowering::DependsOn(VarId id, VarId on) const {
  if (id == on) return true;
  const Var& var = program_.vars[id];
  if (var.kind == VarKind::kOpaque) return true;
  for (const Linear* part : {&var.a, &var.b})
    for (const Term& term : part->terms())
      if (DependsOn(term.var, on)) return true;
  return false;
}

Result<StmtPtr> Lowering::WrapInstruction(StageId stage, StmtPtr loops) {
  const Instruction* instruction = HONE_TRY(CheckInstruction(stage));
  const size_t depth = InstructionDepth(stage);
  auto stmt = std::make_unique<Stmt>();
  stmt->kind = Stmt::Kind::kInstruction;
  stmt->instruction = instruction;
  const InstructionMeaning& meaning = MeaningOf(*instruction);
  std::vector<VarId> vars;
  for (size_t l = depth; l < states_[stage].loops.size(); ++l) vars.push_back(states_[stage].loops[l].var);
  for (const Expr& operand : HONE_TRY(MatchInstruction(kernel_, kernel_.stages[stage], *instruction))) {
    ValuePtr load = HONE_TRY(MakeValue(stage, operand));
    HONE_CHECK(load->kind == ValueNode::Kind::kLoad);
    stmt->operands.push_back(std::move(load));
  }
  if (meaning.is_on_tiles() || meaning.is_of_warp) {
    // Factors of one type match either way: the first is the one that has the rows.
    auto has_rows = [&](const ValuePtr& load) {
      return StepOf(program_.vars.ExpandAxes(program_.FlatIndex(load->buffer, load->index)), vars[1]) != 0;
    };
    if (meaning.operands[0] == meaning.operands[1] && !has_rows(stmt->operands[0]))
      std::swap(stmt->operands[0], stmt->operands[1]);
    for (size_t i : {size_t{0}, size_t{1}}) {
      if (meaning.is_of_warp)
        HONE_TRY(CheckWarpOperand(*instruction, *stmt->operands[i], i == 0, vars));
      else
        HONE_TRY(CheckTile(*instruction, *stmt->operands[i], i == 0, vars));
    }
  } else {
    for (const ValuePtr& load : stmt->operands) HONE_TRY(CheckOperand(*instruction, *load, vars[0], vars[1]));
  }
  const Stmt* inner = loops.get();
  for (size_t i = 0; inner != nullptr && i < vars.size(); ++i)
    inner = inner->kind == Stmt::Kind::kLoop && inner->body.size() == 1 ? inner->body[0].get() : nullptr;
  if (inner == nullptr || inner->kind != Stmt::Kind::kStore || !inner->guard.empty())
    return Refuse(fmt::format("{} does loops around one sum alone, without conditions", instruction->name));
  stmt->body.push_back(std::move(loops));
  return stmt;
}

}  // namespace hone::lowering
