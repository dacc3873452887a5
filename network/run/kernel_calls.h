// A network as calls of kernels: library operations with the epilogues that follow them, and text in the kernel
// language for all else. What only reads elements in another shape, or puts parts one after another, is no call: it
// shares memory.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "network/graph/graph.h"

namespace hone {

// One step of a network: a kernel, or nodes that are evaluated on the host.
struct KernelCall {
  std::string kernel;           // as a client asks for it
  std::string label;            // for people: the library operation, or what the text does: "mul+add", "gather"
  bool is_library = false;      // spelled as a library operation
  std::vector<ValueId> inputs;  // in the kernel's order
  ValueId output;
  std::vector<std::string> nodes;  // the ONNX nodes in it
  // Not empty: no kernel. These nodes of the graph are evaluated in its place, all of them reading `inputs`; each
  // writes its own output, the first of which is `output`.
  std::vector<NodeId> host_nodes = {};
  std::string why_host = {};  // no kernel is written
  bool is_check = false;      // of indices from data: HostOperation::is_check

  bool is_host() const { return !host_nodes.empty(); }
};

// What a call writes.
std::vector<ValueId> OutputsOf(const Graph& graph, const KernelCall& call);

// Where a value's elements lie: in the memory of `root`, from element `offset` on.
struct Place {
  ValueId root;
  int64_t offset = 0;
};

struct CallPlan {
  std::vector<KernelCall> calls;  // in an order in which they can run
  // One a value: itself; a value that it reads in another shape; or a concatenation whose parts follow each other in
  // memory, where each part is computed in its place.
  IdVector<ValueId, Place> place;
  std::set<ValueId> channels_last;  // values of four dimensions that lie with the second one last
};

// First puts a check before each gather by indices from data (network/graph/check_indices.h): kernels read where it
// says. An epilogue is fused into the operation before it when nothing else reads that value. Element-wise work, data
// movement and broadcasting are fused along chains of single readers, into one kernel a chain.
//
// A convolution or product of bytes is one kernel with the element-wise nodes after it: what quantises its sums.
struct LowerOptions {
  bool has_channels_last = true;                    // network/run/channels_last.h: networks on GPUs do without
  std::map<std::string, std::string> refused = {};  // kernels that are not to be called, each with the reason
};
CallPlan Lower(Graph& graph, const LowerOptions& options = {});

// Whether kernels have tensors of a type. Others, such as whole numbers of 64 bits, are computed on the host.
bool IsKernelType(DType dtype);

}  // namespace hone
