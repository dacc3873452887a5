// The key by which a cache knows its own code again: who can write a cache's files, but does not have the key, can make
// nobody run anything. It lies beside the cache and not in it (CACHE.state/key), so that a cache that is copied,
// shipped or planted leaves it behind, and is bound to this machine and this user.
#pragma once

#include <string>

#include "base/hash.h"
#include "base/result.h"

namespace hone {

using SecretKey = Digest256;

// The key of the cache in this directory, made at its first opening if `may_create`: a file of mode 0600 in a directory
// of mode 0700. One that cannot be trusted (others can read it) or is damaged is replaced. kNotFound if there is none
// and none may be made; kInvalid if others can change where it would lie; kIo.
Result<SecretKey> OpenSecretKey(const std::string& cache_directory, bool may_create);

// One that is forgotten with this process.
SecretKey RandomSecretKey();

}  // namespace hone
