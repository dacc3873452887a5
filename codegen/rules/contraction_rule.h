// The rule for contractions, between its files: schedule_contraction.cc (blocks, loops, the sum), schedule_packing.cc
// (copies of the operands in the order in which they are read) and schedule_padding.cc (terms of padding).
#pragma once

#include <string>
#include <vector>

#include "codegen/instructions.h"
#include "codegen/rules/schedule_planner.h"
#include "codegen/rules/tile_model.h"

namespace hone {

// Dimensions of a packed layout.
inline LayoutDim Whole(std::string axis, int64_t extra = 0) {
  return {std::move(axis), LayoutDim::Part::kWhole, 1, extra};
}
inline LayoutDim Quotient(std::string axis, int64_t factor) {
  return {std::move(axis), LayoutDim::Part::kQuotient, factor, 0};
}
inline LayoutDim Remainder(std::string axis, int64_t factor) {
  return {std::move(axis), LayoutDim::Part::kRemainder, factor, 0};
}

// The reduction and the element-wise stage over the same axes that alone reads it.
struct ContractionPair {
  std::string sum;
  std::string out;
};

// Finds or makes the pair for a reduction stage; nullopt: the sum cannot be separated from what it is written to.
// schedule_contraction.cc.
std::optional<ContractionPair> FindPair(SchedulePlanner& planner, const std::string& name);

// An operand that is read in windows, through its columns in memory (im2col), with the names of the axes that they
// have: those of the sum and the operand's own. nullopt: refused. schedule_contraction.cc.
struct Columns {
  std::string name;
  std::vector<std::string> reduced, own;
};
std::optional<Columns> MakeColumns(SchedulePlanner& planner, const Contraction& contraction, int operand);

// Whether hone_pack can make it: an operand that is constant, or what a stage computes of one, element by element.
bool IsOfAConstant(const SchedulePlanner& planner, TensorId tensor);

// The contraction with its factors of f32 rounded to bf16, or in pieces of bf16, where the accuracy admits it and the
// target multiplies these so much faster: rewritten, and analysed again. Else as it is. schedule_bf16_factors.cc.
Contraction NarrowFactors(SchedulePlanner& planner, Contraction contraction);
// How many times as many products of f32 the target does so in the same time; 0: it cannot, or may not.
double Bf16Gain(const SchedulePlanner& planner, const Contraction& contraction);

// Products in the time of a vector FMA. schedule_instruction.cc.
double RateOf(const Instruction& instruction);

// A product of two elements, as the instructions sum them.
bool IsProductOfElements(const Stage& stage);

// Whether an instruction takes elements of `other` and of a constant only when the former change their sign (rewrite
// shift_sign); nullopt: it does not take them at all. schedule_instruction.cc.
std::optional<bool> ShiftsToFit(const InstructionMeaning& meaning, DType other, DType constant);

// A sum of products whose reduction axis `grouped` is padded to whole groups of steps, with the other sign of its
// operand that is not `packed` if it is to have that: the names of the sum and of the stage that corrects it, "" for
// none. nullopt: refused. schedule_instruction.cc.
struct GroupedSum {
  std::string sum, correction;
};
std::optional<GroupedSum> MakeGroups(SchedulePlanner& planner, const std::string& name, AxisId grouped, int packed,
                                     int64_t group, bool shifts);
void ScheduleCorrection(SchedulePlanner& planner, const std::string& name);  // by hone_pack; "": nothing

// The reduction axis whose steps are taken in groups: one that both operands have as a dimension, the longest.
// `windows`: an operand that may be read in windows along it instead, as rows of a convolution's window are; then that
// which is padded least to whole groups. None: there is none that is worth it. schedule_instruction.cc.
AxisId GroupedAxis(const SchedulePlanner& planner, const Contraction& contraction, int64_t group,
                   std::optional<int> windows = std::nullopt);

// How many times as many steps an instruction would do as the sum has, groups being whole; 1: it has none.
// schedule_instruction.cc.
double GroupPadding(const SchedulePlanner& planner, const Contraction& contraction);

// A copy of an operand for `reader` in which groups of an axis' steps lie side by side, of elements that do in the
// operand: [last / panel, …, grouped / group, …, last % panel, grouped % group], `last` being the last dimension. panel
// 0: it is not cut. schedule_instruction.cc.
void CopyInterleaved(SchedulePlanner& planner, const AccessPattern& access, const std::string& reader,
                     AxisId grouped_axis, int64_t group, int64_t panel);

// The contraction by an instruction on tiles, scheduled; false: the target has none for it, or it does not pay.
// schedule_on_tiles.cc.
bool ScheduleOnTiles(SchedulePlanner& planner, const Contraction& contraction);

// The contraction by an instruction, if the target has one for it: rewritten so that it fits. Else as it is.
// schedule_instruction.cc.
Contraction UseInstruction(SchedulePlanner& planner, Contraction contraction);

// The contraction, of which operands of 16-bit floats are read through copies of f32 where that pays: rewritten, and
// analysed again. The tile then packs what it reads in vectors where it would convert it again and again.
// schedule_wide.cc.
Contraction WidenOperands(SchedulePlanner& planner, RegisterTile& tile, Contraction contraction);

class ContractionRule {
 public:
  // `columns`: an intermediate that need not exist where a panel is packed from it; "" if there is none. (What is
  // widened is one, too.)
  ContractionRule(SchedulePlanner& planner, const ContractionPair& pair, Contraction contraction,
                  const RegisterTile& tile, std::string columns)
      : planner_(planner), pair_(pair), c_(std::move(contraction)), tile_(tile), columns_(std::move(columns)) {}

  void Emit();

 private:
  std::string Name(AxisId axis) const { return planner_.StageNamed(pair_.sum).axis(axis).name; }
  std::string OutName(AxisId axis) const { return planner_.StageNamed(pair_.out).axis(axis).name; }
  std::vector<LayoutDim> PanelLayout(const AccessPattern& access, AxisId axis, int64_t width,
                                     const std::string& tensor) const;
  void TrimPadding();
  void ScheduleEdges();
  void ScheduleInRegisters(const std::string& stage);
  bool IsTrimmed(AxisId axis, TrimWay way) const;
  void PackVectorOperand();
  std::vector<LayoutDim> GroupedLayout(const std::vector<std::string>& names, const AccessPattern& access, AxisId axis,
                                       int64_t width) const;
  void PackGroups();
  void CopyGroups();
  void FinishSum(std::vector<std::string> order, const std::vector<std::string>& unrolled, const std::string& group,
                 const std::string& lanes, const std::string& tile_loop);
  void PackRowOperand();
  bool CacheReadConst(const std::string& tensor, const std::string& copy, const std::vector<LayoutDim>& layout);
  void ChooseBlock();
  std::vector<int64_t> BlockOptions(int64_t tiles) const;
  bool GivesEachTaskItsRows(int64_t tiles, int64_t blocks);
  void ScheduleOut();
  void ChooseReductionBlock();
  void ScheduleSum();
  void UnrollReduction(std::vector<std::string>& order, std::vector<std::string>& unrolled);
  void ScheduleBlockedSum();
  void SchedulePanel();
  void PrefetchOperand();
  void ScheduleWideOperands();

  SchedulePlanner& planner_;
  const ContractionPair& pair_;
  Contraction c_;
  RegisterTile tile_;
  std::string columns_;
  int64_t lanes_ = 1;        // of the vector axis
  int64_t width_ = 1;        // elements of the vector axis in a tile
  int64_t block_tiles_ = 1;  // tiles of the blocked row axis in a block
  AxisId block_axis_;
  std::string own_rows_;  // the padded row operand, where each task makes its own part; else empty
  std::string streamed_;  // what vectors read, where it comes from beyond the second-level cache; else empty
  std::string panel_;     // packed inside the kernel, per task
  std::vector<PaddedWindow> trimmed_;  // windows whose terms of padding are left out
  std::string whole_;                  // the sum with what they come to; else empty
  bool row_is_packed_const_ = false;
  bool row_is_total_ = false;    // rows may run over: the operand is a copy of ours
  int64_t reduction_block_ = 0;  // steps of the outermost reduction axis in a block; 0: not blocked
  std::string out_task_, out_tile_;
};

}  // namespace hone
