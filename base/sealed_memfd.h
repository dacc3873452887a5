// Immutable bytes in a memfd: how code travels between processes. All seals are set, so neither side can change what
// the other has checked.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hone {

// A private read-only mapping of a file's first bytes. Move-only.
class ReadOnlyMapping {
 public:
  ReadOnlyMapping() = default;
  ReadOnlyMapping(ReadOnlyMapping&& other) noexcept;
  ReadOnlyMapping& operator=(ReadOnlyMapping&& other) noexcept;
  ~ReadOnlyMapping();

  // kIo with errno's text. size 0 gives an empty mapping.
  static Result<ReadOnlyMapping> Map(int fd, size_t size);

  std::span<const std::byte> bytes() const { return {data_, size_}; }

  // The pages that were read do not count as this process' until they are read again. Of files, not of memfds.
  void ForgetPages() const;

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Thread-compatible.
class SealedMemfd {
 public:
  static constexpr size_t kMaxBytes = size_t{64} << 20;  // no artifact is that large

  SealedMemfd() = default;

  // Copies `bytes` into a new memfd and seals it. `name` shows in /proc/PID/maps. kLimit above kMaxBytes; kIo.
  static Result<SealedMemfd> Create(std::span<const std::byte> bytes, const std::string& name = "hone-artifact");

  // Takes a descriptor from another process. kInvalid if it is no memfd, or lacks a seal (then its owner could still
  // change the bytes); kLimit if it is larger than `max_bytes`.
  static Result<SealedMemfd> Adopt(UniqueFd fd, size_t max_bytes = kMaxBytes);

  Result<ReadOnlyMapping> Map() const { return ReadOnlyMapping::Map(fd(), size_); }
  Result<SealedMemfd> Duplicate() const;  // another descriptor of the same bytes

  int fd() const { return fd_.get(); }
  size_t size() const { return size_; }
  explicit operator bool() const { return static_cast<bool>(fd_); }
  UniqueFd TakeFd() && { return std::move(fd_); }

 private:
  SealedMemfd(UniqueFd fd, size_t size) : fd_(std::move(fd)), size_(size) {}
  UniqueFd fd_;
  size_t size_ = 0;
};

}  // namespace hone
