// The device a kernel is compiled for, as facts and not as a name: ISA, registers, caches. Detected by
// backends/host_target.h; written and read as one line of text, which is part of every cache key.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hone {

// Stored and sent: never reuse a number.
enum class Isa : uint8_t {
  kAvx2 = 1,    // x86-64 with AVX2 and FMA: 16 registers of 256 bits
  kAvx512 = 2,  // and AVX-512 F, BW, DQ, VL: 32 registers of 512 bits, masks
  kNeon = 3,    // arm64: 32 registers of 128 bits
};

struct Target {
  Isa isa = Isa::kAvx2;
  std::string cpu;  // LLVM's name for it, for scheduling models: "sapphirerapids", "znver5"; or "generic"
  std::vector<std::string> features;  // beyond the ISA's base, sorted, as LLVM spells them: "avx512vnni"
  int64_t l1_bytes = 32 << 10;        // data cache of a core
  int64_t l2_bytes = 512 << 10;       // of a core
  int64_t l3_bytes = 4 << 20;         // this process' share: the whole divided by the sockets' other tenants if known
  int cores = 1;                      // that the daemon may use

  int VectorBits() const { return isa == Isa::kAvx512 ? 512 : isa == Isa::kAvx2 ? 256 : 128; }
  int VectorRegisters() const { return isa == Isa::kAvx2 ? 16 : 32; }
  int Lanes(int64_t element_bytes) const { return static_cast<int>(VectorBits() / 8 / element_bytes); }
  // Independent accumulators that keep the FMA units busy: latency (4 cycles) × units (2). Agner Fog's tables; the same
  // on Haswell … Sapphire Rapids, Zen 2 … 5, Neoverse.
  int FmaChains() const { return 8; }
};

std::string_view IsaName(Isa isa);  // "avx512"

// "avx512 cpu=sapphirerapids features=avx512vnni,… l1=49152 l2=2097152 l3=33554432 cores=2". ParseTarget accepts what
// PrintTarget wrote; kInvalid with the offending word otherwise; kLimit beyond 4 KiB.
std::string PrintTarget(const Target& target);
Result<Target> ParseTarget(std::string_view text);

}  // namespace hone
