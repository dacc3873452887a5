#include "ir/rewrites/winograd.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "ir/graph/affine.h"
#include "ir/graph/stage_graph.h"
#include "ir/rewrites/registry.h"
#include "ir/schedule/refuse.h"

namespace hone {
namespace {

using Row = std::vector<double>;

// Interpolation points 0, ±1, ∞ for m = 2; 0, ±1, ±2, ∞ for m = 4.
struct Transforms {
  std::vector<Row> input, filter, output;  // Bᵀ, G, Aᵀ
};

const Transforms& TransformsOf(int64_t m) {
  static const Transforms kTwo{
      {{1, 0, -1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, 1, 0, -1}},
      {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}},
      {{1, 1, 1, 0}, {0, 1, -1, -1}},
  };
  static const Transforms kFour{
      {{4, 0, -5, 0, 1, 0},
       {0, -4, -4, 1, 1, 0},
       {0, 4, -4, -1, 1, 0},
       {0, -2, -1, 2, 1, 0},
       {0, 2, -1, -2, 1, 0},
       {0, 4, 0, -5, 0, 1}},
      {{1.0 / 4, 0, 0},
       {-1.0 / 6, -1.0 / 6, -1.0 / 6},
       {-1.0 / 6, 1.0 / 6, -1.0 / 6},
       {1.0 / 24, 1.0 / 12, 1.0 / 6},
       {1.0 / 24, -1.0 / 12, 1.0 / 6},
       {0, 0, 1}},
      {{1, 1, 1, 1, 1, 0}, {0, 1, -1, 2, -2, 0}, {0, 1, 1, 4, 4, 0}, {0, 1, -1, 8, -8, 1}},
  };
  return m == 2 ? kTwo : kFour;
}

// Σ row[k]·term(k), without the zeros.
Expr Combine(const Row& row, DType type, const std::function<Expr(int64_t)>& term) {
  Expr sum;
  for (size_t k = 0; k < row.size(); ++k) {
    if (row[k] == 0) continue;
    Expr value = term(static_cast<int64_t>(k));
    double magnitude = row[k] < 0 ? -row[k] : row[k];
    if (magnitude != 1) value = Binary(Op::kMul, Float(magnitude, type), value);
    if (sum)
      sum = Binary(row[k] < 0 ? Op::kSub : Op::kAdd, sum, value);
    else
      sum = row[k] < 0 ? Binary(Op::kMul, Float(-1, type), value) : value;
  }
  return sum;
}

// The row of the matrix that `axis` names: one of them, chosen by a select that folds where the axis is unrolled.
Expr Choose(const Expr& axis, const std::vector<Row>& rows, DType type, const std::function<Expr(const Row&)>& value) {
  Expr chosen = value(rows.back());
  for (size_t i = rows.size() - 1; i-- > 0;)
    chosen = SelectOf(Binary(Op::kEq, axis, Int(static_cast<int64_t>(i))), value(rows[i]), chosen);
  return chosen;
}

// Builds one stage: axes are added in order.
struct StageBuilder {
  Stage stage;
  Expr Add(std::string name, Expr extent) {
    stage.axes.push_back({std::move(name), std::move(extent)});
    return AxisRef(stage.last_axis());
  }
};

class Winograd {
 public:
  Winograd(Kernel kernel, StageId stage, const std::string& base, int64_t m, int64_t columns)
      : kernel_(std::move(kernel)),
        index_(stage),
        names_(base),
        m_(m),
        columns_(columns),
        transforms_(TransformsOf(m)) {}

  Result<void> Check() { return Recognise(); }

  Result<Kernel> Go() {
    HONE_TRY(Recognise());
    for (const std::string* name : {&names_.input, &names_.rows, &names_.tiles, &names_.filter_rows, &names_.filter,
                                    &names_.product, &names_.half, &names_.result})
      if (FindTensor(kernel_, *name)) return Refuse(fmt::format("the name {} is taken", *name));
    AddInput();
    AddRows();
    AddTiles();
    AddFilterRows();
    AddFilter();
    AddProduct();
    AddHalf();
    AddResult();
    ReplaceSum();
    return std::move(kernel_);
  }

 private:
  // One side of the product. h_, w_, r_, s_ are left out of `axes`.
  struct Side {
    Expr load;                 // without the pad() around it
    std::vector<AxisId> axes;  // spatial axes of the sum that it depends on
  };

  bool Uses(const Expr& e, AxisId axis) const {
    bool found = false;
    Walk(e, [&](const Expr& part) { found |= part.IsAxis(axis); });
    return found;
  }

  Result<void> Recognise() {
    const Stage& stage = Sum();
    type_ = kernel_.tensors[stage.output].dtype;
    if (m_ != 2 && m_ != 4) return Refuse("winograd takes tiles of 2 or 4");
    if (stage.reduction != Reduction::kSum || stage.body.op() != Op::kMul || stage.axes.size() < 2 ||
        (type_ != DType::kF32 && type_ != DType::kF64))
      return Refuse("no convolution of floats");
    for (AxisId axis : stage.axis_ids())
      if (stage.axis(axis).extent.op() != Op::kInt) return Refuse("winograd takes constant sizes");
    Expr sides[2];
    bool is_padded[2] = {false, false};
    for (size_t i = 0; i < 2; ++i) {
      sides[i] = stage.body.arg(i);
      if (sides[i].op() == Op::kPad) {
        is_padded[i] = true;
        if (sides[i].arg(1).op() != Op::kFloat || sides[i].arg(1).float_value() != 0)
          return Refuse("padded with something");
        sides[i] = sides[i].arg(0);
      }
      if (sides[i].op() != Op::kLoad || sides[i].type() != type_) return Refuse("no product of two tensors");
    }
    // A window: one dimension of x goes with h + r, another with w + s.
    for (size_t i = 0; i < 2 && !h_; ++i) {
      AxisId found[4];
      size_t windows = 0;
      for (const Expr& at : sides[i].args()) {
        std::optional<Linear> form = AffineIndex(kernel_, at);
        if (!form) return Refuse("an index that is not linear");
        AxisId space, window;
        bool steps_by_one = true;
        for (const Term& term : form->terms()) {
          const AxisId axis = AxisOf(term.var);
          (stage.Reduces(axis) ? window : space) = axis;
          steps_by_one &= term.coef == 1;
        }
        if (form->terms().size() != 2 || !space || !window) continue;
        if (!steps_by_one || windows == 2) return Refuse("a window with strides or dilation, or of more dimensions");
        found[2 * windows] = space;
        found[2 * windows + 1] = window;
        ++windows;
      }
      if (windows != 2) continue;
      h_ = found[0];
      r_ = found[1];
      w_ = found[2];
      s_ = found[3];
      if (is_padded[1 - i]) return Refuse("a padded filter");
      x_.load = sides[i];
      f_.load = sides[1 - i];
    }
    if (!h_) return Refuse("no window over two dimensions");
    if (h_ >= w_ || w_ != stage.last_axis()) return Refuse("the window is not over rows and columns in this order");
    if (Extent(r_) != 3 || Extent(s_) != 3) return Refuse("a window that is not 3×3");
    if (Uses(f_.load, h_) || Uses(f_.load, w_) || !Uses(f_.load, r_) || !Uses(f_.load, s_))
      return Refuse("a filter that is not the same everywhere");
    for (const Expr& at : f_.load.args()) {
      std::optional<Linear> form = AffineIndex(kernel_, at);
      if (!form || form->terms().size() > 1) return Refuse("a filter that is not indexed plainly");
    }
    size_t times[4] = {0, 0, 0, 0};
    for (const Expr& at : x_.load.args())
      for (int i = 0; AxisId axis : {h_, r_, w_, s_}) times[i++] += Uses(at, axis) ? 1 : 0;
    for (size_t count : times)
      if (count != 1) return Refuse("a window over more than two dimensions");
    for (AxisId axis : stage.axis_ids()) {
      if (axis == h_ || axis == w_ || axis == r_ || axis == s_) continue;
      bool in_x = Uses(x_.load, axis), in_f = Uses(f_.load, axis);
      if (stage.Reduces(axis)) {
        if (!in_x || !in_f) return Refuse("a sum over something that is not a channel");
        channels_.push_back(axis);
        continue;
      }
      others_.push_back(axis);
      if (in_x) x_.axes.push_back(axis);
      if (in_f) f_.axes.push_back(axis);
    }
    rows_ = (Extent(h_) + m_ - 1) / m_;
    constexpr int64_t kMostTiles = int64_t{1} << 30;
    if (columns_ < 1 || columns_ > kMostTiles || rows_ > kMostTiles / columns_)
      return Refuse("more tiles than can be counted, or none");
    if (columns_ * m_ < Extent(w_)) return Refuse(fmt::format("{} tiles of {} do not cover a row", columns_, m_));
    return {};
  }

  const Stage& Sum() const { return kernel_.stages[index_]; }
  int64_t Extent(AxisId axis) const { return Sum().axis(axis).extent.int_value(); }
  int64_t size() const { return m_ + 2; }

  // Adds an axis of the sum, or some, with an extent of its own if there is one; values[axis] refers to it.
  void Carry(StageBuilder& builder, AxisId id, std::vector<Expr>& values, const Expr& extent = Expr()) const {
    const Axis& axis = Sum().axis(id);
    values[id.index()] = builder.Add(axis.name, extent ? extent : axis.extent);
  }
  void Carry(StageBuilder& builder, const std::vector<AxisId>& axes, std::vector<Expr>& values) const {
    for (AxisId axis : axes) Carry(builder, axis, values);
  }
  std::vector<Expr> NoValues() const { return std::vector<Expr>(Sum().axis_count(), Int(0)); }
  // Names that no axis of the sum has.
  std::string Fresh(std::string name) const {
    while (FindAxis(Sum(), name)) name += "_";
    return name;
  }
  std::vector<Expr> At(const std::vector<AxisId>& axes, const std::vector<Expr>& values) const {
    std::vector<Expr> at;
    for (AxisId axis : axes) at.push_back(values[axis.index()]);
    return at;
  }
  static std::vector<Expr> Join(std::vector<Expr> a, std::vector<Expr> b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }
  Expr Load(TensorId tensor, std::vector<Expr> at) const { return LoadOf(tensor, type_, std::move(at)); }

  // Adds the stage before the sum and its tensor; the tensor's id.
  TensorId Finish(StageBuilder builder, const std::string& name, Expr body) {
    Tensor tensor{name, type_, {}, {}, TensorKind::kIntermediate, false};
    for (const Axis& axis : builder.stage.axes) tensor.shape.push_back(axis.extent);
    const TensorId id = builder.stage.output = kernel_.tensors.Add(std::move(tensor));
    builder.stage.body = std::move(body);
    kernel_.stages.Insert(index_, std::move(builder.stage));
    ++index_;
    return id;
  }

  // What x's load is at (y, x) of the zero-padded input, and zero outside. Where x is itself a padded copy, what it
  // copies, once: beyond its end there are zeros as well.
  void AddInput() {
    StageBuilder builder;
    std::vector<Expr> values = NoValues();
    Carry(builder, InputAxes(), values);
    Carry(builder, h_, values, Int(rows_ * m_ + 2));
    Carry(builder, w_, values, Int(columns_ * m_ + 2));
    Expr load = SubstituteAxes(x_.load, values);
    const Stage* producer = ProducerOf(kernel_, load.tensor());
    if (producer != nullptr && EndsInZeros(*producer)) {
      replaced_ = producer->output;
      Expr body = SubstituteAxes(producer->body, load.args());
      input_ = Finish(std::move(builder), names_.input, body);
      return;
    }
    input_ = Finish(std::move(builder), names_.input, PadOf(load, Float(0, type_)));
  }

  // Whether a stage is pad(load, 0) and reads beyond the loaded tensor wherever the window's rows or columns leave its
  // own domain at the end.
  bool EndsInZeros(const Stage& producer) const {
    const Expr& body = producer.body;
    if (producer.reduction != Reduction::kNone || body.op() != Op::kPad || body.arg(1).op() != Op::kFloat ||
        body.arg(1).float_value() != 0)
      return false;
    const Expr& load = body.arg(0);
    const Tensor& source = kernel_.tensors[load.tensor()];
    for (size_t axis = 0; axis < producer.axes.size(); ++axis) {
      if (!Uses(x_.load.arg(axis), h_) && !Uses(x_.load.arg(axis), w_)) continue;
      bool ends = false;
      for (size_t d = 0; d < load.args().size(); ++d) {
        std::optional<Linear> form = AffineIndex(kernel_, load.arg(d));
        if (!form || form->CoefOf(VarOf(AxisId(axis))) != 1 || form->terms().size() != 1) continue;
        ends |= LowerExtent(kernel_, producer.axes[axis].extent) + form->constant() >=
                UpperExtent(kernel_, source.shape[d]);
      }
      if (!ends) return false;
    }
    return true;
  }

  std::vector<AxisId> InputAxes() const { return WithChannels(x_.axes); }
  std::vector<AxisId> FilterAxes() const { return WithChannels(f_.axes); }
  std::vector<AxisId> WithChannels(std::vector<AxisId> axes) const {
    axes.insert(axes.end(), channels_.begin(), channels_.end());
    return axes;
  }

  void AddRows() {
    StageBuilder builder;
    std::vector<Expr> values = NoValues();
    Carry(builder, InputAxes(), values);
    Expr i = builder.Add(Fresh("i"), Int(size()));
    Expr row = builder.Add(Fresh("th"), Int(rows_)), x = builder.Add(Fresh("x"), Int(columns_ * m_ + 2));
    Expr body = Choose(i, transforms_.input, type_, [&](const Row& weights) {
      return Combine(weights, type_, [&](int64_t p) {
        return Load(input_, Join(At(InputAxes(), values), {row * Int(m_) + Int(p), x}));
      });
    });
    row_sums_ = Finish(std::move(builder), names_.rows, body);
  }

  void AddTiles() {
    StageBuilder builder;
    std::vector<Expr> values = NoValues();
    Expr i = builder.Add(Fresh("i"), Int(size())), j = builder.Add(Fresh("j"), Int(size()));
    Carry(builder, InputAxes(), values);
    Expr row = builder.Add(Fresh("th"), Int(rows_)), column = builder.Add(Fresh("tw"), Int(columns_));
    Expr body = Choose(j, transforms_.input, type_, [&](const Row& weights) {
      return Combine(weights, type_, [&](int64_t q) {
        return Load(row_sums_, Join(At(InputAxes(), values), {i, row, column * Int(m_) + Int(q)}));
      });
    });
    tiles_ = Finish(std::move(builder), names_.tiles, body);
  }

  void AddFilterRows() {
    StageBuilder builder;
    std::vector<Expr> values = NoValues();
    Expr i = builder.Add(Fresh("i"), Int(size()));
    Carry(builder, FilterAxes(), values);
    Carry(builder, s_, values);
    Expr body = Choose(i, transforms_.filter, type_, [&](const Row& weights) {
      return Combine(weights, type_, [&](int64_t p) {
        std::vector<Expr> at = values;
        at[r_.index()] = Int(p);
        return SubstituteAxes(f_.load, at);
      });
    });
    filter_rows_ = Finish(std::move(builder), names_.filter_rows, body);
  }

  void AddFilter() {
    StageBuilder builder;
    std::vector<Expr> values = NoValues();
    Expr i = builder.Add(Fresh("i"), Int(size())), j = builder.Add(Fresh("j"), Int(size()));
    Carry(builder, FilterAxes(), values);
    Expr body = Choose(j, transforms_.filter, type_, [&](const Row& weights) {
      return Combine(weights, type_, [&](int64_t q) {
        return Load(filter_rows_, Join({i}, Join(At(FilterAxes(), values), {Int(q)})));
      });
    });
    filter_ = Finish(std::move(builder), names_.filter, body);
  }

  void AddProduct() {
    StageBuilder builder;
    std::vector<Expr> values = NoValues();
    Expr i = builder.Add(Fresh("i"), Int(size())), j = builder.Add(Fresh("j"), Int(size()));
    Carry(builder, others_, values);
    Expr t = builder.Add(Fresh("t"), Int(rows_ * columns_));
    for (AxisId axis : channels_) {
      values[axis.index()] = AxisRef(AxisId(builder.stage.axis_count()));
      builder.stage.reduce_axes.push_back(Sum().axis(axis));
    }
    builder.stage.reduction = Reduction::kSum;
    Expr row = Binary(Op::kFloorDiv, t, Int(columns_)), column = Binary(Op::kMod, t, Int(columns_));
    Expr filter = Load(filter_, Join({i, j}, At(FilterAxes(), values)));
    Expr tile = Load(tiles_, Join({i, j}, Join(At(InputAxes(), values), {row, column})));
    product_ = Finish(std::move(builder), names_.product, Binary(Op::kMul, filter, tile));
  }

  void AddHalf() {
    StageBuilder builder;
    std::vector<Expr> values = NoValues();
    Expr u = builder.Add(Fresh("u"), Int(m_)), j = builder.Add(Fresh("j"), Int(size()));
    Carry(builder, others_, values);
    Expr t = builder.Add(Fresh("t"), Int(rows_ * columns_));
    Expr body = Choose(u, transforms_.output, type_, [&](const Row& weights) {
      return Combine(weights, type_,
                     [&](int64_t i) { return Load(product_, Join({Int(i), j}, Join(At(others_, values), {t}))); });
    });
    half_ = Finish(std::move(builder), names_.half, body);
  }

  void AddResult() {
    StageBuilder builder;
    std::vector<Expr> values = NoValues();
    Expr u = builder.Add(Fresh("u"), Int(m_)), v = builder.Add(Fresh("v"), Int(m_));
    Carry(builder, others_, values);
    Expr t = builder.Add(Fresh("t"), Int(rows_ * columns_));
    Expr body = Choose(v, transforms_.output, type_, [&](const Row& weights) {
      return Combine(weights, type_,
                     [&](int64_t j) { return Load(half_, Join({u, Int(j)}, Join(At(others_, values), {t}))); });
    });
    result_ = Finish(std::move(builder), names_.result, body);
  }

  void ReplaceSum() {
    const std::vector<Expr> own = AxisRefs(Sum().spatial_ids());
    const Expr &h = own[h_.index()], &w = own[w_.index()];
    Expr t = Binary(Op::kFloorDiv, h, Int(m_)) * Int(columns_) + Binary(Op::kFloorDiv, w, Int(m_));
    Expr body =
        Load(result_, Join({Binary(Op::kMod, h, Int(m_)), Binary(Op::kMod, w, Int(m_))}, Join(At(others_, own), {t})));
    Stage& sum = kernel_.stages[index_];
    sum.reduction = Reduction::kNone;
    sum.reduce_axes.clear();
    sum.body = body;
    // The padded copy that `input` took the place of.
    if (!replaced_ || !ReadersOf(kernel_, replaced_).empty()) return;
    kernel_.stages.EraseIf([&](const Stage& stage) { return stage.output == replaced_; });
  }

  Kernel kernel_;
  StageId index_;  // of the sum
  const WinogradNames names_;
  const int64_t m_, columns_;
  const Transforms& transforms_;
  DType type_ = DType::kF32;
  AxisId h_, w_, r_, s_;
  std::vector<AxisId> channels_, others_;  // reduction axes but the window; spatial axes but rows and columns
  Side x_, f_;
  int64_t rows_ = 0;  // of tiles
  TensorId replaced_;
  TensorId input_, row_sums_, tiles_, filter_rows_, filter_, product_, half_, result_;
};

Result<Kernel> ApplyWinograd(Kernel kernel, StageId stage, const RewriteStep& step) {
  return Winograd(std::move(kernel), stage, step.names[0], step.numbers[0], step.numbers[1]).Go();
}

// The columns of tiles go along the image's width.
std::string FitWinograd(RewriteStep& step, const FitContext& context) {
  if (step.numbers.size() != 2 || step.numbers[0] < 1) return "";
  const int64_t m = step.numbers[0];
  int64_t& columns = step.numbers[1];
  auto tiles_in_a_row = [&](int64_t width) { return (width + m - 1) / m; };
  auto width = [&](const Kernel& kernel) -> int64_t {
    const StageId stage = FindStage(kernel, step.stage);
    if (!stage || kernel.stages[stage].axes.empty()) return 0;
    return UpperExtent(kernel, kernel.stages[stage].axes.back().extent);
  };
  const int64_t there = width(context.donor_kernel), here = width(context.before.kernel);
  if (there == 0 || here == 0) return "";
  const bool was_whole = columns == tiles_in_a_row(there);
  const int64_t wanted = was_whole ? tiles_in_a_row(here) : std::min(tiles_in_a_row(here), columns);
  if (wanted == columns) return "";
  columns = wanted;
  return fmt::format("rows of {} make {} tiles", here, tiles_in_a_row(here));
}

}  // namespace

Result<void> CheckWinograd(const Kernel& kernel, StageId stage, int64_t m, int64_t columns) {
  return Winograd(kernel, stage, "", m, columns).Check();
}

namespace rewrites {

extern constinit const GraphRewrite kWinograd = {
    .name = "winograd",
    .takes = "a name for the new stages, the tile and the number of tiles in a row",
    .names = 1,
    .numbers = 2,
    .rounding = Rounding::kCoarser,
    .is_algorithm = true,
    .apply = ApplyWinograd,
    .fit = FitWinograd,
};

}  // namespace rewrites
}  // namespace hone
