#include "client/cli/write_output.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>

#include "base/file.h"

namespace hone::cli {
namespace {

// Of the file that is replaced; else as other programs make files.
unsigned ModeFor(const std::string& file) {
  struct stat info{};
  if (stat(file.c_str(), &info) == 0) return info.st_mode & 0777;
  const mode_t mask = umask(0);
  umask(mask);
  return 0666 & ~mask;
}

}  // namespace

bool IsStandardOutput(std::string_view path) { return path == "-"; }

Result<std::string> OutputFile(const std::string& path) {
  if (path.empty()) return Error{ErrorKind::kInvalid, "saw an empty name, wanted a file to write", "--out"};
  if (IsStandardOutput(path)) return path;
  struct stat info{};
  if (stat(path.c_str(), &info) != 0) {
    if (errno != ENOENT) return ErrnoError(errno, "cannot look at", path);
    if (lstat(path.c_str(), &info) != 0) return path;
    return Error{ErrorKind::kInvalid, "is a link to a file that is not there; name that file, or remove the link",
                 path};
  }
  if (S_ISDIR(info.st_mode)) return Error{ErrorKind::kInvalid, "is a directory; name a file in it", path};
  if (!S_ISREG(info.st_mode))
    return Error{ErrorKind::kInvalid, "is no regular file; `-` stands for standard output", path};
  std::unique_ptr<char, decltype(&free)> real(realpath(path.c_str(), nullptr), &free);
  if (!real) return ErrnoError(errno, "cannot look at", path);
  return std::string(real.get());
}

Result<void> WriteOutput(const std::string& file, std::string_view bytes) {
  if (!IsStandardOutput(file)) return WriteFileAtomically(file, bytes, ModeFor(file));
  Result<void> written = WriteAll(STDOUT_FILENO, bytes);
  if (!written) written.error().where = "standard output";
  return written;
}

}  // namespace hone::cli
