// Products of matrices by the threads of a warp together. Each thread holds a few elements of both operands and of the
// sum, its fragments, as PTX's mma.sync has them: thread t has, of the sum, columns 2·(t mod 4) and the next of rows
// t / 4 and t / 4 + 8; of an operand words of as many steps as 32 bits hold, of row (column) t / 4. A device without
// the instruction computes what it means: each thread its own elements of the sum.
//
// Of a tile of a group of four warps each warp has 16 rows of the sum, in every eight columns as above
// (straighten_group.cc).
#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "codegen/gpu/launch_maker.h"
#include "codegen/instructions.h"

namespace hone::straight {
namespace {

constexpr int64_t kWarp = 32, kQuads = 8, kOfQuad = 4;
constexpr int64_t kHalves = 2, kHalf = 8, kPair = 2;  // rows of the sum: t / 4 and eight further down; columns: a pair
constexpr int64_t kRowsOfWarp = 16, kColumns = 8;
constexpr int64_t kRowBytes = 16;  // of a matrix that a warp loads

// Where a thread has its sum number i, from where it has the first one.
struct Place {
  int64_t row, column;
};
Place PlaceOf(int64_t i) { return {i / kPair % kHalves * kHalf, i / (kPair * kHalves) * kColumns + i % kPair}; }
int64_t SumsOfThread(const InstructionMeaning& meaning) { return meaning.rows * meaning.lanes / meaning.threads; }

// The statement that adds to the buffer by an instruction; nullptr: there is none.
const Stmt* FindSum(const Stmt& stmt, BufferId buffer) {
  if (stmt.kind == Stmt::Kind::kInstruction && !stmt.operands.empty()) {
    const Stmt* inner = stmt.body[0].get();
    while (inner->kind == Stmt::Kind::kLoop) inner = inner->body[0].get();
    return inner->buffer == buffer ? &stmt : nullptr;
  }
  for (const StmtPtr& child : stmt.body)
    if (const Stmt* found = FindSum(*child, buffer)) return found;
  return nullptr;
}

// The loops that an instruction does and the store inside of them.
struct Inside {
  std::vector<VarId> loops;
  const Stmt* store = nullptr;
};
Inside Of(const Stmt& stmt) {
  Inside inside;
  for (inside.store = stmt.body[0].get(); inside.store->kind == Stmt::Kind::kLoop;
       inside.store = inside.store->body[0].get())
    inside.loops.push_back(inside.store->var);
  return inside;
}

Error Refuse(std::string message) { return {ErrorKind::kInvalid, std::move(message), ""}; }

}  // namespace

Linear LaunchMaker::LaneDigit(int64_t divisor, int64_t modulus) {
  VarId& digit = lane_digits_[{divisor, modulus}];
  if (!digit) {
    digit = out_.vars.AddLoop("lane", modulus);
    ValueId value = builder_.Given({.what = Do::kThread, .type = DType::kI32, .number = 0, .varies = true});
    if (divisor > 1) value = builder_.Make(Do::kQuotient, DType::kI32, {value, builder_.Int(divisor)});
    if (divisor * modulus < launch_.block[0])
      value = builder_.Make(Do::kBitAnd, DType::kI32, {value, builder_.Int(modulus - 1)});
    known_[digit] = value;
  }
  return Linear::Of(digit);
}

Result<void> LaunchMaker::DeclareFragments(const Stmt& scope) {
  const Buffer& buffer = program_.buffer(scope.buffer);
  const Stmt* sum = FindSum(scope, scope.buffer);
  HONE_CHECK(sum != nullptr);
  const Inside inside = Of(*sum);
  const InstructionMeaning& meaning = MeaningOf(*sum->instruction);
  const Linear flat = program_.vars.ExpandAxes(program_.FlatIndex(scope.buffer, inside.store->index));
  Fragments fragments{sum->instruction, flat.CoefOf(inside.loops[1]), flat.CoefOf(inside.loops[2]), {}, {}};
  const int64_t held = buffer.elements / meaning.threads;
  registers_ += held;
  if (registers_ > limits_.registers)
    return Error{ErrorKind::kLimit,
                 fmt::format("{} takes {} registers of a thread, with what else is there {}, at most {} are allowed",
                             buffer.name, held, registers_, limits_.registers),
                 ""};
  auto dimension_of = [&](int64_t stride, int64_t tile) -> std::optional<size_t> {
    for (size_t d = 0; d < buffer.extents.size(); ++d)
      if (buffer.strides[d] == stride && buffer.extents[d] % tile == 0) return d;
    return std::nullopt;
  };
  const std::optional<size_t> rows = dimension_of(fragments.row_stride, meaning.rows);
  const std::optional<size_t> columns = dimension_of(fragments.column_stride, meaning.lanes);
  if (!rows || !columns)
    return Refuse(fmt::format("{} keeps {} as tiles of {} rows and {} columns, of which it has parts",
                              sum->instruction->name, buffer.name, meaning.rows, meaning.lanes));
  for (int64_t at = 0; at < buffer.elements; ++at) {
    const int64_t row = at / buffer.strides[*rows] % buffer.extents[*rows];
    const int64_t column = at / buffer.strides[*columns] % buffer.extents[*columns];
    if (row % kHalf != 0 || row % meaning.rows >= kRowsOfWarp || column % kColumns >= kPair) continue;
    fragments.elements[at] = builder_.Declare(buffer.dtype, fmt::format("{}_{}_{}", buffer.name, row, column));
  }
  fragments_[scope.buffer] = std::move(fragments);
  return {};
}

// An element that this thread holds: whichever of them it is.
Result<ValueId> LaunchMaker::FragmentElement(BufferId buffer, const std::vector<Linear>& index) {
  const std::string& name = program_.buffer(buffer).name;
  const auto found = fragments_.find(buffer);
  if (found == fragments_.end()) return Refuse(name + " is in registers and used where they are not there yet");
  Fragments& fragments = found->second;
  const Linear flat = Known(program_.FlatIndex(buffer, index));
  const InstructionMeaning& meaning = MeaningOf(*fragments.instruction);
  std::optional<int64_t> first;
  // Elements of one form but for a constant are of one thread, or all of them are not.
  const bool is_like_before = flat.terms() == fragments.seen;
  for (int64_t t = 0; t < (is_like_before ? 1 : meaning.threads); ++t) {
    const Linear at = out_.vars.Substitute(flat, [&](VarId var, Linear* value) {
      if (var != threads_x_) return false;
      *value = Linear(t);
      return true;
    });
    if (!at.IsConstant())
      return Refuse(fmt::format("{} is in registers, but which element is used depends on {}: unroll that loop", name,
                                out_.vars[at.terms()[0].var].name));
    if (!first) first = at.constant();
    const int64_t row = t / kWarp * kRowsOfWarp + t % kWarp / kOfQuad, column = t % kOfQuad * kPair;
    const int64_t wanted = *first + row * fragments.row_stride + column * fragments.column_stride;
    const auto element = fragments.elements.find(*first);
    if (at.constant() != wanted || element == fragments.elements.end())
      return Refuse(fmt::format(
          "thread.x {} reads an element of {} that another thread holds: of each tile of {} thread "
          "t has rows {} and the eighth after it, columns 2 · (t mod 4) and the next{}",
          t, name, fragments.instruction->name, meaning.is_of_group ? "16 · (t / 32) + t mod 32 / 4" : "t / 4",
          meaning.is_of_group ? " of every eight" : ""));
  }
  fragments.seen = flat.terms();
  return fragments.elements.at(*first);
}

// The thread's elements of the tile that the loops over rows and columns stand for.
Result<std::vector<ValueId>> LaunchMaker::SumsOf(const Stmt& store, VarId row, VarId column) {
  const Fragments& fragments = fragments_.at(store.buffer);
  std::vector<ValueId> sums;
  for (int64_t i = 0; i < SumsOfThread(MeaningOf(*fragments.instruction)); ++i) {
    constants_[row] = PlaceOf(i).row;
    constants_[column] = PlaceOf(i).column;
    const Linear flat = Known(program_.FlatIndex(store.buffer, store.index));
    if (!flat.IsConstant())
      return Refuse(fmt::format("{} is in registers, but which tile is used depends on {}: unroll that loop",
                                program_.buffer(store.buffer).name, out_.vars[flat.terms()[0].var].name));
    sums.push_back(fragments.elements.at(flat.constant()));
  }
  constants_.erase(row);
  constants_.erase(column);
  return sums;
}

// As many elements as 32 bits hold, of steps side by side from `first` on.
Result<ValueId> LaunchMaker::WordOf(const ValueNode& load, VarId steps, const Linear& first) {
  const DType type = TypeInMemory(load.type);
  const int64_t items = 4 / ByteSize(type);
  const Linear flat = program_.FlatIndex(load.buffer, load.index);
  std::vector<Linear> at;
  for (int64_t i = 0; i < items; ++i) {
    forms_[steps] = first + Linear(i);
    at.push_back(Known(flat));
  }
  const bool is_whole = items > 1 && at[1] - at[0] == Linear(1) && at[0].constant() % items == 0 &&
                        std::ranges::all_of(at[0].terms(), [&](const Term& term) { return term.coef % items == 0; });
  std::vector<ValueId> elements;
  for (const Linear& form : at) {
    const Address address = HONE_TRY(PlaceOfElement(load.buffer, form));
    elements.push_back(
        builder_.Load(load.buffer, type, is_whole ? static_cast<int>(items) : 1, address.base, address.offset));
    if (is_whole) return elements[0];
  }
  return items == 1 ? elements[0] : builder_.Make(Do::kPack, type, std::move(elements));
}

Result<std::vector<ValueId>> LaunchMaker::MatricesOf(const ValueNode& load, const std::array<VarId, 2>& loops,
                                                     int words, const InstructionMeaning& meaning) {
  const Buffer& buffer = program_.buffer(load.buffer);
  if (buffer.scope != Scope::kBlock || buffer.is_swizzled) return std::vector<ValueId>();
  const auto& [steps, lines] = loops;
  const int64_t bytes = ByteSize(buffer.dtype), of_row = kRowBytes / bytes;
  const Linear flat = program_.FlatIndex(load.buffer, load.index), row = LaneDigit(1, kHalf);
  // Which row a thread names: of eight, of the matrix further down (of four words), of the one of later steps.
  const bool has_halves = words == 4;
  const Linear down = has_halves ? LaneDigit(kHalf, kHalves) * kHalf : Linear();
  const Linear later = LaneDigit(has_halves ? kHalf * kHalves : kHalf, kHalves) * (meaning.steps / 2);
  for (bool transposes : {false, true}) {
    if (transposes && bytes != 2) break;
    const auto place = [&](int64_t i) {
      forms_[steps] = later + (transposes ? row : Linear(i));
      forms_[lines] = down + (transposes ? Linear(i) : row);
      return Known(flat);
    };
    const Linear first = place(0);
    bool is_row = first.constant() % of_row == 0 &&
                  std::ranges::all_of(first.terms(), [&](const Term& term) { return term.coef % of_row == 0; });
    for (int64_t i = 1; i < of_row && is_row; ++i) is_row = place(i) - first == Linear(i);
    if (!is_row) continue;
    const Address at = HONE_TRY(PlaceOfElement(load.buffer, first));
    return builder_.LoadMatrices(load.buffer, TypeInMemory(load.type), words, transposes, at.base, at.offset);
  }
  return std::vector<ValueId>();
}

Result<std::vector<ValueId>> LaunchMaker::WordsOf(const ValueNode& load, const std::array<VarId, 2>& loops, int words,
                                                  const InstructionMeaning& meaning) {
  std::vector<ValueId> made = HONE_TRY(MatricesOf(load, loops, words, meaning));
  if (!made.empty()) return made;
  const int halves = words / 2;
  const Linear first = LaneDigit(1, kOfQuad) * (4 / meaning.step_bytes);
  for (int word = 0; word < words; ++word) {
    forms_[loops[1]] = LaneDigit(kOfQuad, kQuads) + Linear(word % halves * kHalf);
    made.push_back(HONE_TRY(WordOf(load, loops[0], first + Linear(word / halves * meaning.steps / 2))));
  }
  return made;
}

Result<void> LaunchMaker::EmitMeaning(const Stmt& stmt, const std::array<VarId, 3>& loops,
                                      const std::vector<ValueId>& sums) {
  const Stmt& store = *Of(stmt).store;
  const auto& [steps, row, column] = loops;
  const ValueId counter = builder_.OpenFor(out_.vars[steps].name, false);
  known_[steps] = counter;
  const InstructionMeaning& meaning = MeaningOf(*stmt.instruction);
  Linear first = LaneDigit(kOfQuad, kQuads);
  if (meaning.is_of_group) first += LaneDigit(kWarp, meaning.threads / kWarp) * kRowsOfWarp;
  for (int64_t i = 0; i < SumsOfThread(meaning); ++i) {
    forms_[row] = first + Linear(PlaceOf(i).row);
    forms_[column] = LaneDigit(1, kOfQuad) * kPair + Linear(PlaceOf(i).column);
    const ValueId sum = sums[static_cast<size_t>(i)];
    builder_.Assign(sum, HONE_TRY(Combined(store, {sum, 0})));
  }
  builder_.CloseFor(counter, builder_.Int(0), builder_.Int(meaning.steps));
  return {};
}

Result<void> LaunchMaker::EmitWarp(const Stmt& stmt) {
  const Instruction& instruction = *stmt.instruction;
  const InstructionMeaning& meaning = MeaningOf(instruction);
  if (launch_.block[0] != meaning.threads || has_thread_[0])
    return Refuse(
        fmt::format("{0} is done by the {1} threads of a {2} together: {1} threads along thread.x, outside of "
                    "whose loop it is",
                    instruction.name, meaning.threads, meaning.is_of_group ? "group of warps" : "warp"));
  if (vector_) return Refuse(fmt::format("{} is inside a vectorised loop", instruction.name));
  const Inside inside = Of(stmt);
  if (stmt.operands.empty()) {
    for (ValueId sum : HONE_TRY(SumsOf(*inside.store, inside.loops[0], inside.loops[1])))
      builder_.Assign(sum, HONE_TRY(ValueOf(*inside.store->value)));
    return {};
  }
  const VarId steps = inside.loops[0], row = inside.loops[1], column = inside.loops[2];
  std::vector<ValueId> args = HONE_TRY(SumsOf(*inside.store, row, column));
  std::array<MatrixLayout, 2> matrices;
  if (meaning.is_of_group) matrices = HONE_TRY(LayoutsOf(stmt, {steps, row, column}));
  if (std::ranges::find(limits_.instructions, &instruction) == limits_.instructions.end()) {
    HONE_TRY(EmitMeaning(stmt, {steps, row, column}, args));
  } else if (meaning.is_of_group) {
    HONE_TRY(EmitProduct(stmt, {steps, row, column}, matrices, std::move(args)));
  } else {
    for (size_t i : {size_t{0}, size_t{1}}) {
      const std::vector<ValueId> words =
          HONE_TRY(WordsOf(*stmt.operands[i], {steps, i == 0 ? row : column}, i == 0 ? 4 : 2, meaning));
      args.insert(args.end(), words.begin(), words.end());
    }
    builder_.Multiply(instruction, std::move(args));
  }
  for (VarId loop : inside.loops) forms_.erase(loop);
  return {};
}

}  // namespace hone::straight
