#include "base/code_check.h"

#include <elf.h>
#include <fmt/format.h>

#include <cstddef>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/generated_code.h"
#include "base/x86_instruction.h"

namespace hone {
namespace {

// The one pointer that generated code calls through.
constexpr int8_t kParallelFor = offsetof(hone_env, parallel_for);

Error Refuse(uint64_t address, std::string_view what) {
  return Error{ErrorKind::kCorrupt, fmt::format("artifact refused: its code has {} at {:#x}", what, address), ""};
}

// Where instructions begin: a bit for every byte of a segment.
class Boundaries {
 public:
  explicit Boundaries(const CodeSegment& segment)
      : address_(segment.address), size_(segment.bytes.size()), bits_((size_ + 63) / 64) {}
  void Add(uint64_t offset) { bits_[offset / 64] |= uint64_t{1} << (offset % 64); }
  bool Covers(uint64_t address) const { return address - address_ < size_; }
  bool Has(uint64_t address) const {
    const uint64_t offset = address - address_;
    return (bits_[offset / 64] >> (offset % 64) & 1) != 0;
  }

 private:
  uint64_t address_, size_;
  std::vector<uint64_t> bits_;
};

struct Reference {
  uint64_t from, to;
};

// What the walk over all segments collects, and what can be said once it is over.
class Walk {
 public:
  Result<void> X86(const CodeSegment& segment) {
    Boundaries& boundaries = boundaries_.emplace_back(segment);
    for (size_t at = 0; at < segment.bytes.size();) {
      const X86Instruction instruction = DecodeX86(segment.bytes.subspan(at));
      if (instruction.length == 0) return Refuse(segment.address + at, instruction.refused);
      boundaries.Add(at);
      const uint64_t here = segment.address + at, next = here + instruction.length;
      if (instruction.jumps) jumps_.push_back({here, next + static_cast<uint64_t>(*instruction.jumps)});
      if (instruction.is_indirect && instruction.called != kParallelFor)
        return Refuse(here, "an indirect branch, and not to parallel_for,");
      if (instruction.lea) addresses_.push_back({here, next + static_cast<uint64_t>(*instruction.lea)});
      at += instruction.length;
    }
    return {};
  }

  // Instructions are words, so nothing can be read in two ways. Encodings: Arm ARM (DDI 0487), C4.1.
  Result<void> Aarch64(const CodeSegment& segment) {
    Boundaries& boundaries = boundaries_.emplace_back(segment);
    if (segment.address % 4 != 0 || segment.bytes.size() % 4 != 0)
      return Refuse(segment.address, "instructions that are no whole words");
    for (size_t at = 0; at < segment.bytes.size(); at += 4) {
      uint32_t word = 0;
      std::memcpy(&word, segment.bytes.data() + at, sizeof word);
      const uint64_t here = segment.address + at;
      boundaries.Add(at);
      auto jump = [&](int first, int bits) {
        const int64_t words = static_cast<int64_t>(uint64_t{word} << (64 - first - bits)) >> (64 - bits);
        jumps_.push_back({here, here + static_cast<uint64_t>(words * 4)});
      };
      if (word >> 24 == 0xd4 && (word & 0xffe0001f) != 0xd4200000)  // all exceptions but brk
        return Refuse(here, (word & 0x1f) == 1 ? "a system call" : "an exception");
      const bool is_hint = (word & 0xfffff01f) == 0xd503201f, is_barrier = (word & 0xfffff01f) == 0xd503301f;
      if (word >> 24 == 0xd5 && !is_hint && !is_barrier) return Refuse(here, "an access to a system register");
      if (word >> 25 == 0x6b && (word >> 21 & 15) > 2) return Refuse(here, "a return from the kernel");
      if (word >> 21 == 0x6b0) return Refuse(here, "an indirect branch, and not to parallel_for,");  // br
      if ((word & 0x7c000000) == 0x14000000) jump(0, 26);                                            // b, bl
      if (word >> 24 == 0x54 || (word & 0x7e000000) == 0x34000000) jump(5, 19);  // b.cond, cbz, cbnz
      if ((word & 0x7e000000) == 0x36000000) jump(5, 14);                        // tbz, tbnz
    }
    return {};
  }

  Result<void> Finish(std::span<const uint64_t> entries) const {
    for (const Reference& jump : jumps_)
      if (!Meets(jump.to, false))
        return Refuse(jump.from, fmt::format("a branch to {:#x}, where no instruction begins", jump.to));
    for (const Reference& address : addresses_)
      if (!Meets(address.to, true))
        return Refuse(address.from, fmt::format("the address {:#x}, where no instruction begins", address.to));
    for (uint64_t entry : entries)
      if (!Meets(entry, true)) return Refuse(entry, "an entry where no instruction begins");
    return {};
  }

 private:
  bool Meets(uint64_t address, bool elsewhere) const {
    for (const Boundaries& boundaries : boundaries_)
      if (boundaries.Covers(address)) return boundaries.Has(address);
    return elsewhere;
  }

  std::vector<Boundaries> boundaries_;
  std::vector<Reference> jumps_, addresses_;
};

}  // namespace

Result<void> CheckCode(uint16_t machine, std::span<const CodeSegment> segments, std::span<const uint64_t> entries) {
  HONE_CHECK(machine == EM_X86_64 || machine == EM_AARCH64);
  Walk walk;
  for (const CodeSegment& segment : segments)
    HONE_TRY(machine == EM_X86_64 ? walk.X86(segment) : walk.Aarch64(segment));
  return walk.Finish(entries);
}

}  // namespace hone
