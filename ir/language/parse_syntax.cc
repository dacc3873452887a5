// Recursive descent over the grammar of docs/kernel_language.md. Nesting is counted, so hostile input ends in an error
// and not in a full stack.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_set>
#include <vector>

#include "ir/language/parse_tree.h"
#include "ir/language/parse_values.h"

namespace hone {
namespace {

constexpr std::string_view kKeywords[] = {"kernel", "const", "where", "with", "as",  "and",  "or",   "not",
                                          "pad",    "sum",   "prod",  "inf",  "nan", "true", "false"};

// A kernel that keeps the limits prints as a text of more than its own nodes and levels: literals have signs and types
// of their own there, as in f32(-1), and reductions name their variables. It must read back.
constexpr int kTextNodesPerNode = 4;
constexpr int kTextLevels = 4;

constexpr size_t kMaxOptions = 16;

class SyntaxParser {
 public:
  SyntaxParser(std::string_view text, std::string_view file, const ParseLimits& limits)
      : text_(text), file_(file), limits_(limits) {}

  Result<KernelTree> Kernel();

 private:
  Error At(Position position, std::string message) const {
    return Error{ErrorKind::kInvalid, std::move(message), WhereText(file_, position)};
  }
  Error Limit(Position position, std::string message) const {
    return Error{ErrorKind::kLimit, std::move(message), WhereText(file_, position)};
  }
  Error Wanted(std::string_view wanted) const {
    return At(token_.position, fmt::format("saw {}, wanted {}", token_.Describe(), wanted));
  }

  Result<void> Advance() {
    Position position = position_;
    Result<Token> next = NextToken(text_, &offset_, &position_);
    if (!next) {
      Error error = std::move(next).error();
      error.where = WhereText(file_, position_.line >= position.line ? position_ : position);
      return error;
    }
    token_ = *next;
    return {};
  }
  Result<bool> Accept(std::string_view symbol) {
    if (!token_.Is(symbol)) return false;
    HONE_TRY(Advance());
    return true;
  }
  Result<void> Expect(std::string_view symbol, std::string_view purpose) {
    if (!token_.Is(symbol)) return Wanted(fmt::format("\"{}\" {}", symbol, purpose));
    return Advance();
  }
  Result<bool> AcceptWord(std::string_view word) {
    if (!token_.IsWord(word)) return false;
    HONE_TRY(Advance());
    return true;
  }
  Result<void> Deeper(Position position);  // counts one level of nesting; the caller takes it back
  Result<NameTree> NewName(std::string_view what);

  Result<void> OneMoreOperand(const KernelTree& kernel) const;
  Result<TensorTree> Tensor();
  Result<std::vector<Tree>> Dims();
  Result<void> Sizes(KernelTree& kernel);
  Result<void> Options(KernelTree& kernel);
  Result<void> Body(KernelTree& kernel);

  Result<Tree> Expression();  // or
  Result<Tree> Conjunction();
  Result<Tree> Negation();
  Result<Tree> Comparison();
  Result<Tree> Sum();
  Result<Tree> Product();
  Result<Tree> Factor();
  Result<Tree> Primary();
  Result<Tree> CallOrReduction(Token name);
  Result<Tree> Reduction(Tree call);
  Result<std::vector<Tree>> Arguments(std::string_view close);

  Result<Tree> Node(Tree node, std::vector<Tree> args);
  bool StartsTerm() const;

  std::string_view text_, file_;
  const ParseLimits& limits_;
  size_t offset_ = 0;
  Position position_;
  Token token_;
  int nesting_ = 0;
  int nodes_ = 0;
};

Result<Tree> SyntaxParser::Node(Tree node, std::vector<Tree> args) {
  for (const Tree& arg : args) node.height = std::max(node.height, arg.height + 1);
  if (node.height > limits_.height + kTextLevels) return Limit(node.position, TooHigh(limits_).message);
  if (++nodes_ > kTextNodesPerNode * limits_.nodes)
    return Limit(node.position, fmt::format("more than {} operands and operators in one kernel", limits_.nodes));
  node.args = std::move(args);
  return node;
}

Result<void> SyntaxParser::Deeper(Position position) {
  if (++nesting_ <= limits_.nesting) return {};
  return Limit(position,
               fmt::format("nested more than {} deep; split the expression into several statements", limits_.nesting));
}

Result<NameTree> SyntaxParser::NewName(std::string_view what) {
  if (token_.kind != TokenKind::kName) return Wanted(what);
  if (IsReservedWord(token_.text))
    return At(
        token_.position,
        fmt::format("saw \"{}\", which is a word of the language, wanted {}; choose another name", token_.text, what));
  NameTree name{token_.text, token_.position};
  HONE_TRY(Advance());
  return name;
}

Result<std::vector<Tree>> SyntaxParser::Arguments(std::string_view close) {
  std::vector<Tree> args;
  if (HONE_TRY(Accept(close))) return args;
  while (true) {
    args.push_back(HONE_TRY(Expression()));
    if (HONE_TRY(Accept(close))) return args;
    if (!token_.Is(",")) return Wanted(fmt::format("an operator, \",\" or \"{}\"", close));
    HONE_TRY(Advance());
  }
}

Result<Tree> SyntaxParser::Expression() {
  HONE_TRY(Deeper(token_.position));
  Tree left = HONE_TRY(Conjunction());
  while (token_.IsWord("or")) {
    Tree node{.kind = TreeKind::kBinary, .op = Op::kOr, .position = token_.position};
    HONE_TRY(Advance());
    std::vector<Tree> args;
    args.push_back(std::move(left));
    args.push_back(HONE_TRY(Conjunction()));
    left = HONE_TRY(Node(std::move(node), std::move(args)));
  }
  --nesting_;
  return left;
}

Result<Tree> SyntaxParser::Conjunction() {
  Tree left = HONE_TRY(Negation());
  while (token_.IsWord("and")) {
    Tree node{.kind = TreeKind::kBinary, .op = Op::kAnd, .position = token_.position};
    HONE_TRY(Advance());
    std::vector<Tree> args;
    args.push_back(std::move(left));
    args.push_back(HONE_TRY(Negation()));
    left = HONE_TRY(Node(std::move(node), std::move(args)));
  }
  return left;
}

Result<Tree> SyntaxParser::Negation() {
  if (!token_.IsWord("not")) return Comparison();
  HONE_TRY(Deeper(token_.position));
  Tree node{.kind = TreeKind::kNot, .position = token_.position};
  HONE_TRY(Advance());
  std::vector<Tree> args;
  args.push_back(HONE_TRY(Negation()));
  --nesting_;
  return Node(std::move(node), std::move(args));
}

Result<Tree> SyntaxParser::Comparison() {
  struct Spelling {
    std::string_view text;
    Op op;
    bool swapped;
  };
  constexpr Spelling kSpellings[] = {{"==", Op::kEq, false}, {"!=", Op::kNe, false}, {"<", Op::kLt, false},
                                     {"<=", Op::kLe, false}, {">", Op::kLt, true},   {">=", Op::kLe, true}};
  auto spelling_of = [&](const Token& token) {
    return std::find_if(std::begin(kSpellings), std::end(kSpellings), [&](auto& s) { return token.Is(s.text); });
  };
  Tree left = HONE_TRY(Sum());
  auto spelling = spelling_of(token_);
  if (spelling == std::end(kSpellings)) return left;
  Tree node{.kind = TreeKind::kBinary, .op = spelling->op, .position = token_.position};
  HONE_TRY(Advance());
  Tree right = HONE_TRY(Sum());
  if (spelling_of(token_) != std::end(kSpellings))
    return At(token_.position, fmt::format("saw a second comparison \"{}\"; write (a < b) and (b < c)", token_.text));
  std::vector<Tree> args;
  args.push_back(std::move(left));
  args.push_back(std::move(right));
  if (spelling->swapped) std::swap(args[0], args[1]);
  return Node(std::move(node), std::move(args));
}

Result<Tree> SyntaxParser::Sum() {
  Tree left = HONE_TRY(Product());
  while (token_.Is("+") || token_.Is("-")) {
    Tree node{.kind = TreeKind::kBinary, .op = token_.Is("+") ? Op::kAdd : Op::kSub, .position = token_.position};
    HONE_TRY(Advance());
    std::vector<Tree> args;
    args.push_back(std::move(left));
    args.push_back(HONE_TRY(Product()));
    left = HONE_TRY(Node(std::move(node), std::move(args)));
  }
  return left;
}

// The tree says kDiv for every "/"; whether it rounds down is decided by the types.
Result<Tree> SyntaxParser::Product() {
  Tree left = HONE_TRY(Factor());
  while (token_.Is("*") || token_.Is("/") || token_.Is("%")) {
    Op op = token_.Is("*") ? Op::kMul : token_.Is("/") ? Op::kDiv : Op::kMod;
    Tree node{.kind = TreeKind::kBinary, .op = op, .position = token_.position};
    HONE_TRY(Advance());
    std::vector<Tree> args;
    args.push_back(std::move(left));
    args.push_back(HONE_TRY(Factor()));
    left = HONE_TRY(Node(std::move(node), std::move(args)));
  }
  return left;
}

Result<Tree> SyntaxParser::Factor() {
  if (!token_.Is("-")) return Primary();
  HONE_TRY(Deeper(token_.position));
  Tree node{.kind = TreeKind::kMinus, .position = token_.position};
  HONE_TRY(Advance());
  std::vector<Tree> args;
  args.push_back(HONE_TRY(Factor()));
  --nesting_;
  return Node(std::move(node), std::move(args));
}

Result<Tree> SyntaxParser::Primary() {
  Token token = token_;
  switch (token.kind) {
    case TokenKind::kInt:
    case TokenKind::kFloat: {
      HONE_TRY(Advance());
      bool whole = token.kind == TokenKind::kInt;
      return Node(Tree{.kind = whole ? TreeKind::kInt : TreeKind::kFloat,
                       .position = token.position,
                       .name = token.text,
                       .int_value = token.int_value,
                       .float_value = token.float_value},
                  {});
    }
    case TokenKind::kName: {
      if (token.IsWord("where") || token.IsWord("with") || token.IsWord("kernel") || token.IsWord("const") ||
          token.IsWord("as") || token.IsWord("and") || token.IsWord("or"))
        return Wanted("an operand: a number, a tensor's element x[…], a function or a name");
      HONE_TRY(Advance());
      if (token_.Is("(")) return CallOrReduction(token);
      if (!token_.Is("["))
        return Node(Tree{.kind = TreeKind::kName, .position = token.position, .name = token.text}, {});
      HONE_TRY(Advance());
      std::vector<Tree> args = HONE_TRY(Arguments("]"));
      return Node(Tree{.kind = TreeKind::kLoad, .position = token.position, .name = token.text}, std::move(args));
    }
    default: break;
  }
  if (!token.Is("(")) return Wanted("an operand: a number, a tensor's element x[…], a function or a name");
  HONE_TRY(Advance());
  Tree inner = HONE_TRY(Expression());
  HONE_TRY(Expect(")", "to close the parenthesis"));
  inner.parenthesised = true;
  return inner;
}

bool SyntaxParser::StartsTerm() const {
  if (token_.kind == TokenKind::kName) {
    for (std::string_view word : {"where", "with", "and", "or", "as", "const"})
      if (token_.text == word) return false;
    return true;
  }
  return token_.kind == TokenKind::kInt || token_.kind == TokenKind::kFloat || token_.Is("(");
}

// min and max are functions of several values and reductions over variables: `max(a, b)`, `max(k) x[k]`. They are
// reductions when an operand follows.
Result<Tree> SyntaxParser::CallOrReduction(Token name) {
  HONE_TRY(Advance());
  std::vector<Tree> args = HONE_TRY(Arguments(")"));
  Tree call{.kind = TreeKind::kCall, .position = name.position, .name = name.text};
  if (name.text == "sum" || name.text == "prod") {
    call.args = std::move(args);
    return Reduction(std::move(call));
  }
  if (name.text == "min" || name.text == "max") {
    auto is_variable = [](const Tree& arg) {
      return arg.kind == TreeKind::kName ||
             (arg.kind == TreeKind::kBinary && arg.op == Op::kLt && arg.args[0].kind == TreeKind::kName);
    };
    if (!args.empty() && StartsTerm() && std::all_of(args.begin(), args.end(), is_variable)) {
      call.args = std::move(args);
      return Reduction(std::move(call));
    }
  }
  return Node(std::move(call), std::move(args));
}

// A reduction takes the product that follows it: `sum(k) a*b + c` is (sum(k) a*b) + c.
Result<Tree> SyntaxParser::Reduction(Tree call) {
  HONE_TRY(Deeper(call.position));
  Tree node{.kind = TreeKind::kReduce, .position = call.position, .name = call.name};
  if (call.args.empty())
    return At(call.position, fmt::format("saw \"{}()\", wanted the variables to reduce over, as in {}(k) or {}(r < 3)",
                                         call.name, call.name, call.name));
  std::vector<Tree> args(1);
  for (Tree& arg : call.args) {
    bool bounded = arg.kind == TreeKind::kBinary && arg.op == Op::kLt && arg.args[0].kind == TreeKind::kName;
    const Tree& name = bounded ? arg.args[0] : arg;
    if (name.kind != TreeKind::kName)
      return At(arg.position, fmt::format("{} wants variables to reduce over: {}(k) or {}(r < 3, s < 3)", call.name,
                                          call.name, call.name));
    if (IsReservedWord(name.name))
      return At(name.position, fmt::format("saw \"{}\", which is a word of the language, wanted a reduction variable; "
                                           "choose another name",
                                           name.name));
    ReduceVar var{name.name, name.position, -1};
    if (bounded) {
      var.extent = static_cast<int>(args.size());
      args.push_back(std::move(arg.args[1]));
    }
    node.vars.push_back(var);
  }
  args[0] = HONE_TRY(Product());
  --nesting_;
  return Node(std::move(node), std::move(args));
}

Result<std::vector<Tree>> SyntaxParser::Dims() {
  HONE_TRY(Expect("[", "and the tensor's dimensions"));
  return Arguments("]");
}

Result<TensorTree> SyntaxParser::Tensor() {
  TensorTree tensor;
  NameTree name = HONE_TRY(NewName("a tensor's name"));
  tensor.name = name.name;
  tensor.position = name.position;
  HONE_TRY(Expect(":", "and the tensor's type, as in x: f32[M, N]"));
  if (token_.kind != TokenKind::kName) return Wanted("an element type: f32, f64, i32, i8 or bool");
  tensor.dtype = {token_.text, token_.position};
  HONE_TRY(Advance());
  tensor.dims = HONE_TRY(Dims());
  if (HONE_TRY(AcceptWord("as"))) tensor.view = HONE_TRY(Dims());
  return tensor;
}

Result<void> SyntaxParser::OneMoreOperand(const KernelTree& kernel) const {
  if (kernel.inputs.size() + kernel.outputs.size() < static_cast<size_t>(limits_.operands)) return {};
  return Limit(kernel.position, fmt::format("more than {} operands", limits_.operands));
}

Result<void> SyntaxParser::Sizes(KernelTree& kernel) {
  do {
    NameTree name = HONE_TRY(NewName("a size's name, as in where M=128"));
    HONE_TRY(Expect("=", fmt::format("and the value of {}", name.name)));
    SizeTree size{name.name, name.position, HONE_TRY(Expression()), std::nullopt};
    if (HONE_TRY(Accept(".."))) size.hi = HONE_TRY(Expression());
    kernel.sizes.push_back(std::move(size));
  } while (HONE_TRY(Accept(",")));
  return {};
}

Result<void> SyntaxParser::Options(KernelTree& kernel) {
  do {
    if (token_.kind != TokenKind::kName) return Wanted("an option: accuracy=… or threads=…");
    if (kernel.options.size() == kMaxOptions)
      return Limit(token_.position, fmt::format("more than {} options", kMaxOptions));
    OptionTree option{token_.text, token_.position, {}};
    HONE_TRY(Advance());
    HONE_TRY(Expect("=", fmt::format("and the value of {}", option.name)));
    if (token_.kind != TokenKind::kName && token_.kind != TokenKind::kInt) return Wanted("the option's value");
    option.value = token_;
    HONE_TRY(Advance());
    kernel.options.push_back(option);
  } while (HONE_TRY(Accept(",")));
  return {};
}

Result<void> SyntaxParser::Body(KernelTree& kernel) {
  while (!token_.Is("}")) {
    if (HONE_TRY(Accept(";"))) continue;
    NameTree name = HONE_TRY(NewName("an operator, a statement y[i] = …, a declaration t: f32[M], or \"}\""));
    if (static_cast<int>(kernel.body.size()) >= 2 * limits_.stages)
      return Limit(name.position, fmt::format("more than {} statements in one kernel", limits_.stages));
    if (token_.Is(":")) {
      TensorTree tensor;
      tensor.name = name.name;
      tensor.position = name.position;
      HONE_TRY(Advance());
      if (token_.kind != TokenKind::kName) return Wanted("an element type: f32, f64, i32, i8 or bool");
      tensor.dtype = {token_.text, token_.position};
      HONE_TRY(Advance());
      tensor.dims = HONE_TRY(Dims());
      kernel.body.emplace_back(std::move(tensor));
      continue;
    }
    StatementTree statement{name.name, name.position, {}, {}};
    HONE_TRY(Expect("[", fmt::format("and the indices of {}, or \":\" and its type", name.name)));
    if (!token_.Is("]")) {
      do {
        if (statement.indices.size() == static_cast<size_t>(limits_.rank))
          return Limit(token_.position, fmt::format("more than {} indices of {}", limits_.rank, name.name));
        statement.indices.push_back(HONE_TRY(NewName("an index variable")));
      } while (HONE_TRY(Accept(",")));
    }
    HONE_TRY(Expect("]", "to close the indices; on the left each is one variable"));
    HONE_TRY(Expect("=", fmt::format("and the value of {}", name.name)));
    statement.value = HONE_TRY(Expression());
    kernel.body.emplace_back(std::move(statement));
  }
  return Advance();
}

Result<KernelTree> SyntaxParser::Kernel() {
  HONE_TRY(Advance());
  KernelTree kernel;
  kernel.position = token_.position;
  if (!HONE_TRY(AcceptWord("kernel"))) return Wanted("\"kernel\"");
  // Nothing refers to the name, so it may be any word, or a string: "conv2d+bias+relu".
  if (token_.kind != TokenKind::kString && token_.kind != TokenKind::kName) return Wanted("the kernel's name");
  kernel.name = token_.text;
  HONE_TRY(Advance());
  HONE_TRY(Expect("(", "and the kernel's inputs"));
  if (!token_.Is(")")) {
    do {
      HONE_TRY(OneMoreOperand(kernel));
      bool is_const = HONE_TRY(AcceptWord("const"));
      kernel.inputs.push_back(HONE_TRY(Tensor()));
      kernel.inputs.back().is_const = is_const;
    } while (HONE_TRY(Accept(",")));
  }
  HONE_TRY(Expect(")", "to close the inputs"));
  HONE_TRY(Expect("->", "and the kernel's outputs"));
  do {
    HONE_TRY(OneMoreOperand(kernel));
    kernel.outputs.push_back(HONE_TRY(Tensor()));
  } while (HONE_TRY(Accept(",")));
  if (HONE_TRY(AcceptWord("where"))) HONE_TRY(Sizes(kernel));
  if (HONE_TRY(AcceptWord("with"))) HONE_TRY(Options(kernel));
  HONE_TRY(Expect("{", "and the statements"));
  HONE_TRY(Body(kernel));
  if (token_.kind != TokenKind::kEnd) return Wanted("the end of the text: one kernel at a time");
  return kernel;
}

}  // namespace

bool IsReservedWord(std::string_view word) {
  static const std::unordered_set<std::string_view> kWords = [] {
    std::vector<std::string_view> functions = FunctionNames();
    std::unordered_set<std::string_view> words(functions.begin(), functions.end());
    words.insert(std::begin(kKeywords), std::end(kKeywords));
    return words;
  }();
  return kWords.contains(word) || ParseDType(word);
}

Result<KernelTree> ParseSyntax(std::string_view text, std::string_view file, const ParseLimits& limits) {
  return SyntaxParser(text, file, limits).Kernel();
}

}  // namespace hone
