// onnxruntime's weights and tables of a few bits (com.microsoft). What kernels can widen as they read it stays as it
// is; the rest becomes constants of floats.
#include <fmt/format.h>

#include <algorithm>

#include "network/graph/quantization.h"
#include "network/graph/walk.h"
#include "network/onnx/translate.h"

namespace hone {
namespace {

using evaluating::Arguments;
using Computed = Result<std::vector<Numbers>>;

struct FewBits {
  int64_t rows = 0, columns = 0, block = 0, bits = 4;  // w[rows, columns]; a scale for each block of a row
  int64_t blocks() const { return (columns + block - 1) / block; }
};

// Number i of the numbers that bytes hold from the lowest bits on.
int64_t Unpacked(const std::vector<int64_t>& bytes, size_t first_byte, int64_t i, int64_t bits) {
  const auto at = static_cast<size_t>(i * bits / 8);
  return bytes[first_byte + at] >> (i * bits % 8) & ((int64_t{1} << bits) - 1);
}

// x · wᵀ [+ bias], of any number of dimensions.
Result<ValueId> Product(OperatorCall& call, ValueId w, ValueId bias) {
  Builder& build = call.build;
  const Shape x = call.shape(0);
  const int64_t rows = build.shape(w)[0], columns = build.shape(w)[1];
  if (x.empty() || x.back() != columns) return build.Invalid(fmt::format("{} by K={}", ShapeText(x), columns));
  ValueId y = HONE_TRY(build.Reshape(call.In(0), {CountOf(x) / columns, columns}));
  y = HONE_TRY(build.MatMul(y, w, true));
  if (bias) y = HONE_TRY(build.Binary("add", y, bias));
  Shape shape = x;
  shape.back() = rows;
  return build.Reshape(y, shape);
}

// Numbers of 2 or 4 bits, several a byte from the lowest bits on, in rows of whole bytes along the last dimension:
// `count` of them in each row.
Result<ValueId> Unpack(Builder& build, ValueId x, int64_t count, int64_t bits) {
  const Shape shape = build.shape(x);
  const int64_t in_a_byte = 8 / bits;
  Shape each = shape, all = shape;
  each.push_back(1);
  all.back() *= in_a_byte;
  std::vector<ValueId> parts;
  for (int64_t i = 0; i < in_a_byte; ++i) {
    ValueId part = x;
    if (i > 0) part = HONE_TRY(build.Binary("div", part, build.Scalar(1 << (i * bits), DType::kU8)));
    if (i + 1 < in_a_byte) part = HONE_TRY(build.Binary("mod", part, build.Scalar(1 << bits, DType::kU8)));
    parts.push_back(HONE_TRY(build.Reshape(part, each)));
  }
  const ValueId together = HONE_TRY(build.Concat(std::move(parts), static_cast<int64_t>(shape.size())));
  return build.Slice(HONE_TRY(build.Reshape(together, all)), shape.size() - 1, 0, count);
}

// The product with weights that stay as they are in the file; none: blocks that do not divide the columns, weights that
// are not known before the network runs, zero points of floats.
Result<ValueId> NarrowProduct(OperatorCall& call, const FewBits& of) {
  Builder& build = call.build;
  const bool has_zeros = call.Has(3);
  for (size_t i = 1; i < 4; ++i)
    if (call.Has(i) && !build.graph().is_constant(call.In(i))) return ValueId();
  if (of.bits == 2 || of.columns % of.block != 0 || of.block % 2 != 0 || call.Has(4) ||
      build.dtype(call.In(1)) != DType::kU8 || (has_zeros && build.dtype(call.In(3)) != DType::kU8))
    return ValueId();
  Node dense;
  dense.kind = NodeKind::kDense;
  dense.function = of.bits == 4 ? "u4" : "u8";
  dense.extents = {of.rows, of.columns};
  dense.axis = of.block;
  dense.inputs = {call.In(0), call.In(1), HONE_TRY(build.Cast(call.In(2), build.dtype(call.In(0))))};
  if (has_zeros) {
    ValueId zeros = HONE_TRY(build.Reshape(call.In(3), {of.rows, (of.blocks() * of.bits + 7) / 8}));
    if (of.bits == 4) zeros = HONE_TRY(Unpack(build, zeros, of.blocks(), 4));
    dense.inputs.push_back(zeros);
  }
  return build.Add(std::move(dense));
}

// x; w in bytes, scales, zero points (in bytes or as floats; the middle if there are none), the block whose scale and
// zero point are each column's (its own if there are none), a bias.
Result<Outputs> MatMulNBits(OperatorCall& call) {
  Builder& build = call.build;
  const FewBits of{call.Whole("N", 0), call.Whole("K", 0), call.Whole("block_size", 0), call.Whole("bits", 4)};
  if (of.rows < 1 || of.columns < 1 || of.block < 1 || (of.bits != 2 && of.bits != 4 && of.bits != 8))
    return build.Invalid("N, K, block_size and bits are not those of a matrix");
  HONE_TRY(CheckShape({of.columns, of.block}));
  HONE_TRY(CheckShape({of.rows, of.blocks(), of.block}));
  const int64_t bytes = (of.block * of.bits + 7) / 8, zero_bytes = (of.blocks() * of.bits + 7) / 8;
  const bool has_zeros = call.Has(3), has_real_zeros = has_zeros && IsFloat(build.dtype(call.In(3)));
  if (CountOf(call.shape(1)) != of.rows * of.blocks() * bytes || CountOf(call.shape(2)) != of.rows * of.blocks() ||
      (has_zeros && CountOf(call.shape(3)) != of.rows * (has_real_zeros ? of.blocks() : zero_bytes)))
    return build.Invalid("its weights, scales and zero points do not fit N, K and block_size");
  const bool has_order = call.Has(4);
  if (has_order && (IsFloat(build.dtype(call.In(4))) || CountOf(call.shape(4)) < of.columns))
    return build.Invalid(fmt::format("g_idx of {} for {} columns", ShapeText(call.shape(4)), of.columns));
  if (call.rank(0) >= 2 && call.shape(0).back() == of.columns) {
    ValueId y = HONE_TRY(NarrowProduct(call, of));
    if (y && call.Has(5)) y = HONE_TRY(build.Binary("add", y, call.In(5)));
    if (y) return Outputs{y};
  }
  const DType dtype = build.dtype(call.In(0));
  if (!IsFloat(dtype)) return build.Invalid(fmt::format("it multiplies {}, wanted floats", Name(dtype)));
  auto compute = [=](Arguments in) -> Computed {
    Numbers out = MakeNumbers(dtype, {of.rows, of.columns});
    for (int64_t k = 0; k < of.columns; ++k) {
      const int64_t own = k / of.block;
      const int64_t b = has_order ? in.back()->whole[static_cast<size_t>(k)] : own;
      if (b < 0 || b >= of.blocks())
        return Error{ErrorKind::kInvalid, fmt::format("g_idx {} of {} blocks", b, of.blocks()), ""};
      for (int64_t n = 0; n < of.rows; ++n) {
        const auto number = static_cast<size_t>(n * of.blocks() + b);
        auto zero = static_cast<double>(int64_t{1} << (of.bits - 1));
        if (has_real_zeros) zero = in[2]->real[number];
        if (has_zeros && !has_real_zeros)
          zero = static_cast<double>(Unpacked(in[2]->whole, static_cast<size_t>(n * zero_bytes), b, of.bits));
        const int64_t q =
            Unpacked(in[0]->whole, static_cast<size_t>((n * of.blocks() + own) * bytes), k % of.block, of.bits);
        out.real[static_cast<size_t>(n * of.columns + k)] = (static_cast<double>(q) - zero) * in[1]->real[number];
      }
    }
    return std::vector{std::move(out)};
  };
  std::vector<ValueId> inputs = {call.In(1), call.In(2)};
  std::string takes = "wr";
  if (has_zeros) inputs.push_back(call.In(3)), takes += '.';  // of either kind
  if (has_order) inputs.push_back(call.In(4)), takes += 'w';
  const ValueId w =
      HONE_TRY(build.Host({"MatMulNBits' weights", takes, {{dtype, {of.rows, of.columns}}}, compute}, inputs))[0];
  return Outputs{HONE_TRY(Product(call, w, call.Has(5) ? call.In(5) : ValueId()))};
}

// A table whose numbers of 4 bits the file has as such, with any number of dimensions; which of them along one of
// these, scales and zero points for each block along another.
Result<Outputs> GatherNumbers(OperatorCall& call) {
  Builder& build = call.build;
  const Shape table = call.shape(0);
  const int64_t rank = call.rank(0), block = call.Whole("block_size", 128);
  const int64_t along = HONE_TRY(call.Axis(call.Whole("gather_axis", 0), rank));
  int64_t axis = HONE_TRY(call.Axis(call.Whole("quantize_axis", 1), rank));
  const int64_t extent = table[static_cast<size_t>(axis)];
  if (block < 1) return build.Invalid(fmt::format("block_size={}", block));
  Shape wanted = table;
  wanted[static_cast<size_t>(axis)] = (extent - 1) / block + 1;
  if (CountOf(table) == 0 || call.shape(2) != wanted || (call.Has(3) && call.shape(3) != wanted))
    return build.Invalid(fmt::format("scales {} of a table {}", ShapeText(call.shape(2)), ShapeText(table)));
  ValueId parts[3] = {call.In(0), HONE_TRY(build.Cast(call.In(2), DType::kF32)), call.Has(3) ? call.In(3) : ValueId()};
  auto gather = [&](ValueId x) { return build.Gather(x, call.In(1), along); };
  const bool is_same = along == axis;
  if (!is_same) {
    for (ValueId& part : parts)
      if (part) part = HONE_TRY(gather(part));
    if (along < axis) axis += call.rank(1) - 1;
  }
  const ValueId own = HONE_TRY(BlockOfEach(build, extent, block));
  for (size_t i : {1, 2})
    if (parts[i]) parts[i] = HONE_TRY(build.Gather(parts[i], own, axis));
  ValueId y =
      HONE_TRY(Dequantize(build, {parts[0], parts[1], parts[2], build.dtype(call.In(0))}, build.dtype(call.In(2))));
  return Outputs{is_same ? HONE_TRY(gather(y)) : y};
}

// A table in bytes as above, in blocks along its rows; which of its rows; scales, zero points.
Result<Outputs> GatherBlockQuantized(OperatorCall& call) {
  Builder& build = call.build;
  if (call.Whole("hone_one_a_byte", 0) != 0) return GatherNumbers(call);
  const int64_t bits = call.Whole("bits", 4), block = call.Whole("block_size", 128);
  if (build.dtype(call.In(0)) != DType::kU8 || call.rank(0) != 2 || call.rank(2) != 2)
    return build.Unsupported("it wants a matrix of bytes");
  if (HONE_TRY(call.Axis(call.Whole("gather_axis", 0), 2)) != 0 ||
      HONE_TRY(call.Axis(call.Whole("quantize_axis", 1), 2)) != 1)
    return build.Unsupported("blocks along columns");
  if (block < 1 || (bits != 2 && bits != 4 && bits != 8)) return build.Invalid("block_size and bits fit no table");
  HONE_TRY(CheckShape({call.shape(0)[0], call.shape(0)[1], block}));
  const FewBits of{call.shape(0)[0], call.shape(0)[1] * 8 / bits, block, bits};
  const int64_t zero_bytes = (of.blocks() * bits + 7) / 8;
  if (call.shape(2) != Shape{of.rows, of.blocks()} || (call.Has(3) && CountOf(call.shape(3)) != of.rows * zero_bytes))
    return build.Invalid("its scales and zero points do not fit its table");
  // Rows are taken as they are, and then dequantised.
  const DType dtype = build.dtype(call.In(2));
  ValueId rows = HONE_TRY(Apply(call, "Gather", {call.In(0), call.In(1)}));
  ValueId scales = HONE_TRY(Apply(call, "Gather", {call.In(2), call.In(1)})),
          zeros = build.Scalar(1 << (bits - 1), DType::kU8);
  if (call.Has(3))
    zeros = HONE_TRY(Apply(call, "Gather", {HONE_TRY(build.Reshape(call.In(3), {of.rows, zero_bytes})), call.In(1)}));
  if (bits < 8) rows = HONE_TRY(Unpack(build, rows, of.columns, bits));
  if (bits < 8 && call.Has(3)) zeros = HONE_TRY(Unpack(build, zeros, of.blocks(), bits));
  Shape cut = build.shape(scales), parameter = cut, whole = build.shape(rows);
  cut.push_back(block);
  parameter.push_back(1);
  if (of.columns % block != 0) {  // the last block of a row ends early
    const ValueId own = HONE_TRY(BlockOfEach(build, of.columns, of.block));
    scales = HONE_TRY(build.Gather(scales, own, static_cast<int64_t>(whole.size()) - 1));
    if (call.Has(3)) zeros = HONE_TRY(build.Gather(zeros, own, static_cast<int64_t>(whole.size()) - 1));
  } else {
    rows = HONE_TRY(build.Reshape(rows, cut));
    scales = HONE_TRY(build.Reshape(scales, parameter));
    if (call.Has(3)) zeros = HONE_TRY(build.Reshape(zeros, parameter));
  }
  const ValueId y =
      HONE_TRY(Dequantize(build, {rows, HONE_TRY(build.Cast(scales, DType::kF32)), zeros, DType::kU8}, dtype));
  return Outputs{HONE_TRY(build.Reshape(y, whole))};
}

// What four bits stand for: a sign and one of eight numbers, or a quantile of the normal distribution (QLoRA,
// arXiv:2305.14314).
constexpr double kFloats4[16] = {0, 0.005208333333,  2 / 3.0,  1,  1 / 3.0,  0.5,  1 / 6.0,  0.25,
                                 0, -0.005208333333, -2 / 3.0, -1, -1 / 3.0, -0.5, -1 / 6.0, -0.25};
constexpr double kNormalFloats4[16] = {-1,
                                       -0.6961928009986877,
                                       -0.5250730514526367,
                                       -0.39491748809814453,
                                       -0.28444138169288635,
                                       -0.18477343022823334,
                                       -0.09105003625154495,
                                       0,
                                       0.07958029955625534,
                                       0.16093020141124725,
                                       0.24611230194568634,
                                       0.33791524171829224,
                                       0.44070982933044434,
                                       0.5626170039176941,
                                       0.7229568362236023,
                                       1};

// x; w row after row, two numbers a byte, the first in the upper bits; a scale for each block of them.
Result<Outputs> MatMulBnb4(OperatorCall& call) {
  Builder& build = call.build;
  const int64_t rows = call.Whole("N", 0), columns = call.Whole("K", 0), block = call.Whole("block_size", 0);
  const int64_t kind = call.Whole("quant_type", 0);
  if (rows < 1 || columns < 1 || block < 1 || kind < 0 || kind > 1)
    return build.Invalid("N, K, block_size and quant_type are not those of a matrix");
  if (call.Whole("transB", 1) == 0) return build.Unsupported("weights that are not transposed");
  HONE_TRY(CheckShape({rows, columns}));
  HONE_TRY(CheckShape({block}));
  const int64_t count = rows * columns;
  if (CountOf(call.shape(1)) != (count + 1) / 2 || CountOf(call.shape(2)) != (count + block - 1) / block)
    return build.Invalid("its weights and scales do not fit N, K and block_size");
  const DType dtype = build.dtype(call.In(0));
  if (!IsFloat(dtype)) return build.Invalid(fmt::format("it multiplies {}, wanted floats", Name(dtype)));
  auto compute = [=](Arguments in) -> Computed {
    Numbers out = MakeNumbers(dtype, {rows, columns});
    for (int64_t i = 0; i < count; ++i) {
      const int64_t byte = in[0]->whole[static_cast<size_t>(i / 2)], bits = i % 2 == 0 ? byte >> 4 & 15 : byte & 15;
      out.real[static_cast<size_t>(i)] =
          (kind == 0 ? kFloats4 : kNormalFloats4)[bits] * in[1]->real[static_cast<size_t>(i / block)];
    }
    return std::vector{std::move(out)};
  };
  const ValueId w = HONE_TRY(
      build.Host({"MatMulBnb4's weights", "wr", {{dtype, {rows, columns}}}, compute}, {call.In(1), call.In(2)}))[0];
  return Outputs{HONE_TRY(Product(call, w, {}))};
}

}  // namespace

std::vector<Operator> FewBitsOperators() {
  return {{"com.microsoft.MatMulNBits", 3, MatMulNBits},
          {"com.microsoft.MatMulBnb4", 3, MatMulBnb4},
          {"com.microsoft.GatherBlockQuantized", 3, GatherBlockQuantized}};
}

}  // namespace hone
