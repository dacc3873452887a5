// Kernels that read at places which data decide, or decide by them: what comes of data is bounded by the kernel's text
// alone, and may be beyond 32 bits before it is.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace hone {

struct DataIndexKernel {
  std::string name;
  std::string text;
};

inline void PrintTo(const DataIndexKernel& kernel, std::ostream* out) { *out << kernel.text; }

inline const std::vector<DataIndexKernel>& DataIndexKernels() {
  static const std::vector<DataIndexKernel>& kernels = *new std::vector<DataIndexKernel>{
      {"scaled_and_clamped", "kernel a(x: i32[3001], z: i32[16]) -> y: i32[16] { y[i] = x[clamp(8*z[i], 0, 3000)] }"},
      {"clamped_through_a_stage",
       "kernel a(x: f32[1000], w: i32[16]) -> y: f32[16] { a: i32[16] a[i] = w[i] y[i] = x[clamp(8*a[i], 0, 999)] }"},
      {"clamped_into_a_stage",
       R"(kernel a(x: f32[1000, 4], w: i32[16]) -> y: f32[16] {
         a: i32[16]
         a[i] = w[i]
         b: f32[1000]
         b[i] = sum(r) x[i, r]
         y[i] = b[clamp(8*a[i], 0, 999)]
       })"},
      {"padded", "kernel a(x: f32[1000], w: i32[16]) -> y: f32[16] { y[i] = pad(x[8*w[i]], 0) }"},
      {"distance_of_a_remainder", "kernel a(x: i32[1317], z: i32[9]) -> y: i32[9] { y[i] = x[abs(z[i] % 1321 - 4)] }"},
      {"distance_of_a_byte", "kernel a(x: i32[22], z: i8[64]) -> y: i32[64] { y[i] = x[abs(z[i] % 31 - 9)] }"},
      {"condition", "kernel a(w: i32[16]) -> y: i32[16] { y[i] = if(8*int(w[i]) < 100, 1, 2) }"},
      {"converted", "kernel a(w: i32[16]) -> y: f64[16] { y[i] = f64(8*int(w[i]*100000007)) }"},
      {"divided", "kernel a(x: f32[9], z: i32[16]) -> y: f32[16] { y[i] = x[clamp(z[i] / 3 * 5, 0, 8)] }"},
      {"product_of_two",
       "kernel a(x: f32[9], z: i32[16], w: i8[16]) -> y: f32[16] { y[i] = x[clamp(int(z[i]) * int(w[i]), 0, 8)] }"},
      {"reduced_before_what_it_indexes",
       R"(kernel a(x: f32[31], z: i32[31]) -> y: f32[31] {
         a: i32[31]
         a[i] = max(r < 31) z[r]
         b: f32[31]
         b[i] = sum(r < 31) x[r]
         y[i] = b[clamp(a[i], 0, 30)]
       })"},
      {"beyond_32_bits_before_the_last_step",
       "kernel a(x: f32[12], a: i32[5]) -> y: f32[5, 8] { y[m, i] = x[4*clamp(a[m], 700000000, 700000001) + i - "
       "2800000000] }"},
      {"beyond_32_bits_where_it_is_padded",
       "kernel a(x: f32[12], a: i32[5]) -> y: f32[5, 12] { y[m, i] = pad(x[4*clamp(a[m], 350000000, 700000000) + i - "
       "2800000000], 0) }"},
      {"divided_beyond_32_bits",
       "kernel a(a: i32[40], x: f32[128]) -> y: f32[40] { y[i] = x[clamp(max(min(a[i], 100), 50) * 40000000 - "
       "2100000000, -100, 381) / 3 % 128] }"},
      {"rounded_from_a_float",
       "kernel a(x: f32[16], t: f32[5]) -> y: f32[16] { y[i] = t[clamp(int(x[i] * 8), 0, 4)] }"},
      {"rounded_from_a_huge_float",
       "kernel a(x: f64[16], t: f32[5]) -> y: f32[16] { y[i] = t[clamp(int(x[i] * 1e30) + 2, 0, 4)] }"},
  };
  return kernels;
}

}  // namespace hone
