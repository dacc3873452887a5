// The least that CheckCubin takes for code for CUDA.
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstring>
#include <string>

namespace hone::testing {

// A file with a segment and three sections: none, one of eight bytes, one that only memory has.
struct CubinParts {
  Elf64_Ehdr header{};
  Elf64_Phdr segment{};
  Elf64_Shdr sections[3]{};
  char body[8] = "code";

  CubinParts() {
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_machine = 190;
    header.e_phoff = offsetof(CubinParts, segment);
    header.e_phentsize = sizeof segment;
    header.e_phnum = 1;
    header.e_shoff = offsetof(CubinParts, sections);
    header.e_shentsize = sizeof sections[0];
    header.e_shnum = 3;
    header.e_shstrndx = 1;
    segment.p_offset = sections[1].sh_offset = offsetof(CubinParts, body);
    segment.p_filesz = sections[1].sh_size = sizeof body;
    sections[1].sh_type = SHT_PROGBITS;
    sections[2].sh_type = SHT_NOBITS;
    sections[2].sh_offset = offsetof(CubinParts, body);
    sections[2].sh_size = 1 << 20;
  }
};

inline std::string SomeCubin() {
  const CubinParts parts;
  return std::string(reinterpret_cast<const char*>(&parts), sizeof parts);
}

}  // namespace hone::testing
