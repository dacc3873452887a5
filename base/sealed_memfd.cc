#include "base/sealed_memfd.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U  // Linux 6.3: the file cannot be executed as a program; mapping it for execution can
#endif

namespace hone {
namespace {

constexpr int kRequiredSeals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

Error IoError(const char* what) { return Error{ErrorKind::kIo, fmt::format("{}: {}", what, std::strerror(errno)), ""}; }

}  // namespace

ReadOnlyMapping::ReadOnlyMapping(ReadOnlyMapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

ReadOnlyMapping& ReadOnlyMapping::operator=(ReadOnlyMapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

ReadOnlyMapping::~ReadOnlyMapping() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

Result<ReadOnlyMapping> ReadOnlyMapping::Map(int fd, size_t size) {
  ReadOnlyMapping mapping;
  if (size == 0) return mapping;
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (data == MAP_FAILED) return IoError("mmap of a memfd");
  mapping.data_ = static_cast<const std::byte*>(data);
  mapping.size_ = size;
  return mapping;
}

void ReadOnlyMapping::ForgetPages() const {
  if (data_ != nullptr) ::madvise(const_cast<std::byte*>(data_), size_, MADV_DONTNEED);
}

Result<SealedMemfd> SealedMemfd::Create(std::span<const std::byte> bytes, const std::string& name) {
  if (bytes.size() > kMaxBytes)
    return Error{ErrorKind::kLimit, fmt::format("{} bytes for a memfd, the limit is {}", bytes.size(), kMaxBytes), ""};
  UniqueFd fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL));
  if (!fd && errno == EINVAL) fd.Reset(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return IoError("memfd_create");
  for (size_t done = 0; done < bytes.size();) {
    ssize_t count = ::pwrite(fd.get(), bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return IoError("writing a memfd");
    done += static_cast<size_t>(count);
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, kRequiredSeals) != 0) return IoError("sealing a memfd");
  return SealedMemfd(std::move(fd), bytes.size());
}

Result<SealedMemfd> SealedMemfd::Adopt(UniqueFd fd, size_t max_bytes) {
  int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0) return Error{ErrorKind::kInvalid, "the descriptor is not a memfd", ""};
  if ((seals & kRequiredSeals) != kRequiredSeals)
    return Error{
        ErrorKind::kInvalid,
        fmt::format("the memfd has seals {:#x}, wanted write, grow, shrink and seal ({:#x})", seals, kRequiredSeals),
        ""};
  struct stat info{};
  if (::fstat(fd.get(), &info) != 0) return IoError("fstat of a memfd");
  size_t size = static_cast<size_t>(info.st_size);
  if (size > max_bytes)
    return Error{ErrorKind::kLimit, fmt::format("the memfd holds {} bytes, the limit is {}", size, max_bytes), ""};
  return SealedMemfd(std::move(fd), size);
}

Result<SealedMemfd> SealedMemfd::Duplicate() const {
  UniqueFd copy(::fcntl(fd(), F_DUPFD_CLOEXEC, 3));
  if (!copy) return IoError("duplicating a memfd");
  return SealedMemfd(std::move(copy), size_);
}

}  // namespace hone
