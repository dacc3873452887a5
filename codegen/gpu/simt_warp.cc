#include "codegen/gpu/simt_warp.h"

#include <bit>
#include <cmath>

#include "base/check.h"

namespace hone::simt {
namespace {

constexpr size_t kWarp = 32, kRows = 16, kColumns = 8;

}  // namespace

float CutOff(double sum) {
  const auto nearest = static_cast<float>(sum);
  return std::abs(static_cast<double>(nearest)) > std::abs(sum) ? std::nextafter(nearest, 0.0f) : nearest;
}

double AsTf32(double factor) {
  constexpr uint32_t kDropped = 13;  // of 23 bits
  if (!std::isfinite(factor)) return factor;
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(factor));
  return std::bit_cast<float>((bits + (1U << (kDropped - 1))) >> kDropped << kDropped);
}

// "ldmatrix": threads 0 … 7 have the addresses of the rows of the first matrix, 8 … 15 those of the second, and so on.
// Thread t receives a fragment of 32 bits of row t / 4; with .trans the matrix is loaded in column-major order.
std::vector<std::array<Lane, 4>> WordsOf(const straight::Value& matrices, const std::vector<std::vector<Lane>>& rows,
                                         size_t lane) {
  const auto per_word = static_cast<size_t>(4 / ByteSize(matrices.type));
  std::vector<std::array<Lane, 4>> words(static_cast<size_t>(matrices.lanes));
  for (size_t i = 0; i < words.size(); ++i)
    for (size_t e = 0; e < per_word; ++e) {
      const size_t row = lane / 4, column = lane % 4 * per_word + e;
      words[i][e] = matrices.transposes ? rows[8 * i + column][row] : rows[8 * i + row][column];
    }
  return words;
}

bool IsShuffle(const straight::Node& node, const straight::Code& code) {
  return node.kind == straight::Node::Kind::kLet && code.values[node.value].what == straight::Do::kShuffle;
}

bool IsTogether(const straight::Node& node, const straight::Code& code) {
  using Kind = straight::Node::Kind;
  if (node.kind == Kind::kLet) return code.values[node.value].what == straight::Do::kMatrices || IsShuffle(node, code);
  return node.kind == Kind::kMultiply || node.kind == Kind::kProduct || node.kind == Kind::kCommitProducts ||
         node.kind == Kind::kAwaitProducts || node.kind == Kind::kFenceSums;
}

// The manual's canonical layouts without swizzling, in units of 16 bytes: ((8, n), 2) : ((1, SBO), LBO) where steps lie
// side by side, ((1, n), (8, k)) : ((–, SBO), (1, LBO)) where lines do. Here SBO is row_bytes and LBO step_bytes.
// Those with 128 bytes of swizzling: ((8, n), 2) : ((8, SBO), 1) and ((8, n), (8, k)) : ((1, LBO), (8, SBO)). Here SBO
// is row_bytes, and in the second one step_bytes, where LBO is row_bytes. Places are swizzled afterwards.
int64_t OffsetIn(const straight::MatrixLayout& matrix, int64_t element_bytes, int64_t line, int64_t step) {
  const int64_t wide = matrix.is_swizzled ? 128 : 16, unit = wide / element_bytes;
  const int64_t bytes = matrix.is_transposed ? line / unit * matrix.row_bytes + line % unit * element_bytes +
                                                   step / 8 * matrix.step_bytes + step % 8 * wide
                                             : line / 8 * matrix.row_bytes + line % 8 * wide +
                                                   step / unit * matrix.step_bytes + step % unit * element_bytes;
  return bytes / element_bytes;
}

// "d[4·j + 2·h + i]: row = 16·warp + lane / 4 + 8·h, column = 8·j + 2·(lane mod 4) + i."
SumPlace PlaceInGroup(int64_t thread, int64_t i) {
  const int64_t warp = thread / 32, lane = thread % 32;
  return {16 * warp + lane / 4 + 8 * (i / 2 % 2), i / 4 * 8 + lane % 4 * 2 + i % 2};
}

void Multiply(const Instruction& instruction, std::vector<std::vector<Slot>>& of) {
  const InstructionMeaning& meaning = MeaningOf(instruction);
  HONE_CHECK(of.size() == kWarp);
  const auto depth = static_cast<size_t>(meaning.steps);
  const auto per_word = static_cast<size_t>(4 / meaning.step_bytes);
  const bool rounds = meaning.operands[0] == DType::kF32;
  std::vector<Lane> a(kRows * depth), b(depth * kColumns);
  for (size_t lane = 0; lane < kWarp; ++lane) {
    const size_t group = lane >> 2, in_group = lane % 4;
    // a_i: of row `group` in the first and the third register, eight further down in the others; the last two registers
    // are of the second half of the columns.
    for (size_t i = 0; i < 4 * per_word; ++i) {
      const size_t word = i / per_word;
      const size_t row = word == 0 || word == 2 ? group : group + 8;
      const size_t column = in_group * per_word + i % per_word + (word >= 2 ? depth / 2 : 0);
      a[row * depth + column] = of[lane][kSums + word].lanes[i % per_word];
    }
    for (size_t i = 0; i < 2 * per_word; ++i) {
      const size_t word = i / per_word;
      const size_t row = in_group * per_word + i % per_word + (word >= 1 ? depth / 2 : 0);
      b[row * kColumns + group] = of[lane][kSums + 4 + word].lanes[i % per_word];
    }
  }
  for (auto* factors : {&a, &b})
    for (Lane& factor : *factors)
      if (rounds) factor.real = AsTf32(factor.real);
  for (size_t lane = 0; lane < kWarp; ++lane)
    for (size_t i = 0; i < kSums; ++i) {
      const size_t row = i < 2 ? lane >> 2 : (lane >> 2) + 8, column = lane % 4 * 2 + (i & 1);
      Lane& sum = of[lane][i].lanes[0];
      double real = sum.real;
      int64_t number = sum.number;
      for (size_t k = 0; k < depth; ++k) {
        const Lane &x = a[row * depth + k], &y = b[k * kColumns + column];
        real += x.real * y.real;
        number += x.number * y.number;
      }
      if (IsFloat(meaning.sum))
        sum.real = CutOff(real);
      else
        sum.number = static_cast<int32_t>(number);
    }
}

}  // namespace hone::simt
