// Values that are used once, where nothing can come in between, are written where they are used; all others get a name.
// Helpers that some dialects lack (extrema that keep NaN, conversions that saturate) are functions, written before the
// launches if these use them.
#include "codegen/gpu/print_launch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <set>
#include <utility>

#include "base/check.h"
#include "codegen/gpu/print_helpers.h"
#include "codegen/gpu/print_inline.h"
#include "codegen/gpu/print_warp.h"
#include "ir/device_artifact.h"
#include "ir/graph/dtype_traits.h"

namespace hone {
namespace {

using straight::Code;
using straight::Do;
using straight::Node;
using straight::Value;
using straight::ValueId;

// One launch or function.
class CodePrinter {
 public:
  CodePrinter(const straight::Program& program, const Code& code, const Dialect& dialect,
              std::set<std::string>& helpers, ValueId result = {})
      : program_(program), code_(code), dialect_(dialect), helpers_(helpers), inline_(code, result) {
    for (std::string_view word : ReservedWords()) taken_.insert(std::string(word));
  }

  std::string Unique(std::string_view hint) {
    std::string name;
    for (char c : hint) name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
    if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) != 0 || name[0] == '_') name = "n" + name;
    while (name.find("__") != std::string::npos) name.replace(name.find("__"), 2, "_");
    std::string free = name;
    for (int i = 2; !taken_.insert(free).second; ++i) free = fmt::format("{}_{}", name, i);
    return free;
  }
  void NameBuffer(BufferId id) { buffers_[id] = Unique(program_.buffers[id].name); }
  const std::string& BufferName(BufferId id) const { return buffers_.at(id); }
  void NameSize(int size) { sizes_[size] = Unique(program_.kernel.sizes[static_cast<size_t>(size)].name); }
  const std::string& SizeName(int size) const { return sizes_.at(size); }

  std::string Print(const std::vector<Node>& nodes, int depth) {
    text_.clear();
    PrintList(nodes, depth);
    return std::move(text_);
  }
  std::string Expression(ValueId id);
  std::vector<std::string> Expressions(std::span<const ValueId> ids) {
    std::vector<std::string> expressions;
    for (ValueId id : ids) expressions.push_back(Expression(id));
    return expressions;
  }

 private:
  void Line(int depth, const std::string& line) {
    text_ += std::string(static_cast<size_t>(depth) * 2, ' ') + line + "\n";
  }
  void PrintList(const std::vector<Node>& nodes, int depth);
  void PrintNode(const Node& node, int depth);
  void PrintStore(const Node& node, int depth);

  std::string TypeName(const Value& value) const {
    if (value.what == Do::kMatrices) return fmt::format("uint{}", value.lanes);
    const DialectType& type = dialect_.Of(value.type);
    return std::string(value.lanes == 1 ? type.value : type.Vector(value.lanes));
  }
  std::string Index(ValueId base, int64_t offset);
  std::string Place(BufferId id, ValueId base, int64_t offset) {
    return fmt::format("{}[{}]", BufferName(id), Index(base, offset));
  }
  bool IsShared(BufferId id) const { return program_.buffers[id].scope == Scope::kBlock; }
  std::string Element(BufferId id, const std::string& index, DType type);
  std::string Load(const Value& value);
  std::string Operation(const Value& value);
  std::string Floating(const Value& value, const std::vector<std::string>& args);
  // A small vector as 32 bits, or an f32 as an instruction of a warp takes it.
  std::string Word(ValueId id) {
    const Value& value = code_.values[id];
    const bool is_word = value.what == Do::kWord, is_float = value.type == DType::kF32;
    if (is_word && !is_float) return Expression(id);
    return fmt::format("{}({}{}{})", Helper("word", value.type), is_word ? "__uint_as_float(" : "", Expression(id),
                       is_word ? ")" : "");
  }
  // The name of a helper: "hone_max_f32".
  std::string Helper(std::string_view what, DType type, int lanes = 1) {
    const std::string name = fmt::format("{}_{}{}", what, Name(type), lanes > 1 ? fmt::format("x{}", lanes) : "");
    helpers_.insert(name);
    return "hone_" + name;
  }
  // The nth element of a vector.
  static std::string LaneName(int64_t lane, int lanes) {
    return lanes <= 4 ? std::string(1, "xyzw"[lane]) : fmt::format("s{:x}", lane);
  }

  const straight::Program& program_;
  const Code& code_;
  const Dialect& dialect_;
  std::set<std::string>& helpers_;
  InlineValues inline_;
  std::map<ValueId, std::string> names_;
  std::map<BufferId, std::string> buffers_;
  std::map<int, std::string> sizes_;
  std::set<std::string> taken_;
  std::string text_;
};

std::string CodePrinter::Index(ValueId base, int64_t offset) {
  if (!base) return fmt::format("{}", offset);
  if (offset == 0) return Expression(base);
  return offset > 0 ? fmt::format("{} + {}", Expression(base), offset)
                    : fmt::format("{} - {}", Expression(base), -offset);
}

std::string CodePrinter::Element(BufferId id, const std::string& index, DType type) {
  const std::string element =
      IsShared(id) ? fmt::format("{}[{}]", BufferName(id), index) : Fill(dialect_.element, BufferName(id), index);
  const DialectType& spelled = dialect_.Of(program_.buffers[id].dtype);
  (void)type;
  return spelled.memory == spelled.value ? element
                                         : fmt::format("({} != {})", element, Fill(dialect_.cast, spelled.memory, 0));
}

std::string CodePrinter::Load(const Value& value) {
  std::string load;
  if (value.lanes == 1) {
    load = Element(value.buffer, Index(value.args[0], value.number), value.type);
  } else if (IsShared(value.buffer) && !dialect_.shared_vectors) {
    std::vector<std::string> elements;
    for (int lane = 0; lane < value.lanes; ++lane)
      elements.push_back(Element(value.buffer, Index(value.args[0], value.number + lane), value.type));
    load = Fill(dialect_.Of(value.type).Pack(value.lanes), fmt::format("{}", fmt::join(elements, ", ")));
  } else {
    load = Fill(dialect_.load_vector, TypeName(value), BufferName(value.buffer), Index(value.args[0], value.number),
                value.lanes);
  }
  if (value.args.size() == 1) return load;
  std::string fill = Expression(value.args[2]);
  if (value.lanes > 1) {
    const std::vector<std::string> fills(dialect_.vectors.repeats ? 1 : static_cast<size_t>(value.lanes), fill);
    fill = Fill(dialect_.Of(value.type).Pack(value.lanes), fmt::format("{}", fmt::join(fills, ", ")));
  }
  return fmt::format("({} ? {} : {})", Expression(value.args[1]), load, fill);
}

std::string CodePrinter::Expression(ValueId id) {
  if (auto named = names_.find(id); named != names_.end()) return named->second;
  const Value& value = code_.values[id];
  switch (value.what) {
    case Do::kConstant: return ConstantText(dialect_, value);
    case Do::kThread: return fmt::format("t{}", "xyz"[value.number]);
    case Do::kBlock: return fmt::format("b{}", "xyz"[value.number]);
    case Do::kSize: return (dialect_.is_shader ? "args." : "") + SizeName(static_cast<int>(value.number));
    case Do::kArgument: return value.number == 0 ? "x" : "y";
    case Do::kWord:
    case Do::kLane:
      return fmt::format("{}.{}", Expression(value.args[0]), LaneName(value.number, code_.values[value.args[0]].lanes));
    case Do::kMatrices:
      return fmt::format("{}(&{})", Helper(MatricesName(value.lanes, value.transposes), value.type),
                         Place(value.buffer, value.args[0], value.number));
    case Do::kLoad: return Load(value);
    default: return Operation(value);
  }
}

std::string CodePrinter::Floating(const Value& value, const std::vector<std::string>& args) {
  const DialectFloat& spelled = value.type == DType::kF64 ? dialect_.f64 : dialect_.f32;
  switch (value.what) {
    case Do::kFma: return Fill(spelled.fma, args[0], args[1], args[2]);
    case Do::kAbs: return Fill(spelled.abs, args[0]);
    case Do::kFloor: return Fill(spelled.floor, args[0]);
    case Do::kRound: return Fill(spelled.round, args[0]);
    case Do::kSqrt: return Fill(spelled.sqrt, args[0]);
    case Do::kCopySign: return Fill(spelled.copysign, args[0], args[1]);
    default: return "";
  }
}

std::string CodePrinter::Operation(const Value& value) {
  std::vector<std::string> args;
  for (ValueId arg : value.args) args.push_back(Expression(arg));
  const Value& first = code_.values[value.args[0]];
  const bool is_float = IsFloat(first.type);
  // Arithmetic on bytes is done on ints and cut back.
  auto narrow = [&](std::string text) {
    return value.type == DType::kI8 ? Fill(dialect_.cast, dialect_.Of(DType::kI8).value, text) : text;
  };
  const bool is_wide = value.lanes > 1;
  auto infix = [&](const char* op) {
    return value.wraps
               ? Fill(is_wide ? dialect_.vectors.wrapping : dialect_.wrapping, args[0], op, args[1], value.lanes)
               : narrow(fmt::format("({} {} {})", args[0], op, args[1]));
  };
  switch (value.what) {
    case Do::kPack:
      if (dialect_.vectors.repeats && std::ranges::count(value.args, value.args[0]) == value.lanes) args.resize(1);
      for (std::string& arg : args)
        if (value.type == DType::kBool) arg = Fill(dialect_.vectors.truth, arg);
      return Fill(dialect_.Of(value.type).Pack(value.lanes), fmt::format("{}", fmt::join(args, ", ")));
    case Do::kPart: {
      std::string part = args[0] + ".s";
      for (int lane = 0; lane < value.lanes; ++lane) part += fmt::format("{:x}", value.number + lane);
      return part;
    }
    case Do::kEverySecond: return Fill(dialect_.vectors.every_second, TypeName(value), args[0], args[1]);
    case Do::kAdd: return infix("+");
    case Do::kSub: return infix("-");
    case Do::kMul: return infix("*");
    case Do::kDiv:
    case Do::kQuotient: return infix("/");
    case Do::kNeg: return narrow(fmt::format("(-{})", args[0]));
    case Do::kEq: return infix("==");
    case Do::kNe: return infix("!=");
    case Do::kLt: return infix("<");
    case Do::kLe: return infix("<=");
    case Do::kAnd: return infix("&&");
    case Do::kOr: return infix("||");
    case Do::kNot: return fmt::format("(!{})", args[0]);
    case Do::kBitAnd: return infix("&");
    case Do::kBitOr: return infix("|");
    case Do::kBitXor: return infix("^");
    case Do::kShiftLeft: return infix("<<");
    case Do::kShiftRight:
      if (is_wide) return Fill(dialect_.vectors.unsigned_shift, args[0], args[1], value.lanes);
      return Fill(dialect_.unsigned_shift[value.type == DType::kI64], args[0], args[1]);
    case Do::kSelect: return fmt::format("({} ? {} : {})", args[0], args[1], args[2]);
    case Do::kMin: return fmt::format("{}({}, {})", Helper("min", value.type, value.lanes), args[0], args[1]);
    case Do::kMax: return fmt::format("{}({}, {})", Helper("max", value.type, value.lanes), args[0], args[1]);
    case Do::kLargerNumber:
      return fmt::format("{}({}, {})", Helper("larger", value.type, value.lanes), args[0], args[1]);
    case Do::kAbs:
      if (!is_float) return fmt::format("{}({})", Helper("abs", value.type), args[0]);
      return Floating(value, args);
    case Do::kBits: {
      if (is_wide) return Fill(is_float ? dialect_.vectors.bits : dialect_.vectors.from_bits, args[0], value.lanes);
      const DialectFloat& spelled =
          value.type == DType::kF64 || first.type == DType::kF64 ? dialect_.f64 : dialect_.f32;
      return Fill(is_float ? spelled.bits : spelled.from_bits, args[0]);
    }
    case Do::kConvert:
      if (IsNarrowFloat(value.type) || IsNarrowFloat(first.type))
        return fmt::format("{}({})", Helper(fmt::format("{}_of", Name(value.type)), first.type, value.lanes), args[0]);
      if (value.type == DType::kBool) return fmt::format("({} != {})", args[0], is_float ? "0.0" : "0");
      if (first.type == DType::kBool)
        return fmt::format("({} ? {} : {})", args[0], Fill(dialect_.cast, dialect_.Of(value.type).value, 1),
                           Fill(dialect_.cast, dialect_.Of(value.type).value, 0));
      if (is_float && !IsFloat(value.type))
        return fmt::format("{}({})", Helper(fmt::format("{}_of", Name(value.type)), first.type, value.lanes), args[0]);
      if (is_wide) return Fill(dialect_.vectors.convert, TypeName(value), args[0]);
      return Fill(dialect_.cast, dialect_.Of(value.type).value, args[0]);
    case Do::kCall:
      return fmt::format("{}({})", program_.functions[static_cast<size_t>(value.number)].name, fmt::join(args, ", "));
    case Do::kShuffle: return Fill(dialect_.shuffle, args[0], value.number);
    default: return Floating(value, args);
  }
}

void CodePrinter::PrintStore(const Node& node, int depth) {
  const Value& value = code_.values[node.b];
  const DialectType& spelled = dialect_.Of(program_.buffers[node.buffer].dtype);
  const std::string index = Index(node.a, node.offset);
  if (value.lanes == 1) {
    const std::string element = IsShared(node.buffer) ? Place(node.buffer, node.a, node.offset)
                                                      : Fill(dialect_.element, BufferName(node.buffer), index);
    std::string stored = Expression(node.b);
    if (spelled.memory != spelled.value)
      stored = Fill(dialect_.cast, spelled.memory, fmt::format("{} ? 1 : 0", stored));
    return Line(depth, fmt::format("{} = {};", element, stored));
  }
  if (IsShared(node.buffer) && !dialect_.shared_vectors) {
    for (int lane = 0; lane < value.lanes; ++lane)
      Line(depth, fmt::format("{}[{}] = {};", BufferName(node.buffer), Index(node.a, node.offset + lane),
                              value.what == Do::kPack
                                  ? Expression(value.args[static_cast<size_t>(lane)])
                                  : fmt::format("{}.{}", Expression(node.b), LaneName(lane, value.lanes))));
    return;
  }
  Line(depth,
       Fill(dialect_.store_vector, TypeName(value), BufferName(node.buffer), index, value.lanes, Expression(node.b)) +
           ";");
}

void CodePrinter::PrintNode(const Node& node, int depth) {
  switch (node.kind) {
    case Node::Kind::kLet: {
      const Value& value = code_.values[node.value];
      const std::string text = Expression(node.value);
      const std::string name = Unique(fmt::format("v{}", node.value.value));
      Line(depth, Fill(dialect_.variable[0], TypeName(value), name) + " = " + text + ";");
      names_[node.value] = name;
      return;
    }
    case Node::Kind::kDeclare: {
      const Value& value = code_.values[node.value];
      names_[node.value] = Unique(value.name);
      return Line(depth, Fill(dialect_.variable[1], TypeName(value), names_[node.value]) + ";");
    }
    case Node::Kind::kAssign: return Line(depth, fmt::format("{} = {};", Expression(node.value), Expression(node.a)));
    case Node::Kind::kStore: return PrintStore(node, depth);
    case Node::Kind::kMultiply: {
      std::vector<std::string> args;
      for (ValueId arg : node.args) args.push_back(args.size() < 4 ? Expression(arg) : Word(arg));
      return Line(depth, MultiplyText(*node.instruction, args));
    }
    case Node::Kind::kCopyAhead:
      return Line(depth,
                  CopyAheadText(node.lanes * ByteSize(program_.buffers[node.buffer].dtype),
                                Place(node.buffer, node.a, node.offset), Place(node.source, node.b, node.source_offset),
                                node.args.empty() ? "" : Expression(node.args[0])));
    case Node::Kind::kProduct:
      return Line(depth, ProductText(node, Expressions(node.args), Place(node.buffer, node.a, node.offset),
                                     Place(node.source, node.b, node.source_offset)));
    case Node::Kind::kCommit:
    case Node::Kind::kAwait:
    case Node::Kind::kCommitProducts:
    case Node::Kind::kAwaitProducts:
    case Node::Kind::kFenceSums:
    case Node::Kind::kFenceStorage: return Line(depth, OrderText(node, Expressions(node.args)));
    case Node::Kind::kBarrier: return Line(depth, std::string(dialect_.barrier) + ";");
    case Node::Kind::kIf:
      Line(depth, fmt::format("if ({}) {{", Expression(node.a)));
      PrintList(node.body, depth + 1);
      return Line(depth, "}");
    case Node::Kind::kFor: {
      const std::string name = Unique(code_.values[node.value].name);
      names_[node.value] = name;
      // PoCL 3.1 computes something else where its compiler unrolls a loop around barriers.
      if (!dialect_.keep_loop.empty() && straight::HasBarrier(node.body)) Line(depth, std::string(dialect_.keep_loop));
      Line(depth,
           fmt::format("for (int {0} = {1}; {0} < {2}; ++{0}) {{", name, Expression(node.a), Expression(node.b)));
      PrintList(node.body, depth + 1);
      return Line(depth, "}");
    }
  }
}

void CodePrinter::PrintList(const std::vector<Node>& nodes, int depth) {
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].kind == Node::Kind::kLet && inline_.Take(nodes, i)) continue;
    PrintNode(nodes[i], depth);
  }
}

class SourcePrinter {
 public:
  SourcePrinter(const straight::Program& program, const Dialect& dialect) : program_(program), dialect_(dialect) {}

  std::vector<std::string> Print() {
    const size_t count = program_.pack.size() + program_.launches.size();
    std::vector<std::string> sources;
    std::string body;
    for (size_t i = 0; i < count; ++i) {
      body += (body.empty() ? "" : "\n") + PrintLaunch(i);
      if (dialect_.is_text_per_launch || i + 1 == count) sources.push_back(Head() + std::exchange(body, ""));
    }
    return sources;
  }

 private:
  const straight::Launch& LaunchAt(size_t index) const {
    const size_t packs = program_.pack.size();
    return index < packs ? program_.pack[index] : program_.launches[index - packs];
  }

  std::string PrintLaunch(size_t index);
  std::string PrintFunction(const straight::Function& function);
  // What comes before the launches: needs of those printed so far.
  std::string Head();

  const straight::Program& program_;
  const Dialect& dialect_;
  std::set<std::string> helpers_;
  std::set<std::string> references_;  // types that a shader's references point to
  std::set<size_t> functions_;
  bool shuffles_ = false;
};

std::string SourcePrinter::PrintLaunch(size_t index) {
  const straight::Launch& launch = LaunchAt(index);
  CodePrinter printer(program_, launch.code, dialect_, helpers_);
  std::string parameters, shared, ids;
  auto add = [&](const std::string& parameter) {
    parameters += (parameters.empty() || dialect_.is_shader ? "" : ", ") + parameter;
  };
  for (BufferId id : launch.params) {
    printer.NameBuffer(id);
    const DialectType& type = dialect_.Of(program_.buffers[id].dtype);
    references_.insert(std::string(type.memory));
    add(Fill(dialect_.parameter[straight::Stores(launch.code.nodes, id) ? 1 : 0], type.memory, printer.BufferName(id)));
  }
  for (int size : launch.sizes) {
    printer.NameSize(size);
    add(Fill(dialect_.size, printer.SizeName(size)));
  }
  const bool is_beyond = launch.shared_bytes > kCudaStaticBytes && !dialect_.shared_beyond[0].empty();
  const std::string storage = is_beyond ? printer.Unique("block_storage") : "";
  if (is_beyond) shared += "  " + Fill(dialect_.shared_beyond[0], storage) + ";\n";
  int64_t at = 0;
  for (BufferId id : launch.shared) {
    printer.NameBuffer(id);
    const Buffer& buffer = program_.buffers[id];
    const std::string_view memory = dialect_.Of(buffer.dtype).memory;
    if (is_beyond) {
      shared += "  " + Fill(dialect_.shared_beyond[1], memory, printer.BufferName(id), storage, at) + ";\n";
      at += straight::SharedBytes(buffer);
      continue;
    }
    const int64_t alignment = straight::SharedAlignment(buffer);
    shared += (dialect_.is_shader ? "" : "  ") +
              Fill(dialect_.shared, memory, printer.BufferName(id), buffer.elements, alignment) + ";\n";
  }
  for (const Value& value : launch.code.values) {
    shuffles_ |= value.what == Do::kShuffle;
    if (value.what == Do::kCall) functions_.insert(static_cast<size_t>(value.number));
    if (value.lanes > 1) references_.insert(std::string(dialect_.Of(value.type).Vector(value.lanes)));
    if (value.what != Do::kThread && value.what != Do::kBlock) continue;
    const bool is_thread = value.what == Do::kThread;
    const auto axis = static_cast<size_t>(value.number);
    ids += fmt::format("  const int {}{} = {};\n", is_thread ? 't' : 'b', "xyz"[axis],
                       (is_thread ? dialect_.thread : dialect_.block)[axis]);
  }
  const std::string body = printer.Print(launch.code.nodes, 1);
  std::string text = Fill(dialect_.head, LaunchName(program_, index), parameters, launch.block[0], launch.block[1],
                          launch.block[2], launch.Threads());
  text += dialect_.is_shader ? shared + "void main() {\n" : shared;
  return text + ids + body + "}\n";
}

std::string SourcePrinter::PrintFunction(const straight::Function& function) {
  CodePrinter printer(program_, function.code, dialect_, helpers_, function.result);
  const DialectType& of = dialect_.Of(function.type);
  const std::string type(function.lanes == 1 ? of.value : of.Vector(function.lanes));
  const std::string body = printer.Print(function.code.nodes, 1);
  const std::string second = function.params.size() > 1 ? fmt::format(", {} y", type) : "";
  return fmt::format("{}{} {}({} x{}) {{\n{}  return {};\n}}\n\n", dialect_.function, type, function.name, type, second,
                     body, printer.Expression(function.result));
}

std::string SourcePrinter::Head() {
  std::string functions;
  for (size_t i : functions_) functions += PrintFunction(program_.functions[i]);
  std::string helpers;
  for (const std::string& helper : helpers_) helpers += HelperText(dialect_, helper);
  if (!helpers.empty()) helpers += "\n";
  const bool has_f64 = std::any_of(program_.buffers.begin(), program_.buffers.end(),
                                   [](const Buffer& buffer) { return buffer.dtype == DType::kF64; });
  std::string text = std::string(has_f64 ? dialect_.prelude_f64 : "") + std::string(dialect_.prelude);
  text += std::string(std::exchange(shuffles_, false) ? dialect_.prelude_shuffle : "") + "\n";
  if (dialect_.is_shader) {
    for (const std::string& type : references_)
      text += fmt::format(
          "layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Of_{0} {{ {0} at[]; }};\n", type);
    text += "\n";
    references_.clear();
  }
  text += helpers + functions;
  helpers_.clear();
  functions_.clear();
  return text;
}

}  // namespace

std::string LaunchName(const straight::Program& program, size_t index) {
  const size_t packs = program.pack.size();
  std::string name =
      fmt::format("hone_{}_{}", index, index < packs ? program.pack[index].name : program.launches[index - packs].name);
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
}

std::vector<std::string> PrintSources(const straight::Program& program, const Dialect& dialect) {
  return SourcePrinter(program, dialect).Print();
}

}  // namespace hone
