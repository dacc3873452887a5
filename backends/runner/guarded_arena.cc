#include "backends/runner/guarded_arena.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <string_view>
#include <utility>

#include "base/file.h"

namespace hone {

MemoryTurn::MemoryTurn(int file) : file_(file) {
  if (file_ < 0) return;
  struct flock whole{};
  whole.l_type = F_WRLCK;
  while (::fcntl(file_, F_SETLKW, &whole) != 0 && errno == EINTR) {}
}

MemoryTurn::~MemoryTurn() {
  if (file_ < 0) return;
  struct flock whole{};
  whole.l_type = F_UNLCK;
  ::fcntl(file_, F_SETLK, &whole);
}

Result<Arena> Arena::Create(const MemoryOptions& memory) {
  UniqueFd fd(::memfd_create("hone-arena", MFD_CLOEXEC));
  if (!fd) return ErrnoError(errno, "memfd_create");
  return Arena(std::move(fd), memory);
}

Arena::Arena(Arena&& other) noexcept
    : fd_(std::move(other.fd_)),
      memory_(other.memory_),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

Arena::~Arena() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

Result<void> Arena::Reset(uint64_t bytes) {
  const uint64_t wanted = std::max(bytes, kKeptBytes);
  if (wanted == size_) return {};
  if (data_ != nullptr) ::munmap(std::exchange(data_, nullptr), std::exchange(size_, 0));
  // A kept file's length is nominal: pages exist once they were touched.
  if (::ftruncate(fd(), static_cast<off_t>(kKeptBytes)) != 0) return ErrnoError(errno, "ftruncate of the arena");
  if (wanted > kKeptBytes) {
    MemoryTurn turn(memory_.turns);
    const uint64_t available = memory_.available();
    if (wanted > available / 4 * 3)
      return Error{
          ErrorKind::kLimit,
          fmt::format("checking the kernel takes {} MiB of memory, {} MiB are free", wanted >> 20, available >> 20),
          ""};
    // Taken now: who looks next finds it gone.
    if (::fallocate(fd(), 0, static_cast<off_t>(kKeptBytes), static_cast<off_t>(wanted - kKeptBytes)) != 0)
      return ErrnoError(errno, "fallocate of the arena");
  }
  void* data = ::mmap(nullptr, wanted, PROT_READ | PROT_WRITE, MAP_SHARED, fd(), 0);
  if (data == MAP_FAILED) return ErrnoError(errno, "mmap of the arena");
  data_ = static_cast<std::byte*>(data);
  size_ = wanted;
  return {};
}

uint64_t AvailableMemory() {
  static const int file = ::open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
  char buffer[4096];
  const ssize_t count = file >= 0 ? ::pread(file, buffer, sizeof buffer, 0) : -1;
  const std::string_view text(buffer, count > 0 ? static_cast<size_t>(count) : 0);
  constexpr std::string_view kField = "MemAvailable:";
  size_t at = text.find(kField);
  if (at == std::string_view::npos) return uint64_t{1} << 40;
  at = text.find_first_not_of(' ', at + kField.size());
  uint64_t kib = 0;
  std::from_chars(text.data() + std::min(at, text.size()), text.data() + text.size(), kib);
  return kib << 10;
}

}  // namespace hone
