#include "codegen/gpu/simt_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "codegen/gpu/simt_warp.h"
#include "codegen/instructions.h"

namespace hone::simt {

std::vector<double> GroupProducts::ReadMatrix(const straight::Node& node, size_t operand, int64_t at,
                                              const Actor& actor, bool begins) {
  const InstructionMeaning& meaning = MeaningOf(*node.instruction);
  Memory& memory = memory_(operand == 0 ? node.buffer : node.source);
  std::vector<double> elements;
  for (int64_t line = 0; line < (operand == 0 ? meaning.rows : meaning.lanes); ++line)
    for (int64_t step = 0; step < meaning.steps; ++step) {
      int64_t index = at + OffsetIn(node.matrices[operand], meaning.step_bytes, line, step);
      if (node.matrices[operand].is_swizzled) index = straight::SwizzledPlace(index, meaning.step_bytes);
      std::string wrong = memory.Read(index, actor);
      const bool is_stray = wrong.starts_with("stray");
      find_(std::move(wrong));
      if (!is_stray && begins && !has_fenced_(memory.WriterOf(index)))
        find_(fmt::format("no fence: a product reads {}[{}], after whose writing thread {} comes to none",
                          memory.name(), index, memory.WriterOf(index).thread));
      elements.push_back(is_stray ? 0 : memory.Load(index));
    }
  return elements;
}

void GroupProducts::Begin(const straight::Node& node, std::span<const GroupThread> threads, const Actor& actor) {
  Product product{&node, {threads[0].a, threads[0].b}, {}};
  for (const GroupThread& thread : threads)
    if (thread.a != product.at[0] || thread.b != product.at[1])
      find_("threads of a group of warps begin a product of different operands[");
  for (size_t v : {size_t{0}, size_t{1}}) product.read[v] = ReadMatrix(node, v, product.at[v], actor, true);
  for (straight::ValueId sum : node.args) {
    const bool is_adding = adding_[sum]++ > 0;
    for (const GroupThread& thread : threads) {
      Slot& slot = (*thread.slots)[sum];
      if (!slot.is_set && !is_adding) find_("a product adds to a sum that is not set[");
      slot.is_set = false;
    }
  }
  open_.push_back(std::move(product));
}

void GroupProducts::Commit() { groups_.push_back(std::exchange(open_, {})); }

void GroupProducts::Await(size_t groups, std::span<const GroupThread> threads, const Actor& actor) {
  for (; groups_.size() > groups; groups_.pop_front())
    for (const Product& product : groups_.front()) {
      for (size_t v : {size_t{0}, size_t{1}})
        if (ReadMatrix(*product.node, v, product.at[v], actor, false) != product.read[v])
          find_(fmt::format("{} changes while a product reads it[",
                            memory_(v == 0 ? product.node->buffer : product.node->source).name()));
      End(product, threads);
    }
}

void GroupProducts::End(const Product& product, std::span<const GroupThread> threads) {
  const straight::Node& node = *product.node;
  const InstructionMeaning& meaning = MeaningOf(*node.instruction);
  const auto steps = static_cast<size_t>(meaning.steps);
  for (size_t t = 0; t < threads.size(); ++t)
    for (size_t i = 0; i < node.args.size(); ++i) {
      const SumPlace place = PlaceInGroup(static_cast<int64_t>(t), static_cast<int64_t>(i));
      Slot& slot = (*threads[t].slots)[node.args[i]];
      if (slot.is_set) find_("a sum is set while a product that adds to it is on its way[");
      double sum = slot.lanes[0].real;
      for (size_t k = 0; k < steps; ++k)
        sum += product.read[0][static_cast<size_t>(place.row) * steps + k] *
               product.read[1][static_cast<size_t>(place.column) * steps + k];
      slot.lanes[0].real = CutOff(sum);
    }
  for (straight::ValueId sum : node.args)
    if (--adding_[sum] == 0)
      for (const GroupThread& thread : threads) (*thread.slots)[sum].is_set = true;
}

}  // namespace hone::simt
