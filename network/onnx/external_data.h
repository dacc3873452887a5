// The files beside a model that hold its large tensors.
#pragma once

#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hone {

// A file below the model's folder: no absolute path, no "..", no link on the way. kInvalid: it is none, or no folder is
// known (""); kIo. `where`: the tensor, for people.
Result<UniqueFd> OpenExternalData(const std::string& folder, const std::string& location, const std::string& where);

}  // namespace hone
