// Nodes as operations of hone's library: "conv2d(C=64,…,const=1)+bias+relu".
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "network/graph/graph.h"
#include "network/run/kernel_calls.h"

namespace hone {

// A library operation being spelled.
struct Spelling {
  std::string name;        // "conv2d"
  std::string attributes;  // "C=64,H=56"
  bool takes_const = false;
  bool is_const = true;  // its weight and biases are constants
  Accuracy accuracy = Accuracy::kStrict;
  size_t channel = 0;  // dimension of the output, in the value's shape, that a bias runs over
  std::vector<ValueId> inputs;
  std::string epilogues;

  std::string Text() const;
};

// A node without what follows it; nullopt: the library has no such operation.
std::optional<Spelling> SpellLibraryOperation(const Graph& graph, const Node& node);

// Adds the epilogue that a node is after `value`, which is spelled so far, with its operand; false: it is none.
bool SpellEpilogue(const Graph& graph, const Node& node, ValueId value, Spelling* spelling);

// Whether kernels have tensors of all that a node reads and writes.
bool IsOfKernelTypes(const Graph& graph, const Node& node);

}  // namespace hone
