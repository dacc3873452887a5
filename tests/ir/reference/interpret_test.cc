#include "ir/reference/interpret.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "ir/language/parse.h"
#include "ir/reference/accuracy.h"
#include "tests/support/kernel_inputs.h"
#include "tests/support/operation_samples.h"

namespace hone::interpret_test {
namespace {

Kernel Parse(std::string_view text) {
  Result<Kernel> kernel = ParseKernel(text);
  if (!kernel) ADD_FAILURE() << text << "\n" << kernel.error().Text();
  return kernel ? *kernel : Kernel{};
}

// A kernel with random inputs, and the value of each output element by a loop written here.
class Case {
 public:
  explicit Case(const std::string& text) : text_(text), kernel_(Parse(text)), rng_(7), inputs_(kernel_, rng_) {}

  const float* in(size_t i) { return inputs_.As<float>(i); }
  const int8_t* bytes(size_t i) { return inputs_.As<int8_t>(i); }
  const int32_t* ints(size_t i) { return inputs_.As<int32_t>(i); }

  void Expect(const std::vector<double>& wanted) {
    SCOPED_TRACE(text_);
    std::vector<Reference> got = WholeReference(kernel_, inputs_);
    ASSERT_EQ(got.size(), wanted.size());
    std::vector<OperandView> views = inputs_.Views();
    Interpreter interpreter(kernel_, views);
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_NEAR(got[i].value, wanted[i], 1e-12 * std::max(1.0, std::abs(wanted[i]))) << "element " << i;
      EXPECT_GE(got[i].magnitude, IsFloat(kernel_.tensors.back().dtype) ? 0.999999 * std::abs(got[i].value) : 0);
      Reference one = interpreter.At(0, static_cast<int64_t>(i));
      EXPECT_EQ(one.value, got[i].value);
      EXPECT_EQ(one.magnitude, got[i].magnitude);
    }
  }

 private:
  std::string text_;
  Kernel kernel_;
  Rng rng_;
  KernelInputs inputs_;
};

double Relu(double x) { return std::max(x, 0.0); }
double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double Gelu(double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }
double GeluTanh(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double Relu6(double x) { return std::min(std::max(x, 0.0), 6.0); }
double Hardswish(double x) { return x * Relu6(x + 3) / 6; }

TEST(Interpret, Matmul) {
  for (int ta : {0, 1})
    for (int tb : {0, 1}) {
      const int M = 5, N = 7, K = 13;
      Case c("matmul(M=5,N=7,K=13,ta=" + std::to_string(ta) + ",tb=" + std::to_string(tb) + ")+bias+gelu");
      std::vector<double> y;
      for (int m = 0; m < M; ++m)
        for (int n = 0; n < N; ++n) {
          double sum = 0;
          for (int k = 0; k < K; ++k)
            sum += double(c.in(0)[ta ? k * M + m : m * K + k]) * double(c.in(1)[tb ? n * K + k : k * N + n]);
          y.push_back(Gelu(sum + double(c.in(2)[n])));
        }
      c.Expect(y);
    }
}

TEST(Interpret, LongReductionsRunInBlocks) {
  for (int K : {255, 256, 257, 1000}) {
    Case c("matmul(M=3,N=2,K=" + std::to_string(K) + ")");
    std::vector<double> y;
    for (int m = 0; m < 3; ++m)
      for (int n = 0; n < 2; ++n) {
        double sum = 0;
        for (int k = 0; k < K; ++k) sum += double(c.in(0)[m * K + k]) * double(c.in(1)[k * 2 + n]);
        y.push_back(sum);
      }
    c.Expect(y);
  }
}

TEST(Interpret, HugeReductionSpaceNeedsNoTable) {
  // 300·300 points, transposed in one operand: neither linear nor small enough for a table.
  Case c(
      "kernel k(x: f32[A, B], y: f32[B, A]) -> z: f32[2] where A=300, B=300 { z[i] = sum(a, b) x[a, b] * y[b, a] * "
      "float(i + a) }");
  std::vector<double> z;
  for (int i = 0; i < 2; ++i) {
    double sum = 0;
    for (int a = 0; a < 300; ++a)
      for (int b = 0; b < 300; ++b) sum += double(c.in(0)[a * 300 + b]) * double(c.in(1)[b * 300 + a]) * (i + a);
    z.push_back(sum);
  }
  c.Expect(z);
}

TEST(Interpret, BatchMatmulAndDense) {
  Case batch("batch_matmul(B=3,M=5,N=7,K=2,tb=1)+add+mul");
  std::vector<double> y;
  for (int b = 0; b < 3; ++b)
    for (int m = 0; m < 5; ++m)
      for (int n = 0; n < 7; ++n) {
        double sum = 0;
        for (int k = 0; k < 2; ++k)
          sum += double(batch.in(0)[(b * 5 + m) * 2 + k]) * double(batch.in(1)[(b * 7 + n) * 2 + k]);
        int o = (b * 5 + m) * 7 + n;
        y.push_back((sum + double(batch.in(2)[o])) * double(batch.in(3)[o]));
      }
  batch.Expect(y);

  Case dense("dense(M=3,N=5,K=11)+bias+relu");
  y.clear();
  for (int m = 0; m < 3; ++m)
    for (int n = 0; n < 5; ++n) {
      double sum = 0;
      for (int k = 0; k < 11; ++k) sum += double(dense.in(0)[m * 11 + k]) * double(dense.in(1)[n * 11 + k]);
      y.push_back(Relu(sum + double(dense.in(2)[n])));
    }
  dense.Expect(y);
}

// Operands: x, weights, scales, zero points.
TEST(Interpret, NarrowWeightsStandForWhatTheirScalesMakeOfThem) {
  Case by_row("dense(M=2,N=3,K=10,weights=i8)+relu");
  std::vector<double> y;
  for (int m = 0; m < 2; ++m)
    for (int n = 0; n < 3; ++n) {
      double sum = 0;
      for (int k = 0; k < 10; ++k) sum += double(by_row.in(0)[m * 10 + k]) * by_row.bytes(1)[n * 10 + k];
      y.push_back(Relu(sum * double(by_row.in(2)[n])));
    }
  by_row.Expect(y);

  // Without zero points u8 stands for numbers around 128, and u4 for numbers around 8; the first of two in a byte is in
  // its lower half.
  Case bytes("dense(M=2,N=3,K=12,weights=u8,block=4)"), halves("dense(M=2,N=3,K=12,weights=u4,block=4,zero=1)");
  std::vector<double> of_bytes, of_halves;
  for (int m = 0; m < 2; ++m)
    for (int n = 0; n < 3; ++n) {
      double bytes_sum = 0, halves_sum = 0;
      for (int k = 0; k < 12; ++k) {
        const int b = n * 3 + k / 4;
        const auto byte = [](int8_t bits) { return int{static_cast<uint8_t>(bits)}; };
        const int half = byte(halves.bytes(1)[n * 6 + k / 2]) >> (k % 2 * 4) & 15;
        bytes_sum +=
            double(bytes.in(0)[m * 12 + k]) * (byte(bytes.bytes(1)[n * 12 + k]) - 128) * double(bytes.in(2)[b]);
        halves_sum += double(halves.in(0)[m * 12 + k]) * (half - byte(halves.bytes(3)[b])) * double(halves.in(2)[b]);
      }
      of_bytes.push_back(bytes_sum);
      of_halves.push_back(halves_sum);
    }
  bytes.Expect(of_bytes);
  halves.Expect(of_halves);
}

TEST(Interpret, IntegerMatmulIsExact) {
  Case c("matmul(M=3,N=4,K=300,dtype=i8)+bias+relu");
  std::vector<double> y;
  for (int m = 0; m < 3; ++m)
    for (int n = 0; n < 4; ++n) {
      int32_t sum = 0;
      for (int k = 0; k < 300; ++k) sum += int32_t(c.bytes(0)[m * 300 + k]) * int32_t(c.bytes(1)[k * 4 + n]);
      y.push_back(std::max(sum + c.ints(2)[n], 0));
    }
  c.Expect(y);
}

struct Conv {
  int N, C, H, W, O, R, S, sh, sw, pt, pl, pb, pr, dh, dw, G;
  int OH() const { return (H + pt + pb - (R - 1) * dh - 1) / sh + 1; }
  int OW() const { return (W + pl + pr - (S - 1) * dw - 1) / sw + 1; }
  std::string Text(const std::string& name) const {
    std::string text = name + "(N=" + std::to_string(N) + ",C=" + std::to_string(C) + ",H=" + std::to_string(H) +
                       ",W=" + std::to_string(W) + ",R=" + std::to_string(R) + ",S=" + std::to_string(S) + ",stride=[" +
                       std::to_string(sh) + "," + std::to_string(sw) + "],pad=[" + std::to_string(pt) + "," +
                       std::to_string(pl) + "," + std::to_string(pb) + "," + std::to_string(pr) + "],dilation=[" +
                       std::to_string(dh) + "," + std::to_string(dw) + "]";
    if (name == "conv2d") text += ",O=" + std::to_string(O) + ",groups=" + std::to_string(G);
    return text + ")";
  }
  double At(const float* x, const float* w, int n, int o, int oh, int ow) const {
    double sum = 0;
    int per = C / G, group = o / (O / G);
    for (int c = 0; c < per; ++c)
      for (int r = 0; r < R; ++r)
        for (int s = 0; s < S; ++s) {
          int h = oh * sh + r * dh - pt, v = ow * sw + s * dw - pl;
          if (h < 0 || h >= H || v < 0 || v >= W) continue;
          sum += double(x[((n * C + group * per + c) * H + h) * W + v]) * double(w[((o * per + c) * R + r) * S + s]);
        }
    return sum;
  }
};

TEST(Interpret, Convolutions) {
  for (const Conv& v :
       {Conv{1, 3, 7, 5, 4, 3, 3, 1, 1, 0, 0, 0, 0, 1, 1, 1}, Conv{2, 3, 7, 9, 5, 3, 1, 2, 3, 1, 0, 1, 0, 1, 1, 1},
        Conv{1, 2, 9, 9, 3, 3, 3, 1, 1, 1, 2, 0, 1, 2, 2, 1}, Conv{1, 5, 3, 3, 7, 1, 1, 2, 2, 0, 0, 0, 0, 1, 1, 1},
        Conv{1, 6, 5, 7, 9, 3, 3, 1, 2, 1, 1, 1, 1, 1, 2, 3}, Conv{1, 4, 5, 7, 4, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 4},
        Conv{1, 1, 1, 1, 1, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1}, Conv{1, 31, 5, 5, 3, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1}}) {
    Case c(v.Text("conv2d") + "+bias+add+hardswish");
    std::vector<double> y;
    for (int n = 0; n < v.N; ++n)
      for (int o = 0; o < v.O; ++o)
        for (int h = 0; h < v.OH(); ++h)
          for (int w = 0; w < v.OW(); ++w)
            y.push_back(Hardswish(v.At(c.in(0), c.in(1), n, o, h, w) + double(c.in(2)[o]) + double(c.in(3)[y.size()])));
    c.Expect(y);
  }
}

TEST(Interpret, DepthwiseConvolution) {
  Conv v{2, 3, 9, 7, 3, 5, 3, 2, 1, 2, 1, 2, 1, 1, 1, 3};
  Case c(v.Text("depthwise_conv2d") + "+bias+silu");
  std::vector<double> y;
  for (int n = 0; n < v.N; ++n)
    for (int o = 0; o < v.O; ++o)
      for (int h = 0; h < v.OH(); ++h)
        for (int w = 0; w < v.OW(); ++w) {
          double z = v.At(c.in(0), c.in(1), n, o, h, w) + double(c.in(2)[o]);
          y.push_back(z * Sigmoid(z));
        }
  c.Expect(y);
}

// Output extents and windows as PyTorch defines them, with ceil_mode.
void ExpectPool(int H, int W, int R, int S, int sh, int sw, int ph, int pw, int ceil) {
  auto extent = [&](int in, int window, int stride, int pad) {
    int out = (in + 2 * pad - window + (ceil ? stride - 1 : 0)) / stride + 1;
    if (ceil && (out - 1) * stride >= in + pad) --out;
    return out;
  };
  int OH = extent(H, R, sh, ph), OW = extent(W, S, sw, pw);
  std::string attributes = "(C=2,H=" + std::to_string(H) + ",W=" + std::to_string(W) + ",R=" + std::to_string(R) +
                           ",S=" + std::to_string(S) + ",stride=[" + std::to_string(sh) + "," + std::to_string(sw) +
                           "],pad=[" + std::to_string(ph) + "," + std::to_string(pw) +
                           "],ceil=" + std::to_string(ceil) + ")";
  Case largest("maxpool2d" + attributes), average("avgpool2d" + attributes + "+relu");
  std::vector<double> top, mean;
  for (int c = 0; c < 2; ++c)
    for (int oh = 0; oh < OH; ++oh)
      for (int ow = 0; ow < OW; ++ow) {
        double best = -std::numeric_limits<double>::infinity(), sum = 0;
        int count = 0;
        for (int h = std::max(oh * sh - ph, 0); h < std::min(oh * sh - ph + R, H); ++h)
          for (int w = std::max(ow * sw - pw, 0); w < std::min(ow * sw - pw + S, W); ++w, ++count) {
            best = std::max(best, double(largest.in(0)[(c * H + h) * W + w]));
            sum += double(average.in(0)[(c * H + h) * W + w]);
          }
        top.push_back(best);
        mean.push_back(Relu(sum / count));
      }
  largest.Expect(top);
  average.Expect(mean);
}

TEST(Interpret, Pooling) {
  ExpectPool(7, 9, 3, 3, 2, 2, 1, 1, 0);
  ExpectPool(8, 7, 3, 2, 2, 2, 0, 0, 1);
  ExpectPool(8, 10, 3, 4, 2, 3, 1, 2, 1);
  ExpectPool(5, 5, 2, 2, 3, 3, 1, 0, 1);
  ExpectPool(3, 31, 3, 1, 1, 5, 2, 0, 1);
  ExpectPool(1, 1, 1, 1, 1, 1, 0, 0, 0);
}

TEST(Interpret, GlobalAveragePool) {
  Case c("global_avgpool(N=2,C=3,H=5,W=7)+bias");
  std::vector<double> y;
  for (int n = 0; n < 6; ++n) {
    double sum = 0;
    for (int i = 0; i < 35; ++i) sum += double(c.in(0)[n * 35 + i]);
    y.push_back(sum / 35 + double(c.in(1)[n % 3]));
  }
  c.Expect(y);
}

TEST(Interpret, Softmax) {
  for (int N : {1, 13, 300}) {
    Case c("softmax(M=5,N=" + std::to_string(N) + ")");
    std::vector<double> y;
    for (int m = 0; m < 5; ++m) {
      const float* x = c.in(0) + m * N;
      double top = *std::max_element(x, x + N), total = 0;
      for (int n = 0; n < N; ++n) total += std::exp(double(x[n]) - top);
      for (int n = 0; n < N; ++n) y.push_back(std::exp(double(x[n]) - top) / total);
    }
    c.Expect(y);
  }
}

TEST(Interpret, Normalisations) {
  const int M = 3, N = 17;
  Case layer("layer_norm(M=3,N=17,eps=1e-3)"), rms("rms_norm(M=3,N=17)");
  std::vector<double> a, b;
  for (int m = 0; m < M; ++m) {
    const float *x = layer.in(0) + m * N, *z = rms.in(0) + m * N;
    double mean = 0, variance = 0, square = 0;
    for (int n = 0; n < N; ++n) mean += double(x[n]) / N, square += double(z[n]) * double(z[n]) / N;
    for (int n = 0; n < N; ++n) variance += (double(x[n]) - mean) * (double(x[n]) - mean) / N;
    for (int n = 0; n < N; ++n) {
      a.push_back((double(x[n]) - mean) / std::sqrt(variance + 1e-3) * double(layer.in(1)[n]) + double(layer.in(2)[n]));
      b.push_back(double(z[n]) / std::sqrt(square + 1e-5) * double(rms.in(1)[n]));
    }
  }
  layer.Expect(a);
  rms.Expect(b);
}

TEST(Interpret, ReductionsTransposesAndElementWise) {
  Case sum("reduce_sum(M=7,N=31)"), transpose("transpose(M=5,N=7)"), add("add(M=3,N=7)+relu6"),
      mul("mul(M=3,N=7)+bias+tanh"), gelu("gelu(M=3,N=7)+gelu_tanh");
  std::vector<double> y;
  for (int m = 0; m < 7; ++m) {
    y.push_back(0);
    for (int n = 0; n < 31; ++n) y.back() += double(sum.in(0)[m * 31 + n]);
  }
  sum.Expect(y);
  y.clear();
  for (int n = 0; n < 7; ++n)
    for (int m = 0; m < 5; ++m) y.push_back(double(transpose.in(0)[m * 7 + n]));
  transpose.Expect(y);
  std::vector<double> a, b, c;
  for (int i = 0; i < 21; ++i) {
    a.push_back(Relu6(double(add.in(0)[i]) + double(add.in(1)[i])));
    b.push_back(std::tanh(double(mul.in(0)[i]) * double(mul.in(1)[i]) + double(mul.in(2)[i % 7])));
    c.push_back(GeluTanh(Gelu(double(gelu.in(0)[i]))));
  }
  add.Expect(a);
  mul.Expect(b);
  gelu.Expect(c);
}

TEST(Interpret, EveryOperationAgreesWithItself) {
  // At, Evaluate, and Evaluate in another order are one function.
  for (const std::string& text : OperationSamples()) {
    SCOPED_TRACE(text);
    Kernel kernel = Parse(text);
    Rng rng(3);
    KernelInputs inputs(kernel, rng);
    std::vector<Reference> whole = WholeReference(kernel, inputs);
    std::vector<OperandView> views = inputs.Views();
    Interpreter interpreter(kernel, views);
    for (size_t i = whole.size(); i-- > 0;) {
      Reference one = interpreter.At(0, static_cast<int64_t>(i));
      EXPECT_EQ(one.value, whole[i].value);
      EXPECT_EQ(one.magnitude, whole[i].magnitude);
    }
    EXPECT_GT(interpreter.CostPerElement(0), 0);
  }
}

TEST(Interpret, KernelLanguageIndices) {
  // Gather, guarded and padded reads, remainders, several outputs, a chain of contractions.
  Case gather(
      "kernel g(x: f32[V, D], i: i32[N]) -> y: f32[N, D] where V=6, D=3, N=9 { y[n, d] = x[clamp(i[n], 0, V - 1), d] "
      "}");
  std::vector<double> y;
  for (int n = 0; n < 9; ++n)
    for (int d = 0; d < 3; ++d) y.push_back(double(gather.in(0)[std::clamp(gather.ints(1)[n], 0, 5) * 3 + d]));
  gather.Expect(y);

  Case stencil(
      "kernel j(x: f32[N, N]) -> y: f32[N, N] where N=7 {\n"
      "  y[i, j] = if(i == 0 or j == 0 or i == N - 1 or j == N - 1, x[i, j],\n"
      "               0.25 * (x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1])) }");
  y.clear();
  const float* x = stencil.in(0);
  for (int i = 0; i < 7; ++i)
    for (int j = 0; j < 7; ++j) {
      bool edge = i == 0 || j == 0 || i == 6 || j == 6;
      y.push_back(edge ? double(x[i * 7 + j])
                       : 0.25 * (double(x[(i - 1) * 7 + j]) + double(x[(i + 1) * 7 + j]) + double(x[i * 7 + j - 1]) +
                                 double(x[i * 7 + j + 1])));
    }
  stencil.Expect(y);

  Case wrap("kernel w(x: f32[N]) -> y: f32[N] where N=11 { y[i] = x[(i + 4) % N] + x[i / 2] + pad(x[2*i - 3], -2) }");
  y.clear();
  for (int i = 0; i < 11; ++i)
    y.push_back(double(wrap.in(0)[(i + 4) % 11]) + double(wrap.in(0)[i / 2]) +
                (2 * i - 3 >= 0 && 2 * i - 3 < 11 ? double(wrap.in(0)[2 * i - 3]) : -2));
  wrap.Expect(y);

  Case chain(
      "kernel c(a: f32[5, 4], b: f32[4, 3], c: f32[3, 2]) -> y: f32[5, 2] {\n"
      "  t: f32[5, 3]  t[i, j] = sum(k) a[i, k] * b[k, j]\n"
      "  y[i, j] = relu(sum(k) t[i, k] * c[k, j]) + max(k) t[i, k] }");
  y.clear();
  for (int i = 0; i < 5; ++i) {
    double t[3] = {};
    for (int j = 0; j < 3; ++j)
      for (int k = 0; k < 4; ++k) t[j] += double(chain.in(0)[i * 4 + k]) * double(chain.in(1)[k * 3 + j]);
    for (int j = 0; j < 2; ++j) {
      double sum = 0;
      for (int k = 0; k < 3; ++k) sum += t[k] * double(chain.in(2)[k * 2 + j]);
      y.push_back(Relu(sum) + std::max({t[0], t[1], t[2]}));
    }
  }
  chain.Expect(y);
}

// What a float decides is uncertain by the float's error, and so is the place that is read; the element read is exact.
TEST(Interpret, GathersWhereAFloatDecides) {
  Case c(
      "kernel g(x: f32[8], t: i32[8]) -> y: f32[8] { r: i32[8] r[i] = i32(x[i] * 8.0) "
      "y[i] = f32(t[clamp(r[i], 0, 7)]) }");
  std::vector<double> wanted;
  for (size_t i = 0; i < 8; ++i) wanted.push_back(c.ints(1)[std::clamp(static_cast<int>(c.in(0)[i] * 8), 0, 7)]);
  c.Expect(wanted);
}

TEST(Interpret, PaddedReadOfAComputedTensor) {
  Case c(
      "kernel p(x: f32[5, 4]) -> y: f32[7] { t: f32[5] t[i] = sum(k) x[i, k]\n  y[i] = pad(t[i - 1], 3) + max(r < 3) "
      "pad(t[i + r - 2], -inf) }");
  double t[5] = {};
  for (int i = 0; i < 20; ++i) t[i / 4] += double(c.in(0)[i]);
  std::vector<double> y;
  for (int i = 0; i < 7; ++i) {
    double top = -std::numeric_limits<double>::infinity();
    for (int r = 0; r < 3; ++r)
      if (i + r - 2 >= 0 && i + r - 2 < 5) top = std::max(top, t[i + r - 2]);
    y.push_back((i >= 1 && i <= 5 ? t[i - 1] : 3) + top);
  }
  c.Expect(y);
}

TEST(Interpret, IntegersWrapAndRoundDown) {
  Case c(
      "kernel i(a: i32[N], b: i8[N]) -> y: i32[N] where N=40 {\n"
      "  y[n] = a[n] * 1000000 * 1000000 + (i32(b[n]) - 3) / 4 + (b[n] - 3) % 4 + i32(i8(b[n] * 3)) + i32(float(b[n]) "
      "/ 2) }");
  std::vector<double> y;
  for (int n = 0; n < 40; ++n) {
    int32_t a = c.ints(0)[n], b = c.bytes(1)[n];
    uint32_t big = static_cast<uint32_t>(a) * 1000000u * 1000000u;
    int32_t down = static_cast<int32_t>(std::floor((b - 3) / 4.0));
    int32_t rest = b - 3 - 4 * down, narrow = static_cast<int8_t>(b * 3), half = b / 2;
    y.push_back(static_cast<int32_t>(big + static_cast<uint32_t>(down + rest + narrow + half)));
  }
  c.Expect(y);
}

TEST(Interpret, ReductionsOfEveryKind) {
  Case c(
      "kernel r(x: f32[3, 300], b: i8[3, 5]) -> y: f32[3] {\n"
      "  y[i] = (max(k) x[i, k]) + 10 * (min(k) x[i, k]) + (prod(k) (1 + x[i, k] / 100)) + float(sum(k) b[i, k])\n"
      "         + float(max(k) b[i, k]) + float(min(k) b[i, k]) + float(prod(k) b[i, k]) }");
  std::vector<double> y;
  for (int i = 0; i < 3; ++i) {
    double top = -2, low = 2, product = 1;
    int32_t sum = 0, btop = -200, blow = 200;
    uint32_t bproduct = 1;
    for (int k = 0; k < 300; ++k) {
      double x = double(c.in(0)[i * 300 + k]);
      top = std::max(top, x), low = std::min(low, x), product *= 1 + x / 100;
    }
    for (int k = 0; k < 5; ++k) {
      int32_t b = c.bytes(1)[i * 5 + k];
      sum += b, btop = std::max(btop, b), blow = std::min(blow, b), bproduct *= static_cast<uint32_t>(b);
    }
    y.push_back(top + 10 * low + product + sum + btop + blow + static_cast<int32_t>(bproduct));
  }
  c.Expect(y);
}

TEST(Interpret, NotANumberPropagatesThroughMinAndMax) {
  Kernel kernel = Parse(
      "kernel n(x: f32[3]) -> y: f32[], z: f32[3], r: f32[3] { y[] = max(i) x[i]\n z[i] = max(x[i], 0) r[i] = min(0, "
      "x[i]) }");
  float x[] = {1, std::numeric_limits<float>::quiet_NaN(), -1};
  OperandView view{x};
  Interpreter interpreter(kernel, std::span(&view, 1));
  EXPECT_TRUE(std::isnan(interpreter.At(0, 0).value));
  EXPECT_EQ(interpreter.At(1, 0).value, 1);
  EXPECT_TRUE(std::isnan(interpreter.At(1, 1).value));
  EXPECT_TRUE(std::isnan(interpreter.At(2, 1).value));
}

}  // namespace
}  // namespace hone::interpret_test
