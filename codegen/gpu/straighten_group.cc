// Products of matrices by a group of four warps (PTX's wgmma). They read both operands from block storage, through
// descriptors that say where blocks of eight by eight elements lie, and go on while the threads do other things: what
// fences, ends and waits for them is put around them when all of a launch is there.
#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "codegen/gpu/launch_maker.h"
#include "codegen/instructions.h"

namespace hone::straight {
namespace {

constexpr int64_t kBlockRows = 8, kSideBySide = 16, kSwizzledRow = 128;  // of a block; bytes
constexpr int64_t kMostApart = ((1 << 14) - 1) * kSideBySide;

bool MovesWith(const VarTable& vars, const Linear& form, VarId on) {
  return std::ranges::any_of(form.terms(), [&](const Term& term) {
    const Var& var = vars[term.var];
    return term.var == on || MovesWith(vars, var.a, on) || MovesWith(vars, var.b, on);
  });
}

bool IsProduct(const Node& node) { return node.kind == Node::Kind::kProduct; }

// Whether products before and after it may be of one group.
bool IsTransparent(const Code& code, const Node& node) {
  if (IsProduct(node)) return true;
  if (node.kind != Node::Kind::kLet) return false;
  const Value& value = code.values[node.value];
  return value.what != Do::kLoad &&
         std::ranges::none_of(value.args, [&](ValueId arg) { return arg && code.values[arg].what == Do::kRegister; });
}

// Fences each run of products and ends it as a group. A trip of a pipeline waits at its end, for the last of them; all
// others are waited for where they end.
void Order(const Code& code, std::vector<Node>& nodes, const std::vector<ValueId>& sums) {
  std::vector<Node> ordered;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (!IsProduct(nodes[i])) {
      Order(code, nodes[i].body, sums);
      if (nodes[i].kind == Node::Kind::kAwaitProducts) nodes[i].args = sums;
      ordered.push_back(std::move(nodes[i]));
      continue;
    }
    size_t last = i;
    for (size_t j = i; j < nodes.size() && IsTransparent(code, nodes[j]); ++j)
      if (IsProduct(nodes[j])) last = j;
    Node fence{.kind = Node::Kind::kFenceSums};
    fence.args = sums;
    // Addresses first, so that nothing comes between products.
    for (const bool is_product : {false, true}) {
      if (is_product) ordered.push_back(std::move(fence));
      for (size_t j = i; j <= last; ++j)
        if (IsProduct(nodes[j]) == is_product) ordered.push_back(std::move(nodes[j]));
    }
    ordered.push_back({.kind = Node::Kind::kCommitProducts});
    const auto next = std::find_if(nodes.begin() + static_cast<int64_t>(last) + 1, nodes.end(), [](const Node& node) {
      return IsProduct(node) || node.kind == Node::Kind::kAwaitProducts;
    });
    if (next == nodes.end() || IsProduct(*next)) {
      ordered.push_back({.kind = Node::Kind::kAwaitProducts});
      ordered.back().args = sums;
    }
    i = last;
  }
  nodes = std::move(ordered);
}

}  // namespace

bool LaunchMaker::MultipliesByGroups(const Stmt& stmt) const {
  if (stmt.kind == Stmt::Kind::kInstruction && MeaningOf(*stmt.instruction).is_of_group)
    return std::ranges::find(limits_.instructions, stmt.instruction) != limits_.instructions.end();
  return std::ranges::any_of(stmt.body, [&](const StmtPtr& child) { return MultipliesByGroups(*child); });
}

void LaunchMaker::OrderProducts() {
  std::vector<ValueId> sums;
  for (const auto& [buffer, fragments] : fragments_)
    for (const auto& [at, element] : fragments.elements) sums.push_back(element);
  Order(launch_.code, launch_.code.nodes, sums);
}

Result<MatrixLayout> LaunchMaker::LayoutOf(const Instruction& instruction, const ValueNode& load, VarId steps,
                                           VarId across, bool has_rows) {
  const InstructionMeaning& meaning = MeaningOf(instruction);
  const std::string& name = program_.buffer(load.buffer).name;
  const bool is_swizzled = program_.buffer(load.buffer).is_swizzled;
  const int64_t bytes = meaning.step_bytes, per_chunk = (is_swizzled ? kSwizzledRow : kSideBySide) / bytes;
  const Linear flat = program_.vars.ExpandAxes(program_.FlatIndex(load.buffer, load.index));
  const char* lines = has_rows ? "row" : "column";
  auto refuse = [&](const std::string& why) {
    if (is_swizzled)
      return Error{ErrorKind::kInvalid,
                   fmt::format("{} reads {}, which is swizzled, in rows of 128 bytes, as store {} block [k/{}, m, k%{} "
                               "swizzled] has them: {}",
                               instruction.name, name, name, per_chunk, per_chunk, why),
                   ""};
    return Error{ErrorKind::kInvalid,
                 fmt::format("{} reads {} in blocks of eight {}s by {} steps, 128 bytes that lie side by side, as "
                             "store {} block [m/8, k/{}, m%8, k%{}] has them: {}",
                             instruction.name, name, lines, per_chunk, name, per_chunk, per_chunk, why),
                 ""};
  };
  for (const Term& term : flat.terms())
    if (MovesWith(program_.vars, Linear::Of(term.var), steps) && MovesWith(program_.vars, Linear::Of(term.var), across))
      return refuse(fmt::format("where an element lies depends on its {} and step together", lines));
  auto at = [&](int64_t line, int64_t step) {
    forms_[across] = Linear(line);
    forms_[steps] = Linear(step);
    return Known(flat);
  };
  const Linear first = at(0, 0);
  const int64_t whole = is_swizzled ? kBlockRows * per_chunk : per_chunk;
  if (!std::ranges::all_of(first.terms(), [&](const Term& term) { return term.coef % whole == 0; }))
    return refuse(fmt::format("tiles begin inside of {} bytes", whole * bytes));
  std::vector<int64_t> along_lines, along_steps;
  for (const bool is_step : {false, true})
    for (int64_t i = 0; i < (is_step ? meaning.steps : has_rows ? meaning.rows : meaning.lanes); ++i) {
      const Linear apart = (is_step ? at(0, i) : at(i, 0)) - first;
      if (!apart.IsConstant())
        return refuse(fmt::format("where {} {} lies depends on {}", is_step ? "step" : lines, i,
                                  out_.vars[apart.terms()[0].var].name));
      (is_step ? along_steps : along_lines).push_back(apart.constant());
    }
  MatrixLayout layout{.is_transposed = along_lines[1] == 1, .is_swizzled = is_swizzled};
  // In a row that is swizzled tiles may begin after some of the steps.
  const int64_t into = first.constant() % whole;
  if (is_swizzled && !layout.is_transposed ? into % (kSideBySide / bytes) != 0 || into + meaning.steps > per_chunk
                                           : into != 0)
    return refuse(fmt::format("tiles begin {} bytes into {}", into * bytes, whole * bytes));
  if (layout.is_transposed && bytes != 2) return refuse("of elements of other than 16 bits steps lie side by side");
  const int64_t line_chunk = layout.is_transposed ? per_chunk : kBlockRows;
  const int64_t step_chunk = layout.is_transposed ? kBlockRows : per_chunk;
  // From a block to the next; 0: there is one.
  auto apart_of = [](const std::vector<int64_t>& seen, int64_t chunk) {
    return static_cast<int64_t>(seen.size()) > chunk ? seen[static_cast<size_t>(chunk)] : 0;
  };
  const int64_t line_block = apart_of(along_lines, line_chunk), step_block = apart_of(along_steps, step_chunk);
  auto check = [&](const std::vector<int64_t>& seen, int64_t chunk, int64_t inside, int64_t block,
                   const char* what) -> Result<void> {
    for (int64_t i = 0; i < static_cast<int64_t>(seen.size()); ++i) {
      const int64_t wanted = i / chunk * block + i % chunk * inside;
      if (seen[static_cast<size_t>(i)] != wanted)
        return refuse(fmt::format("{} {} lies {} elements from the first, where {} are wanted", what, i,
                                  seen[static_cast<size_t>(i)], wanted));
    }
    if (block % whole != 0 || block < 0 || block * bytes > kMostApart)
      return refuse(fmt::format("blocks along {}s lie {} bytes apart, where a multiple of {} up to {} is wanted", what,
                                block * bytes, whole * bytes, kMostApart));
    return {};
  };
  HONE_TRY(check(along_lines, line_chunk, layout.is_transposed ? 1 : per_chunk, line_block, lines));
  HONE_TRY(check(along_steps, step_chunk, layout.is_transposed ? per_chunk : 1, step_block, "step"));
  layout.row_bytes = line_block * bytes;
  layout.step_bytes = step_block * bytes;
  return layout;
}

Result<std::array<MatrixLayout, 2>> LaunchMaker::LayoutsOf(const Stmt& stmt, const std::array<VarId, 3>& loops) {
  std::array<MatrixLayout, 2> layouts;
  for (size_t v : {size_t{0}, size_t{1}}) {
    layouts[v] = HONE_TRY(LayoutOf(*stmt.instruction, *stmt.operands[v], loops[0], loops[v + 1], v == 0));
    forms_.erase(loops[0]);
    forms_.erase(loops[v + 1]);
  }
  return layouts;
}

Result<void> LaunchMaker::EmitProduct(const Stmt& stmt, const std::array<VarId, 3>& loops,
                                      const std::array<MatrixLayout, 2>& matrices, std::vector<ValueId> sums) {
  for (VarId loop : loops) forms_[loop] = Linear(0);
  std::array<Address, 2> at;
  for (size_t v : {size_t{0}, size_t{1}})
    at[v] = HONE_TRY(AddressOf(program_.FlatIndex(stmt.operands[v]->buffer, stmt.operands[v]->index)));
  Node node{.kind = Node::Kind::kProduct, .a = at[0].base, .b = at[1].base, .offset = at[0].offset};
  node.source_offset = at[1].offset;
  node.buffer = stmt.operands[0]->buffer;
  node.source = stmt.operands[1]->buffer;
  node.instruction = stmt.instruction;
  node.matrices = matrices;
  node.args = std::move(sums);
  builder_.AppendChanging(std::move(node));
  return {};
}

}  // namespace hone::straight
