#include "ir/rewrite.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "base/check.h"
#include "ir/parse.h"

namespace hone {
namespace {

Error Refuse(std::string message) { return {ErrorKind::kInvalid, std::move(message), ""}; }

bool Loads(const Expr& body, TensorId tensor) {
  bool found = false;
  Walk(body, [&](const Expr& e) { found |= e.op() == Op::kLoad && e.int_value() == tensor; });
  return found;
}

// In-bounds test of an index vector for a tensor, as a bool expression over the reader's axes.
Expr InBounds(const Kernel& kernel, TensorId tensor, const std::vector<Expr>& indices) {
  const Tensor& t = kernel.tensors[static_cast<size_t>(tensor)];
  if (indices.empty()) return Int(1, DType::kBool);
  Expr all;
  for (size_t d = 0; d < indices.size(); ++d) {
    Expr inside = Binary(Op::kAnd, Binary(Op::kLe, Int(0), indices[d]), Binary(Op::kLt, indices[d], t.shape[d]));
    all = all ? Binary(Op::kAnd, all, inside) : inside;
  }
  return all;
}

// Tensors and stages keep their places: removing a stage leaves its tensor unused but numbered.
Expr InlineInto(const Kernel& kernel, const Expr& expr, const Stage& producer) {
  std::vector<Expr> args;
  for (const Expr& arg : expr.args()) args.push_back(InlineInto(kernel, arg, producer));
  if (expr.op() == Op::kLoad && expr.int_value() == producer.output) return SubstituteAxes(producer.body, args);
  if (expr.op() == Op::kPad && args[0].op() != Op::kLoad) {
    // pad() of an inlined load: outside the producer's domain the outer fill holds.
    std::vector<Expr> indices;
    for (const Expr& index : expr.arg(0).args()) indices.push_back(InlineInto(kernel, index, producer));
    return SelectOf(InBounds(kernel, producer.output, indices), args[0], args[1]);
  }
  if (expr.op() == Op::kPad && expr.arg(0).int_value() == producer.output) {
    std::vector<Expr> indices;
    for (const Expr& index : expr.arg(0).args()) indices.push_back(InlineInto(kernel, index, producer));
    return SelectOf(InBounds(kernel, producer.output, indices), args[0], args[1]);
  }
  return Expr(expr.op(), expr.type(), std::move(args), expr.int_value(), expr.float_value());
}

// What InlineInto makes of `expr`, counted at most. `mentions`: of each axis in the producer's body.
double NodesInlined(const Kernel& kernel, const Expr& expr, const Stage& producer, const std::vector<int>& mentions) {
  auto inlined = [&](const Expr& e) { return NodesInlined(kernel, e, producer, mentions); };
  const bool pads = expr.op() == Op::kPad;
  const Expr& load = pads ? expr.arg(0) : expr;
  if (load.op() != Op::kLoad || load.int_value() != producer.output) {
    double nodes = 1;
    for (const Expr& arg : expr.args()) nodes += inlined(arg);
    return nodes;
  }
  const Tensor& tensor = kernel.tensors[static_cast<size_t>(producer.output)];
  double nodes = producer.body.nodes() + (pads ? 1 + inlined(expr.arg(1)) : 0);
  for (size_t d = 0; d < load.args().size(); ++d) {
    const double index = inlined(load.arg(d));
    nodes += mentions[d] * (index - 1) + (pads ? 5 + 2 * index + tensor.shape[d].nodes() : 0);
  }
  return nodes;
}

// `base`, or base1, base2 … : the first that no axis of the stage has.
std::string FreshAxis(const Stage& stage, const std::string& base) {
  auto taken = [&](const std::string& name) {
    auto is_it = [&](const Axis& axis) { return axis.name == name; };
    return std::any_of(stage.axes.begin(), stage.axes.end(), is_it) ||
           std::any_of(stage.reduce_axes.begin(), stage.reduce_axes.end(), is_it);
  };
  std::string name = base;
  for (int i = 1; taken(name); ++i) name = fmt::format("{}{}", base, i);
  return name;
}

}  // namespace

int FindStage(const Kernel& kernel, std::string_view tensor_name) {
  for (size_t i = 0; i < kernel.stages.size(); ++i)
    if (kernel.tensors[static_cast<size_t>(kernel.stages[i].output)].name == tensor_name) return static_cast<int>(i);
  return -1;
}

TensorId FindTensor(const Kernel& kernel, std::string_view name) {
  for (size_t i = 0; i < kernel.tensors.size(); ++i)
    if (kernel.tensors[i].name == name) return static_cast<TensorId>(i);
  return -1;
}

std::vector<int> ReadersOf(const Kernel& kernel, TensorId tensor) {
  std::vector<int> readers;
  for (size_t i = 0; i < kernel.stages.size(); ++i)
    if (Loads(kernel.stages[i].body, tensor)) readers.push_back(static_cast<int>(i));
  return readers;
}

std::vector<std::vector<int>> ReadersOfAll(const Kernel& kernel) {
  std::vector<std::vector<int>> readers(kernel.tensors.size());
  for (size_t i = 0; i < kernel.stages.size(); ++i) {
    const int stage = static_cast<int>(i);
    Walk(kernel.stages[i].body, [&](const Expr& e) {
      if (e.op() != Op::kLoad) return;
      std::vector<int>& known = readers[static_cast<size_t>(e.int_value())];
      if (known.empty() || known.back() != stage) known.push_back(stage);
    });
  }
  return readers;
}

Expr SubstituteAxes(const Expr& expr, const std::vector<Expr>& values) {
  if (expr.op() == Op::kAxis) return values[static_cast<size_t>(expr.int_value())];
  std::vector<Expr> args;
  args.reserve(expr.args().size());
  bool changed = false;
  for (const Expr& arg : expr.args()) {
    args.push_back(SubstituteAxes(arg, values));
    changed |= args.back().id() != arg.id();
  }
  if (!changed) return expr;
  if (args.size() == 2 && expr.type() == DType::kI64 && expr.op() >= Op::kAdd && expr.op() <= Op::kMax)
    return Binary(expr.op(), args[0], args[1]);  // folds
  return Expr(expr.op(), expr.type(), std::move(args), expr.int_value(), expr.float_value());
}

double NodesOnceInlined(const Kernel& kernel, int stage, int reader) {
  const Stage& producer = kernel.stages[static_cast<size_t>(stage)];
  std::vector<int> mentions(producer.axes.size());
  Walk(producer.body, [&](const Expr& e) {
    if (e.op() == Op::kAxis) ++mentions[static_cast<size_t>(e.int_value())];
  });
  return NodesInlined(kernel, kernel.stages[static_cast<size_t>(reader)].body, producer, mentions);
}

Result<Kernel> InlineStage(Kernel kernel, int index) {
  const Stage producer = kernel.stages[static_cast<size_t>(index)];
  const Tensor& tensor = kernel.tensors[static_cast<size_t>(producer.output)];
  if (producer.reduction != Reduction::kNone)
    return Refuse(tensor.name + " is a reduction: it can be placed, not inlined");
  if (tensor.kind == TensorKind::kOutput) return Refuse(tensor.name + " is an output: it must be stored");
  constexpr ParseLimits kLimits;
  const std::vector<int> readers = ReadersOf(kernel, producer.output);
  double nodes = 0;
  for (const Stage& stage : kernel.stages) nodes += stage.body.nodes();
  for (int reader : readers) {
    const Expr& body = kernel.stages[static_cast<size_t>(reader)].body;
    nodes += NodesOnceInlined(kernel, index, reader) - body.nodes();
    if (nodes > kLimits.nodes || body.height() + producer.body.height() > kLimits.height)
      return Refuse(tensor.name + " is read too often, or in too long a chain, to be inlined");
  }
  for (int reader : readers) {
    Stage& stage = kernel.stages[static_cast<size_t>(reader)];
    stage.body = InlineInto(kernel, stage.body, producer);
  }
  kernel.stages.erase(kernel.stages.begin() + index);
  return kernel;
}

Result<Kernel> CollapseAxes(Kernel kernel, int index, const std::vector<std::string>& names) {
  if (names.size() < 2) return Refuse("collapse needs at least two axes");
  const size_t count = names.size();
  // Tensors whose dimensions first … first+count-1 become one. Found by walking accesses from the stage's own axes.
  struct View {
    TensorId tensor;
    size_t first;
  };
  std::vector<View> views;
  auto view_of = [&](TensorId tensor) {
    return std::find_if(views.begin(), views.end(), [&](const View& v) { return v.tensor == tensor; });
  };
  // Position of the first collapsed axis in each stage (spatial or reduction), -1 if the stage has none.
  std::vector<int> first_axis(kernel.stages.size(), -1);
  std::vector<size_t> queue;

  auto add_stage = [&](size_t s, size_t first) -> Result<void> {
    if (first_axis[s] >= 0) {
      if (first_axis[s] != static_cast<int>(first))
        return Refuse("collapse: one stage uses the dimensions in two ways");
      return {};
    }
    first_axis[s] = static_cast<int>(first);
    queue.push_back(s);
    return {};
  };
  auto add_view = [&](TensorId tensor, size_t first) -> Result<void> {
    if (auto v = view_of(tensor); v != views.end()) {
      if (v->first != first) return Refuse("collapse: one tensor uses the dimensions in two ways");
      return {};
    }
    views.push_back({tensor, first});
    for (size_t s = 0; s < kernel.stages.size(); ++s)
      if (kernel.stages[s].output == tensor) HONE_TRY(add_stage(s, first));
    return {};
  };

  const Stage& start = kernel.stages[static_cast<size_t>(index)];
  {
    std::vector<std::string> all;
    for (const Axis& axis : start.axes) all.push_back(axis.name);
    size_t spatial = all.size();
    for (const Axis& axis : start.reduce_axes) all.push_back(axis.name);
    auto at = std::search(all.begin(), all.end(), names.begin(), names.end());
    size_t first = static_cast<size_t>(at - all.begin());
    if (at == all.end() || (first < spatial && first + count > spatial))
      return Refuse(fmt::format("collapse: {} has no adjacent axes of these names",
                                kernel.tensors[static_cast<size_t>(start.output)].name));
    if (first < spatial)
      HONE_TRY(add_view(start.output, first));
    else
      HONE_TRY(add_stage(static_cast<size_t>(index), first));
  }

  // Propagate through accesses until nothing new is found.
  auto is_axis = [](const Expr& e, size_t position) {
    return e.op() == Op::kAxis && e.int_value() == static_cast<int64_t>(position);
  };
  bool grew = true;
  while (grew) {
    size_t before = views.size() + queue.size();
    for (size_t s = 0; s < kernel.stages.size(); ++s) {
      Result<void> outcome;
      Walk(kernel.stages[s].body, [&](const Expr& load) {
        if (load.op() != Op::kLoad || !outcome) return;
        TensorId tensor = static_cast<TensorId>(load.int_value());
        if (first_axis[s] >= 0) {
          // A load that walks the collapsed axes in order makes its tensor a view too.
          size_t first = static_cast<size_t>(first_axis[s]);
          for (size_t d = 0; d + count <= load.args().size(); ++d) {
            bool plain = true;
            for (size_t j = 0; j < count; ++j) plain &= is_axis(load.arg(d + j), first + j);
            if (plain) outcome = add_view(tensor, d);
            if (plain) break;
          }
        }
        if (auto v = view_of(tensor); v != views.end() && outcome) {
          const Expr& lead = load.arg(v->first);
          if (lead.op() != Op::kAxis) {
            outcome =
                Refuse("collapse: " + kernel.tensors[static_cast<size_t>(tensor)].name + " is not indexed plainly");
            return;
          }
          outcome = add_stage(s, static_cast<size_t>(lead.int_value()));
        }
      });
      HONE_TRY(std::move(outcome));
    }
    grew = views.size() + queue.size() != before;
  }

  // Check every access and every extent, then rewrite.
  for (size_t s = 0; s < kernel.stages.size(); ++s) {
    if (first_axis[s] < 0) continue;
    Stage& stage = kernel.stages[s];
    size_t first = static_cast<size_t>(first_axis[s]), spatial = stage.axes.size();
    bool reduces = first >= spatial;
    std::vector<Axis>& axes = reduces ? stage.reduce_axes : stage.axes;
    size_t at = reduces ? first - spatial : first;
    if (at + count > axes.size()) return Refuse("collapse: the axes are not adjacent in every stage");
    if (!reduces && view_of(stage.output) == views.end()) return Refuse("collapse: a stage needs the dimensions apart");
    // Neighbours in the one axis must be neighbours in every view: all but the outermost dimension have the axes'
    // extents.
    for (const View& view : views) {
      const Tensor& tensor = kernel.tensors[static_cast<size_t>(view.tensor)];
      if (view.tensor != stage.output && !Loads(stage.body, view.tensor)) continue;
      for (size_t j = 1; j < count; ++j)
        if (!SameExpr(axes[at + j].extent, tensor.shape[view.first + j]))
          return Refuse(fmt::format("collapse: only a part of {} is indexed", tensor.name));
    }
    size_t plain_uses = 0, uses = 0;
    bool split_axis = false;
    Walk(stage.body, [&](const Expr& e) {
      if (e.op() == Op::kAxis && e.int_value() >= static_cast<int64_t>(first) &&
          e.int_value() < static_cast<int64_t>(first + count))
        ++uses;
      if (e.op() != Op::kLoad) return;
      auto v = view_of(static_cast<TensorId>(e.int_value()));
      if (v == views.end()) return;
      for (size_t j = 0; j < count; ++j) split_axis |= !is_axis(e.arg(v->first + j), first + j);
      plain_uses += count;
    });
    if (split_axis || uses != plain_uses) return Refuse("collapse: an access needs the dimensions apart");
    Axis merged = axes[at];
    for (size_t j = 1; j < count; ++j) merged.extent = merged.extent * axes[at + j].extent;
    axes[at] = merged;
    axes.erase(axes.begin() + static_cast<int64_t>(at) + 1, axes.begin() + static_cast<int64_t>(at + count));
    stage.body = Rewrite(stage.body, [&](const Expr& e) {
      if (e.op() == Op::kAxis && e.int_value() >= static_cast<int64_t>(first + count))
        return AxisRef(static_cast<int>(e.int_value() - static_cast<int64_t>(count - 1)));
      if (e.op() != Op::kLoad) return e;
      auto v = view_of(static_cast<TensorId>(e.int_value()));
      if (v == views.end()) return e;
      std::vector<Expr> args = e.args();
      args.erase(args.begin() + static_cast<int64_t>(v->first) + 1,
                 args.begin() + static_cast<int64_t>(v->first + count));
      return Expr(e.op(), e.type(), std::move(args), e.int_value());
    });
  }
  for (const View& view : views) {
    Tensor& tensor = kernel.tensors[static_cast<size_t>(view.tensor)];
    if (tensor.declared.empty()) tensor.declared = tensor.shape;
    for (size_t j = 1; j < count; ++j)
      tensor.shape[view.first] = tensor.shape[view.first] * tensor.shape[view.first + j];
    tensor.shape.erase(tensor.shape.begin() + static_cast<int64_t>(view.first) + 1,
                       tensor.shape.begin() + static_cast<int64_t>(view.first + count));
  }
  return kernel;
}

Result<Kernel> SeparateReduction(Kernel kernel, int index, const std::string& result) {
  if (FindTensor(kernel, result) >= 0) return Refuse(fmt::format("the name {} is taken", result));
  Stage& stage = kernel.stages[static_cast<size_t>(index)];
  const Tensor& out = kernel.tensors[static_cast<size_t>(stage.output)];
  if (stage.reduction == Reduction::kNone) return Refuse(out.name + " reduces nothing");
  Stage part = stage;
  part.output = static_cast<TensorId>(kernel.tensors.size());
  std::vector<Expr> at;
  for (size_t i = 0; i < stage.axes.size(); ++i) at.push_back(AxisRef(static_cast<int>(i)));
  stage.body = LoadOf(part.output, out.dtype, std::move(at));
  stage.reduce_axes.clear();
  stage.reduction = Reduction::kNone;
  kernel.tensors.push_back({result, out.dtype, out.shape, {}, TensorKind::kIntermediate, false});
  kernel.stages.insert(kernel.stages.begin() + index, std::move(part));
  return kernel;
}

Result<Kernel> CacheRead(Kernel kernel, TensorId tensor_id, int index, const std::string& result) {
  if (FindTensor(kernel, result) >= 0) return Refuse(fmt::format("the name {} is taken", result));
  Stage& reader = kernel.stages[static_cast<size_t>(index)];
  const Tensor source = kernel.tensors[static_cast<size_t>(tensor_id)];
  if (!Loads(reader.body, tensor_id))
    return Refuse(
        fmt::format("{} does not read {}", kernel.tensors[static_cast<size_t>(reader.output)].name, source.name));
  Tensor copy{result, source.dtype, source.shape, {}, TensorKind::kIntermediate, false};
  TensorId copy_id = static_cast<TensorId>(kernel.tensors.size());

  // Axis names: the reader's, where its first load indexes plainly.
  Stage stage;
  stage.output = copy_id;
  std::vector<Expr> indices;
  const Expr* first_load = nullptr;
  Walk(reader.body, [&](const Expr& e) {
    if (!first_load && e.op() == Op::kLoad && e.int_value() == tensor_id) first_load = &e;
  });
  std::set<std::string> taken;
  for (size_t d = 0; d < source.shape.size(); ++d) {
    std::string name;
    if (const Expr& at = first_load->arg(d); at.op() == Op::kAxis) {
      size_t position = static_cast<size_t>(at.int_value());
      const std::string& axis = position < reader.axes.size() ? reader.axes[position].name
                                                              : reader.reduce_axes[position - reader.axes.size()].name;
      if (!taken.contains(axis)) name = axis;
    }
    for (size_t n = d; name.empty(); ++n)
      if (std::string free = fmt::format("d{}", n); !taken.contains(free)) name = free;
    taken.insert(name);
    stage.axes.push_back({name, source.shape[d]});
    indices.push_back(AxisRef(static_cast<int>(d)));
  }
  stage.body = LoadOf(tensor_id, source.dtype, std::move(indices));
  reader.body = Rewrite(reader.body, [&](const Expr& e) {
    if (e.op() != Op::kLoad || e.int_value() != tensor_id) return e;
    return LoadOf(copy_id, source.dtype, e.args());
  });
  kernel.tensors.push_back(std::move(copy));
  kernel.stages.insert(kernel.stages.begin() + index, std::move(stage));
  return kernel;
}

Expr ReductionIdentity(Reduction reduction, DType type) {
  double inf = std::numeric_limits<double>::infinity();
  int64_t lowest = type == DType::kI8 ? -128 : type == DType::kI32 ? INT32_MIN : type == DType::kBool ? 0 : INT64_MIN;
  int64_t highest = type == DType::kI8 ? 127 : type == DType::kI32 ? INT32_MAX : type == DType::kBool ? 1 : INT64_MAX;
  switch (reduction) {
    case Reduction::kSum: return IsFloat(type) ? Float(0, type) : Int(0, type);
    case Reduction::kProd: return IsFloat(type) ? Float(1, type) : Int(1, type);
    case Reduction::kMaxOfNumbers:
    case Reduction::kMax: return IsFloat(type) ? Float(-inf, type) : Int(lowest, type);
    case Reduction::kMin: return IsFloat(type) ? Float(inf, type) : Int(highest, type);
    case Reduction::kNone: break;
  }
  HONE_CHECK(!"a reduction");
  return {};
}

Result<Kernel> Rfactor(Kernel kernel, int index, const std::string& axis_name, int64_t lanes,
                       const std::string& result) {
  Stage& stage = kernel.stages[static_cast<size_t>(index)];
  const std::string stage_name = kernel.tensors[static_cast<size_t>(stage.output)].name;
  if (FindTensor(kernel, result) >= 0) return Refuse(fmt::format("the name {} is taken", result));
  auto axis = std::find_if(stage.reduce_axes.begin(), stage.reduce_axes.end(),
                           [&](const Axis& a) { return a.name == axis_name; });
  if (stage.reduction == Reduction::kNone || axis == stage.reduce_axes.end())
    return Refuse(fmt::format("{} does not reduce over {}", stage_name, axis_name));
  const Tensor& out = kernel.tensors[static_cast<size_t>(stage.output)];
  size_t spatial = stage.axes.size(), which = static_cast<size_t>(axis - stage.reduce_axes.begin());
  Expr extent = axis->extent;

  // part[spatial…, l] = reduce over (k.q, the other axes) of body with k = q·lanes + l; outside, the identity.
  const std::string lane = FreshAxis(stage, "l");
  Stage part;
  part.output = static_cast<TensorId>(kernel.tensors.size());
  part.axes = stage.axes;
  part.axes.push_back({lane, Int(lanes)});
  part.reduce_axes = stage.reduce_axes;
  part.reduce_axes[which].extent = Binary(Op::kFloorDiv, extent + Int(lanes - 1), Int(lanes));
  part.reduction = stage.reduction;
  std::vector<Expr> values;
  for (size_t i = 0; i < spatial; ++i) values.push_back(AxisRef(static_cast<int>(i)));
  for (size_t i = 0; i < stage.reduce_axes.size(); ++i) values.push_back(AxisRef(static_cast<int>(spatial + 1 + i)));
  Expr k = values[spatial + which] * Int(lanes) + AxisRef(static_cast<int>(spatial));
  values[spatial + which] = k;
  part.body = SubstituteAxes(stage.body, values);
  bool divides = extent.op() == Op::kInt && extent.int_value() % lanes == 0;
  if (!divides) {
    // kSize extents that divide are proven in bounds by lowering, which then drops the condition.
    part.body = SelectOf(Binary(Op::kLt, k, extent), part.body, ReductionIdentity(stage.reduction, stage.body.type()));
  }
  Tensor tensor{result, stage.body.type(), out.shape, {}, TensorKind::kIntermediate, false};
  tensor.shape.push_back(Int(lanes));

  std::vector<Expr> at;
  for (size_t i = 0; i <= spatial; ++i) at.push_back(AxisRef(static_cast<int>(i)));
  stage.body = LoadOf(part.output, stage.body.type(), std::move(at));
  stage.reduce_axes = {{lane, Int(lanes)}};
  kernel.tensors.push_back(std::move(tensor));
  kernel.stages.insert(kernel.stages.begin() + index, std::move(part));
  return kernel;
}

}  // namespace hone
