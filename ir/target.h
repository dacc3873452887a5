// The device a kernel is compiled for, as facts and not as a name. A target begins with its kind; what follows is the
// kind's own. Code above codegen/ and backends/ asks for the kind and the number of cores, and passes the rest on.
// Written and read as one line of text, which is part of every cache key.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

namespace hone {

// Stored and sent: never reuse a number.
enum class Isa : uint8_t {
  kAvx2 = 1,    // x86-64 with AVX2 and FMA: 16 registers of 256 bits
  kAvx512 = 2,  // and AVX-512 F, BW, DQ, VL: 32 registers of 512 bits, masks
  kNeon = 3,    // arm64: 32 registers of 128 bits
};
std::string_view IsaName(Isa isa);  // "avx512"

inline constexpr std::string_view kCpuKind = "cpu";
inline constexpr std::string_view kOpenClKind = "opencl";
inline constexpr std::string_view kVulkanKind = "vulkan";
inline constexpr std::string_view kCudaKind = "cuda";

// A fact of devices that are not here: code for them is built and never run, so nothing shows that it is right. Its
// value is what users call them by, behind the kind: "cuda:sm_90".
inline constexpr std::string_view kUncheckedFact = "unchecked";

// A processor: ISA, registers, caches. backends/cpu/host_target.h detects this machine's.
struct CpuTarget {
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
  bool operator==(const CpuTarget&) const = default;
};

// A device of another kind, as its backend describes it: "opencl model=h100 driver=550.54 work_group=1024". What code
// or its speed depend on is a fact; which of several equal devices it is, is none.
struct DeviceTarget {
  std::string kind;                                       // [a-z][a-z0-9_]*, no ISA's name
  std::map<std::string, std::string, std::less<>> facts;  // names as kinds; values without blanks

  std::optional<int64_t> Number(std::string_view fact) const;  // nullopt: it is not there, or no number
  bool operator==(const DeviceTarget&) const = default;
};

// The same device with another version of its driver, as the fact `driver` says.
bool DifferInDriverAlone(const DeviceTarget& a, const DeviceTarget& b);

class Target {
 public:
  Target() = default;                                         // some CPU
  Target(CpuTarget cpu) : facts_(std::move(cpu)) {}           // NOLINT: each is a target
  Target(DeviceTarget device) : facts_(std::move(device)) {}  // NOLINT
  std::string_view kind() const { return device() ? std::string_view(device()->kind) : kCpuKind; }
  // Threads that one call of a kernel may use: on other devices than CPUs, the one that asks.
  int cores() const { return cpu() ? cpu()->cores : 1; }
  // What the kind has to say; nullptr: it is of another.
  const CpuTarget* cpu() const { return std::get_if<CpuTarget>(&facts_); }
  const DeviceTarget* device() const { return std::get_if<DeviceTarget>(&facts_); }
  bool operator==(const Target&) const = default;

 private:
  std::variant<CpuTarget, DeviceTarget> facts_;
};

// Whether code for it is run before it is served, as all is for devices that are here (kUncheckedFact).
bool IsChecked(const Target& target);

// What code is made of, in a word: a CPU's ISA, another device's kind.
std::string_view ArchitectureName(const Target& target);

//   target ::= "cpu" SP isa (SP word)* | kind (SP name "=" value)*
//
// "cpu avx512 cpu=sapphirerapids features=avx512vnni,… l1=49152 l2=2097152 l3=33554432 cores=2". ParseTarget accepts
// what PrintTarget wrote, and wrote before targets had kinds: "avx512 cpu=…" is a CPU's. kInvalid with the offending
// word otherwise; kLimit beyond 4 KiB.
std::string PrintTarget(const Target& target);
Result<Target> ParseTarget(std::string_view text);

// Of a text that ParseTarget accepts, without parsing it: its kind, …
std::string_view KindOfTarget(std::string_view text);
// … of an unchecked one, the name (kUncheckedFact) that it goes by; "" of any other, …
std::string_view UncheckedName(std::string_view text);
// … the text as PrintTarget writes it today, be it of any age, …
std::string TargetInWordsOfToday(std::string_view text);
// … and what stands for it in hashes: a CPU's without its kind, as it was written once, so that names stay.
std::string_view HashedTarget(std::string_view text);

}  // namespace hone
