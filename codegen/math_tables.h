// Coefficients of the elementary functions, for every code generator: codegen/llvm/math_*.cc and
// codegen/gpu/straight_math.cc say what each is the approximation of and how it is used. scripts/minimax.py prints them
// under these names. Tables of f32 functions hold f32 values exactly.
#pragma once

namespace hone::math_tables {

// exp(r), |r| ≤ ln 2 / 2
inline constexpr double kExpF32[] = {1, 1, 0x1.fffffcp-2, 0x1.55548cp-3, 0x1.555858p-5, 0x1.123dep-7, 0x1.6ac74cp-10};
inline constexpr double kExpF64[] = {1,
                                     1,
                                     0x1p-1,
                                     0x1.555555555555dp-3,
                                     0x1.555555555556cp-5,
                                     0x1.111111110e54ap-7,
                                     0x1.6c16c16c0a3fep-10,
                                     0x1.a01a01b5f427cp-13,
                                     0x1.a01a01e8bb1a1p-16,
                                     0x1.71ddeaae6e018p-19,
                                     0x1.27e44a45fc0e9p-22,
                                     0x1.af7443b3b9ff3p-26,
                                     0x1.2051035fc6724p-29};

// (exp(r) − 1 − r) / r²
inline constexpr double kExpm1F32[] = {0x1p-1,        0x1.55552cp-3,  0x1.555502p-5,
                                       0x1.1155a8p-7, 0x1.6d2e4ap-10, 0x1.3b8acap-13};
inline constexpr double kExpm1F64[] = {0x1p-1,
                                       0x1.5555555555556p-3,
                                       0x1.5555555555557p-5,
                                       0x1.1111111110d4ap-7,
                                       0x1.6c16c16c1553fp-10,
                                       0x1.a01a01a1d101dp-13,
                                       0x1.a01a01ac93334p-16,
                                       0x1.71de3509d489cp-19,
                                       0x1.27e4cc6551056p-22,
                                       0x1.ae72a0d2db011p-26,
                                       0x1.1f8db921cd8ccp-29,
                                       0x1.53d1a416a61b7p-33};

// −log(erfc(x)) / x − 1, a polynomial (f32), a quotient P / Q (f64). The 1 apart: it keeps the leading coefficient 2/√π
// from losing half a bit to rounding.
inline constexpr double kErfF32[] = {0x1.06eba8p-3,  0x1.45f3p-1,     0x1.a4f8c4p-4,  -0x1.39b7ccp-6, -0x1.6374bep-13,
                                     0x1.b74396p-10, -0x1.4e2796p-11, 0x1.f2849cp-14, -0x1.3afb48p-17};
inline constexpr double kErfPF64[] = {
    0x1.06eba8214db69p-3, 0x1.b9e2f4df6e893p-1, 0x1.6c9bf07fe92fp+0, 0x1.41070d0838e83p+0,  0x1.6369775a81054p-1,
    0x1.057877888531cp-2, 0x1.fe534948c84b5p-5, 0x1.38d69123ddb4p-7, 0x1.9eab6113f9085p-11, 0x1.767959c166f79p-16};
inline constexpr double kErfQF64[] = {1,
                                      0x1.c38ace3cb4beap+0,
                                      0x1.8c0100ec0c026p+0,
                                      0x1.ab1573b71333fp-1,
                                      0x1.2fe5819c09516p-2,
                                      0x1.1d6539aef5f8bp-4,
                                      0x1.4fd1fc88cc99dp-7,
                                      0x1.aa3160ce68a35p-11,
                                      0x1.768288e620decp-16};

// (log(1 + f) − f) / f²
inline constexpr double kLogF32[] = {-0x1p-1,       0x1.5555acp-2,  -0x1.000082p-2, 0x1.996718p-3, -0x1.54d6bap-3,
                                     0x1.2876aap-3, -0x1.0e9296p-3, 0x1.b201fcp-4,  -0x1.796866p-5};
// (2 atanh(s) − 2 s) / s³ in z = s²; the constant term first
inline constexpr double kLogF64[] = {0x1.555555555554fp-1, 0x1.999999999c175p-2, 0x1.24924921e4c28p-2,
                                     0x1.c71c748f330a3p-3, 0x1.745c4b02eed4bp-3, 0x1.3b35bb29fd92fp-3,
                                     0x1.0dcbfc48935f1p-3, 0x1.1b7eb3c4f0b8ep-3};

// (atanh(s)/s − 1 − z/3) / z² in z = s², |s| ≤ 1/5
inline constexpr double kLogPowF32[] = {0x1.99999ap-3, 0x1.249252p-3, 0x1.c6b9f8p-4, 0x1.8a7c14p-4};
inline constexpr double kLogPowF64[] = {0x1.999999999999ap-3, 0x1.2492492491f88p-3, 0x1.c71c71c869a0dp-4,
                                        0x1.745d163f95567p-4, 0x1.3b1416ad9f753p-4, 0x1.10fbb55eadfa8p-4,
                                        0x1.e6e36d4ea6dbdp-5, 0x1.60014a34112cdp-5, 0x1.ccfdf3da8acedp-4};

// sin(t) = t + t³ (c0 + c1 t² + …) and cos(t) = 1 − t²/2 + t⁴ (c0 + c1 t² + …), |t| ≤ π/4
inline constexpr double kSinF32[] = {-0x1.555546p-3, 0x1.110778p-7, -0x1.9953fep-13};
inline constexpr double kSinF64[] = {-0x1.5555555555548p-3, 0x1.111111110f73p-7,    -0x1.a01a019be9217p-13,
                                     0x1.71de35552b511p-19, -0x1.ae5e4b83e0acep-26, 0x1.5d8b5592e34f7p-33};
inline constexpr double kCosF32[] = {0x1.555554p-5, -0x1.6c114ep-10, 0x1.9b3054p-16};
inline constexpr double kCosF64[] = {0x1.555555555554bp-5,   -0x1.6c16c16c06b64p-10, 0x1.a01a017901a71p-16,
                                     -0x1.27e4d85746093p-22, 0x1.1ed1d2fd3210dp-29,  -0x1.825c6b0b1af06p-37};

// 2/π cut into pieces of 29 bits, which times an f32 are f64 exactly
inline constexpr double kTwoOverPiWide[] = {0x1.45f306dp-1,   0x1.9391054p-30, 0x1.4fe13abp-59, 0x1.d1f534dp-88,
                                            0x1.b81b6c5p-117, 0x1.5993c4p-148, 0x1.c820ff2p-175};
// 2/π cut into pieces of 24 (53) bits, times 2⁹⁶ (2²⁰⁰), and what undoes that; enough of them for the largest number,
// of whose product with 2/π everything counts but multiples of 4
inline constexpr double kTwoOverPiF32[] = {0x1.45f306p+95, 0x1.b93910p+70, 0x1.529fcp+44,  0x1.3abe88p+21,
                                           0x1.ea69bap-1,  0x1.81b6c4p-25, 0x1.2b3278p-49, 0x1.0e4104p-74};
inline constexpr double kTwoOverPiF64[] = {
    0x1.45f306dc9c882p+199, 0x1.4a7f09d5f47d4p+146, 0x1.a6ee06db14accp+93,  0x1.3c439041fe516p+40,
    0x1.d5ef5de2b0db8p-15,  0x1.2371d2126e970p-67,  0x1.924bba8274600p-126, 0x1.21cfe1deb1cb1p-172,
    0x1.4d39f74411af8p-227, 0x1.4baed1213a671p-278, 0x1.8135a2fbf209cp-331, 0x1.91d639835339fp-384,
    0x1.272117e2ef7e4p-438, 0x1.41d8ffc4bffeep-491, 0x1.02cc07f79788cp-543, 0x1.6b414da3eda6cp-597,
    0x1.fb3c9f2c26dd2p-650, 0x1.d18fd9a797fa8p-702, 0x1.6ba93dd63f5f2p-755, 0x1.f17b3d0739f78p-808,
    0x1.4a525d4d7f6bfp-861, 0x1.88fc6ae842b00p-915};
inline constexpr double kTwoOverPiScaleF32 = 0x1p-96, kTwoOverPiScaleF64 = 0x1p-200;
// π/2 in two parts
inline constexpr double kHalfPiF32[] = {0x1.921fb6p+0, -0x1.777a5cp-25};
inline constexpr double kHalfPiF64[] = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54};

}  // namespace hone::math_tables
