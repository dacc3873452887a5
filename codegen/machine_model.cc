#include "codegen/machine_model.h"

#include <algorithm>

#include "base/arithmetic.h"
#include "codegen/instructions.h"

namespace hone {

MachineModel ModelCpu(const CpuTarget& target) {
  MachineModel machine;
  machine.vector_bits = target.VectorBits();
  machine.vector_registers = target.VectorRegisters();
  machine.has_masked_access = target.isa == Isa::kAvx2 || target.isa == Isa::kAvx512;
  machine.has_mask_registers = target.isa == Isa::kAvx512;
  machine.copy_registers = target.isa == Isa::kAvx2 ? 4 : 1;
  if (target.isa == Isa::kAvx512 && target.cpu == "znver4") machine.half_vector_cycles = 0.55;
  // Of 512 bits; half a vector is done in half the time.
  machine.divide_cycles = machine.divide_cycles * machine.vector_bits / 512;
  machine.cores = target.cores;
  for (const Instruction& instruction : AllInstructions())
    if (HasInstruction(target, instruction)) machine.instructions.push_back(&instruction);
  machine.l1_bytes = target.l1_bytes;
  machine.l2_bytes = target.l2_bytes;
  machine.l3_bytes = target.l3_bytes;
  return machine;
}

MachineModel ModelGpu(const DeviceTarget& target) {
  MachineModel machine;
  machine.vector_bits = 128;       // an access of a thread
  machine.vector_registers = 128;  // of its
  machine.block_threads = target.Number("block_threads").value_or(256);
  machine.block_bytes = target.Number("block_bytes").value_or(16 << 10);
  // CUDA's devices give more than arrays in a kernel's text may take to launches that ask for it.
  if (target.kind == kCudaKind) machine.block_bytes = target.Number("block_bytes_most").value_or(machine.block_bytes);
  machine.cores = static_cast<int>(target.Number("units").value_or(1));
  if (const std::optional<int64_t> grid = target.Number("grid")) machine.grid = {*grid, *grid, *grid};
  for (const Instruction& instruction : AllInstructions())
    if (HasInstruction(target, instruction)) machine.instructions.push_back(&instruction);
  // CUDA's warps. Vulkan 1.2 and OpenCL do not say which threads are a sub-group.
  machine.sub_group = target.Number("sub_group").value_or(target.kind == kCudaKind ? 32 : 1);
  machine.has_async_copies = ComputeCapability(target) >= 80;
  // Drivers of Vulkan for processors make vectors of threads side by side.
  const auto type = target.facts.find("type");
  machine.is_processor = type != target.facts.end() && type->second == "cpu";
  machine.threads_are_loops = machine.is_processor && target.kind == kOpenClKind;
  if (machine.threads_are_loops) {
    machine.lanes = static_cast<int>(BitCeil(std::clamp<int64_t>(target.Number("lanes").value_or(4), 4, 16)));
    // x86's and Arm's, but for half of them where vectors have 256 bits. What spills is slow, not wrong.
    machine.vector_registers = machine.lanes == 8 ? 16 : 32;
  }
  const auto device = target.facts.find("device");
  machine.gathers_slowly = device != target.facts.end() && device->second.find("znver") != std::string::npos;
  machine.l1_bytes = machine.block_bytes;
  machine.l2_bytes = machine.l3_bytes = target.Number("l2").value_or(4 << 20);
  return machine;
}

}  // namespace hone
