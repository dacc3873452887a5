// The loops around a place of a loop program, and what indices do as they run.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "codegen/lower/program.h"
#include "codegen/machine_model.h"

namespace hone::features {

using LoopMask = uint64_t;  // bit p: the p-th open loop, outermost first
inline constexpr int kMaxOpenLoops = 63;

// A stack of open loops. Variables that are not linear in the loops (quotients, minima) are evaluated at a few points.
class OpenLoops {
 public:
  struct Loop {
    VarId var;
    double trips;
    int node;  // of the analysis; −1: unrolled or vectorised, part of the body
  };

  OpenLoops(const LoopProgram& program, const MachineModel& machine);

  // REQUIRES: fewer than kMaxOpenLoops are open.
  void Push(const Loop& loop, bool is_vector);
  void Pop();
  const std::vector<Loop>& loops() const { return loops_; }
  size_t size() const { return loops_.size(); }
  LoopMask BitOf(VarId loop) const { return LoopMask{1} << position_[loop]; }  // REQUIRES: it is open
  LoopMask VectorBit() const { return vector_ < 0 ? 0 : LoopMask{1} << vector_; }
  LoopMask RuntimeBits() const;  // loops that stay loops

  // The loops that something depends on.
  LoopMask MaskOf(VarId id) const;
  LoopMask MaskOf(const Linear& form) const;
  LoopMask MaskOf(const std::vector<Linear>& forms) const;

  // Mean of a loop's trips, over the values of the loops that it depends on: the last tile of an axis is shorter.
  double AverageExtent(const Linear& extent);
  // Share of the unrolled copies in which all forms are ≥ 0; 1 where loops that stay loops, or lanes, decide that.
  double ActiveShare(const std::vector<Linear>& guard);
  // What the index moves by per trip of each open loop: exact for linear indices; for others on average, by the widest
  // distance from the first trip among a few. `step` has size() elements.
  void Steps(const Linear& form, double* step);
  // Elements from lane to lane in the flat buffer; nullopt: not the same for all lanes.
  std::optional<int64_t> LaneStep(BufferId buffer, const std::vector<Linear>& index);

  bool HasVector() const { return vector_ >= 0; }
  bool IsVector(LoopMask mask) const { return (mask & VectorBit()) != 0; }
  double ActiveLanes() const { return vector_ < 0 ? 1 : loops_[static_cast<size_t>(vector_)].trips; }
  // Unrolled copies that differ, of what depends on these loops.
  double Copies(LoopMask mask) const;
  // Hardware operations for a vector of the loop's lanes.
  double Widths(DType type) const;

 private:
  int64_t Evaluate(VarId id) const;
  int64_t Evaluate(const Linear& form) const;
  LoopMask LoadedMask(const ValueNode& value) const;
  bool IsDerived(const Linear& form) const;
  void AddCoefficients(const Linear& form, int64_t factor, double* step) const;

  const LoopProgram& program_;
  const VarTable& vars_;
  const MachineModel& machine_;
  std::vector<Loop> loops_;
  IdVector<VarId, int> position_;  // index into loops_; −1: not open
  IdVector<VarId, int64_t> at_;    // where index arithmetic is evaluated; 0 between evaluations
  std::vector<int> vectors_;       // vector_ before each Push
  int vector_ = -1;                // index into loops_
};

}  // namespace hone::features
