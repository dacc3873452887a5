// What the parser reads before names mean anything: the syntax tree of a kernel, with the place of every part. Texts
// are borrowed from the source.
#pragma once

#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "ir/graph/expr.h"
#include "ir/language/lex.h"
#include "ir/language/parse.h"

namespace hone {

enum class TreeKind : uint8_t {
  kInt,
  kFloat,
  kName,
  kLoad,    // name[args]
  kCall,    // name(args)
  kBinary,  // op; `a > b` is read as `b < a`
  kMinus,
  kNot,
  kReduce,  // name(vars) args[0]: "sum", "max", "min", "prod"
};

struct ReduceVar {
  std::string_view name;
  Position position;
  int extent = -1;  // index into the node's args; -1: not given
};

struct Tree {
  TreeKind kind = TreeKind::kInt;
  Op op = Op::kAdd;
  bool parenthesised = false;
  int height = 1;  // bounded, so that recursion over trees is
  Position position;
  std::string_view name = {};
  int64_t int_value = 0;
  double float_value = 0;
  std::vector<Tree> args = {};
  std::vector<ReduceVar> vars = {};
};

struct NameTree {
  std::string_view name;
  Position position;
};

struct TensorTree {
  std::string_view name;
  Position position;
  bool is_const = false;
  NameTree dtype;
  std::vector<Tree> dims;
  std::optional<std::vector<Tree>> view;  // as [ … ]
};

struct SizeTree {
  std::string_view name;
  Position position;
  Tree value;
  std::optional<Tree> hi;  // of a range
};

struct OptionTree {
  std::string_view name;
  Position position;
  Token value;
};

struct StatementTree {
  std::string_view name;
  Position position;
  std::vector<NameTree> indices;
  Tree value;
};

struct KernelTree {
  std::string_view name;
  Position position;
  std::vector<TensorTree> inputs;
  std::vector<TensorTree> outputs;
  std::vector<SizeTree> sizes;
  std::vector<OptionTree> options;
  std::vector<std::variant<TensorTree, StatementTree>> body;
};

// Words that name nothing else: keywords, types and functions.
bool IsReservedWord(std::string_view word);

// kInvalid or kLimit with the place.
Result<KernelTree> ParseSyntax(std::string_view text, std::string_view file, const ParseLimits& limits);

}  // namespace hone
