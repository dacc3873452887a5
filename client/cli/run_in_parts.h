// hone run for models that run in parts, because values that they compute decide shapes, or how often a body runs.
#pragma once

#include <string>

#include "client/cli/run_model.h"

namespace hone::cli {

// Whether that is why a model does not run whole, and all that runs it.
bool RunsInParts(const std::string& path, const ModelRunOptions& options);

// Prints the result; the exit status. There is no comparison with another model and no export.
int RunModelInParts(Context& context, const std::string& path, const ModelRunOptions& options);

}  // namespace hone::cli
