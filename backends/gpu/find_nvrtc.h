// Where NVRTC is, the compiler of CUDA's code: where honed's configuration says, or a CUDA installation, or a Python
// package. Only looked for here: who opens it are processes of their own (compile_cuda.h).
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace hone {

inline constexpr std::string_view kHowToGetNvrtc =
    "code for CUDA devices is compiled by NVRTC, and there is none here: pip install nvidia-cuda-nvrtc-cu12, or say "
    "where it is (honed.toml: [build] nvrtc)";

// From now on NVRTC is this library, or in this directory, and nowhere else; "": wherever it is found. Before devices
// are asked for.
void ConfigureNvrtc(std::string place);

// A library's path. kNotFound with what to do; kInvalid: others than this user and root can write there.
Result<std::string> FindNvrtc();

}  // namespace hone
