#include "tests/support/soft_tiles.h"

#include "base/cpu_features.h"
#include "base/tiles.h"

#if defined(__x86_64__)
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#endif

namespace hone {

#if defined(__x86_64__)

namespace {

constexpr size_t kRows = 16, kRowBytes = 64, kTiles = 8;

struct Tiles {
  bool is_configured = false;
  std::array<std::array<std::array<uint8_t, kRowBytes>, kRows>, kTiles> registers;
};
thread_local Tiles tiles;
TileCounts counts;

[[noreturn]] void Die(const char* why) {
  (void)!::write(2, why, std::strlen(why));
  ::abort();
}

// An instruction of AMX: VEX, three bytes of prefix, of the map 0F38.
struct Instruction {
  uint8_t opcode = 0, prefix = 0;  // prefix: none, 66, f3, f2
  int reg = 0, rm = 0, other = 0;  // registers
  bool is_memory = false;
  uint64_t address = 0;
  int64_t stride = 0;
  size_t length = 0;
};

uint64_t Register(const ucontext_t& context, unsigned number) {
  static constexpr int kOrder[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                   REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
  return static_cast<uint64_t>(context.uc_mcontext.gregs[kOrder[number]]);
}

std::optional<Instruction> Decode(const ucontext_t& context) {
  const auto* code = reinterpret_cast<const uint8_t*>(context.uc_mcontext.gregs[REG_RIP]);
  const uint8_t extend = code[1], rest = code[2], modrm = code[4];
  if (code[0] != 0xc4 || (extend & 0x1f) != 2 || (rest & 0x84) != 0) return std::nullopt;
  Instruction out;
  out.opcode = code[3];
  out.prefix = rest & 3;
  out.other = ~(rest >> 3) & 7;
  out.reg = modrm >> 3 & 7;
  out.rm = modrm & 7;
  out.is_memory = modrm < 0xc0;
  out.length = 5;
  if (!out.is_memory) return out;
  auto displacement = [&](size_t bytes) {
    int32_t value = 0;
    if (bytes == 1) value = static_cast<int8_t>(code[out.length]);
    if (bytes == 4) std::memcpy(&value, code + out.length, sizeof value);
    out.length += bytes;
    return static_cast<uint64_t>(int64_t{value});
  };
  const unsigned mode = modrm >> 6, base_high = (extend & 0x20) == 0 ? 8 : 0, index_high = (extend & 0x40) == 0 ? 8 : 0;
  const size_t bytes = mode == 1 ? 1 : mode == 2 ? 4 : 0;
  if ((modrm & 7) == 4) {
    const uint8_t sib = code[out.length++];
    const unsigned index = (sib >> 3 & 7) + index_high, base = (sib & 7) + base_high;
    if (index != 4) out.stride = static_cast<int64_t>(Register(context, index) << (sib >> 6));
    out.address = mode == 0 && (sib & 7) == 5 ? displacement(4) : Register(context, base) + displacement(bytes);
  } else if (mode == 0 && (modrm & 7) == 5) {
    out.address = displacement(4);
    out.address += reinterpret_cast<uint64_t>(code) + out.length;
  } else {
    out.address = Register(context, (modrm & 7) + base_high) + displacement(bytes);
  }
  return out;
}

void Configure(uint64_t address) {
  std::array<uint8_t, 64> config;
  std::memcpy(config.data(), reinterpret_cast<const void*>(address), config.size());
  if (config[0] != 1 || config[1] != 0) Die("tiles of another palette\n");
  for (size_t tile = 0; tile < kTiles; ++tile)
    if (config[16 + 2 * tile] != kRowBytes || config[17 + 2 * tile] != 0 || config[48 + tile] != kRows)
      Die("tiles of another shape\n");
  tiles = {};
  tiles.is_configured = true;
  ++counts.configured;
}

void Move(const Instruction& instruction, bool loads) {
  for (size_t row = 0; row < kRows; ++row) {
    auto* memory = reinterpret_cast<uint8_t*>(instruction.address + row * static_cast<uint64_t>(instruction.stride));
    auto& held = tiles.registers[static_cast<size_t>(instruction.reg)][row];
    if (loads)
      std::memcpy(held.data(), memory, held.size());
    else
      std::memcpy(memory, held.data(), held.size());
  }
}

template <typename T>
T At(int tile, size_t row, size_t element) {
  T value;
  std::memcpy(&value, tiles.registers[static_cast<size_t>(tile)][row].data() + element * sizeof(T), sizeof value);
  return value;
}
template <typename T>
void Put(int tile, size_t row, size_t element, T value) {
  std::memcpy(tiles.registers[static_cast<size_t>(tile)][row].data() + element * sizeof(T), &value, sizeof value);
}

template <typename A, typename B>
void MultiplyBytes(const Instruction& i) {
  for (size_t m = 0; m < kRows; ++m)
    for (size_t n = 0; n < 16; ++n) {
      auto sum = At<uint32_t>(i.reg, m, n);
      for (size_t k = 0; k < 16; ++k)
        for (size_t j = 0; j < 4; ++j)
          sum += static_cast<uint32_t>(int32_t{At<A>(i.rm, m, 4 * k + j)} * int32_t{At<B>(i.other, k, 4 * n + j)});
      Put(i.reg, m, n, sum);
    }
}

float FromBf16(uint16_t bits) {
  const float value = std::bit_cast<float>(uint32_t{bits} << 16);
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value;
}

void MultiplyBf16(const Instruction& i) {
  for (size_t m = 0; m < kRows; ++m)
    for (size_t n = 0; n < 16; ++n) {
      float sums[2] = {};
      for (size_t k = 0; k < 16; ++k)
        for (size_t j = 0; j < 2; ++j)
          sums[j] = std::fma(FromBf16(At<uint16_t>(i.rm, m, 2 * k + j)), FromBf16(At<uint16_t>(i.other, k, 2 * n + j)),
                             sums[j]);
      Put(i.reg, m, n, At<float>(i.reg, m, n) + (sums[0] + sums[1]));
    }
}

// False: it is none of AMX.
bool Execute(const Instruction& i) {
  constexpr uint8_t kNone = 0, k66 = 1, kF3 = 2, kF2 = 3;
  if (i.opcode == 0x49 && i.prefix == kNone && i.is_memory) return Configure(i.address), true;
  if (i.opcode != 0x49 && i.opcode != 0x4b && i.opcode != 0x5c && i.opcode != 0x5e) return false;
  if (!tiles.is_configured) Die("a tile is used before any is configured\n");
  if (i.opcode == 0x49 && i.prefix == kNone) return tiles = {}, ++counts.released, true;
  if (i.opcode == 0x49 && i.prefix == kF2) return tiles.registers[static_cast<size_t>(i.reg)] = {}, true;
  if (i.opcode == 0x4b) return Move(i, i.prefix != kF3), true;
  if (i.reg == i.rm || i.reg == i.other || i.rm == i.other) Die("an instruction on tiles of which two are one\n");
  ++counts.multiplied;
  if (i.opcode == 0x5c && i.prefix == kF3) return MultiplyBf16(i), true;
  if (i.opcode != 0x5e) return false;
  switch (i.prefix) {
    case kNone: return MultiplyBytes<uint8_t, uint8_t>(i), true;
    case k66: return MultiplyBytes<uint8_t, int8_t>(i), true;
    case kF3: return MultiplyBytes<int8_t, uint8_t>(i), true;
    default: return MultiplyBytes<int8_t, int8_t>(i), true;
  }
}

void Handle(int, siginfo_t*, void* raw) {
  auto& context = *static_cast<ucontext_t*>(raw);
  const std::optional<Instruction> instruction = Decode(context);
  if (!instruction || !Execute(*instruction)) Die("an instruction that this processor does not have\n");
  context.uc_mcontext.gregs[REG_RIP] += static_cast<greg_t>(instruction->length);
}

}  // namespace

bool ProvideTiles() {
  if (!CpuHasFeature("avx512f")) return false;
  if (MayUseTiles()) return true;
  struct sigaction action{};
  action.sa_sigaction = Handle;
  action.sa_flags = SA_SIGINFO;
  return ::sigaction(SIGILL, &action, nullptr) == 0;
}

TileCounts SoftTileCounts() { return counts; }

#else

bool ProvideTiles() { return false; }
TileCounts SoftTileCounts() { return {}; }

#endif

}  // namespace hone
