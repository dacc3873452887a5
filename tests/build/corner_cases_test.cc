// Kernels and schedules, each the shortest that shows a way in which generated code can go wrong: all elements against
// the reference, nothing touched outside the buffers.
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "tests/support/run_cases.h"
#include "tests/support/run_kernel.h"

namespace hone {
namespace {

struct Corner {
  std::string name;  // what could go wrong
  std::string kernel;
  std::string schedule;  // "": the default
};

const std::vector<Corner>& Corners() {
  static const std::vector<Corner> kCorners = {
      {"two_fills_of_one_load", "kernel a(x: f32[3]) -> y: f32[8] { y[i] = pad(x[2*i - 1], 0) - pad(x[2*i - 1], 2) }",
       ""},
      {"splats_of_two_widths",
       R"(kernel a(x: f32[]) -> y: f32[4, 13] {
         t: f32[13]
         t[i] = sum(k < 8, l < 4) pad(x[], -1)
         y[i, j] = sum(k < 4) max(x[], t[j]) * f32(i32(pad(x[], 2) * 10))
       })",
       ""},
      {"registers_of_masked_lanes", "depthwise_conv2d(N=2,C=3,H=9,W=7,R=5,S=3,stride=2,pad=[2,1],const=1)",
       "vectorize xp.w0\n"},
      {"vectors_wider_than_their_data", "gelu(M=2,N=23)",
       "cache_read x -> r1 for y workspace [n%5, m/7, n/5, m%7]\nvectorize r1.n\n"},
      {"tiles_whose_hull_is_wider", "matmul(M=3,N=4,K=9,dtype=i8)+bias+relu",
       "fuse y.m y.n\nsplit y.m+n 2 4 3\nfuse y.m+n.1 y.m+n.2\ncompute_at acc y.m+n.1+m+n.2\n"},
      {"constants_read_before_their_start",
       "kernel a(const x: f32[16, 16]) -> y: f32[16, 3] { y[i, j] = pad(x[2*j - 1, i - 3], -1) }",
       "cache_read x -> r1 for y const\ncache_read r1 -> r2 for y per_worker [d1/2, d0, d1%2]\ncompute_at r2 y.i\n"},
      {"padding_alone",
       R"(kernel a(const x: f32[2, 2, 3]) -> y: f32[3] {
         t: f32[2, 2, 2]
         t[i, j, k] = -x[k, 1 - i, 2*j]
         y[i] = sum(k < 4, l < 2) pad(t[l + 2, 2*k + 2, k % 2], -1)
       })",
       "cache_read x -> r for t const [k, d2/7, d1, d2%7]\n"},
      {"tiles_inside_what_they_are_made_of", "dense(M=5,N=1,K=7)",
       "rewrite im2col y x r m k\nsplit r.m 2\nunroll r.m.1\nreorder r.k r.m.1 r.m.0\ntail r.m shift\n"},
      {"lanes_that_are_never_on", "kernel a(x: f32[3, 27]) -> y: f32[3, 27] { y[i, j] = x[i, j] * x[i, j] }",
       "split y.j 19\nvectorize y.j.1\n"},
      {"wide_lanes_that_are_never_on",
       "kernel a(x: f64[3, 27]) -> y: f64[3, 27] { t: f64[3, 27]\n t[i, j] = x[i, j] + 1.0\n y[i, j] = t[i, j] * x[i, "
       "j] }",
       "compute_at t y.i\nstore t output\nsplit t.j 9\nvectorize t.j.1\nsplit y.j 13\nvectorize y.j.1\n"},
      {"kept_parts_that_run_over", "softmax(M=5,N=37)",
       "inline scale\ncompute_at top y.m\ncompute_at total y.m\nsplit total.n 8\ncompute_at e total.n.0 keep y.m\n"
       "vectorize e.n\nsplit y.n 16\nvectorize y.n.1\nparallel y.m\n"},
      {"kept_rows_together", "softmax(M=6,N=29)",
       "inline scale\nrfactor total n 4 -> lanes\nsplit y.m 3\nreorder y.m.0 y.n y.m.1\nunroll y.m.1\n"
       "compute_at top y.m.0\ncompute_at total y.m.0\ncompute_at lanes y.m.0\nreorder lanes.n lanes.m lanes.l\n"
       "vectorize lanes.l\ncompute_at e lanes.n keep y.m.0\nunroll e.m\nvectorize e.n\n"},
      // The sum wants a part of what is kept; who comes later wants all.
      {"kept_beyond_what_a_condition_admits",
       R"(kernel a(x: f32[7, 19]) -> y: f32[7, 19] {
         e: f32[7, 19]
         e[i, j] = exp(x[i, j])
         t: f32[7]
         t[i] = sum(j < 19) if(j < i + 3, e[i, j], 0)
         y[i, j] = e[i, j] / (1 + t[i])
       })",
       "compute_at t y.i\ncompute_at e t.j keep y.i\n"},
      {"kept_at_the_root",
       "kernel a(x: f32[40]) -> y: f32[40] { e: f32[40]\n e[j] = exp(x[j])\n t: f32[1]\n "
       "t[i] = sum(j < 40) e[j]\n y[j] = e[39 - j] / t[0] }",
       "split y.j 40\ncompute_at t y.j.0\nsplit t.j 8\ncompute_at e t.j.0 keep y.j.0\nvectorize e.j\n"},
      {"peeled_on_two_axes", "matmul(M=23,N=37,K=13)+bias+relu",
       "split y.m 4\nsplit y.n 16\nreorder y.m.0 y.n.0 y.m.1 y.n.1\ncompute_at acc y.n.0\nstore acc registers\n"
       "reorder acc.k acc.m acc.n\nvectorize y.n.1\nvectorize acc.n\nunroll y.m.1\nunroll acc.m\ntail y.m peel\n"
       "tail y.n peel\nparallel y.m.0\n"},
      {"peeled_inside_a_peeled_nest", "matmul(M=23,N=37,K=13)+bias",
       "split y.m 6\nreorder y.m.0 y.m.1 y.n\ncompute_at acc y.m.0\nsplit acc.m 4\nsplit acc.n 8\n"
       "reorder acc.m.0 acc.n.0 acc.k acc.m.1 acc.n.1\nregister_tile acc.n.0\nunroll acc.m.1\nvectorize acc.n.1\n"
       "unroll y.m.1\ntail y.m peel\ntail acc.m peel\ntail acc.n peel\n"},
      {"first_trips_that_are_not_made", "conv2d(C=3,H=5,W=6,O=4,R=3,S=3,pad=1,const=1)",
       "rewrite cache_write y t\nrewrite trim_padding t xp whole r s\nsplit t.w0 4\n"
       "reorder t.n t.o t.h t.r t.w0.0 t.c t.s t.w0.1\nregister_tile t.w0.0\nunroll t.w0.1\n"},
      {"reads_of_a_piece_that_is_not_there",
       "kernel a(m: bool[7], z: f32[64, 64]) -> y: f32[64, 64] { y[i, j] = if(if(i < 7, m[i], false), z[i, j], 0.0) }",
       ""},
      {"reads_of_each_piece_by_the_loop_inside",
       "kernel a(m: bool[3], n: bool[61], a: bool[64, 16]) -> y: bool[64, 16] { y[i, j] = if(i < 3, m[i], n[i - 3]) or "
       "a[i, j] }",
       ""},
      {"neighbours_that_are_read_again",
       R"(kernel a(x: f32[9, 70], h: f16[9, 70], b: u8[9, 70]) -> y: f32[18, 128], z: f16[9, 53], w: u8[9, 67], v: f32[9, 61] {
         y[i, j] = x[i / 2, j / 2 + 1]
         z[i, j] = h[i, j / 4]
         w[i, j] = b[i, (j + 3) / 2]
         v[i, j] = x[i, j / 8 * 2 + j % 2] + x[i, 69 - j / 2] + x[i, j / 3]
       })",
       ""},
      {"lengths_that_are_read",
       R"(kernel a(x: f32[5, 9], length: i32[5]) -> y: f32[5] {
         y[b] = sum(k) if(i32(k) < length[b] and k > 1 and 3*b + k < 19, x[b, k], 0)
       })",
       ""},
      {"windows_of_nothing_but_padding", "conv2d(C=3,H=2,W=3,O=4,R=3,S=3,pad=4,const=1)",
       "rewrite cache_write y t\nrewrite trim_padding t xp whole r s\nreorder t.n t.o t.h t.w0 t.r t.s t.c\n"},
      {"quantised_and_saturated",
       R"(kernel a(x: f32[37], h: f16[37]) -> y: u8[37], z: i8[37], w: u8[37] {
         y[i] = u8(round(x[i] * 300) + 128)
         z[i] = i8(round(x[i] * 300))
         w[i] = u8(h[i] * 300)
       })",
       ""},
      {"cut_off_at_both_ends",
       R"(kernel a(x: f32[37], d: f64[37]) -> y: i32[37], z: i32[37], n: i8[37], u: u8[37], m: i32[37], e: i32[37], r: i32[37], h: i8[37] {
         y[i] = i32(x[i] * 1e10)
         z[i] = i32(d[i] * 1e10)
         n[i] = i8(log(x[i]) * 100)
         u[i] = u8(log(x[i]) * 100)
         m[i] = i32(log(x[i]) * 1e9)
         e[i] = i32(x[i] / (x[i] - x[i]))
         r[i] = i32(round(x[i] * 1e10))
         h[i] = i8(round(floor(x[i] * 300) + 0.5))
       })",
       ""},
      {"bytes_without_a_sign",
       R"(kernel a(x: u8[37], z: u8[37], v: i8[37]) -> y: u8[37], w: bool[37], s: i32[], t: u8[], n: u8[37], f: f32[37] {
         y[i] = max(min(x[i], 200), z[i])
         w[i] = x[i] < z[i]
         s[] = sum(k) x[k] * v[k]
         t[] = max(k) x[k]
         n[i] = u8(x[i] * v[i] - 1000)
         f[i] = float(x[i]) / float(1 + abs(v[i]))
       })",
       ""},
      {"roundings_of_every_pair",
       R"(kernel a(x: f32[19], d: f64[19], h: f16[19], b: bf16[19], n: i32[19]) -> p: f16[19], q: bf16[19], r: f16[19], s: bf16[19], t: f16[19], u: bf16[19], v: f64[19], w: bf16[19] {
         p[i] = f16(x[i] * 1000)
         q[i] = bf16(x[i] * 1000)
         r[i] = f16(d[i] * 1e6)
         s[i] = bf16(d[i] * 1e6)
         t[i] = f16(b[i])
         u[i] = bf16(h[i])
         v[i] = f64(h[i]) + f64(b[i])
         w[i] = bf16(n[i] * 12345)
       })",
       ""},
      {"halves_too_small_to_be_precise",
       R"(kernel a(x: f32[64], h: f16[8, 64]) -> y: f32[64], z: f16[8, 64], p: f32[8, 64], w: f32[64], b: bool[64] {
         e: f16[8, 64]
         y[i] = f32(f16(exp(x[i] * 20.0)))
         e[i, j] = f16(exp(h[i, j] * 16.0 - 16.0))
         z[i, j] = f16(e[i, j] * 100.0)
         p[i, j] = log(f32(f16(exp(h[i, j] * 8.0 - max(k) (h[i, k] * 8.0)))) + 0.000000001)
         w[i] = f32(f16(x[i] * 0.0001)) * 10000.0
         b[i] = bool(f16(x[i] * 1e-30))
       })",
       ""},
      {"single_precision_on_the_way",
       R"(kernel a(d: f64[64], n: i32[64]) -> y: f64[64], r: f64[64], e: bool[64], w: i32[64], f: i32[64] {
         y[i] = f64(f32(d[i]))
         r[i] = f64(sqrt(f32(n[i]) + 200.0))
         e[i] = f64(f32(d[i])) == d[i]
         w[i] = i32(f32(n[i] * 100000007))
         f[i] = i32(floor(f32(n[i] * 100000007)))
       })",
       ""},
      {"rows_of_halves",
       R"(kernel a(x: f16[5, 37]) -> y: f16[5], z: bf16[37, 5] {
         y[i] = max(k) x[i, k]
         z[j, i] = bf16(if(f32(x[i, j]) > y[i] / 2, x[i, j], 0.1))
       })",
       ""},
      {"sums_without_axes_inside_an_expression",
       "kernel a(x: f32[9, 9]) -> y: f32[9, 9] with accuracy=relaxed { y[i, j] = x[i, j] * (sum(r < 3, s < 3) x[r, s]) "
       "}",
       ""},
      {"hints_far_beyond_the_end", "matmul(M=23,N=37,K=13)+bias",
       "split y.n 16\nvectorize y.n.1\nprefetch bias for y 1048576\nsplit acc.n 16\nreorder acc.k acc.m acc.n.0 "
       "acc.n.1\n"
       "vectorize acc.n.1\nprefetch b for acc 1048576\nprefetch a for acc 1\n"},
      // Sums of whole numbers over the lanes of one vector: x86 has instructions for those of bytes.
      {"products_of_bytes_into_one_sum",
       R"(kernel a(u: u8[5, 64], i: i8[64], j: i8[5, 64]) -> y: i32[5], z: i32[5], v: i32[5], w: i32[5], s: i32[5] {
         y[m] = sum(k < 16) i32(u[m, k]) * i32(i[k])
         z[m] = sum(k < 64) i32(i[k]) * i32(u[m, k])
         v[m] = sum(k < 8) i32(u[m, k]) * i32(u[4 - m, k])
         w[m] = sum(k < 32) i32(j[m, k]) * i32(i[k])
         s[m] = sum(k < 23) i32(u[m, k + 3]) * i32(j[m, k])
       })",
       "vectorize y.k\nvectorize z.k\nvectorize v.k\nvectorize w.k\nvectorize s.k\n"},
      {"differences_of_bytes_into_one_sum",
       R"(kernel a(u: u8[5, 64], v: u8[64], j: i8[5, 64]) -> y: i32[5], z: i32[5], w: i32[5], s: i32[5] {
         y[m] = sum(k < 16) abs(i32(u[m, k]) - i32(v[k]))
         z[m] = sum(k < 64) abs(i32(u[m, k]) - i32(v[k]))
         w[m] = sum(k < 32) i32(u[m, k])
         s[m] = max(k < 16) i32(j[m, k])
       })",
       "vectorize y.k\nvectorize z.k\nvectorize w.k\nvectorize s.k\n"},
  };
  return kCorners;
}

void PrintTo(const Corner& corner, std::ostream* out) { *out << corner.kernel; }

class CornerCase : public testing::TestWithParam<Corner> {};

TEST_P(CornerCase, ComputesTheReference) {
  for (const Target& target : TestTargets()) {
    KernelCase kernel(GetParam().kernel, 1);
    const RunOutcome outcome = BuildAndRun(kernel, GetParam().schedule, target);
    EXPECT_EQ(outcome.failure, "") << PrintTarget(target);
    EXPECT_EQ(outcome.refusal, "") << PrintTarget(target);
  }
}

INSTANTIATE_TEST_SUITE_P(All, CornerCase, testing::ValuesIn(Corners()),
                         [](const testing::TestParamInfo<Corner>& info) { return info.param.name; });

}  // namespace
}  // namespace hone
