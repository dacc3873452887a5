// Schedules by hand in which the threads of a warp multiply matrices together.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

namespace hone {

// An instruction of a warp and the product that it is for.
struct WarpCase {
  const char *instruction, *rows_type, *columns_type;
  int steps;
  const char* accuracy = "strict";  // at which kernels may be computed so
};
inline constexpr WarpCase kWarpCases[] = {
    {"mma_m16n8k16_f16", "f16", "f16", 16},       {"mma_m16n8k16_bf16", "bf16", "bf16", 16},
    {"mma_m16n8k32_i8", "i8", "i8", 32},          {"mma_m16n8k32_u8", "u8", "u8", 32},
    {"mma_m16n8k32_u8_i8", "u8", "i8", 32},       {"mma_m16n8k32_i8_u8", "i8", "u8", 32},
    {"mma_m16n8k8_tf32", "f32", "f32", 8, "fast"}};

// Its product of matrices and a bias, whose sum is the stage "acc".
inline std::string WarpMatmul(const WarpCase& of, int m, int n, int k) {
  if (std::string_view(of.rows_type) == of.columns_type)
    return fmt::format("matmul(M={},N={},K={},dtype={},accuracy={})+bias", m, n, k, of.rows_type, of.accuracy);
  return fmt::format(
      "kernel mixed(a: {}[M, K], b: {}[K, N], bias: i32[N]) -> y: i32[M, N] where M={}, N={}, K={} "
      "{{ acc: i32[M, N] acc[m, n] = sum(k) a[m, k] * b[k, n]  y[m, n] = acc[m, n] + bias[n] }}",
      of.rows_type, of.columns_type, m, n, k);
}

// Blocks of 32×32 elements, two warps of 32×16 side by side, 32 steps of k at a time in block storage, rows apart by
// eight elements more, so that no two of a fragment lie in one bank. %i is the instruction, %k its steps.
inline std::string WarpSchedule(std::string instruction, int steps, int tile_steps = 32) {
  std::string text = R"(
split y.m 2 2 8
split y.n 2 2 4 2
reorder y.m.0 y.n.0 y.n.1 y.m.3 y.n.3 y.m.1 y.m.2 y.n.2 y.n.4
bind y.m.0 block.y
bind y.n.0 block.x
bind y.n.1 thread.y
fuse y.m.3 y.n.3
bind y.m.3+n.3 thread.x
unroll y.m.1 y.m.2 y.n.2
vectorize y.n.4
compute_at acc y.n.1
store acc registers
cache_read a -> as for acc block [m, k+8]
cache_read b -> bs for acc block [k, n+8]
split acc.k %t %k
split acc.m 16
split acc.n 8
reorder acc.k.0 acc.k.1 acc.m.0 acc.n.0 acc.k.2 acc.m.1 acc.n.1
unroll acc.k.1 acc.m.0 acc.n.0
compute_at as acc.k.0
compute_at bs acc.k.0
split as.m 2
split as.k 32
reorder as.m.0 as.k.0 as.m.1 as.k.1
bind as.m.1 thread.y
bind as.k.1 thread.x
split bs.k 2
split bs.n 32
reorder bs.k.0 bs.n.0 bs.k.1 bs.n.1
bind bs.k.1 thread.y
bind bs.n.1 thread.x
tensorize %i acc.k.2 acc.m.1 acc.n.1
)";
  auto put = [&](const std::string& what, const std::string& with) {
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what)) text.replace(at, 2, with);
  };
  put("%i", instruction);
  put("%k", std::to_string(steps));
  put("%t", std::to_string(tile_steps / steps));
  return text;
}

// Blocks of 128×64 elements, two groups of warps below each other, 32 steps of k at a time in block storage, as blocks
// of eight by eight elements with room for a row after each. %i is the instruction.
inline std::string GroupSchedule(std::string instruction = "wgmma_m64n64k16_f16") {
  std::string text = R"(
split y.m 2 4 2 8
split y.n 8 4 2
reorder y.m.0 y.n.0 y.m.1 y.m.2 y.m.4 y.n.2 y.m.3 y.n.1 y.n.3
bind y.m.0 block.y
bind y.n.0 block.x
bind y.m.1 thread.y
fuse y.m.2 y.m.4 y.n.2
bind y.m.2+m.4+n.2 thread.x
unroll y.m.3 y.n.1
vectorize y.n.3
compute_at acc y.m.1
store acc registers
cache_read a -> as for acc block [m/8, k/8, m%8+1, k%8]
cache_read b -> bs for acc block [k/8, n/8, k%8+1, n%8]
split acc.k 2 16
split acc.m 64
split acc.n 64
reorder acc.k.0 acc.k.1 acc.m.0 acc.n.0 acc.k.2 acc.m.1 acc.n.1
unroll acc.k.1 acc.m.0 acc.n.0
compute_at as acc.k.0
compute_at bs acc.k.0
split as.k 8
fuse as.m as.k.0
split as.m+k.0 2 128
bind as.m+k.0.1 thread.y
bind as.m+k.0.2 thread.x
vectorize as.k.1
split bs.n 8
fuse bs.k bs.n.0
split bs.k+n.0 2 128
bind bs.k+n.0.1 thread.y
bind bs.k+n.0.2 thread.x
vectorize bs.n.1
tensorize %i acc.k.2 acc.m.1 acc.n.1
)";
  text.replace(text.find("%i"), 2, instruction);
  return text;
}

// The same of 128×128 elements, 64 steps of k at a time, in rows of 128 bytes that are swizzled.
inline std::string SwizzledGroupSchedule() {
  std::string text = GroupSchedule("wgmma_m64n128k16_f16");
  for (const auto& [what, with] : {std::pair("[m/8, k/8, m%8+1, k%8]", "[k/64, m, k%64 swizzled]"),
                                   {"[k/8, n/8, k%8+1, n%8]", "[n/64, k, n%64 swizzled]"},
                                   {"split acc.k 2 16", "split acc.k 4 16"},
                                   {"split acc.n 64", "split acc.n 128"},
                                   {"split y.n 8 4 2", "split y.n 16 4 2"}})
    text.replace(text.find(what), std::string_view(what).size(), with);
  return text;
}

}  // namespace hone
