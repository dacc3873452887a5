// Loops that an instruction does: whether it means what they compute, and whether its operands lie in memory as it
// takes them. What is built is a statement that holds both, the instruction and the loops.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "codegen/instructions.h"
#include "codegen/lower/lower_internal.h"
#include "codegen/lower/refuse.h"

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
  if (schedule.instruction_loops != 2 || !state.loops[depth].reduces || state.loops[depth + 1].reduces)
    return Refuse(fmt::format("{} does two loops: one over {} steps of the sum, in it one over {} lanes",
                              instruction->name, meaning.steps, meaning.lanes));
  for (size_t i : {size_t{0}, size_t{1}})
    if (const int64_t wanted = i == 0 ? meaning.steps : meaning.lanes; state.loops[depth + i].extent != wanted)
      return Refuse(fmt::format("{} does {} trips of {}, which has {}", instruction->name, wanted,
                                schedule.loops[depth + i].path, state.loops[depth + i].extent));
  if (!state.tile && !program_.InRegisters(state.buffer))
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

// Whether the operand's elements of one trip are a register's: those of a lane side by side, and so are the lanes, or
// all lanes have the same.
Result<void> Lowering::CheckOperand(const Instruction& instruction, const ValueNode& load, VarId steps,
                                    VarId lanes) const {
  const InstructionMeaning& meaning = MeaningOf(instruction);
  const std::string& name = program_.buffer(load.buffer).name;
  if (program_.InRegisters(load.buffer))
    return Refuse(fmt::format("{} reads memory, {} is in registers", instruction.name, name));
  // By how much the offset moves with a loop; nullopt: by more or less from trip to trip.
  auto coefficient = [&](const Linear& form, VarId var) -> std::optional<int64_t> {
    for (const Term& term : form.terms())
      if (term.var != var && program_.vars[term.var].kind != VarKind::kLoop && DependsOn(term.var, var))
        return std::nullopt;
    return form.CoefOf(var);
  };
  const Linear offset = program_.vars.ExpandAxes(program_.FlatIndex(load.buffer, load.index));
  const std::optional<int64_t> step = coefficient(offset, steps), lane = coefficient(offset, lanes);
  if (step != 1)
    return Refuse(fmt::format("{} takes {} elements of a lane side by side, {} has them {}", instruction.name,
                              meaning.steps, name, step ? fmt::format("{} apart", *step) : "here and there"));
  if (lane != 0 && lane != meaning.steps)
    return Refuse(fmt::format("{} takes lanes that lie side by side or are all the same, in {} they are {}",
                              instruction.name, name,
                              lane ? fmt::format("{} elements apart", *lane) : "here and there"));
  for (const Linear& form : load.guard) {
    const Linear expanded = program_.vars.ExpandAxes(form);
    if (coefficient(expanded, steps) != 0 || coefficient(expanded, lanes) != 0)
      return Refuse(fmt::format("{} takes whole registers, of which some lie outside {}: read a padded copy",
                                instruction.name, name));
  }
  for (const ValuePtr& fill : load.args)
    if (!fill->IsConstant() || fill->int_value != 0 || fill->float_value != 0)
      return Refuse(fmt::format("{} is padded with other than zeros", name));
  return {};
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
  for (const Expr& operand : HONE_TRY(MatchInstruction(kernel_, kernel_.stages[stage], *instruction))) {
    ValuePtr load = HONE_TRY(MakeValue(stage, operand));
    HONE_CHECK(load->kind == ValueNode::Kind::kLoad);
    HONE_TRY(CheckOperand(*instruction, *load, states_[stage].loops[depth].var, states_[stage].loops[depth + 1].var));
    stmt->operands.push_back(std::move(load));
  }
  if (const Stmt* inner = loops->body.size() == 1 ? loops->body[0].get() : nullptr;
      inner == nullptr || inner->body.size() != 1 || inner->body[0]->kind != Stmt::Kind::kStore ||
      !inner->body[0]->guard.empty())
    return Refuse(fmt::format("{} does loops around one sum alone, without conditions", instruction->name));
  stmt->body.push_back(std::move(loops));
  return stmt;
}

}  // namespace hone::lowering
