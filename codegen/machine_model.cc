#include "codegen/machine_model.h"

namespace hone {

MachineModel ModelCpu(const CpuTarget& target) {
  MachineModel machine;
  machine.vector_bits = target.VectorBits();
  machine.vector_registers = target.VectorRegisters();
  machine.has_masked_access = target.isa == Isa::kAvx2 || target.isa == Isa::kAvx512;
  machine.copy_registers = target.isa == Isa::kAvx2 ? 4 : 1;
  // Of 512 bits; half a vector is done in half the time.
  machine.divide_cycles = machine.divide_cycles * machine.vector_bits / 512;
  machine.cores = target.cores;
  machine.l1_bytes = target.l1_bytes;
  machine.l2_bytes = target.l2_bytes;
  machine.l3_bytes = target.l3_bytes;
  return machine;
}

}  // namespace hone
