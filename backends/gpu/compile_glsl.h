// GLSL -> SPIR-V, the form in which Vulkan's drivers take shaders, by glslang: where kernels are built, so that who
// runs them needs no compiler.
#pragma once

#include <string>

#include "base/result.h"

namespace hone {

// The bytes of a compute shader's module for Vulkan 1.2, entry "main". Not optimised: drivers do that. kBuildFailed
// with glslang's log; kUnsupported: built without glslang. Thread-safe.
Result<std::string> CompileGlsl(const std::string& source);

}  // namespace hone
