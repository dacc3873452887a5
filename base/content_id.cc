#include "base/content_id.h"

#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/file.h"
#include "base/hash.h"
#include "base/unique_fd.h"

namespace hone {
namespace {

constexpr size_t kMostNoteBytes = 64 << 10;
constexpr uint64_t kNoteAlignment = 4;

bool ReadFileAt(int fd, uint64_t offset, void* to, size_t size) {
  return offset <= INT64_MAX && ::pread(fd, to, size, static_cast<off_t>(offset)) == static_cast<ssize_t>(size);
}

// Notes are (name's size, description's size, type), the name and the description, each padded to 4 bytes.
std::optional<std::string> FindBuildId(std::string_view notes) {
  while (notes.size() >= sizeof(Elf64_Nhdr)) {
    Elf64_Nhdr head;
    std::memcpy(&head, notes.data(), sizeof head);
    const auto padded = [](uint64_t size) { return (size + kNoteAlignment - 1) / kNoteAlignment * kNoteAlignment; };
    const uint64_t name_end = sizeof head + padded(head.n_namesz);
    const uint64_t end = name_end + padded(head.n_descsz);
    if (end > notes.size()) return std::nullopt;
    const std::string_view name = notes.substr(sizeof head, head.n_namesz);
    if (head.n_type == NT_GNU_BUILD_ID && name == std::string_view(ELF_NOTE_GNU, sizeof ELF_NOTE_GNU) &&
        head.n_descsz > 0)
      return std::string(notes.substr(name_end, head.n_descsz));
    notes.remove_prefix(end);
  }
  return std::nullopt;
}

std::optional<std::string> BuildIdOf(int fd) {
  Elf64_Ehdr header;
  if (!ReadFileAt(fd, 0, &header, sizeof header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof(Elf64_Phdr))
    return std::nullopt;
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    if (header.e_phoff > INT64_MAX || !ReadFileAt(fd, header.e_phoff + i * sizeof segment, &segment, sizeof segment))
      return std::nullopt;
    if (segment.p_type != PT_NOTE || segment.p_filesz > kMostNoteBytes) continue;
    std::string notes(segment.p_filesz, '\0');
    if (!ReadFileAt(fd, segment.p_offset, notes.data(), notes.size())) continue;
    if (std::optional<std::string> id = FindBuildId(notes)) return id;
  }
  return std::nullopt;
}

}  // namespace

Result<std::string> ContentId(const std::string& path) {
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return ErrnoError(errno, "cannot open", path);
  if (const std::optional<std::string> id = BuildIdOf(file.get())) return HexOf(*id);
  return HexOf(Hash64(HONE_TRY(ReadFile(path, size_t{1} << 30))));
}

}  // namespace hone
