// The resolver's state and its parts. Internal to ir/language/parse_*: ResolveKernel (ir/language/parse_resolve.h) is
// the way in.
#pragma once

#include <fmt/format.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/result.h"
#include "ir/graph/kernel.h"
#include "ir/language/parse_resolve.h"
#include "ir/language/parse_tree.h"
#include "ir/language/parse_values.h"

namespace hone {

// An index variable of the statement at hand. Until its stage is made, it is the axis that expressions name by its id
// in a table of all that the statement has.
struct StatementVariable {
  std::string_view name;
  Expr extent;
};

// A reduction whose operand is known: outer factors do not depend on the reduction's variables.
struct ReductionParts {
  Reduction reduction = Reduction::kNone;
  std::vector<AxisId> variables;
  Value body;
  std::vector<Value> multiplied;
  std::vector<Value> divided;
};

class KernelResolver {
 public:
  KernelResolver(const KernelTree& tree, std::string_view file, const ParseLimits& limits, SourceMap* map)
      : tree_(tree), file_(file), limits_(limits), map_(*map), build_(limits) {}

  Result<Kernel> Run();

 private:
  // A dimension that a reduction's variable indexes alone.
  struct IndexedDim {
    std::string_view tensor;
    size_t dim;
    Expr extent;
  };
  struct IndexedDims {
    std::vector<IndexedDim> inside, padded;
    std::unordered_set<const ExprNode*> seen, seen_padded;  // extents
  };

  Error At(Position position, std::string message, ErrorKind kind = ErrorKind::kInvalid) const {
    return Error{kind, std::move(message), WhereText(file_, position)};
  }
  // Gives an error without a place the place of what was being read.
  template <typename T>
  Result<T> Place(Result<T> result, Position position) const {
    if (result || !result.error().where.empty()) return result;
    Error error = std::move(result).error();
    error.where = WhereText(file_, position);
    return error;
  }

  Result<void> Sizes();
  Result<void> Options();
  Result<Expr> Extent(const Tree& tree);
  Result<void> Declare(const TensorTree& tree, TensorKind kind);
  Result<void> CheckView(const TensorTree& tree, const Tensor& tensor);
  Result<void> Statement(const StatementTree& tree);
  Result<void> Finish();

  Result<Value> Lower(const Tree& tree, bool index);
  Result<Value> LowerNode(const Tree& tree, bool index);
  Result<Value> Name(const Tree& tree);
  Result<Value> Load(const Tree& tree);
  Result<Value> Pad(const Tree& tree);
  Result<ReductionParts> Reduce(const Tree& tree);
  std::vector<IndexedDims> DimsOf(const Tree& reduction) const;
  Result<Expr> ReductionExtent(const Tree& reduction, const ReduceVar& var, const IndexedDims& dims);
  std::optional<ExtentRange> RangeOf(const Expr& extent);  // remembered
  Result<void> Factor(const Tree& product, ReductionParts& parts);
  Result<Value> Hoist(const Tree& tree, const ReductionParts& parts);

  bool Uses(const Expr& expr, const std::vector<AxisId>& variables) const;
  Expr Renumber(const Expr& body, const std::vector<AxisId>& order, std::unordered_map<const ExprNode*, Expr>& memo);
  Stage MakeStage(TensorId output, const std::vector<AxisId>& axes, const ReductionParts& parts, const Expr& body);
  Result<void> AddStage(Stage stage, Position position);
  // Counts what the kernel holds, extents wherever they stand included; kLimit beyond ParseLimits::nodes.
  Result<void> Count(const Expr& expr, Position position);
  Result<void> Count(const Tensor& tensor, Position position);
  TensorId AddTensor(Tensor tensor, Position position, bool is_written);
  std::string FreshName(std::string_view stem);
  std::string Suggestion(std::string_view name) const;

  Tensor& TensorOf(TensorId id) { return kernel_.tensors[id]; }

  const KernelTree& tree_;
  std::string_view file_;
  const ParseLimits& limits_;
  SourceMap& map_;
  ValueBuilder build_;
  Kernel kernel_;

  std::map<std::string_view, Expr> sizes_;  // a SizeRef, or the expression that the name abbreviates
  std::map<std::string_view, Position> size_positions_;
  std::map<std::string, TensorId, std::less<>> tensors_;
  IdVector<TensorId, bool> written_;
  std::set<std::string, std::less<>> names_;                                // of tensors, taken
  std::map<std::string, int> next_fresh_;                                   // by stem
  std::unordered_map<const ExprNode*, std::optional<ExtentRange>> ranges_;  // of tensors' extents, which build_ keeps
  int64_t nodes_ = 0;
  int dynamic_sizes_ = 0;

  // Of the statement at hand.
  std::string_view statement_;
  DType target_ = DType::kF32;
  IdVector<AxisId, StatementVariable> variables_;
  std::map<std::string_view, AxisId> scope_;
  std::vector<StageId> hoisted_;                          // stages made for this statement
  std::unordered_map<const ExprNode*, Position> places_;  // of operations
};

}  // namespace hone
