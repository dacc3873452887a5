#include "client/api/loader.h"

#include <dlfcn.h>

#include <atomic>
#include <optional>

#include "client/api/linker_use.h"
#include "ir/language/canonical.h"
#include "ir/language/instance_sizes.h"
#include "ir/native_artifact.h"

namespace hone {
namespace {

// The dynamic linker takes two equal paths for one library, even when the descriptor behind /proc/self/fd/N became
// another file. So no path is used twice: the load's number is written into it, in binary, as "/." for 1 and "/" for 0,
// which changes nothing about where it leads.
std::string UniquePath(int fd) {
  static std::atomic<uint32_t> loads{1};
  std::string path = "/proc/self/fd";
  for (uint32_t number = loads.fetch_add(1, std::memory_order_relaxed); number != 0; number >>= 1) {
    path += number & 1 ? "/." : "/";
  }
  return path + "/" + std::to_string(fd);
}

std::string DlError() {
  const char* text = dlerror();
  return text != nullptr ? text : "unknown error";
}

}  // namespace

Result<std::unique_ptr<LoadedArtifact>> LoadedArtifact::Load(SealedMemfd artifact, uint64_t size,
                                                             std::string_view digest, std::string_view canonical) {
  std::unique_ptr<LoadedArtifact> loaded(new LoadedArtifact);
  {
    ReadOnlyMapping mapping = HONE_TRY(artifact.Map());
    loaded->manifest_ = HONE_TRY(OpenNativeArtifact(mapping.bytes(), {.size = size, .digest = digest}));
  }
  // All threads of a target are not said, and which number that is honed knows.
  if (!canonical.empty() && !SameButThreads(canonical, loaded->manifest_.kernel)) HONE_TRY(loaded->FixSizes(canonical));
  {
    LinkerUse use;
    loaded->handle_ = dlopen(UniquePath(artifact.fd()).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (loaded->handle_ == nullptr) return Error{ErrorKind::kIo, "cannot map the code: " + DlError(), "artifact"};
    loaded->file_ = std::move(artifact);
    loaded->entry_ = reinterpret_cast<hone_entry_fn>(dlsym(loaded->handle_, kEntryName));
    loaded->pack_ = reinterpret_cast<hone_pack_fn>(dlsym(loaded->handle_, kPackName));
  }
  if (loaded->entry_ == nullptr) return Error{ErrorKind::kCorrupt, "the code has no entry", "artifact"};
  return loaded;
}

Result<void> LoadedArtifact::FixSizes(std::string_view canonical) {
  const Error another{ErrorKind::kCorrupt, "the code is for another kernel than the one that was asked for",
                      "artifact"};
  const std::optional<std::vector<int64_t>> sizes = InstanceSizes(canonical, manifest_.kernel);
  if (!sizes || sizes->size() != manifest_.dynamic_sizes.size()) return another;
  for (ManifestOperand& operand : manifest_.operands)
    for (ManifestDim& dim : operand.shape) {
      if (dim.lo == dim.hi && dim.size_index < 0) continue;
      if (dim.size_index < 0 || static_cast<size_t>(dim.size_index) >= sizes->size()) return another;
      const int64_t size = (*sizes)[static_cast<size_t>(dim.size_index)];
      if (size < dim.lo || size > dim.hi) return another;
      dim = {size, size, -1};
    }
  manifest_.kernel = canonical;
  manifest_.dynamic_sizes.clear();
  fixed_sizes_ = *sizes;
  return {};
}

LoadedArtifact::~LoadedArtifact() {
  if (handle_ == nullptr) return;
  LinkerUse use;
  dlclose(handle_);
}

}  // namespace hone
