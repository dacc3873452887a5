// The client's own copies of code, for when no daemon answers. A directory of files, one a request:
//
//   file ::= magic "hone-code" version:u8 code_digest:32 request:string canonical:string reply:string code mark:32
//
// `request` names what was asked for (kernel text, threads), `reply` the daemon's facts (an encoded GetReply). The mark
// is a code over everything before it that only this user on this machine can make (base/secret): what somebody ships
// or copies is not run. Files are replaced by renaming and never changed, and the oldest go when there are too many.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/sealed_memfd.h"
#include "base/secret.h"
#include "base/unique_fd.h"
#include "client/protocol/protocol.h"

namespace hone {

struct DiskCacheOptions {
  std::string directory;
  std::string key_of{};                       // the marks' key is in KEY_OF.state; "": of the directory
  uint64_t most_bytes = uint64_t{256} << 20;  // a model's kernels take a few MB
  size_t most_files = 4096;
};

struct StoredCode {
  GetReply reply;
  std::string canonical;
  SealedMemfd artifact;  // a copy: nobody can change it any more
};

// Thread-safe; several processes may share a directory.
class DiskCache {
 public:
  // The directory is made when something is stored. Each call checks again that nobody else can change what is in it.
  explicit DiskCache(DiskCacheOptions options) : options_(std::move(options)) {}

  // nullopt if there is none; kInvalid if the directory is not to be trusted; kCorrupt for a file that is damaged
  // or was not stored by this user on this machine (removed).
  Result<std::optional<StoredCode>> Load(std::string_view kernel, uint32_t threads) const;

  // Keeps a copy unless there is one of the same digest. kIo, kLimit, kInvalid.
  Result<void> Store(std::string_view kernel, uint32_t threads, std::string_view canonical, const GetReply& reply,
                     const SealedMemfd& artifact) const;

 private:
  Result<SecretKey> Key(bool may_create) const;
  void Trim(int directory) const;

  const DiskCacheOptions options_;
};

}  // namespace hone
