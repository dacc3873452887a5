#include "codegen/llvm/lanes.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/check.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/DerivedTypes.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/Module.h"

namespace hone {
namespace {

int LanesOf(llvm::Value* vector) {
  return static_cast<int>(llvm::cast<llvm::FixedVectorType>(vector->getType())->getNumElements());
}

int ElementBits(llvm::Type* type) { return static_cast<int>(type->getScalarSizeInBits()); }

// `count` lanes from `begin` on; those past the end are undefined.
llvm::Value* Slice(llvm::IRBuilderBase& builder, llvm::Value* vector, int begin, int count) {
  int have = LanesOf(vector);
  if (begin == 0 && have == count) return vector;
  std::vector<int> mask(static_cast<size_t>(count), -1);
  for (int i = 0; i < count && begin + i < have; ++i) mask[static_cast<size_t>(i)] = begin + i;
  return builder.CreateShuffleVector(vector, mask);
}

llvm::Value* Resize(llvm::IRBuilderBase& builder, llvm::Value* vector, int lanes) {
  return Slice(builder, vector, 0, lanes);
}

// How one stage moves lanes. Lane bits are numbered from 0; `in_block` of them address an element of a 128-bit block.
// The stage takes two vectors a and b that differ in one bit of their row, and gives two that differ in one bit of
// their column.
struct ShuffleStage {
  int width_bits;  // lane bits in all
  int in_block;
  int row_bit;  // which stage it is: row bit and vector-index bit

  // The column bit that the stage moves from the lanes to the vector index.
  int ColumnBit() const { return row_bit < in_block ? in_block - 1 - row_bit : row_bit; }

  // The shuffle mask of the output whose column bit is `high`; b's lanes count from 2^width_bits.
  std::vector<int> Mask(bool high) const {
    int lanes = 1 << width_bits;
    std::vector<int> mask(lanes);
    for (int lane = 0; lane < lanes; ++lane) {
      int row, source;
      if (row_bit < in_block) {
        // Unpack in every block: with granules of 2^row_bit elements, (top … g) becomes (… g row), the top is selected.
        int low = lane & ((1 << row_bit) - 1);
        int block = lane >> in_block;
        int middle = (lane >> (row_bit + 1)) & ((1 << (in_block - 1 - row_bit)) - 1);
        row = (lane >> row_bit) & 1;
        source = (block << in_block) | (int{high} << (in_block - 1)) | (middle << row_bit) | low;
      } else {
        // Whole blocks: the even (odd) blocks of a, then those of b.
        int element = lane & ((1 << in_block) - 1);
        row = lane >> (width_bits - 1);
        int block = (lane & ((lanes >> 1) - 1)) >> in_block;
        source = (((block << 1) | int{high}) << in_block) | element;
      }
      mask[lane] = source + (row ? lanes : 0);
    }
    return mask;
  }
};

llvm::Value* ShuffleDefined(llvm::IRBuilderBase& builder, llvm::Value* a, llvm::Value* b, std::vector<int> mask) {
  int lanes = LanesOf(a);
  bool no_a = llvm::isa<llvm::PoisonValue>(a), no_b = llvm::isa<llvm::PoisonValue>(b);
  if (no_a && no_b) return a;
  for (int& lane : mask) {
    if ((lane < lanes && no_a) || (lane >= lanes && no_b)) lane = -1;
  }
  return builder.CreateShuffleVector(a, b, mask);
}

// The vectors between stages.
struct Network {
  llvm::IRBuilderBase& builder;
  int columns;                        // larger column numbers do not exist
  std::vector<llvm::Value*> vectors;  // poison: does not exist
  std::vector<int> column_of;         // the column bits that a vector's index stands for so far

  // Keeps the code generator from looking across: its search for better shuffles is exponential in the number of stages
  // that it sees (24 ms of code generation for a 14×32 tile, 16 with this), and finds nothing. An empty instruction in
  // the same register.
  void Barrier() {
    llvm::Type* type = vectors[0]->getType();
    // One register each: 512 bits where the function has them.
    uint64_t bits = type->getPrimitiveSizeInBits();
    bool wide = builder.GetInsertBlock()
                    ->getParent()
                    ->getFnAttribute("target-features")
                    .getValueAsString()
                    .contains("+avx512f");
    if (bits != 128 && bits != 256 && !(bits == 512 && wide)) return;
    bool arm = llvm::StringRef(builder.GetInsertBlock()->getModule()->getTargetTriple()).starts_with("aarch64");
    if (arm && bits != 128) return;
    auto* keep = llvm::InlineAsm::get(llvm::FunctionType::get(type, {type}, false), "", arm ? "=w,0" : "=v,0", false);
    for (llvm::Value*& vector : vectors)
      if (!llvm::isa<llvm::PoisonValue>(vector)) vector = builder.CreateCall(keep, {vector});
  }

  void Run(const ShuffleStage& stage) {
    std::vector<int> low = stage.Mask(false), high = stage.Mask(true);
    for (size_t i = 0; i < vectors.size(); ++i) {
      size_t j = i | (size_t{1} << stage.row_bit);
      if (i == j) continue;
      llvm::Value *a = vectors[i], *b = vectors[j];
      column_of[j] = column_of[i] | (1 << stage.ColumnBit());
      vectors[i] = ShuffleDefined(builder, a, b, low);
      vectors[j] = column_of[j] < columns ? ShuffleDefined(builder, a, b, high) : llvm::PoisonValue::get(a->getType());
    }
  }
};

}  // namespace

// Each stage exchanges one bit of the row number (which vector) for one bit of the column number (which lane), nearest
// rows first: log2 stages of two-operand shuffles. First those within 128-bit blocks (vunpcklps/vunpckhps, then
// vunpcklpd/vunpckhpd; on NEON zip1/zip2), which run on rows of any width; then, on vectors as wide as the result,
// those that move whole blocks (vshuff32x4 or vperm2f128). Rows and columns that do not exist drop out of their stages.
std::vector<llvm::Value*> EmitTranspose(llvm::IRBuilderBase& builder, std::span<llvm::Value* const> rows, int lanes) {
  HONE_CHECK(!rows.empty());
  int columns = LanesOf(rows[0]);
  if (lanes == 0) lanes = static_cast<int>(std::bit_ceil(rows.size()));
  HONE_CHECK(static_cast<int>(rows.size()) <= lanes && lanes <= 64 && columns <= 64);
  auto* element = llvm::cast<llvm::FixedVectorType>(rows[0]->getType())->getElementType();

  unsigned vector_count = std::bit_ceil(static_cast<unsigned>(lanes));
  int row_bits = std::countr_zero(vector_count);
  unsigned block = static_cast<unsigned>(128 / ElementBits(element));
  unsigned width = std::bit_ceil(std::max(static_cast<unsigned>(columns), std::min(block, vector_count)));
  int in_block = std::countr_zero(std::min(block, width));
  int stages_in_block = std::min(in_block, row_bits);

  Network network{builder, columns, {}, std::vector<int>(vector_count, 0)};
  for (unsigned i = 0; i < vector_count; ++i) {
    network.vectors.push_back(i < rows.size() ? Resize(builder, rows[i], static_cast<int>(width))
                                              : llvm::PoisonValue::get(llvm::FixedVectorType::get(element, width)));
  }
  for (int bit = 0; bit < stages_in_block; ++bit) network.Run(ShuffleStage{std::countr_zero(width), in_block, bit});
  if (row_bits > 2) network.Barrier();

  std::vector<llvm::Value*> result(static_cast<size_t>(columns));
  auto store = [&](llvm::Value* vector, int begin, int column) {
    if (column < columns) result[static_cast<size_t>(column)] = Slice(builder, vector, begin, lanes);
  };
  if (row_bits <= in_block) {
    // Every `vector_count` lanes hold a column: block, then the column bits that no stage moved, then the rows.
    for (unsigned i = 0; i < vector_count; ++i) {
      for (unsigned begin = 0; begin < width; begin += vector_count) {
        unsigned in_lane = (begin & ((1u << in_block) - 1)) >> row_bits;
        unsigned blocks = begin >> in_block << in_block;
        store(network.vectors[i], static_cast<int>(begin), network.column_of[i] | static_cast<int>(in_lane | blocks));
      }
    }
    return result;
  }
  for (unsigned begin = 0; begin < width; begin += vector_count) {
    Network piece{builder, columns - static_cast<int>(begin), {}, network.column_of};
    if (piece.columns <= 0) break;
    for (llvm::Value* vector : network.vectors) {
      piece.vectors.push_back(Slice(builder, vector, static_cast<int>(begin), static_cast<int>(vector_count)));
    }
    for (int bit = in_block; bit < row_bits; ++bit) piece.Run(ShuffleStage{row_bits, in_block, bit});
    for (unsigned i = 0; i < vector_count; ++i) {
      store(piece.vectors[i], 0, piece.column_of[i] + static_cast<int>(begin));
    }
  }
  return result;
}

std::vector<llvm::Value*> EmitDeinterleavedLoads(llvm::IRBuilderBase& builder, llvm::Type* element, llvm::Value* ptr,
                                                 int stride, int phases, int lanes, int64_t alignment) {
  HONE_CHECK(stride >= 1 && phases >= 1 && phases <= stride && lanes >= 1 && alignment >= 1);
  auto* type = llvm::FixedVectorType::get(element, lanes);
  int64_t element_bytes = ElementBits(element) / 8;
  auto aligned_at = [&](int64_t index) {
    return llvm::Align(static_cast<uint64_t>(std::gcd(alignment, index == 0 ? alignment : index * element_bytes)));
  };
  auto address = [&](int64_t index) { return builder.CreateConstInBoundsGEP1_64(element, ptr, index); };
  std::vector<llvm::Value*> result(phases);
  if (stride > 4 || lanes == 1) {
    for (int phase = 0; phase < phases; ++phase) {
      llvm::Value* vector = llvm::PoisonValue::get(type);
      for (int lane = 0; lane < lanes; ++lane) {
        int64_t index = phase + int64_t{lane} * stride;
        vector = builder.CreateInsertElement(
            vector, builder.CreateAlignedLoad(element, address(index), aligned_at(index)), static_cast<uint64_t>(lane));
      }
      result[phase] = vector;
    }
    return result;
  }
  // Whole vectors; the last one moved back so that it ends with the last element that is needed.
  int span = (lanes - 1) * stride + phases;
  std::vector<int> begins;
  for (int begin = 0; begin + lanes < span; begin += lanes) begins.push_back(begin);
  begins.push_back(span - lanes);
  std::vector<llvm::Value*> parts;
  for (int begin : begins) parts.push_back(builder.CreateAlignedLoad(type, address(begin), aligned_at(begin)));
  for (int phase = 0; phase < phases; ++phase) {
    // The parts are merged one after the other; `result` has every lane at its place.
    llvm::Value* merged = nullptr;
    for (size_t part = 0; part < parts.size(); ++part) {
      std::vector<int> mask(lanes, -1);
      bool any = false;
      for (int lane = 0; lane < lanes; ++lane) {
        int index = phase + lane * stride;
        int owner = std::min(index / lanes, static_cast<int>(parts.size()) - 1);
        if (owner == static_cast<int>(part)) {
          mask[lane] = index - begins[part] + (merged != nullptr ? lanes : 0);
          any = true;
        } else if (owner < static_cast<int>(part)) {
          mask[lane] = lane;
        }
      }
      if (!any) continue;
      if (part == 0 && parts.size() > 1) {
        // The first two parts in one shuffle.
        for (int lane = 0; lane < lanes; ++lane) {
          int index = phase + lane * stride;
          if (std::min(index / lanes, static_cast<int>(parts.size()) - 1) == 1) mask[lane] = lanes + index - begins[1];
        }
        merged = builder.CreateShuffleVector(parts[0], parts[1], mask);
        ++part;
        continue;
      }
      merged = merged == nullptr ? builder.CreateShuffleVector(parts[part], mask)
                                 : builder.CreateShuffleVector(merged, parts[part], mask);
    }
    result[phase] = merged;
  }
  return result;
}

llvm::Value* EmitDeinterleavedLoad(llvm::IRBuilderBase& builder, llvm::Type* element, llvm::Value* ptr, int stride,
                                   int lanes, int64_t alignment) {
  return EmitDeinterleavedLoads(builder, element, ptr, stride, 1, lanes, alignment)[0];
}

llvm::Value* EmitMaskedDeinterleavedLoad(llvm::IRBuilderBase& builder, llvm::Type* element, llvm::Value* ptr,
                                         int stride, const std::vector<bool>& on, llvm::Value* condition,
                                         int64_t alignment) {
  const int lanes = static_cast<int>(on.size());
  const int first = static_cast<int>(std::find(on.begin(), on.end(), true) - on.begin());
  const int last = lanes - 1 - static_cast<int>(std::find(on.rbegin(), on.rend(), true) - on.rbegin());
  HONE_CHECK(stride >= 1 && first <= last && alignment >= 1);
  // One masked load of all that lies between the first lane and the last, then one shuffle.
  const auto width = std::bit_ceil(static_cast<unsigned>((last - first) * stride + 1));
  auto* type = llvm::FixedVectorType::get(element, width);
  std::vector<llvm::Constant*> read(width, builder.getFalse());
  std::vector<int> places(static_cast<size_t>(lanes), static_cast<int>(width));  // lane 0 of the zeros
  for (int lane = first; lane <= last; ++lane) {
    if (!on[static_cast<size_t>(lane)]) continue;
    places[static_cast<size_t>(lane)] = (lane - first) * stride;
    read[static_cast<size_t>((lane - first) * stride)] = builder.getTrue();
  }
  llvm::Value* mask = llvm::ConstantVector::get(read);
  if (condition != nullptr) mask = builder.CreateAnd(mask, builder.CreateVectorSplat(width, condition));
  int64_t skipped = int64_t{first} * stride;
  int64_t known = std::gcd(alignment, skipped == 0 ? alignment : skipped * (ElementBits(element) / 8));
  llvm::Value* begin = builder.CreateConstInBoundsGEP1_64(element, ptr, static_cast<uint64_t>(skipped));
  llvm::Value* zero = llvm::Constant::getNullValue(type);
  llvm::Value* loaded = builder.CreateMaskedLoad(type, begin, llvm::Align(static_cast<uint64_t>(known)), mask, zero);
  return builder.CreateShuffleVector(loaded, zero, places);
}

}  // namespace hone
