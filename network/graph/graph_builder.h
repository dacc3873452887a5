// Short words for appending nodes to a graph.
#pragma once

#include <string>
#include <vector>

#include "network/graph/graph.h"

namespace hone {

// Appends on behalf of one ONNX node, whose name the nodes carry.
class Builder {
 public:
  Builder(Graph& graph, std::string origin) : graph_(graph), origin_(std::move(origin)) {}

  Graph& graph() { return graph_; }
  const Shape& shape(ValueId value) const { return graph_.shape(value); }
  DType dtype(ValueId value) const { return graph_.dtype(value); }
  Error Unsupported(std::string message) const { return Error{ErrorKind::kUnsupported, std::move(message), origin_}; }
  Error Invalid(std::string message) const { return Error{ErrorKind::kInvalid, std::move(message), origin_}; }

  Result<ValueId> Add(Node node);
  Result<ValueId> Unary(std::string_view function, ValueId x);
  // A scalar among the two takes the other's type.
  Result<ValueId> Binary(std::string_view function, ValueId a, ValueId b);
  Result<ValueId> Select(ValueId condition, ValueId a, ValueId b);
  Result<ValueId> Cast(ValueId x, DType dtype);                     // x itself where it is of that type
  Result<ValueId> Reshape(ValueId x, Shape shape);                  // x itself where it has that shape
  Result<ValueId> Transpose(ValueId x, std::vector<int64_t> axes);  // x itself for the identity
  Result<ValueId> Expand(ValueId x, Shape shape);
  Result<ValueId> Concat(std::vector<ValueId> parts, int64_t axis);  // a single part is itself
  Result<ValueId> Slice(ValueId x, size_t axis, int64_t begin, int64_t count, int64_t step = 1);  // all of it: x itself
  Result<ValueId> Gather(ValueId x, ValueId indices, int64_t axis);
  // a[…,M,K] · b[…,K,N], or b[…,N,K] where it is transposed.
  Result<ValueId> MatMul(ValueId a, ValueId b, bool is_transposed = false);
  Result<ValueId> Reduce(std::string_view function, ValueId x, std::vector<int64_t> axes);  // axes stay as 1
  // A value for each result.
  Result<std::vector<ValueId>> Host(HostOperation operation, const std::vector<ValueId>& inputs);
  ValueId Scalar(double value, DType dtype);
  ValueId Constant(const Numbers& numbers);

 private:
  Graph& graph_;
  std::string origin_;
};

}  // namespace hone
