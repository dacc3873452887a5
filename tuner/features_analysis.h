// What features are computed from: the loop program as a tree of loops with straight-line bodies, each body's vector
// operations counted as the emitter will make them, each access with its strides; then footprints and traffic per
// level. Analytic throughout: nothing is unrolled, so a candidate costs microseconds.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "codegen/lower/program.h"
#include "codegen/machine_model.h"

namespace hone::features {

inline constexpr int kCacheLevels = MachineModel::kCacheLevels;

// How lanes reach memory, the cheapest first.
enum class LaneAccess : uint8_t { kScalar = 0, kBroadcast, kContiguous, kStrided, kGather };
inline constexpr int kLaneAccesses = 5;

// Hardware operations of a body, per execution of it: unrolled loops multiplied in, vectors wider than a register
// split, what is shared between unrolled copies counted once.
struct Operations {
  double fma = 0;  // accumulated products
  double add = 0;  // + and −, also of accumulation without a product
  double multiply = 0;
  double compare = 0;  // min, max, comparisons, selections, logic
  double divide = 0;   // and square roots
  double transcendental = 0;
  double math_calls = 0;  // of those above: too many copies to be inlined, so called
  double convert = 0;
  double integer = 0;  // arithmetic on integers, index arithmetic as values
  double doubles = 0;  // of those above: in f64
  double shuffle = 0;  // transposes, lane reductions, deinterleaving, extracted lanes
  std::array<double, kLaneAccesses> load = {};
  std::array<double, kLaneAccesses> store = {};
  double masked_load = 0;  // of those above: under a guard or with lanes left out
  double masked_store = 0;
  double hoisted_load = 0;  // done before the innermost loop; not among `load`
  double branch = 0;        // statements under a guard that holds for all lanes or none
  double lanes_issued = 0;  // over arithmetic: lanes of all vector operations …
  double lanes_used = 0;    // … and those of them that compute something wanted
  double scalar = 0;        // arithmetic done one element at a time
  double flops = 0;         // elements computed × operations, accumulation included
  double instructed = 0;    // of those: by instructions that take several terms (codegen/instructions.h)

  double Arithmetic() const { return fma + add + multiply + compare + divide + transcendental + convert + integer; }
  double Loads() const;
  double Stores() const;
  double Instructions(const MachineModel& machine) const;  // emitted, elementary functions at their length
};

// An access to memory; register tiles have none.
struct Access {
  BufferId buffer;
  int node = 0;  // the body's loop
  bool is_store = false;
  bool is_guarded = false;
  int64_t prefetch = 0;  // bytes ahead
  LaneAccess lanes = LaneAccess::kScalar;
  double count = 0;            // hardware loads or stores per execution of the body
  double elements = 1;         // side by side, of each
  std::vector<double> stride;  // elements of the flat buffer, signed, per open loop, outermost first
  std::vector<double> step;    // per dimension and open loop: |index elements| per trip; dimension-major
  std::vector<double> trips;   // per open loop
  std::vector<int> loop_node;  // per open loop: its node; −1: unrolled or vectorised, part of the body
};

// A loop that stays one in the code, or the root (node 0). Bodies are what lies directly inside.
struct Node {
  int parent = -1;
  std::vector<int> children;
  LoopKind kind = LoopKind::kSerial;
  VarId var;
  int nest = -1;
  double trips = 1;       // average
  double entries = 1;     // how often the loop starts
  double executions = 1;  // entries × trips
  int64_t grain = 1;
  LaunchAxis axis = LaunchAxis::kBlockX;  // kBound
  bool is_together = false;               // all threads of the block compute it, whatever loops of them enclose it
  double barriers = 0;                    // directly inside, per execution
  int64_t ahead = 0;                      // trips that its pipeline copies ahead
  Operations ops;
  double copies = 1;  // of the body in the code, by unrolled loops around a loop
  // Accumulation that the loop carries: independent chains in hardware vectors, and links per chain and trip.
  double chains = 0;
  double chain_links = 0;
  bool chain_in_memory = false;
  double path = 0;          // cycles along the dependences of the straight-line code, statement after statement
  double tile_vectors = 0;  // registers that hold tiles here, those of enclosing scopes included
  double copied_bytes = 0;  // per execution, stored as plain copies of what was loaded
  double vector_lanes = 1;  // lanes that the widest vectorised loop of the body fills

  bool IsInnermost() const { return children.empty(); }
  // Whether it counts and branches: the root does not, nor what each block or thread does once.
  bool IsLoop() const { return parent >= 0 && kind != LoopKind::kBound; }
  bool IsOfThreads() const { return kind == LoopKind::kBound && !IsBlockAxis(axis); }
};

using PerBuffer = IdVector<BufferId, double>;

// Bytes in whole cache lines, per node.
struct Footprint {
  PerBuffer body;       // of one trip
  PerBuffer inclusive;  // of all trips of one entry
};

struct Analysis {
  std::vector<Node> nodes;  // parents before children; empty in an analysis of nothing
  std::vector<Access> accesses;
  std::vector<Footprint> footprints;            // parallel to nodes
  std::array<PerBuffer, kCacheLevels> traffic;  // into each level, bytes, whole program
  std::array<double, kCacheLevels> capacity = {};
  int nests = 0;
  int hot = 0;              // the node whose body takes most of the cycles
  double needed_flops = 0;  // of the kernel, whatever the schedule
  double operand_bytes = 0;
};

// Fills nodes and accesses.
void AnalyzeLoops(const LoopProgram& program, const MachineModel& machine, Analysis& analysis);
// Fills footprints and traffic. REQUIRES: AnalyzeLoops.
void AnalyzeMemory(const LoopProgram& program, const MachineModel& machine, Analysis& analysis);

// Bytes in units of `unit` (a line, a page) that the access touches while its open loops from `first` inwards run.
double TouchedBytes(const Buffer& buffer, const Access& access, size_t first, double unit);

// Runs of neighbouring elements that they touch then: rows that are walked side by side.
double TouchedRuns(const Access& access, size_t first);

// Cycles of one execution of a body by what could limit it.
struct BodyCycles {
  double arithmetic = 0;
  double load = 0;
  double store = 0;
  double shuffle = 0;
  double issue = 0;
  double latency = 0;  // of the accumulation that the loop carries
  double path = 0;     // of code between loops: it waits for the loop before it, and the next one for it
  double Max() const;
};
BodyCycles CyclesOf(const Node& node, const MachineModel& machine);

}  // namespace hone::features
