// PoCL's compiler reads a header of all functions of OpenCL C, 895 KB, for each program: 100 ms of the 135 that it
// takes for one of ours. Of these functions our code calls a few (codegen/gpu/dialect.cc), which are declared here as
// they are there, so that the header can be left out.
#pragma once

#include <string>
#include <string_view>

#include "ir/target.h"

namespace hone {

// Whether code for this device is compiled by PoCL.
bool IsPocl(const DeviceTarget& target);

// What PoCL's compiler is told, beside other options, to leave its header out. Others do not know it: to be used if
// IsPocl, and where code is refused with it, it is to be compiled without.
inline constexpr std::string_view kWithoutPoclsHeader = " -D_OPENCL_H_";

// The source with the declarations before it, its lines numbered as before.
std::string WithPoclBuiltins(std::string_view source);

}  // namespace hone
