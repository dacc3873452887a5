// hone run for models that run in parts, because values that they compute decide shapes, or how often a body runs.
#pragma once

#include <optional>
#include <string>

#include "client/cli/run_model.h"

namespace hone::cli {

// Prints the result; the exit status. There is no comparison with another model and no export. nullopt: that is not why
// the model does not run whole.
std::optional<int> RunModelInParts(Context& context, const std::string& path, const ModelRunOptions& options);

}  // namespace hone::cli
