// Compiles stages for the reference interpreter: sizes become numbers, element-wise stages are substituted into their
// readers, index arithmetic becomes affine forms whose lane patterns are known in advance.
#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"
#include "ir/graph/dtype_traits.h"
#include "ir/graph/expr_table.h"
#include "ir/graph/op_traits.h"
#include "ir/reference/interpret_program.h"

namespace hone::interpreted {
namespace {

// Offsets of reduction spaces up to this many points are kept in tables.
constexpr int64_t kTableLanes = 1 << 16;
// Stages larger or deeper than this are computed on demand and not substituted.
constexpr size_t kInlineNodes = 1500;
constexpr int kInlineHeight = 300;

bool IsIndex(const Expr& e) { return e.type() == DType::kI64; }

// ---- sizes become numbers and element-wise stages disappear

class Inliner {
 public:
  explicit Inliner(const Kernel& kernel)
      : kernel_(kernel), bodies_(kernel.stages.size()), inlined_(kernel.stages.size()) {}

  void Run() {
    for (StageId s : kernel_.stages.ids()) {
      memo_.clear();
      bodies_[s] = Expand(kernel_.stages[s].body);
      inlined_[s] = kernel_.stages[s].reduction == Reduction::kNone && IsSmall(bodies_[s]);
    }
  }
  const Expr& body(StageId stage) const { return bodies_[stage]; }
  StageId StageOf(TensorId tensor) const {
    for (StageId s : kernel_.stages.ids())
      if (kernel_.stages[s].output == tensor) return s;
    return {};
  }

 private:
  Expr Rebuild(const Expr& e, std::vector<Expr> args) {
    if (IsIndex(e) && args.size() == 2) return table_.Intern(Binary(e.op(), args[0], args[1]));
    return table_.Intern(Expr(e.op(), e.type(), std::move(args), e.int_value(), e.float_value()));
  }

  Expr Expand(const Expr& e) {
    if (auto it = memo_.find(e.id()); it != memo_.end()) return it->second;
    Expr made;
    if (e.op() == Op::kSize) {
      made = table_.Intern(Int(EvalExtent(kernel_, e)));
    } else if (e.op() == Op::kLoad || e.op() == Op::kPad) {
      made = ExpandLoad(e);
    } else {
      std::vector<Expr> args;
      for (const Expr& arg : e.args()) args.push_back(Expand(arg));
      made = Rebuild(e, std::move(args));
    }
    memo_.emplace(e.id(), made);
    return made;
  }

  Expr ExpandLoad(const Expr& e) {
    const Expr& load = e.op() == Op::kPad ? e.arg(0) : e;
    std::vector<Expr> indices;
    for (const Expr& index : load.args()) indices.push_back(Expand(index));
    const StageId stage = StageOf(load.tensor());
    if (!stage || !inlined_[stage]) {
      Expr made = Rebuild(load, indices);
      return e.op() == Op::kPad ? Rebuild(e, {made, Expand(e.arg(1))}) : made;
    }
    std::unordered_map<const ExprNode*, Expr> memo;
    Expr body = Substitute(bodies_[stage], indices, memo);
    if (e.op() != Op::kPad) return body;
    const Tensor& tensor = kernel_.tensors[load.tensor()];
    Expr inside;
    for (size_t d = 0; d < indices.size(); ++d) {
      auto both = [&](Expr a) { inside = inside ? table_.Intern(Binary(Op::kAnd, inside, a)) : a; };
      Expr extent = table_.Intern(Int(EvalExtent(kernel_, tensor.shape[d])));
      both(table_.Intern(Binary(Op::kLe, table_.Intern(Int(0)), indices[d])));
      both(table_.Intern(Binary(Op::kLt, indices[d], extent)));
    }
    return inside ? table_.Intern(SelectOf(inside, body, Expand(e.arg(1)))) : body;
  }

  Expr Substitute(const Expr& e, const std::vector<Expr>& indices, std::unordered_map<const ExprNode*, Expr>& memo) {
    if (e.op() == Op::kAxis) return indices[e.axis().index()];
    if (e.args().empty()) return e;
    if (auto it = memo.find(e.id()); it != memo.end()) return it->second;
    std::vector<Expr> args;
    for (const Expr& arg : e.args()) args.push_back(Substitute(arg, indices, memo));
    Expr made = Rebuild(e, std::move(args));
    memo.emplace(e.id(), made);
    return made;
  }

  bool IsSmall(const Expr& body) {
    std::unordered_map<const ExprNode*, int> heights;
    std::function<int(const Expr&)> height = [&](const Expr& e) {
      if (auto it = heights.find(e.id()); it != heights.end()) return it->second;
      int tallest = 0;
      for (const Expr& arg : e.args()) tallest = std::max(tallest, height(arg));
      return heights[e.id()] = tallest + 1;
    };
    return height(body) <= kInlineHeight && heights.size() <= kInlineNodes;
  }

  const Kernel& kernel_;
  ExprTable table_;
  IdVector<StageId, Expr> bodies_;
  IdVector<StageId, bool> inlined_;
  std::unordered_map<const ExprNode*, Expr> memo_;
};

// ---- one stage to a program

class ProgramCompiler {
 public:
  ProgramCompiler(const Kernel& kernel, const Inliner& inliner, StageId stage)
      : kernel_(kernel), inliner_(inliner), body_(inliner.body(stage)) {
    program_.stage = &kernel.stages[stage];
  }

  Program Run() {
    const Stage& stage = *program_.stage;
    for (const Axis& axis : stage.axes) program_.extents.push_back(EvalExtent(kernel_, axis.extent));
    for (const Axis& axis : stage.reduce_axes) program_.extents.push_back(EvalExtent(kernel_, axis.extent));
    program_.outer = stage.axes.size();
    program_.lanes_are_elements = stage.reduction == Reduction::kNone;
    for (size_t a = program_.outer; a < program_.extents.size(); ++a) program_.lanes *= program_.extents[a];
    MarkUnconditional(body_);
    program_.result = Compile(body_);
    for (const Instruction& instruction : program_.varying)
      for (RegisterId arg : instruction.args) MarkBroadcast(arg);
    for (const LoadSite& site : program_.sites)
      for (const LoadSite::Dim& dim : site.dims) MarkBroadcast(dim.index_register);
    MarkBroadcast(program_.result);
    return std::move(program_);
  }

 private:
  void MarkBroadcast(RegisterId id) {
    if (!id) return;
    Register& reg = At(id);
    reg.broadcast = !reg.varies && !reg.constant;
  }

  // Nodes that are reached without passing through a branch of an if: their loads are in range.
  void MarkUnconditional(const Expr& e) {
    if (!unconditional_.insert(e.id()).second) return;
    if (e.op() == Op::kSelect) return MarkUnconditional(e.arg(0));
    for (const Expr& arg : e.args()) MarkUnconditional(arg);
  }

  bool AxisVaries(size_t axis) const { return program_.lanes_are_elements || axis >= program_.outer; }

  std::optional<AffineIndex> Affine(const Expr& e) {
    AffineIndex result;
    result.coef.assign(program_.extents.size(), 0);
    switch (e.op()) {
      case Op::kInt: result.constant = e.int_value(); return result;
      case Op::kAxis: result.coef[e.axis().index()] = 1; return result;
      case Op::kAdd:
      case Op::kSub: {
        std::optional<AffineIndex> a = Affine(e.arg(0)), b = Affine(e.arg(1));
        if (!a || !b) return std::nullopt;
        return Scaled(*a, *b, e.op() == Op::kAdd ? 1 : -1);
      }
      case Op::kMul: {
        std::optional<AffineIndex> a = Affine(e.arg(0)), b = Affine(e.arg(1));
        if (!a || !b) return std::nullopt;
        if (IsConstant(*a)) std::swap(a, b);
        if (!IsConstant(*b)) return std::nullopt;
        return Scaled(result, *a, b->constant);
      }
      default: return std::nullopt;
    }
  }
  static bool IsConstant(const AffineIndex& a) {
    return std::all_of(a.coef.begin(), a.coef.end(), [](int64_t c) { return c == 0; });
  }
  static AffineIndex Scaled(AffineIndex a, const AffineIndex& b, int64_t factor) {
    for (size_t i = 0; i < a.coef.size(); ++i) a.coef[i] += b.coef[i] * factor;
    a.constant += b.constant * factor;
    return a;
  }

  // Finds the lane pattern of an index. The reduction's space is numbered row by row.
  LaneIndex Pattern(AffineIndex affine) {
    LaneIndex index{std::move(affine), {}};
    LanePattern& pattern = index.pattern;
    bool varies = false, linear = true;
    int64_t points = 1;
    for (size_t a = program_.extents.size(); a-- > 0;) {
      int64_t coef = index.affine.coef[a], extent = program_.extents[a];
      if (!AxisVaries(a) || (!program_.lanes_are_elements && extent == 1)) continue;
      varies |= coef != 0;
      (coef > 0 ? pattern.max : pattern.min) += coef * (extent - 1);
      if (points == 1)
        pattern.step = coef;
      else if (coef != pattern.step * points)
        linear = false;
      points *= extent;
    }
    if (!varies) {
      pattern.kind = LanePattern::kUniform;
    } else if (program_.lanes_are_elements) {
      pattern.kind = LanePattern::kGeneric;
    } else if (linear) {
      pattern.kind = LanePattern::kLinear;
    } else if (program_.lanes <= kTableLanes) {
      pattern.kind = LanePattern::kTable;
      FillTable(index.affine, &pattern.table);
    } else {
      pattern.kind = LanePattern::kGeneric;
    }
    program_.needs_axis_columns |= pattern.kind == LanePattern::kGeneric;
    return index;
  }

  void FillTable(const AffineIndex& affine, std::vector<int64_t>* table) const {
    table->assign(1, 0);
    for (size_t a = program_.outer; a < program_.extents.size(); ++a) {
      std::vector<int64_t> wider;
      wider.reserve(table->size() * static_cast<size_t>(program_.extents[a]));
      for (int64_t base : *table)
        for (int64_t i = 0; i < program_.extents[a]; ++i) wider.push_back(base + affine.coef[a] * i);
      *table = std::move(wider);
    }
  }

  Register& At(RegisterId id) { return program_.registers[id]; }

  RegisterId NewRegister(Register reg) { return program_.registers.Add(reg); }

  RegisterId Emit(Instruction instruction, Register reg) {
    instruction.result = NewRegister(reg);
    (reg.varies ? program_.varying : program_.uniform).push_back(std::move(instruction));
    return program_.registers.last();
  }

  RegisterId Compile(const Expr& e) {
    if (auto it = compiled_.find(e.id()); it != compiled_.end()) return it->second;
    const RegisterId reg = CompileNode(e);
    compiled_.emplace(e.id(), reg);
    return reg;
  }

  RegisterId CompileNode(const Expr& e) {
    if (e.op() == Op::kInt || e.op() == Op::kFloat) {
      Register reg{.is_float = e.op() == Op::kFloat, .constant = true, .plain = true, .exact = true};
      reg.whole = reg.is_float && std::trunc(e.float_value()) == e.float_value();
      reg.float_value = e.float_value();
      reg.int_value = e.int_value();
      return NewRegister(reg);
    }
    if (e.op() == Op::kLoad) return CompileLoad(e, nullptr);
    if (e.op() == Op::kPad) return CompileLoad(e.arg(0), &e.arg(1));
    if (IsIndex(e) && e.op() != Op::kCast) {
      if (std::optional<AffineIndex> affine = Affine(e)) {
        Instruction instruction{.op = Op::kAxis, .type = DType::kI64, .index = Pattern(*affine)};
        bool varies = instruction.index.pattern.kind != LanePattern::kUniform;
        return Emit(std::move(instruction), Register{.varies = varies});
      }
    }
    Instruction instruction{.op = e.op(), .type = e.type()};
    Register reg{.is_float = IsFloat(e.type())};
    for (size_t i = 0; i < e.args().size(); ++i) {
      instruction.args[i] = Compile(e.arg(i));
      reg.varies |= At(instruction.args[i]).varies;
    }
    instruction.narrows = e.op() == Op::kCast && reg.is_float && Narrows(e);
    DescribeError(e, instruction, &reg);
    return Emit(std::move(instruction), reg);
  }

  // Whether a conversion to a float type may round. Where only some whole numbers are too large for the type,
  // Register::whole tells them apart.
  bool Narrows(const Expr& cast) {
    const double unit = TraitsOf(cast.type()).unit_roundoff;
    if (IsNarrowFloat(cast.type())) return true;
    return IsFloat(cast.arg(0).type()) ? unit > TraitsOf(cast.arg(0).type()).unit_roundoff
                                       : LargestWhole(cast.arg(0)) * unit > 1;
  }

  // No value of an integer expression is larger, whatever its sign.
  double LargestWhole(const Expr& e) {
    if (auto it = largest_.find(e.id()); it != largest_.end()) return it->second;
    auto of = [&](size_t i) { return LargestWhole(e.arg(i)); };
    const DTypeTraits& traits = TraitsOf(e.type());
    double largest = std::max(-static_cast<double>(traits.lowest), static_cast<double>(traits.highest));
    auto at_most = [&](double bound) { largest = std::min(largest, bound); };
    switch (e.op()) {
      case Op::kInt: at_most(std::abs(static_cast<double>(e.int_value()))); break;
      case Op::kAxis: at_most(static_cast<double>(program_.extents[e.axis().index()] - 1)); break;
      case Op::kAdd:
      case Op::kSub: at_most(of(0) + of(1)); break;
      case Op::kMul: at_most(of(0) * of(1)); break;
      case Op::kMin:
      case Op::kMax: at_most(std::max(of(0), of(1))); break;
      case Op::kSelect: at_most(std::max(of(1), of(2))); break;
      case Op::kAbs:
      case Op::kFloorDiv: at_most(of(0)); break;
      case Op::kMod: at_most(of(1)); break;
      case Op::kCast:
        if (!IsFloat(e.arg(0).type())) at_most(of(0));
        break;
      default: break;
    }
    return largest_[e.id()] = largest;
  }

  // What is known in advance about the result's rounding error (ir/reference/interpret_columns.cc has the rules).
  void DescribeError(const Expr& e, const Instruction& instruction, Register* reg) {
    auto arg = [&](size_t i) -> const Register& { return At(instruction.args[i]); };
    bool any_slack = false;
    for (size_t i = 0; i < e.args().size(); ++i) any_slack |= arg(i).has_slack;
    if (!reg->is_float) {
      bool decides = e.op() == Op::kCast || IsComparison(e.op());
      reg->has_slack =
          any_slack || (decides && arg(0).is_float && !(arg(0).exact && (e.op() == Op::kCast || arg(1).exact)));
      return;
    }
    reg->whole = IsWhole(e, instruction);
    if (e.op() == Op::kCast) {
      reg->plain = arg(0).is_float ? arg(0).plain && !instruction.narrows : !any_slack;
      reg->exact = (arg(0).is_float ? arg(0).exact : !any_slack) && !instruction.narrows;
      return;
    }
    if (e.op() == Op::kSelect) {
      reg->exact = !any_slack && arg(1).exact && arg(2).exact;
      return;
    }
    bool plain = true, exact = true;
    for (size_t i = 0; i < e.args().size(); ++i) plain &= arg(i).plain, exact &= arg(i).exact;
    switch (TraitsOf(e.op()).error_flow) {
      case ErrorFlow::kRounds: break;
      case ErrorFlow::kScales: reg->plain = plain; break;
      case ErrorFlow::kChooses: reg->exact = exact; break;
      case ErrorFlow::kMirrors: reg->plain = plain, reg->exact = exact; break;
      case ErrorFlow::kSteps: reg->plain = reg->exact = exact; break;
    }
  }

  // Of a float result.
  bool IsWhole(const Expr& e, const Instruction& instruction) {
    auto is_whole = [&](size_t i) { return At(instruction.args[i]).whole; };
    switch (e.op()) {
      case Op::kFloor:
      case Op::kRound: return true;
      case Op::kCast: return !IsNarrowFloat(e.type()) && (!At(instruction.args[0]).is_float || is_whole(0));
      case Op::kSelect: return is_whole(1) && is_whole(2);
      case Op::kAdd:
      case Op::kSub:
      case Op::kMul:
      case Op::kMin:
      case Op::kMax: return is_whole(0) && is_whole(1);
      case Op::kAbs: return is_whole(0);
      default: return false;
    }
  }

  RegisterId CompileLoad(const Expr& load, const Expr* fill) {
    LoadSite site;
    site.tensor = load.tensor();
    site.computed = inliner_.StageOf(site.tensor);
    site.dtype = load.type();
    if (fill) site.fill = fill->op() == Op::kInt ? static_cast<double>(fill->int_value()) : fill->float_value();
    bool may_miss = fill != nullptr || !unconditional_.count(load.id());
    std::vector<int64_t> shape = StaticShape(kernel_, kernel_.tensors[site.tensor]);
    AffineIndex offset;
    offset.coef.assign(program_.extents.size(), 0);
    site.affine = true;
    bool varies = false;
    int64_t stride = 1;
    site.dims.resize(shape.size());
    for (size_t d = shape.size(); d-- > 0;) {
      LoadSite::Dim& dim = site.dims[d];
      dim.extent = shape[d];
      dim.stride = stride;
      stride *= shape[d];
      if (std::optional<AffineIndex> affine = Affine(load.arg(d))) {
        offset = Scaled(offset, *affine, dim.stride);
        dim.check = may_miss && !InRange(*affine, dim.extent);
        if (dim.check)
          dim.index = Pattern(*affine);
        else
          dim.index.affine = std::move(*affine);
        varies |= Varies(dim.index.affine);
      } else {
        site.affine = false;
        dim.index_register = Compile(load.arg(d));
        dim.check = may_miss;
        varies |= At(dim.index_register).varies;
      }
      site.checks |= dim.check;
    }
    if (site.affine) {
      site.offset = Pattern(offset);
    } else {
      for (LoadSite::Dim& dim : site.dims)
        if (!dim.index_register && !dim.check) dim.index = Pattern(dim.index.affine);
    }
    bool from_memory = !site.computed;
    bool is_float = IsFloat(site.dtype);
    // An element that is computed on demand brings its magnitude along; one in memory is exact, wherever it was read.
    Register reg{.is_float = is_float,
                 .varies = varies,
                 .plain = from_memory,
                 .exact = from_memory,
                 .has_slack = !is_float && !from_memory};
    Instruction instruction{.op = Op::kLoad, .type = load.type()};
    instruction.site = program_.sites.Add(std::move(site));
    return Emit(std::move(instruction), reg);
  }

  bool Varies(const AffineIndex& affine) const {
    for (size_t a = 0; a < affine.coef.size(); ++a)
      if (affine.coef[a] != 0 && AxisVaries(a) && (program_.lanes_are_elements || program_.extents[a] > 1)) return true;
    return false;
  }

  bool InRange(const AffineIndex& affine, int64_t extent) const {
    int64_t lo = affine.constant, hi = affine.constant;
    for (size_t a = 0; a < affine.coef.size(); ++a)
      (affine.coef[a] > 0 ? hi : lo) += affine.coef[a] * (program_.extents[a] - 1);
    return lo >= 0 && hi < extent;
  }

  const Kernel& kernel_;
  const Inliner& inliner_;
  const Expr& body_;
  Program program_;
  std::unordered_map<const ExprNode*, RegisterId> compiled_;
  std::unordered_set<const ExprNode*> unconditional_;
  std::unordered_map<const ExprNode*, double> largest_;  // what LargestWhole said
};

}  // namespace

IdVector<StageId, Program> CompilePrograms(const Kernel& kernel) {
  Inliner inliner(kernel);
  inliner.Run();
  IdVector<StageId, Program> programs(kernel.stages.size());
  IdVector<StageId, bool> needed(kernel.stages.size());
  for (StageId s = kernel.stages.last(); s; --s) {
    const Tensor& output = kernel.tensors[kernel.stages[s].output];
    if (!needed[s] && output.kind != TensorKind::kOutput) continue;
    programs[s] = ProgramCompiler(kernel, inliner, s).Run();
    for (const LoadSite& site : programs[s].sites)
      if (site.computed) needed[site.computed] = true;
  }
  return programs;
}

}  // namespace hone::interpreted
