// Tables: a map of 256 opcodes is 16 rows of 16 letters, drawn as the processor manuals draw them (Intel SDM volume 2,
// appendix A; AMD APM volume 3, appendix A). A letter says what follows the opcode:
//
//   .  refused               b  nothing                 m  ModRM
//   i  8 bits                n  ModRM, 8 bits           z  ModRM, 16 or 32 bits
//   v  16 or 32 bits         q  16, 32 or 64 bits
//   r  8 bits of branch      R  32 bits of branch       g  ModRM, whose middle bits decide (Group)
#include "base/x86_instruction.h"

#include <algorithm>
#include <cstring>

namespace hone {
namespace {

constexpr size_t kMaxLength = 15;

using Map = const char* const[16];
constexpr const char* kNone = "................";
constexpr const char* kModRm = "mmmmmmmmmmmmmmmm";

constexpr Map kOneByte = {
    "mmmmiv..mmmmiv..",  // 0f leads to the next map
    "mmmmiv..mmmmiv..",  //
    "mmmmiv..mmmmiv..",  //
    "mmmmiv..mmmmiv..",  //
    kNone,               // REX
    "bbbbbbbbbbbbbbbb",  // push, pop
    "...m....vzin....",  // 62 is EVEX; not ins, outs
    "rrrrrrrrrrrrrrrr",  //
    "nz.nmmmmmmmm.m.g",  // not mov of segments
    "bbbbbbbbbb.b..bb",  // not far call, pushf, popf
    "....bbbbivbbbbbb",  // not mov of absolute addresses
    "iiiiiiiiqqqqqqqq",  //
    "nn.b..gg.b..b...",  // c4, c5 are VEX; int3 fills gaps; not enter, far ret, int, iret
    "mmmm....mmmmmmmm",  // x87; not xlat
    "rrrr....RR.r....",  // not in, out, far jmp
    ".....bggbb..bbgg",  // not int1, hlt, cli, sti
};
constexpr Map kMap0f = {
    "...........b.m..",  // ud2, prefetchw; not system tables, syscall, sysret, invd, 3DNow
    "mmmmmmmmm.....gm",  // endbr, long nop
    "........mmmmmmmm",  // not control and debug registers
    kNone,               // 38, 3a lead on; not wrmsr, rdtsc, sysenter, sysexit
    kModRm,              //
    kModRm,              //
    kModRm,              //
    "nnnnmmmb....mmmm",  //
    "RRRRRRRRRRRRRRRR",  //
    kModRm,              //
    "...mnm.....mnmgm",  // not fs, gs, cpuid, rsm
    "mm.m..mmg.gmmmmm",  // not far pointers
    "mmnmnnngbbbbbbbb",  //
    kModRm,              //
    kModRm,              //
    "mmmmmmmmmmmmmmm.",  //
};
constexpr Map kMap38 = {
    "mmmmmmmmmmmm....",
    "m...mm.m....mmm.",
    "mmmmmm..mmmm....",
    "mmmmmm.mmmmmmmmm",
    "mm..............",
    kNone,
    kNone,
    kNone,
    kNone,
    kNone,
    kNone,
    kNone,
    "........mmmmmm.m",  // sha
    "...........ggggg",  // aes
    kNone,
    "mm....g.........",  // movbe, crc32, adx; not shadow stacks, enqcmd
};
constexpr Map kMap3a = {
    "........nnnnnnnn",
    "....nnnn........",
    "nnn.............",
    kNone,
    "nnn.n...........",
    kNone,
    "nnnn............",
    kNone,
    kNone,
    kNone,
    kNone,
    kNone,
    "............n.nn",
    "...............n",
    kNone,
    kNone,
};
constexpr Map kVex0f = {
    kNone,               //
    "mmmmmmmm........",  //
    "........mmmmmmmm",  //
    kNone,               //
    ".mm.mmmm..mm....",  // masks
    kModRm,              //
    kModRm,              //
    "nnnnmmmb....mmmm",  // vzeroupper
    kNone,               //
    "mmmm....mm......",  // masks
    "..............g.",  // vldmxcsr, vstmxcsr
    kNone,               //
    "..n.nnn.........",  //
    kModRm,              //
    kModRm,              //
    "mmmmmmmmmmmmmmm.",  //
};
constexpr Map kEvex0f = {
    kNone,
    "mmmmmmmm........",
    "........mmmmmmmm",
    kNone,
    kNone,
    kModRm,
    kModRm,
    "nnnnmmm.mmmmmmmm",
    kNone,
    kNone,
    kNone,
    kNone,
    "..n.nnn.........",
    kModRm,
    kModRm,
    "mmmmmmmmmmmmmmm.",
};

// What stands before the opcode.
struct Prefixes {
  bool operand_size = false, address_size = false, repeat = false, not_equal = false, lock = false, wide = false;
  bool mandatory() const { return operand_size || repeat || not_equal; }
};

enum class Encoding : uint8_t { kOneByte, k0f, k38, k3a, kVex };

bool IsMemory(uint8_t modrm) { return modrm < 0xc0; }

// What the middle bits of ModRM make of an opcode marked g.
char Group(Encoding encoding, uint8_t opcode, uint8_t modrm, const Prefixes& prefixes) {
  const int middle = modrm >> 3 & 7;
  if (encoding == Encoding::kVex) return IsMemory(modrm) && (middle == 2 || middle == 3) ? 'm' : '.';
  // Other prefixes make key lockers of aes, and writes to shadow stacks of adcx and adox.
  if (encoding == Encoding::k38 && opcode == 0xf6)
    return prefixes.operand_size != prefixes.repeat && !prefixes.not_equal ? 'm' : '.';
  if (encoding == Encoding::k38) return prefixes.operand_size && !prefixes.repeat && !prefixes.not_equal ? 'm' : '.';
  if (encoding == Encoding::k0f) switch (opcode) {
      case 0x1e: return !prefixes.repeat || modrm == 0xfa ? 'm' : '.';  // endbr64; not rdssp
      case 0xae:  // ldmxcsr, stmxcsr, fences; not the state of the processor, fs and gs bases, waiting
        if (prefixes.mandatory()) return '.';
        return IsMemory(modrm) ? (middle == 2 || middle == 3 ? 'm' : '.') : (middle >= 5 ? 'm' : '.');
      case 0xb8: return prefixes.repeat ? 'm' : '.';                 // popcnt
      case 0xba: return middle >= 4 ? 'n' : '.';                     // bit tests
      case 0xc7: return middle == 1 && IsMemory(modrm) ? 'm' : '.';  // cmpxchg16b
      default: return '.';
    }
  switch (opcode) {
    case 0x8f: return middle == 0 ? 'm' : '.';  // pop; the rest is XOP
    case 0xc6: return middle == 0 ? 'n' : '.';  // mov; not transactions
    case 0xc7: return middle == 0 ? 'z' : '.';
    case 0xf6: return middle < 2 ? 'n' : 'm';
    case 0xf7: return middle < 2 ? 'z' : 'm';
    case 0xfe: return middle < 2 ? 'm' : '.';
    case 0xff: return middle < 3 || middle == 4 || middle == 6 ? 'm' : '.';  // not far call, far jmp
    default: return '.';
  }
}

// What was refused, for people. Only the best known have names.
const char* Name(Encoding encoding, uint8_t opcode) {
  if (encoding == Encoding::kOneByte) switch (opcode) {
      case 0xcd:
      case 0xf1: return "a software interrupt";
      case 0x6c:
      case 0x6d:
      case 0x6e:
      case 0x6f:
      case 0xe4:
      case 0xe5:
      case 0xe6:
      case 0xe7:
      case 0xec:
      case 0xed:
      case 0xee:
      case 0xef: return "an access to input and output ports";
      case 0xca:
      case 0xcb:
      case 0xcf:
      case 0xff: return "a far jump, call or return";
      case 0xf4:
      case 0xfa:
      case 0xfb: return "a privileged instruction";
      case 0x8c:
      case 0x8e: return "a change of segments";
      case 0x9c:
      case 0x9d: return "a change of all flags";
    }
  if (encoding == Encoding::k0f) switch (opcode) {
      case 0x05:
      case 0x34: return "a system call";
      case 0x01: return "a change of system tables, extended state or protection keys";
      case 0x07:
      case 0x35: return "a return from the kernel";
      case 0xae: return "a change of extended state or of segments' bases";
      case 0x30:
      case 0x32: return "a model-specific register";
    }
  return "an instruction that generated code does not have";
}

class Decoder {
 public:
  explicit Decoder(std::span<const std::byte> bytes) : bytes_(bytes.first(std::min(bytes.size(), kMaxLength))) {}

  X86Instruction Decode() {
    uint8_t opcode = 0;
    if (!ReadPrefixes(opcode)) return Refuse(reason_);
    if (opcode == 0xc4 || opcode == 0xc5) return DecodeVex(opcode);
    if (opcode == 0x62) return DecodeEvex();
    Encoding encoding = Encoding::kOneByte;
    const Map* map = &kOneByte;
    if (opcode == 0x0f) {
      encoding = Encoding::k0f, map = &kMap0f;
      opcode = Byte();
      if (opcode == 0x38) encoding = Encoding::k38, map = &kMap38, opcode = Byte();
      if (opcode == 0x3a && encoding == Encoding::k0f) encoding = Encoding::k3a, map = &kMap3a, opcode = Byte();
    }
    return Finish(encoding, opcode, *map);
  }

 private:
  static X86Instruction Refuse(const char* why) {
    X86Instruction refused;
    refused.refused = why;
    return refused;
  }

  // 0 past the end, which `short_` remembers.
  uint8_t Byte() {
    if (at_ >= bytes_.size()) {
      short_ = true;
      return 0;
    }
    return static_cast<uint8_t>(bytes_[at_++]);
  }
  void Skip(size_t count) {
    at_ += count;
    if (at_ > bytes_.size()) short_ = true;
  }
  template <typename T>
  T Read() {
    T value{};
    Skip(sizeof value);
    if (!short_) std::memcpy(&value, bytes_.data() + (at_ - sizeof value), sizeof value);
    return value;
  }

  bool ReadPrefixes(uint8_t& opcode) {
    while (true) {
      opcode = Byte();
      switch (opcode) {
        case 0x66: prefixes_.operand_size = true; continue;
        case 0x67: prefixes_.address_size = true; continue;
        case 0xf2: prefixes_.not_equal = true; continue;
        case 0xf3: prefixes_.repeat = true; continue;
        case 0xf0: prefixes_.lock = true; continue;
        case 0x26:
        case 0x2e:
        case 0x36:
        case 0x3e: continue;  // without meaning in 64-bit code
        case 0x64:
        case 0x65: reason_ = "an access by the fs or gs segment"; return false;
      }
      break;
    }
    if (prefixes_.not_equal && prefixes_.repeat) {
      reason_ = "prefixes that exclude each other";
      return false;
    }
    if (opcode >= 0x40 && opcode <= 0x4f) {
      has_rex_ = true;
      prefixes_.wide = (opcode & 8) != 0;
      opcode = Byte();
    }
    return true;
  }

  X86Instruction DecodeVex(uint8_t first) {
    if (has_rex_ || prefixes_.mandatory() || prefixes_.lock) return Refuse("prefixes before a VEX prefix");
    uint8_t map = 1;
    if (first == 0xc4) map = Byte() & 0x1f;
    Byte();
    const uint8_t opcode = Byte();
    switch (map) {
      case 1: return Finish(Encoding::kVex, opcode, kVex0f);
      case 2: return FinishAs('m', opcode);
      case 3: return FinishAs('n', opcode);
      default: return Refuse(Name(Encoding::kVex, opcode));
    }
  }

  X86Instruction DecodeEvex() {
    if (has_rex_ || prefixes_.mandatory() || prefixes_.lock) return Refuse("prefixes before an EVEX prefix");
    const uint8_t payload0 = Byte(), payload1 = Byte();
    Byte();
    const uint8_t opcode = Byte();
    // Bits with fixed values; other values are for extensions that are not emitted.
    if ((payload0 & 8) != 0 || (payload1 & 4) == 0) return Refuse("an EVEX prefix of another kind");
    switch (payload0 & 7) {
      case 1: return Finish(Encoding::kVex, opcode, kEvex0f);
      case 2:
      case 5:
      case 6: return FinishAs('m', opcode);
      case 3: return FinishAs('n', opcode);
      default: return Refuse(Name(Encoding::kVex, opcode));
    }
  }

  X86Instruction Finish(Encoding encoding, uint8_t opcode, const Map& map) {
    encoding_ = encoding;
    char form = map[opcode >> 4][opcode & 15];
    if (form == 'g' && at_ < bytes_.size())
      form = Group(encoding, opcode, static_cast<uint8_t>(bytes_[at_]), prefixes_);
    return FinishAs(form, opcode);
  }

  X86Instruction FinishAs(char form, uint8_t opcode) {
    X86Instruction instruction;
    const bool one_byte = encoding_ == Encoding::kOneByte;
    const uint8_t modrm = at_ < bytes_.size() ? static_cast<uint8_t>(bytes_[at_]) : 0;
    instruction.is_indirect = one_byte && opcode == 0xff && ((modrm >> 3 & 7) == 2 || (modrm >> 3 & 7) == 4);
    // With 66 makers disagree on how long a near branch is and where it leads; f2 is for extensions.
    const bool is_branch = form == 'r' || form == 'R' || instruction.is_indirect || (one_byte && opcode == 0xc3);
    if (is_branch && (prefixes_.operand_size || prefixes_.not_equal || prefixes_.address_size))
      return Refuse("a branch with prefixes");
    std::optional<int32_t> relative;  // of an operand's address
    switch (form) {
      case '.':
      case 'g': return Refuse(short_ ? "the end of the code in an instruction" : Name(encoding_, opcode));
      case 'b': break;
      case 'm': relative = ModRm(); break;
      case 'n': relative = ModRm(), Skip(1); break;
      case 'z': relative = ModRm(), Skip(ImmediateBytes()); break;
      case 'i': Skip(1); break;
      case 'v': Skip(ImmediateBytes()); break;
      case 'q': Skip(prefixes_.wide ? 8 : ImmediateBytes()); break;
      case 'r': instruction.jumps = Read<int8_t>(); break;
      case 'R': instruction.jumps = Read<int32_t>(); break;
    }
    if (short_) return Refuse("the end of the code in an instruction");
    if (relative && one_byte && opcode == 0x8d) instruction.lea = *relative;
    if (instruction.is_indirect && (modrm >> 3 & 7) == 2) instruction.called = CalledField(modrm);
    instruction.length = static_cast<uint8_t>(at_);
    return instruction;
  }

  // [register + 8 bits] just read, of r12 with a SIB that has no index: the 8 bits.
  std::optional<int8_t> CalledField(uint8_t modrm) const {
    if (modrm >> 6 != 1 || ((modrm & 7) == 4 && static_cast<uint8_t>(bytes_[at_ - 2]) != 0x24)) return std::nullopt;
    return static_cast<int8_t>(bytes_[at_ - 1]);
  }

  size_t ImmediateBytes() const { return prefixes_.operand_size && !prefixes_.wide ? 2 : 4; }

  // Skips ModRM, SIB and displacement; the displacement if it is relative to the instruction's end.
  std::optional<int32_t> ModRm() {
    const uint8_t modrm = Byte(), mode = modrm >> 6, base = modrm & 7;
    if (mode == 3) return std::nullopt;
    if (base == 4) {
      const uint8_t sib = Byte();
      Skip(mode == 1 ? 1 : mode == 2 || (sib & 7) == 5 ? 4 : 0);
      return std::nullopt;
    }
    if (mode == 0 && base == 5) return Read<int32_t>();
    Skip(mode == 1 ? 1 : mode == 2 ? 4 : 0);
    return std::nullopt;
  }

  std::span<const std::byte> bytes_;
  size_t at_ = 0;
  bool short_ = false;
  Prefixes prefixes_;
  bool has_rex_ = false;
  Encoding encoding_ = Encoding::kVex;
  const char* reason_ = "";
};

}  // namespace

X86Instruction DecodeX86(std::span<const std::byte> bytes) { return Decoder(bytes).Decode(); }

}  // namespace hone
