#include "ir/reference/projection.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "ir/graph/element.h"
#include "ir/reference/accuracy.h"
#include "ir/reference/projection_terms.h"

namespace hone {
namespace {

constexpr double kDeviations = 32;

// Of the worst that the errors of so many elements can come to under random signs.
double ShareOfWorst(double elements) { return std::min(1.0, kDeviations / std::sqrt(elements)); }

// A dense array whose dimensions are indexed by forms over axes; outside it is 0. An operand is read where it lies; a
// sum has values and, beside them, the same sums over absolute values.
struct Array {
  const void* operand = nullptr;
  DType dtype = DType::kF64;
  std::vector<AxisForm> slots;
  std::vector<int64_t> extents;
  std::vector<int64_t> strides;
  std::vector<double> value;
  std::vector<double> magnitude;

  void SetExtents(std::vector<int64_t> wanted) {
    extents = std::move(wanted);
    strides.assign(extents.size(), 1);
    for (size_t d = extents.size(); d-- > 1;) strides[d - 1] = strides[d] * extents[d];
  }
  double ValueAt(size_t i) const {
    if (!operand) return value[i];
    return LoadElement(dtype, operand, i);
  }
  double MagnitudeAt(size_t i) const { return operand ? std::abs(ValueAt(i)) : magnitude[i]; }
  int64_t size() const { return extents.empty() ? 1 : strides[0] * extents[0]; }
  bool Mentions(SumAxisId axis) const {
    return std::any_of(slots.begin(), slots.end(), [&](const AxisForm& slot) { return CoefOf(slot, axis) != 0; });
  }
  static int64_t CoefOf(const AxisForm& slot, SumAxisId axis) {
    for (auto [a, coef] : slot.terms)
      if (a == axis) return coef;
    return 0;
  }
};

// Moves to the next index, the last dimension fastest; false once around.
bool NextIndex(std::vector<int64_t>& index, const std::vector<int64_t>& extents) {
  for (size_t d = extents.size(); d-- > 0;) {
    if (++index[d] < extents[d]) return true;
    index[d] = 0;
  }
  return false;
}

// Sums one axis out of an array: Σ_v weight[v] · array[… c·v + rest …]. A dimension that mentions other axes beside v
// falls apart into one dimension for each of them.
class AxisSummation {
 public:
  AxisSummation(const Array& from, SumAxisId axis, const IdVector<SumAxisId, int64_t>& axis_extents)
      : from_(from), axis_extent_(axis_extents[axis]) {
    std::vector<int64_t> extents;
    for (size_t d = 0; d < from.slots.size(); ++d) {
      if (Array::CoefOf(from.slots[d], axis) != 0) continue;
      kept_.push_back(d);
      to_.slots.push_back(from.slots[d]);
      extents.push_back(from.extents[d]);
    }
    size_t first_new = to_.slots.size();
    for (size_t d = 0; d < from.slots.size(); ++d) {
      if (Array::CoefOf(from.slots[d], axis) == 0) continue;
      Summed summed{d, Array::CoefOf(from.slots[d], axis), from.slots[d].constant, {}};
      for (auto [other, coef] : from.slots[d].terms) {
        if (other == axis) continue;
        size_t slot = first_new;
        while (slot < to_.slots.size() && to_.slots[slot].terms[0].first != other) ++slot;
        if (slot == to_.slots.size()) {
          to_.slots.push_back(AxisForm{{{other, 1}}, 0});
          extents.push_back(axis_extents[other]);
        }
        summed.rest.emplace_back(slot, coef);
      }
      summed_.push_back(std::move(summed));
    }
    to_.SetExtents(std::move(extents));
  }

  double Cost() const {
    double cost = static_cast<double>(axis_extent_);
    for (int64_t extent : to_.extents) cost *= static_cast<double>(extent);
    return cost;
  }

  Array Run(const std::vector<double>& weights) {
    if (!from_.operand) return Sum(weights, from_.value.data(), from_.magnitude.data());
    return VisitElement(from_.dtype, [&]<typename T>(std::type_identity<T>) {
      return Sum(weights, static_cast<const T*>(from_.operand), nullptr);
    });
  }

 private:
  struct Summed {
    size_t slot;
    int64_t coef;
    int64_t constant;
    std::vector<std::pair<size_t, int64_t>> rest;  // new slot, coefficient
  };

  // Values of v with 0 ≤ base + coef·v < extent.
  static void ClipToRange(int64_t base, int64_t coef, int64_t extent, int64_t* begin, int64_t* end) {
    int64_t low = coef > 0 ? -base : base - (extent - 1);  // |coef|·v ≥ low
    int64_t high = coef > 0 ? extent - 1 - base : base;    // |coef|·v ≤ high
    int64_t size = std::abs(coef);
    *begin = std::max(*begin, FloorDiv(low + size - 1, size));
    *end = std::min(*end, FloorDiv(high, size) + 1);
  }

  // `magnitudes` is null for an operand: its values' own.
  template <typename T>
  Array Sum(const std::vector<double>& weights, const T* values, const double* magnitudes) {
    to_.value.assign(static_cast<size_t>(to_.size()), 0);
    to_.magnitude.assign(static_cast<size_t>(to_.size()), 0);
    // Dimensions that stay the last ones in memory are added as whole rows: all behind the summed ones if nothing comes
    // after them in the result, else the last.
    size_t row_begin = kept_.size();
    bool contiguous = kept_.size() == to_.slots.size();
    while (row_begin > 0 && kept_[row_begin - 1] + (kept_.size() - row_begin) + 1 == from_.slots.size() &&
           (contiguous || row_begin == kept_.size()))
      --row_begin;
    int64_t row = 1, row_stride = row_begin < kept_.size() ? to_.strides[kept_.size() - 1] : 1;
    std::vector<int64_t> steps = to_.extents;
    for (size_t k = row_begin; k < kept_.size(); ++k) row *= std::exchange(steps[k], 1);
    std::vector<int64_t> index(steps.size(), 0);
    do {
      int64_t target = 0, source = 0, step = 0;
      for (size_t d = 0; d < index.size(); ++d) target += index[d] * to_.strides[d];
      for (size_t k = 0; k < kept_.size(); ++k) source += index[k] * from_.strides[kept_[k]];
      int64_t begin = 0, end = axis_extent_;
      for (const Summed& summed : summed_) {
        int64_t base = summed.constant;
        for (auto [slot, coef] : summed.rest) base += coef * index[slot];
        source += base * from_.strides[summed.slot];
        step += summed.coef * from_.strides[summed.slot];
        ClipToRange(base, summed.coef, from_.extents[summed.slot], &begin, &end);
      }
      double* y = to_.value.data() + target;
      double* n = to_.magnitude.data() + target;
      if (row == 1) {
        AddPoint(weights, begin, end, values, magnitudes, source, step, y, n);
        continue;
      }
      for (int64_t v = begin; v < end; ++v) {
        int64_t at = source + step * v;
        AddRow(weights[static_cast<size_t>(v)], values + at, magnitudes ? magnitudes + at : nullptr, row, row_stride, y,
               n);
      }
    } while (NextIndex(index, steps));
    return std::move(to_);
  }

  template <typename T>
  static void AddRow(double weight, const T* x, const double* m, int64_t row, int64_t stride, double* y, double* n) {
    if (stride == 1) {
      for (int64_t i = 0; i < row; ++i) y[i] += weight * static_cast<double>(x[i]);
      if (m)
        for (int64_t i = 0; i < row; ++i) n[i] += m[i];
      else
        for (int64_t i = 0; i < row; ++i) n[i] += std::abs(static_cast<double>(x[i]));
      return;
    }
    for (int64_t i = 0; i < row; ++i) {
      y[i * stride] += weight * static_cast<double>(x[i]);
      n[i * stride] += m ? m[i] : std::abs(static_cast<double>(x[i]));
    }
  }

  template <typename T>
  static void AddPoint(const std::vector<double>& weights, int64_t begin, int64_t end, const T* values,
                       const double* magnitudes, int64_t source, int64_t step, double* y, double* n) {
    double value = 0, magnitude = 0;
    for (int64_t v = begin; v < end; ++v) {
      double x = static_cast<double>(values[source + step * v]);
      value += weights[static_cast<size_t>(v)] * x;
      magnitude += magnitudes ? magnitudes[source + step * v] : std::abs(x);
    }
    *y += value;
    *n += magnitude;
  }

  const Array& from_;
  int64_t axis_extent_;
  std::vector<size_t> kept_;  // dimensions of `from` without the axis; the first dimensions of the result
  std::vector<Summed> summed_;
  Array to_;
};

class TermProjector {
 public:
  TermProjector(const Kernel& kernel, const IdVector<TensorId, const void*>& data, const SumOfProducts& sum,
                const IdVector<SumAxisId, std::vector<double>>& weights, double* budget)
      : kernel_(kernel), data_(data), sum_(sum), weights_(weights), budget_(*budget) {}

  // Adds the term's share to *value and *magnitude; false if the budget does not suffice.
  bool Run(const ProductTerm& term, double* value, double* magnitude) {
    for (const ProductFactor& factor : term.factors) Read(factor);
    for (SumAxisId axis : IdRange<SumAxisId>(sum_.outputs)) open_.push_back(axis);
    open_.insert(open_.end(), term.summed.begin(), term.summed.end());
    double scale = term.coefficient, size = std::abs(term.coefficient);
    // An axis of one point is always 0 in an index.
    for (Array& array : arrays_)
      for (AxisForm& slot : array.slots) std::erase_if(slot.terms, [&](auto& t) { return sum_.extents[t.first] == 1; });
    // An axis that no factor mentions only counts.
    std::erase_if(open_, [&](SumAxisId axis) {
      if (std::any_of(arrays_.begin(), arrays_.end(), [&](const Array& array) { return array.Mentions(axis); }))
        return false;
      double total = 0;
      for (double weight : weights_[axis]) total += weight;
      scale *= total;
      size *= static_cast<double>(sum_.extents[axis]);
      return true;
    });
    while (true) {
      std::optional<bool> summed = SumCheapestAxis();
      if (!summed) return false;
      if (!*summed) break;
    }
    double product = 0, product_size = 0;
    if (!SumTogether(&product, &product_size)) return false;
    *value += scale * product;
    *magnitude += size * product_size;
    return true;
  }

 private:
  bool Spend(double work) { return (budget_ -= work) >= 0; }

  void Read(const ProductFactor& factor) {
    const Tensor& tensor = kernel_.tensors[factor.tensor];
    Array array;
    array.slots = factor.indices;
    array.SetExtents(StaticShape(kernel_, tensor));
    array.operand = data_[factor.tensor];
    array.dtype = tensor.dtype;
    arrays_.push_back(std::move(array));
  }

  // Sums out the axis that costs least among those that one array alone mentions. False if there is none, nullopt if
  // the budget does not suffice.
  std::optional<bool> SumCheapestAxis() {
    double best = std::numeric_limits<double>::infinity();
    size_t best_open = 0, best_array = 0;
    for (size_t i = 0; i < open_.size(); ++i) {
      size_t mentions = 0, array = 0;
      for (size_t f = 0; f < arrays_.size(); ++f)
        if (arrays_[f].Mentions(open_[i])) ++mentions, array = f;
      if (mentions != 1) continue;
      double cost = AxisSummation(arrays_[array], open_[i], sum_.extents).Cost();
      if (cost < best) best = cost, best_open = i, best_array = array;
    }
    if (best == std::numeric_limits<double>::infinity()) return false;
    if (!Spend(best)) return std::nullopt;
    const SumAxisId axis = open_[best_open];
    arrays_[best_array] = AxisSummation(arrays_[best_array], axis, sum_.extents).Run(weights_[axis]);
    open_.erase(open_.begin() + static_cast<ptrdiff_t>(best_open));
    return true;
  }

  // What several arrays share is summed point by point.
  bool SumTogether(double* value, double* magnitude) {
    double points = 1;
    std::vector<int64_t> extents;
    for (SumAxisId axis : open_) {
      extents.push_back(sum_.extents[axis]);
      points *= static_cast<double>(extents.back());
    }
    if (!Spend(points * static_cast<double>(4 * arrays_.size() + 1))) return false;
    std::vector<int64_t> index(open_.size(), 0);
    do {
      double product = 1, size = 1;
      for (size_t i = 0; i < open_.size(); ++i) product *= weights_[open_[i]][static_cast<size_t>(index[i])];
      for (const Array& array : arrays_) {
        int64_t offset = OffsetAt(array, index);
        product *= offset < 0 ? 0 : array.ValueAt(static_cast<size_t>(offset));
        size *= offset < 0 ? 0 : array.MagnitudeAt(static_cast<size_t>(offset));
      }
      *value += product;
      *magnitude += size;
    } while (NextIndex(index, extents));
    return true;
  }

  // -1 if the point is outside the array.
  int64_t OffsetAt(const Array& array, const std::vector<int64_t>& index) const {
    int64_t offset = 0;
    for (size_t d = 0; d < array.slots.size(); ++d) {
      int64_t at = array.slots[d].constant;
      for (auto [axis, coef] : array.slots[d].terms)
        at += coef * index[static_cast<size_t>(std::find(open_.begin(), open_.end(), axis) - open_.begin())];
      if (at < 0 || at >= array.extents[d]) return -1;
      offset += at * array.strides[d];
    }
    return offset;
  }

  const Kernel& kernel_;
  const IdVector<TensorId, const void*>& data_;
  const SumOfProducts& sum_;
  const IdVector<SumAxisId, std::vector<double>>& weights_;
  double& budget_;
  std::vector<Array> arrays_;
  std::vector<SumAxisId> open_;  // axes still to be summed
};

}  // namespace

std::optional<Projection> ProjectOutput(const Kernel& kernel, std::span<const OperandView> inputs, int output, Rng& rng,
                                        double budget) {
  HONE_CHECK(IsStatic(kernel));
  IdVector<TensorId, const void*> data(kernel.tensors.size());
  TensorId target;
  size_t next = 0;
  for (TensorId id : kernel.operands) {
    if (kernel.tensors[id].kind == TensorKind::kInput)
      data[id] = inputs[next++].data;
    else if (output-- == 0)
      target = id;
  }
  HONE_CHECK(target && next == inputs.size());
  std::optional<SumOfProducts> sum = FindSumOfProducts(kernel, target);
  if (!sum) return std::nullopt;

  Projection projection;
  IdVector<SumAxisId, std::vector<double>> weights;
  double elements = 1;
  for (int64_t extent : sum->extents) {
    const SumAxisId axis = weights.Add(std::vector<double>(static_cast<size_t>(extent), 1.0));
    if (axis.index() >= sum->outputs) continue;
    for (double& weight : weights.back()) weight = rng.Chance(0.5) ? 1 : -1;
    elements *= static_cast<double>(extent);
    projection.signs.push_back(weights.back());
  }
  for (const ProductTerm& term : sum->terms) {
    TermProjector projector(kernel, data, *sum, weights, &budget);
    if (!projector.Run(term, &projection.value, &projection.magnitude)) return std::nullopt;
  }
  projection.bound = Tolerance(kernel) * projection.magnitude * ShareOfWorst(elements);
  return projection;
}

ProjectedSum ProjectionOf(const Projection& projection, const void* output, DType type) {
  HONE_CHECK(IsFloat(type));
  std::vector<int64_t> extents;
  for (const std::vector<double>& signs : projection.signs) extents.push_back(static_cast<int64_t>(signs.size()));
  static const std::vector<double> kOne = {1.0};
  const std::vector<double>& row = extents.empty() ? kOne : projection.signs.back();
  if (!extents.empty()) extents.back() = 1;
  std::vector<int64_t> index(extents.size(), 0);
  double total = 0, sizes = 0;
  size_t at = 0;
  const bool is_narrow = IsNarrowFloat(type);
  do {
    double sum[4] = {};
    VisitElement(type, [&]<typename T>(std::type_identity<T>) {
      const T* y = static_cast<const T*>(output) + at;
      for (size_t i = 0; i < row.size(); ++i) sum[i % 4] += row[i] * static_cast<double>(y[i]);
      if (is_narrow)
        for (size_t i = 0; i < row.size(); ++i) sizes += std::abs(static_cast<double>(y[i]));
    });
    at += row.size();
    double sign = 1;
    for (size_t d = 0; d + 1 < index.size(); ++d) sign *= projection.signs[d][static_cast<size_t>(index[d])];
    total += sign * ((sum[0] + sum[1]) + (sum[2] + sum[3]));
  } while (NextIndex(index, extents));
  return {total, is_narrow ? TraitsOf(type).unit_roundoff * sizes * ShareOfWorst(static_cast<double>(at)) : 0};
}

}  // namespace hone
