// Writes a node, with what is inlined into it, as a kernel in the kernel language: between write_kernel.cc (elements,
// and where they come from) and write_reductions.cc (sums, windows, products).
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "network/run/kernel_term.h"
#include "network/run/write_kernel.h"

namespace hone {

class KernelWriter {
 public:
  KernelWriter(Graph& graph, const std::function<bool(ValueId)>& inlines, const std::set<ValueId>& channels_last)
      : graph_(graph), inlines_(inlines), channels_last_(channels_last) {}

  Result<KernelText> Run(const Node& root);

 private:
  using Indices = std::vector<std::string>;  // an expression for each dimension

  static std::string Extents(const Shape& shape);  // "2, 3"; "1" of a scalar
  // Extents, or indices, of a value in the order in which its dimensions lie in memory.
  template <typename Element>
  std::vector<Element> Stored(ValueId value, std::vector<Element> dimensions) const {
    if (channels_last_.contains(value)) std::rotate(dimensions.begin() + 1, dimensions.begin() + 2, dimensions.end());
    return dimensions;
  }
  Result<KernelTerm> Operand(ValueId value, const Indices& indices);
  // Kernels of quantised layers differ in their scales and zero points, which are operands: so equal layers share one.
  bool ComputesWithBytes(const Node& node) const;
  // A value at an index: an expression over operands.
  Result<KernelTerm> At(ValueId value, const Indices& indices);
  // The index of an operand that broadcasts.
  Indices Broadcast(ValueId operand, const Indices& indices) const;
  Result<KernelTerm> At(const Node& node, size_t input, const Indices& indices);
  void Word(std::string word) { words_.push_back(std::move(word)); }
  // The result of a node's arithmetic.
  KernelTerm Made(const Node& node, std::string text) const;
  Result<KernelTerm> Compute(const Node& node, const Indices& indices);
  Result<KernelTerm> Unary(const Node& node, const Indices& indices);
  Result<KernelTerm> Binary(const Node& node, const Indices& indices);
  // An index that may be beyond the borders, as the element that is there instead.
  static std::string GoingOn(const Node& node, size_t d, const std::string& index, int64_t extent);
  Result<KernelTerm> Pad(const Node& node, const Indices& indices);
  Result<KernelTerm> Concat(const Node& node, const Indices& indices);
  // Where a gather reads: an index that was checked before (network/graph/check_indices.h), so that what keeps it
  // inside changes none.
  Result<std::string> Index(const Node& node, const Indices& which);
  // The same of constants that count up, each as often: what the nearest neighbours of a larger image are. They need
  // no operand. nullopt: they do not.
  std::optional<std::string> SteadyIndex(ValueId indices, const Indices& which, int64_t extent);
  // A variable of a reduction.
  std::string Variable(int64_t extent, std::string* name);
  bool IsSum(const Node& node) const;
  // A long sum is a sum of sums, of which there are so many: each number would otherwise be added to ever larger ones,
  // and rounding that leans one way grows with their count. Along the innermost dimension the lanes of a vector are as
  // many sums already. 1: it is not long.
  int64_t PartsOf(const Node& node, const Shape& shape) const;
  // The sums of a long sum down columns in a statement of its own, whose last axis is that of the columns.
  Result<KernelTerm> SumOfColumns(const Node& node, const Indices& indices, int64_t parts);
  // A sum's outer variables, the inner ones, and with them the index of what is summed.
  std::pair<std::string, std::string> Variables(const Node& node, const Shape& shape, Indices& own);
  Result<KernelTerm> Reduce(const Node& node, const Indices& indices);
  // Windows that the library's pools do not have: padding that counts, dilation. Indices are n, c, h, w.
  static std::string WindowIndex(const Node& node, const Indices& indices, size_t d, const std::string& variable,
                                 int64_t pad);
  Result<std::string> Windowed(const Node& node, const Indices& indices, std::string_view fill);
  // Divided by what of the window lies in the padded input.
  Result<KernelTerm> PaddedAverage(const Node& node, const Indices& indices);
  Result<KernelTerm> DilatedMax(const Node& node, const Indices& indices);
  static Indices AllIndices(size_t rank);
  // A sum of products of bytes in a statement of its own, over the same axes as the value's: it stays in registers.
  KernelTerm Summed(const Node& node, std::string_view sum);
  // A convolution of bytes. What padding holds is part of a copy, as in the library's convolutions.
  Result<KernelTerm> Conv(const Node& node);
  // Batch dimensions that broadcast, and products of bytes.
  Result<KernelTerm> MatMul(const Node& node, const Indices& value_indices);
  // Over a dimension that is not the last.
  Result<KernelTerm> Softmax(const Node& node, const Indices& indices);

  Graph& graph_;
  const std::function<bool(ValueId)>& inlines_;
  const std::set<ValueId>& channels_last_;
  ValueId result_;
  KernelText text_;
  std::string before_;  // statements that the value's needs
  bool binds_constants_ = false, is_quantized_ = false;
  std::vector<std::string> words_;
  int reductions_ = 0;
};

}  // namespace hone
