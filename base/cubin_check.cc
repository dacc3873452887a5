#include "base/cubin_check.h"

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "base/bytes.h"

namespace hone {
namespace {

constexpr uint16_t kCudaMachine = 190;  // EM_CUDA, which older headers lack

Error Corrupt(const std::string& what) { return {ErrorKind::kCorrupt, "code for CUDA: " + what, "artifact"}; }

bool Holds(std::span<const std::byte> bytes, uint64_t offset, uint64_t size) {
  return offset <= bytes.size() && size <= bytes.size() - offset;
}

}  // namespace

Result<void> CheckCubin(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(Elf64_Ehdr)) return Corrupt("it is too short");
  const auto header = ReadAt<Elf64_Ehdr>(bytes, 0);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_machine != kCudaMachine)
    return Corrupt("it is none");
  if (header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shnum == 0 ||
      !Holds(bytes, header.e_shoff, uint64_t{header.e_shnum} * sizeof(Elf64_Shdr)) ||
      header.e_shstrndx >= header.e_shnum)
    return Corrupt("its sections are not all there");
  for (uint16_t i = 0; i < header.e_shnum; ++i) {
    const auto section = ReadAt<Elf64_Shdr>(bytes, header.e_shoff + uint64_t{i} * sizeof(Elf64_Shdr));
    if (section.sh_type != SHT_NOBITS && section.sh_type != SHT_NULL &&
        !Holds(bytes, section.sh_offset, section.sh_size))
      return Corrupt("a section lies outside");
  }
  if (header.e_phnum == 0) return {};
  if (header.e_phentsize != sizeof(Elf64_Phdr) ||
      !Holds(bytes, header.e_phoff, uint64_t{header.e_phnum} * sizeof(Elf64_Phdr)))
    return Corrupt("its segments are not all there");
  for (uint16_t i = 0; i < header.e_phnum; ++i) {
    const auto segment = ReadAt<Elf64_Phdr>(bytes, header.e_phoff + uint64_t{i} * sizeof(Elf64_Phdr));
    if (!Holds(bytes, segment.p_offset, segment.p_filesz)) return Corrupt("a segment lies outside");
  }
  return {};
}

}  // namespace hone
