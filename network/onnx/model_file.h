// A model's file. It is mapped while the model is read, and only then: who cuts a mapped file short ends whoever reads
// what is gone (SIGBUS). Later, parts of it are read into memory, and what the file no longer has is an error.
#pragma once

#include <sys/stat.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hone {

// Read is thread-safe. The rest is one thread's, while nobody reads bytes().
class ModelFile {
 public:
  // Mapped. kInvalid: no plain file; errors of open.
  static Result<std::shared_ptr<ModelFile>> Open(const std::string& path);
  ~ModelFile();
  ModelFile(const ModelFile&) = delete;
  ModelFile& operator=(const ModelFile&) = delete;

  // To be read while it is mapped. The addresses stay this file's for as long as this lives.
  std::string_view bytes() const { return {memory_, size_}; }
  bool Holds(std::string_view part) const;

  void Unmap();
  // Again, at the same addresses. kInvalid: the file was changed since it was opened.
  Result<void> Map();

  // A copy of a part of bytes(), mapped or not, aligned to 64 bytes. kInvalid: the file was changed since it was opened
  // (its size, or when it was last written); kIo; kLimit: no memory.
  Result<std::shared_ptr<const void>> Read(std::string_view part) const;

  // From now on memory of copies that nobody has any more goes back to the system; until then it is used for others,
  // since fresh pages take longer than what is copied there.
  void KeepNoMemory();

 private:
  class Scratch;
  ModelFile(std::string path, UniqueFd file, const struct stat& status);
  Result<void> CheckUnchanged() const;

  const std::string path_;
  const UniqueFd file_;
  const struct stat status_;
  const size_t size_;
  char* memory_ = nullptr;
  const std::shared_ptr<Scratch> scratch_;
};

}  // namespace hone
