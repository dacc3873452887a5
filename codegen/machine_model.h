// A target in numbers: what its registers hold, what operations, memory and workers cost, how far code may go before it
// no longer pays. Whoever decides by such a number reads it here: the schedule rules, the emitter, the cost model's
// features. Estimates, enough to rank one way against another; where a source is not named, bench/kernel_lab is.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "ir/graph/op_traits.h"
#include "ir/target.h"

namespace hone {

struct Instruction;

// Of one core, where nothing else is said. What has a value here is the same on every core that there is a target for
// (Haswell … Sapphire Rapids, Zen 2 … 5, Neoverse): Agner Fog's tables and uops.info.
struct MachineModel {
  // ---- Vectors
  int vector_bits = 0;
  int vector_registers = 0;
  bool has_masked_access = false;   // loads and stores of some lanes only
  bool has_mask_registers = false;  // masks take no vector registers
  // Registers that copies of a reduction's step take beside accumulators and vectors: one for broadcasts; more where
  // FMAs do not take these from memory, since LLVM then moves accumulators from register to register.
  int copy_registers = 1;
  int scheduling_registers = 4;  // for vectors that are not broadcast, and for LLVM's scheduler, in unrolled windows
  // Lanes further apart in memory are gathered one by one: a load of all between them would read mostly what nobody
  // wants.
  int64_t widest_lane_stride = 4;  // elements

  // What a vector of half the lanes costs beside one of all: less than 1 where the pipes are half as wide.
  double half_vector_cycles = 1;

  int Lanes(int64_t element_bytes) const { return static_cast<int>(vector_bits / 8 / element_bytes); }
  // Loads that are kept in registers across an innermost loop: more would spill what the loop itself needs.
  int HoistedLoads() const { return vector_registers * 3 / 8; }
  // Independent accumulators that keep the FMA pipes busy.
  int FmaChains() const { return static_cast<int>(fma_latency * fma_per_cycle); }

  // ---- Instructions that sum several products in a lane (codegen/instructions.h), those preferred first
  std::vector<const Instruction*> instructions;

  // ---- Ports: vector instructions that start in a cycle
  double fma_per_cycle = 2;  // any arithmetic
  double loads_per_cycle = 2;
  double stores_per_cycle = 1;
  double shuffles_per_cycle = 1;
  double instructions_per_cycle = 5;  // of all kinds

  // ---- Operations, cycles
  double fma_latency = 4;
  double load_latency = 5;
  double divide_latency = 16;
  double elementary_latency = 45;
  double lane_step_latency = 6;          // halving a vector: a shuffle and an operation
  double memory_accumulate_latency = 9;  // an accumulator that is stored and loaded: store forwarding on top
  double divide_cycles = 12;             // for which a division or root of one vector keeps its pipe
  // An elementary function is called where a statement has this many copies or more: a call costs some spills, a copy
  // a millisecond of compilation.
  int64_t called_copies = 6;
  double call_instructions = 24;  // of a call beside the function's own, registers saved around it included

  // An operation's cycles, all in, by whether it is an elementary function or a root.
  struct OperationCycles {
    double simple, costly;
    double Of(Op op) const { return IsCostly(op) ? costly : simple; }
  };
  OperationCycles vector_operation = {0.5, 12};     // on a vector, where nothing but element-wise work is done
  OperationCycles element_operation = {0.05, 0.8};  // on an element, in rows that are reduced

  // ---- Loops, cycles
  double loop_instructions = 2;  // of a trip: counting and branching
  double loop_trip_cycles = 0.2;
  double loop_entry_cycles = 8;  // leaving is mispredicted unless trips are few and constant; entering sets up counters
  double fork_cycles = 12'000;   // a fork and join over all workers (bench/serving_bench: 2 … 5 µs)
  int cores = 1;                 // workers, at most

  // ---- Blocks of threads, where a device has them; 0: it has none
  int64_t block_threads = 0;  // at most
  int64_t block_bytes = 0;    // of storage that the threads of a block share
  // Threads that follow each other, along x first, and hand each other what they have in registers; 1: nobody says
  // which.
  int64_t sub_group = 1;
  bool has_async_copies = false;  // from global memory to block storage, past the registers
  // A block's threads share one core, and wait for each other at much cost.
  bool is_processor = false;
  // They are trips of a loop there, whose registers go to memory at each barrier; what one thread does side by side
  // becomes vectors.
  bool threads_are_loops = false;
  bool gathers_slowly = false;  // such a processor loads lanes that lie apart by microcode: AMD's Zen
  int lanes = 1;  // of 32 bits, of the vectors that a thread computes with; 1: it computes one number at a time
  std::array<int64_t, 3> grid = {(int64_t{1} << 31) - 1, 65535, 65535};  // blocks of a launch, along each dimension

  // ---- Memory
  static constexpr int kCacheLevels = 3;
  int64_t l1_bytes = 0, l2_bytes = 0, l3_bytes = 0;
  int64_t line_bytes = 64;
  int64_t page_bytes = 4096;
  int64_t near_pages = 64;      // whose translations the first level holds
  int64_t l1_way_bytes = 4096;  // addresses this far apart share a set of the first level
  // Bytes a cycle into L1 from L2, into L2 from L3, into L3 from memory, of what streams. Measured on Sapphire Rapids
  // and Zen 5 within a factor of 1.5: the cost model learns the rest.
  std::array<double, kCacheLevels> stream_bytes_per_cycle = {40, 16, 8};
  double l2_bytes_per_cycle = 28;       // sustained under FMAs (64 at best)
  double memory_bytes_per_cycle = 5.5;  // of one core, while the others read as well
  // A line at each step of a stride that no prefetcher follows, from beyond the second level: what it takes at least;
  // and its latency, which as many instructions as are in flight hide.
  double far_line_cycles = 6, far_latency = 300, instructions_in_flight = 512;
};

// By its kind (codegen/device_kinds.h). REQUIRES: there is a row for the kind.
MachineModel ModelMachine(const Target& target);
MachineModel ModelCpu(const CpuTarget& target);
// By the facts block_threads, block_bytes (of CUDA's devices block_bytes_most), units (what OpenCL calls compute units)
// and, of processors, lanes (of 32 bits of a vector); where one is not there, what every device has.
MachineModel ModelGpu(const DeviceTarget& target);

}  // namespace hone
