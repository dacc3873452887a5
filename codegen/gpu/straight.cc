#include "codegen/gpu/straight.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/arithmetic.h"

namespace hone::straight {
namespace {

constexpr int64_t kSharedAlignment = 16, kSwizzledAlignment = 1024;
constexpr int64_t kPartBytes = 16, kRowBytes = 128, kRowsOfBlock = 8;  // of what is swizzled

int64_t Evaluate(const Program& program, const Linear& form, std::span<const int64_t> sizes);

int64_t Evaluate(const Program& program, VarId id, std::span<const int64_t> sizes) {
  const Var& var = program.vars[id];
  auto of = [&](const Linear& form) { return Evaluate(program, form, sizes); };
  switch (var.kind) {
    case VarKind::kSize:
      for (size_t size = 0; size < program.size_vars.size(); ++size)
        if (program.size_vars[size] == id) return sizes[size];
      return 0;
    case VarKind::kFloorDiv: {
      const int64_t a = of(var.a);
      return a >= 0 ? a / var.divisor : -((-a + var.divisor - 1) / var.divisor);
    }
    case VarKind::kMin: return std::min(of(var.a), of(var.b));
    case VarKind::kMax: return std::max(of(var.a), of(var.b));
    case VarKind::kProduct: return of(var.a) * of(var.b);
    default: return of(var.a);
  }
}

int64_t Evaluate(const Program& program, const Linear& form, std::span<const int64_t> sizes) {
  int64_t value = form.constant();
  for (const Term& term : form.terms()) value += term.coef * Evaluate(program, term.var, sizes);
  return value;
}

void DropUnused(const Code& code, std::vector<Node>& nodes, std::set<ValueId>& used) {
  std::vector<Node> kept;
  for (size_t i = nodes.size(); i-- > 0;) {
    Node& node = nodes[i];
    if (node.kind == Node::Kind::kLet && !used.contains(node.value)) continue;
    DropUnused(code, node.body, used);
    if (node.kind == Node::Kind::kLet)
      used.insert(code.values[node.value].args.begin(), code.values[node.value].args.end());
    used.insert({node.a, node.b});
    used.insert(node.args.begin(), node.args.end());
    kept.push_back(std::move(node));
  }
  std::ranges::reverse(kept);
  nodes = std::move(kept);
}

}  // namespace

void DropUnused(Code& code) {
  std::set<ValueId> used;
  DropUnused(code, code.nodes, used);
}

bool HasBarrier(const std::vector<Node>& nodes) {
  return std::any_of(nodes.begin(), nodes.end(),
                     [](const Node& node) { return node.kind == Node::Kind::kBarrier || HasBarrier(node.body); });
}

bool Stores(const std::vector<Node>& nodes, BufferId buffer) {
  return std::any_of(nodes.begin(), nodes.end(), [&](const Node& node) {
    return (node.kind == Node::Kind::kStore && node.buffer == buffer) || Stores(node.body, buffer);
  });
}

DeviceLimits LimitsOf(const MachineModel& machine) {
  DeviceLimits limits;
  limits.threads = machine.block_threads;
  limits.shared_bytes = machine.block_bytes;
  limits.grid = machine.grid;
  limits.instructions = machine.instructions;
  limits.sub_group = machine.sub_group;
  limits.has_async_copies = machine.has_async_copies;
  limits.lanes = machine.lanes;
  if (machine.threads_are_loops)
    limits.registers = std::max(limits.registers, int64_t{machine.vector_registers} * machine.lanes);
  return limits;
}

int64_t SwizzledPlace(int64_t element, int64_t element_bytes) {
  return element ^ (element * element_bytes / kRowBytes % kRowsOfBlock * kPartBytes / element_bytes);
}

int64_t SharedAlignment(const Buffer& buffer) { return buffer.is_swizzled ? kSwizzledAlignment : kSharedAlignment; }

int64_t SharedBytes(const Buffer& buffer) {
  return RoundUp(buffer.elements * ByteSize(buffer.dtype), SharedAlignment(buffer));
}

int64_t BlocksAlong(const Program& program, const Launch& launch, size_t dimension, std::span<const int64_t> sizes) {
  return Evaluate(program, launch.grid[dimension], sizes);
}

int64_t ElementsAt(const Program& program, const Buffer& buffer, std::span<const int64_t> sizes) {
  const Tensor& tensor = program.kernel.tensors[program.kernel.operands[static_cast<size_t>(buffer.operand)]];
  if (tensor.shape.empty()) return 1;
  const Expr& first = tensor.shape[0];
  if (LowerExtent(program.kernel, first) == UpperExtent(program.kernel, first) || first.op() != Op::kSize)
    return buffer.elements;
  return buffer.elements / UpperExtent(program.kernel, first) * sizes[static_cast<size_t>(first.int_value())];
}

}  // namespace hone::straight
