#include "codegen/llvm/link.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "lld/Common/Driver.h"
#include "llvm/Support/CrashRecoveryContext.h"
#include "llvm/Support/raw_ostream.h"

LLD_HAS_DRIVER(elf)

namespace hone {
namespace {

// A memory file, or nothing. lld reads its input through a path, which /proc gives every descriptor.
class MemoryFile {
 public:
  explicit MemoryFile(const char* name) : fd_(memfd_create(name, MFD_CLOEXEC)) {}
  ~MemoryFile() {
    if (fd_ >= 0) close(fd_);
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  int fd() const { return fd_; }
  std::string Path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

Error IoError(const char* what) {
  return Error{.kind = ErrorKind::kIo, .message = std::string(what) + ": " + std::strerror(errno), .where = "link"};
}

Result<void> WriteAll(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return IoError("cannot write the object to memory");
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return {};
}

Result<std::vector<std::byte>> ReadAll(int fd) {
  struct stat info;
  if (fstat(fd, &info) != 0) return IoError("cannot read lld's output");
  std::vector<std::byte> bytes(static_cast<size_t>(info.st_size));
  size_t done = 0;
  while (done < bytes.size()) {
    ssize_t got = pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return IoError("cannot read lld's output");
    done += static_cast<size_t>(got);
  }
  return bytes;
}

// Descriptor 1 is another file while this lives. lld can write its output to "-" alone without a directory to rename a
// temporary file in.
class StdoutRedirect {
 public:
  explicit StdoutRedirect(int fd) : saved_(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3)) {
    ok_ = dup2(fd, STDOUT_FILENO) == STDOUT_FILENO;
  }
  ~StdoutRedirect() {
    if (saved_ >= 0) {
      dup2(saved_, STDOUT_FILENO);
      close(saved_);
    } else {
      close(STDOUT_FILENO);  // it was closed before
    }
  }
  StdoutRedirect(const StdoutRedirect&) = delete;
  StdoutRedirect& operator=(const StdoutRedirect&) = delete;

  bool ok() const { return ok_; }

 private:
  int saved_;
  bool ok_;
};

std::string TrimmedLines(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

}  // namespace

Result<std::vector<std::byte>> LinkSharedObject(std::span<const std::byte> object, Isa isa) {
  static bool lld_crashed = false;
  if (lld_crashed) {
    return Error{.kind = ErrorKind::kInternal, .message = "lld crashed before and cannot run again", .where = "link"};
  }
  if (object.empty()) {
    return Error{.kind = ErrorKind::kBuildFailed, .message = "the object is empty", .where = "link"};
  }
  MemoryFile input("hone-object"), output("hone-linked");
  if (input.fd() < 0 || output.fd() < 0) return IoError("memfd_create");
  HONE_TRY(WriteAll(input.fd(), object));

  std::string input_path = input.Path();
  const char* args[] = {"ld.lld", "-m", isa == Isa::kNeon ? "aarch64linux" : "elf_x86_64", "-shared",
                        input_path.c_str(), "-o", "-",
                        "--threads=1",     // the process may be forbidden to start threads; the object is small
                        "--no-undefined",  // closed: nothing is looked up in the process that loads it
                        "-Bsymbolic",
                        "--build-id=none",  // reproducible, and a digest travels beside the object anyway
                        "--hash-style=gnu", "--strip-all", "--no-eh-frame-hdr", "-z", "noexecstack",
                        // Sections share file pages but never a mapping that is both writable and executable; a third
                        // of the size of separate-code for a small kernel.
                        "-z", "noseparate-code", "--color-diagnostics=never", "--error-limit=8"};
  std::string out_text, err_text;
  llvm::raw_string_ostream out_stream(out_text), err_stream(err_text);
  lld::Result linked{1, true};
  bool redirected;
  {
    StdoutRedirect redirect(output.fd());
    redirected = redirect.ok();
    if (redirected) {
      // Signal handlers stay installed only while lld runs: elsewhere a crash is the process' own.
      llvm::CrashRecoveryContext::Enable();
      linked = lld::lldMain(args, out_stream, err_stream, {{lld::Gnu, &lld::elf::link}});
      llvm::CrashRecoveryContext::Disable();
    }
  }
  if (!redirected) return IoError("cannot redirect lld's output");
  if (!linked.canRunAgain) {
    lld_crashed = true;
    return Error{.kind = ErrorKind::kInternal, .message = "lld crashed: " + TrimmedLines(err_text), .where = "link"};
  }
  if (linked.retCode != 0) {
    return Error{.kind = ErrorKind::kBuildFailed, .message = TrimmedLines(err_text), .where = "link"};
  }
  return ReadAll(output.fd());
}

}  // namespace hone
