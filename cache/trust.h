// Whom a cache on disk is believed: nobody but this user, and for layers that are only read, root.
#pragma once

#include <string>

#include "base/file.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace hone {

// Opens a cache's directory if nobody else can change it or what it holds: no part of its path, none of its own files
// and none of the database's. kInvalid says which, what is wrong with it and what to do; kNotFound.
Result<UniqueFd> OpenTrustedDirectory(const std::string& path, Owner owner);

}  // namespace hone
