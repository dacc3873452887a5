#include "backends/drivers/pocl_builtins.h"

#include <fmt/format.h>

namespace hone {
namespace {

// With the attributes of clang's opencl-c.h, which decide what its passes may do.
constexpr std::string_view kFunctions = R"(#define HONE_F __attribute__((overloadable))
#define HONE_CONST __attribute__((overloadable, const))
#define HONE_PURE __attribute__((overloadable, pure))
size_t HONE_CONST get_local_id(uint);
size_t HONE_CONST get_group_id(uint);
void HONE_F __attribute__((convergent)) barrier(cl_mem_fence_flags flags);
#define HONE_FLOATS(T) T HONE_CONST fma(T, T, T); T HONE_CONST fabs(T); T HONE_CONST floor(T); \
  T HONE_CONST rint(T); T HONE_CONST sqrt(T); T HONE_CONST copysign(T, T);
#define HONE_IN(S, T, N) T##N HONE_PURE vload##N(size_t, const S T *); void HONE_F vstore##N(T##N, size_t, S T *);
#define HONE_VECTOR(T, N) HONE_IN(__global, T, N) HONE_IN(__local, T, N) HONE_IN(__private, T, N)
#define HONE_VECTORS(T) HONE_VECTOR(T, 2) HONE_VECTOR(T, 4) HONE_VECTOR(T, 8) HONE_VECTOR(T, 16)
HONE_FLOATS(float) HONE_FLOATS(float4) HONE_FLOATS(float8) HONE_FLOATS(float16)
HONE_VECTORS(char) HONE_VECTORS(uchar) HONE_VECTORS(ushort) HONE_VECTORS(int) HONE_VECTORS(float)
#define HONE_TO(T, F, N) T##N HONE_CONST convert_##T##N(F##N);
#define HONE_CONVERT(T, F) HONE_TO(T, F, 4) HONE_TO(T, F, 8) HONE_TO(T, F, 16)
HONE_CONVERT(float, int) HONE_CONVERT(int, float) HONE_CONVERT(int, char) HONE_CONVERT(int, uchar)
HONE_CONVERT(int, ushort) HONE_CONVERT(char, int) HONE_CONVERT(uchar, int) HONE_CONVERT(ushort, int)
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
HONE_FLOATS(double) HONE_FLOATS(double4) HONE_FLOATS(double8)
HONE_VECTORS(double)
#pragma OPENCL EXTENSION cl_khr_fp64 : disable
#endif
#line 1
)";

}  // namespace

bool IsPocl(const DeviceTarget& target) {
  const auto platform = target.facts.find("platform");
  return platform != target.facts.end() && platform->second == "Portable_Computing_Language";
}

std::string WithPoclBuiltins(std::string_view source) { return std::string(kFunctions).append(source); }

}  // namespace hone
