// What code in HIP C++ has of its language, as far as our kernels name it, for a compiler that has none of it: whether
// they are C++ is seen without an AMD compiler. Nothing here runs.
#pragma once

#include <cmath>
#include <cstring>

#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(threads)

struct Triple {
  unsigned x, y, z;
};
extern const Triple threadIdx, blockIdx;
void __syncthreads();
template <typename T>
T __shfl_xor(T value, int bit);

template <typename To, typename From>
To BitsAs(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}
inline int __float_as_int(float x) { return BitsAs<int>(x); }
inline float __int_as_float(int x) { return BitsAs<float>(x); }
inline long long __double_as_longlong(double x) { return BitsAs<long long>(x); }
inline double __longlong_as_double(long long x) { return BitsAs<double>(x); }

#define HONE_VECTORS(name, type)                                   \
  struct name##2 { type x, y; };                                   \
  struct name##4 { type x, y, z, w; };                             \
  inline name##2 make_##name##2(type x, type y) { return {x, y}; } \
  inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
HONE_VECTORS(char, signed char)
HONE_VECTORS(uchar, unsigned char)
HONE_VECTORS(ushort, unsigned short)
HONE_VECTORS(int, int)
HONE_VECTORS(float, float)
HONE_VECTORS(double, double)
#undef HONE_VECTORS
