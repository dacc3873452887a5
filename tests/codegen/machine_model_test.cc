#include "codegen/machine_model.h"

#include <gtest/gtest.h>

#include "codegen/rules/default_schedule.h"
#include "codegen/rules/schedule_planner.h"
#include "ir/graph/specialize.h"
#include "ir/language/parse.h"

namespace hone {
namespace {

MachineModel ModelOf(std::string_view target) { return ModelMachine(ParseTarget(target).value()); }

TEST(MachineModel, HasWhatTheTargetSays) {
  const MachineModel machine = ModelOf("avx512 cpu=generic l1=49152 l2=2097152 l3=33554432 cores=3");
  EXPECT_EQ(machine.l1_bytes, 49152);
  EXPECT_EQ(machine.l2_bytes, 2097152);
  EXPECT_EQ(machine.l3_bytes, 33554432);
  EXPECT_EQ(machine.cores, 3);
}

TEST(MachineModel, KnowsTheVectorsOfEachInstructionSet) {
  const MachineModel avx2 = ModelOf("avx2"), avx512 = ModelOf("avx512"), neon = ModelOf("neon");
  EXPECT_EQ(avx2.vector_registers, 16);
  EXPECT_EQ(avx512.vector_registers, 32);
  EXPECT_EQ(neon.vector_registers, 32);
  EXPECT_EQ(avx2.Lanes(4), 8);
  EXPECT_EQ(avx512.Lanes(8), 8);
  EXPECT_EQ(neon.Lanes(1), 16);
  EXPECT_TRUE(avx2.has_masked_access && avx512.has_masked_access);
  EXPECT_FALSE(neon.has_masked_access);
  // Latency times pipes, whatever the vectors.
  for (const MachineModel& machine : {avx2, avx512, neon}) EXPECT_EQ(machine.FmaChains(), 8);
  // Half a vector, half the time.
  EXPECT_EQ(avx512.divide_cycles, 2 * avx2.divide_cycles);
  EXPECT_EQ(avx2.divide_cycles, 2 * neon.divide_cycles);
  // What is hoisted leaves the larger part of the registers to the loop.
  EXPECT_EQ(avx2.HoistedLoads(), 6);
  EXPECT_EQ(avx512.HoistedLoads(), 12);
}

// Two forks' worth of work is what a parallel loop has to have at least; a grain is half a fork's.
TEST(MachineModel, SaysWhenWorkersPay) {
  const Target target = ParseTarget("avx2 cpu=generic cores=4").value();
  const Kernel kernel = Specialize(ParseKernel("add(M=64,N=64)").value());
  const double fork = ModelMachine(target).fork_cycles;
  auto steps = [&](double cycles) {
    SchedulePlanner planner(kernel, target);
    planner.Parallelize("y", {"m"}, 64, cycles);
    return PrintSchedule(planner.schedule());
  };
  EXPECT_EQ(steps(2 * fork), "");
  EXPECT_EQ(steps(2 * fork + 64), "parallel y.m grain=15\n");
  EXPECT_EQ(steps(32 * fork), "parallel y.m grain=1\n");
}

}  // namespace
}  // namespace hone
