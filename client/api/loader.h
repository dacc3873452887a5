// From a sealed descriptor to functions that can be called.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/generated_code.h"
#include "base/result.h"
#include "base/sealed_memfd.h"
#include "client/api/updatable.h"
#include "ir/manifest.h"

namespace hone {

// Generated code, mapped. The descriptor stays open until the code is unmapped: while it is, no other artifact can get
// its number, and so its path. Thread-safe once loaded.
class LoadedArtifact : public Updatable::Code {
 public:
  // Checks, maps and looks up. `canonical`: the kernel that the code must be for, with any number of threads; "" if the
  // caller does not know. Code for a range of sizes that the kernel is in will do: it is called with the kernel's
  // sizes, and its manifest is the kernel's. kCorrupt, kInvalid, kUnsupported as OpenNativeArtifact; kCorrupt for
  // another kernel's code.
  static Result<std::unique_ptr<LoadedArtifact>> Load(SealedMemfd artifact, uint64_t size, std::string_view digest,
                                                      std::string_view canonical);
  ~LoadedArtifact() override;
  LoadedArtifact(const LoadedArtifact&) = delete;
  LoadedArtifact& operator=(const LoadedArtifact&) = delete;

  const Manifest& manifest() const { return manifest_; }
  hone_entry_fn entry() const { return entry_; }
  hone_pack_fn pack() const { return pack_; }  // nullptr if nothing is packed
  const SealedMemfd& file() const { return file_; }
  // What the entry gets in place of a caller's sizes, who knows of none; empty: nothing.
  const std::vector<int64_t>& fixed_sizes() const { return fixed_sizes_; }

 private:
  LoadedArtifact() = default;
  Result<void> FixSizes(std::string_view canonical);

  SealedMemfd file_;
  Manifest manifest_;
  std::vector<int64_t> fixed_sizes_;
  void* handle_ = nullptr;
  hone_entry_fn entry_ = nullptr;
  hone_pack_fn pack_ = nullptr;
};

}  // namespace hone
