#include "backends/arena.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <charconv>
#include <utility>

#include "base/file.h"

namespace hone {

Result<Arena> Arena::Create() {
  UniqueFd fd(::memfd_create("hone-arena", MFD_CLOEXEC));
  if (!fd) return ErrnoError(errno, "memfd_create");
  return Arena(std::move(fd));
}

Arena::Arena(Arena&& other) noexcept
    : fd_(std::move(other.fd_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Arena::~Arena() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

Result<void> Arena::Reset(uint64_t bytes) {
  uint64_t wanted = std::max(bytes, kKeptBytes);
  if (wanted == size_) return {};
  if (wanted > size_ && wanted > AvailableMemory() / 4 * 3)
    return Error{ErrorKind::kLimit,
                 fmt::format("checking the kernel takes {} MiB of memory, {} MiB are free", wanted >> 20,
                             AvailableMemory() >> 20),
                 ""};
  if (data_ != nullptr) ::munmap(std::exchange(data_, nullptr), std::exchange(size_, 0));
  // A kept file's length is nominal: pages exist once they were touched.
  if (::ftruncate(fd(), static_cast<off_t>(kKeptBytes)) != 0 || ::ftruncate(fd(), static_cast<off_t>(wanted)) != 0)
    return ErrnoError(errno, "ftruncate of the arena");
  void* data = ::mmap(nullptr, wanted, PROT_READ | PROT_WRITE, MAP_SHARED, fd(), 0);
  if (data == MAP_FAILED) return ErrnoError(errno, "mmap of the arena");
  data_ = static_cast<std::byte*>(data);
  size_ = wanted;
  return {};
}

uint64_t AvailableMemory() {
  Result<std::string> text = ReadFile("/proc/meminfo", 1 << 16);
  constexpr std::string_view kField = "MemAvailable:";
  size_t at = text ? text->find(kField) : std::string::npos;
  if (at == std::string::npos) return uint64_t{1} << 40;
  at = text->find_first_not_of(' ', at + kField.size());
  uint64_t kib = 0;
  std::from_chars(text->data() + std::min(at, text->size()), text->data() + text->size(), kib);
  return kib << 10;
}

}  // namespace hone
