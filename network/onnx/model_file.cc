#include "network/onnx/model_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/aligned_bytes.h"
#include "base/file.h"
#include "base/mutex.h"

namespace hone {
namespace {

constexpr size_t kScratchBytes = size_t{16} << 20;  // of a copy whose memory is used again

bool IsSame(const timespec& a, const timespec& b) { return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec; }

}  // namespace

// Memory of copies, all of one size. Thread-safe.
class ModelFile::Scratch {
 public:
  // Empty: there is no memory.
  static std::shared_ptr<void> Take(const std::shared_ptr<Scratch>& scratch, size_t bytes) {
    if (bytes > kScratchBytes || !scratch->keeps())
      return AllocateAligned(static_cast<int64_t>(std::max<size_t>(bytes, 1)));
    AlignedBytes memory = scratch->TakeIdle();
    if (!memory) memory = AllocateAligned(kScratchBytes);
    if (!memory) return nullptr;
    return {memory.release(), [scratch](void* used) { scratch->GiveBack(AlignedBytes(used)); }};
  }

  void KeepNone() {
    MutexLock lock(mutex_);
    keeps_ = false;
    idle_.clear();
  }

 private:
  bool keeps() {
    MutexLock lock(mutex_);
    return keeps_;
  }
  AlignedBytes TakeIdle() {
    MutexLock lock(mutex_);
    if (idle_.empty()) return nullptr;
    AlignedBytes memory = std::move(idle_.back());
    idle_.pop_back();
    return memory;
  }
  void GiveBack(AlignedBytes memory) {
    MutexLock lock(mutex_);
    if (keeps_) idle_.push_back(std::move(memory));
  }

  Mutex mutex_;
  bool keeps_ HONE_GUARDED_BY(mutex_) = true;
  std::vector<AlignedBytes> idle_ HONE_GUARDED_BY(mutex_);
};

ModelFile::ModelFile(std::string path, UniqueFd file, const struct stat& status)
    : path_(std::move(path)),
      file_(std::move(file)),
      status_(status),
      size_(static_cast<size_t>(status.st_size)),
      scratch_(std::make_shared<Scratch>()) {}

Result<std::shared_ptr<ModelFile>> ModelFile::Open(const std::string& path) {
  UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return ErrnoError(errno, "cannot open", path);
  struct stat status{};
  if (fstat(file.get(), &status) != 0) return ErrnoError(errno, "cannot look at", path);
  if (!S_ISREG(status.st_mode)) return Error{ErrorKind::kInvalid, "wanted a file", path};
  std::shared_ptr<ModelFile> opened(new ModelFile(path, std::move(file), status));
  if (opened->size_ == 0) return opened;
  void* const memory = mmap(nullptr, opened->size_, PROT_READ, MAP_PRIVATE, opened->file_.get(), 0);
  if (memory == MAP_FAILED) return ErrnoError(errno, "cannot read", path);
  opened->memory_ = static_cast<char*>(memory);
  return opened;
}

ModelFile::~ModelFile() {
  if (memory_ != nullptr) munmap(memory_, size_);
}

bool ModelFile::Holds(std::string_view part) const {
  const auto begin = reinterpret_cast<uintptr_t>(memory_), at = reinterpret_cast<uintptr_t>(part.data());
  return memory_ != nullptr && at >= begin && at - begin <= size_ && part.size() <= size_ - (at - begin);
}

void ModelFile::Unmap() {
  if (memory_ == nullptr) return;
  // The addresses stay taken. Should that be refused, the file stays mapped.
  (void)mmap(memory_, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

Result<void> ModelFile::Map() {
  HONE_TRY(CheckUnchanged());
  if (memory_ == nullptr) return {};
  if (mmap(memory_, size_, PROT_READ, MAP_PRIVATE | MAP_FIXED, file_.get(), 0) == MAP_FAILED) {
    memory_ = nullptr;  // the addresses may be another's now
    return ErrnoError(errno, "cannot read", path_);
  }
  return {};
}

Result<void> ModelFile::CheckUnchanged() const {
  struct stat now{};
  if (fstat(file_.get(), &now) != 0) return ErrnoError(errno, "cannot look at", path_);
  if (now.st_size == status_.st_size && IsSame(now.st_mtim, status_.st_mtim)) return {};
  return Error{ErrorKind::kInvalid,
               "it was changed since it was opened; open it again, and replace such files by renaming others over them",
               path_};
}

Result<std::shared_ptr<const void>> ModelFile::Read(std::string_view part) const {
  std::shared_ptr<void> memory = Scratch::Take(scratch_, part.size());
  if (memory == nullptr)
    return Error{ErrorKind::kLimit, "no memory for " + std::to_string(part.size()) + " bytes of it", path_};
  const auto offset = static_cast<size_t>(part.data() - memory_);
  for (size_t done = 0; done < part.size();) {
    const ssize_t count = pread(file_.get(), static_cast<char*>(memory.get()) + done, part.size() - done,
                                static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoError(errno, "cannot read", path_);
    if (count == 0) return Error{ErrorKind::kInvalid, "it was cut short since it was opened; open it again", path_};
    done += static_cast<size_t>(count);
  }
  HONE_TRY(CheckUnchanged());  // of what has been read by now
  return std::shared_ptr<const void>(std::move(memory));
}

void ModelFile::KeepNoMemory() { scratch_->KeepNone(); }

}  // namespace hone
