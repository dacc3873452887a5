#include "network/onnx/data_shaped.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>

#include "network/graph/walk.h"
#include "network/onnx/translate.h"

namespace hone {
namespace {

using evaluating::Arguments;
using evaluating::Lines;
using Computed = Result<std::vector<Numbers>>;

Error Invalid(const OnnxNode& node, std::string message) {
  return Error{ErrorKind::kInvalid, std::move(message), node.name};
}

bool IsZero(const Numbers& x, size_t i) { return x.is_real() ? x.real[i] == 0 : x.whole[i] == 0; }

// Where an operand is not zero: a row of indices a dimension.
Computed NonZero(const OnnxNode&, Arguments in) {
  const Numbers& x = *in[0];
  std::vector<size_t> found;
  for (size_t i = 0; i < x.real.size() + x.whole.size(); ++i)
    if (!IsZero(x, i)) found.push_back(i);
  const std::vector<int64_t> strides = evaluating::StridesOf(x.shape);
  Numbers out = MakeNumbers(DType::kI64, {static_cast<int64_t>(x.shape.size()), static_cast<int64_t>(found.size())});
  for (size_t d = 0; d < x.shape.size(); ++d)
    for (size_t i = 0; i < found.size(); ++i)
      out.whole[d * found.size() + i] = static_cast<int64_t>(found[i]) / strides[d] % x.shape[d];
  return std::vector{std::move(out)};
}

int Order(const Numbers& x, size_t a, size_t b) {
  if (x.is_real()) return x.real[a] < x.real[b] ? -1 : static_cast<int>(x.real[b] < x.real[a]);
  if (x.dtype == DType::kU64) {
    const auto left = static_cast<uint64_t>(x.whole[a]), right = static_cast<uint64_t>(x.whole[b]);
    return left < right ? -1 : static_cast<int>(right < left);
  }
  return x.whole[a] < x.whole[b] ? -1 : static_cast<int>(x.whole[b] < x.whole[a]);
}

template <typename T>
void SortBy(const T* values, std::vector<int64_t>& places) {
  std::stable_sort(places.begin(), places.end(), [values](int64_t a, int64_t b) { return values[a] < values[b]; });
}

// Slices along an axis (elements of all, read as one line, without one), each once: in their order, or sorted. Then
// where each stands first, which of them each original one is, and how often it stands.
Computed Unique(const OnnxNode& node, Arguments in) {
  Numbers x = *in[0];
  const OnnxAttribute *axis_given = FindAttribute(node, "axis"), *sorted = FindAttribute(node, "sorted");
  if (axis_given == nullptr) x.shape = {CountOf(x.shape)};
  const auto rank = static_cast<int64_t>(x.shape.size());
  int64_t axis = axis_given == nullptr ? 0 : axis_given->whole;
  if (axis < -rank || axis >= rank) return Invalid(node, fmt::format("axis {} of {} dimensions", axis, rank));
  if (axis < 0) axis += rank;
  const Lines lines(x.shape, axis);
  auto order = [&](int64_t a, int64_t b) {
    for (int64_t i = 0; i < lines.count(); ++i)
      if (const int each = Order(x, lines.At(i, a), lines.At(i, b)); each != 0) return each;
    return 0;
  };
  std::vector<int64_t> by_value(static_cast<size_t>(lines.extent));
  std::iota(by_value.begin(), by_value.end(), 0);
  if (lines.count() != 1)
    std::stable_sort(by_value.begin(), by_value.end(), [&](int64_t a, int64_t b) { return order(a, b) < 0; });
  else if (x.is_real())
    SortBy(x.real.data(), by_value);
  else if (x.dtype == DType::kU64)
    SortBy(reinterpret_cast<const uint64_t*>(x.whole.data()), by_value);
  else
    SortBy(x.whole.data(), by_value);
  struct Group {
    int64_t first = 0, count = 0;
  };
  std::vector<Group> groups;
  std::vector<size_t> group_of(by_value.size());
  for (size_t i = 0; i < by_value.size(); ++i) {
    if (i == 0 || order(by_value[i - 1], by_value[i]) != 0) groups.push_back({by_value[i], 0});
    ++groups.back().count;
    group_of[static_cast<size_t>(by_value[i])] = groups.size() - 1;
  }
  std::vector<size_t> listed(groups.size()), place(groups.size());
  std::iota(listed.begin(), listed.end(), 0);
  if (sorted != nullptr && sorted->whole == 0)
    std::sort(listed.begin(), listed.end(), [&](size_t a, size_t b) { return groups[a].first < groups[b].first; });
  for (size_t i = 0; i < listed.size(); ++i) place[listed[i]] = i;
  const auto count = static_cast<int64_t>(groups.size());
  Shape shape = x.shape;
  shape[static_cast<size_t>(axis)] = count;
  std::vector<Numbers> out = {MakeNumbers(x.dtype, shape), MakeNumbers(DType::kI64, {count}),
                              MakeNumbers(DType::kI64, {lines.extent}), MakeNumbers(DType::kI64, {count})};
  const Lines to(shape, axis);
  for (size_t i = 0; i < listed.size(); ++i) {
    const Group& group = groups[listed[i]];
    out[1].whole[i] = group.first;
    out[3].whole[i] = group.count;
    for (int64_t line = 0; line < lines.count(); ++line)
      evaluating::CopyElement(x, static_cast<int64_t>(lines.At(line, group.first)), out[0],
                              to.At(line, static_cast<int64_t>(i)));
  }
  for (size_t i = 0; i < group_of.size(); ++i) out[2].whole[i] = static_cast<int64_t>(place[group_of[i]]);
  return out;
}

struct Box {
  double low[2], high[2];
  double area;
};

Box BoxAt(const Numbers& boxes, size_t at, bool is_centred) {
  Box box;
  for (size_t d = 0; d < 2; ++d) {
    const double a = boxes.real[at + d], b = boxes.real[at + 2 + d];
    box.low[d] = is_centred ? a - b / 2 : std::min(a, b);
    box.high[d] = is_centred ? a + b / 2 : std::max(a, b);
  }
  box.area = (box.high[0] - box.low[0]) * (box.high[1] - box.low[1]);
  return box;
}

double Overlap(const Box& a, const Box& b) {
  double common = 1;
  for (size_t d = 0; d < 2; ++d) common *= std::max(0.0, std::min(a.high[d], b.high[d]) - std::max(a.low[d], b.low[d]));
  if (a.area <= 0 || b.area <= 0 || common <= 0) return 0;
  return common / (a.area + b.area - common);
}

// Boxes that were kept, by where they begin along one side: a box is compared only with those that can reach it. Where
// classes lie apart, as detectors move them to suppress all classes at once, that is a class at a time.
class KeptBoxes {
 public:
  // Of boxes like these, kept where they overlap by `most` or less.
  KeptBoxes(const std::vector<Box>& boxes, double most) : most_(most) {
    double last = -INFINITY, first = INFINITY;
    bool is_finite = true;
    for (const Box& box : boxes) {
      first = std::min(first, box.low[0]);
      last = std::max(last, box.low[0]);
      widest_ = std::max(widest_, box.high[0] - box.low[0]);
      is_finite = is_finite && std::isfinite(box.low[0]) && std::isfinite(box.high[0]);
    }
    first_ = first;
    const bool is_spread = is_finite && most >= 0 && last > first && std::isfinite(last - first);
    const size_t count = is_spread ? std::min<size_t>(boxes.size(), kMostCells) : 1;
    if (count > 1) cell_ = (last - first) / static_cast<double>(count);
    cells_.resize(count);
  }

  bool AreClear(const Box& box) const {
    const size_t end = CellOf(box.high[0]);
    for (size_t cell = CellOf(box.low[0] - widest_); cell <= end; ++cell)
      for (const Box& other : cells_[cell])
        if (Overlap(box, other) > most_) return false;
    return true;
  }

  void Add(const Box& box) { cells_[CellOf(box.low[0])].push_back(box); }

 private:
  static constexpr size_t kMostCells = 4096;

  size_t CellOf(double x) const {
    if (cells_.size() == 1) return 0;
    return static_cast<size_t>(std::clamp((x - first_) / cell_, 0.0, static_cast<double>(cells_.size() - 1)));
  }

  const double most_;
  double first_ = 0, widest_ = 0, cell_ = 1;
  std::vector<std::vector<Box>> cells_;
};

// Of boxes that overlap, the one with the best score: rows of batch, class, box.
Computed NonMaxSuppression(const OnnxNode& node, Arguments in) {
  const Numbers &boxes = *in[0], &scores = *in[1];
  const Shape &b = boxes.shape, &s = scores.shape;
  if (b.size() != 3 || s.size() != 3 || b[2] != 4 || b[0] != s[0] || b[1] != s[2] || !boxes.is_real() ||
      !scores.is_real())
    return Invalid(node, fmt::format("boxes {} and scores {} do not go together", ShapeText(b), ShapeText(s)));
  auto number = [&](size_t i) -> std::optional<double> {
    if (i >= in.size() || in[i] == nullptr || CountOf(in[i]->shape) != 1) return std::nullopt;
    return in[i]->RealAt(0);
  };
  const double most = number(2).value_or(0), overlap = number(3).value_or(0);
  const std::optional<double> least = number(4);
  const OnnxAttribute* centred = FindAttribute(node, "center_point_box");
  const bool is_centred = centred != nullptr && centred->whole != 0;
  std::vector<int64_t> found;
  for (int64_t batch = 0; batch < s[0]; ++batch) {
    for (int64_t kind = 0; kind < s[1]; ++kind) {
      const double* score = scores.real.data() + (batch * s[1] + kind) * s[2];
      std::vector<int64_t> order;
      for (int64_t i = 0; i < s[2]; ++i)
        if (!least || score[i] > *least) order.push_back(i);
      std::stable_sort(order.begin(), order.end(), [&](int64_t l, int64_t r) { return score[l] > score[r]; });
      std::vector<Box> candidates;
      for (int64_t i : order)
        candidates.push_back(BoxAt(boxes, static_cast<size_t>((batch * b[1] + i) * 4), is_centred));
      KeptBoxes kept(candidates, overlap);
      double count = 0;
      for (size_t i = 0; i < order.size() && count < most; ++i) {
        if (!kept.AreClear(candidates[i])) continue;
        kept.Add(candidates[i]);
        ++count;
        found.insert(found.end(), {batch, kind, order[i]});
      }
    }
  }
  const auto rows = static_cast<int64_t>(found.size()) / 3;
  return std::vector{WholeNumbers(found, {rows, 3})};
}

}  // namespace

const DataShapedOperator* FindDataShaped(const std::string& name) {
  static const std::map<std::string, DataShapedOperator> operators = {
      {"NonZero", {1, NonZero}}, {"Unique", {1, Unique}}, {"NonMaxSuppression", {2, NonMaxSuppression}}};
  auto found = operators.find(name);
  return found == operators.end() ? nullptr : &found->second;
}

bool IsLoop(const OnnxNode& node) { return node.domain.empty() && (node.op == "Loop" || node.op == "Scan"); }

const OnnxAttribute* FindAttribute(const OnnxNode& node, std::string_view name) {
  for (const OnnxAttribute& attribute : node.attributes)
    if (attribute.name == name) return &attribute;
  return nullptr;
}

const OnnxNode* FindUnknown(const OnnxNode& node) {
  if (!IsLoop(node)) return nullptr;
  std::vector<const OnnxNode*> open = {&node};
  while (!open.empty()) {
    const OnnxNode& at = *open.back();
    open.pop_back();
    const bool is_control = IsLoop(at) || OperatorName(at) == "If";
    if (!is_control && FindOperator(OperatorName(at)) == nullptr && FindDataShaped(OperatorName(at)) == nullptr)
      return &at;
    for (const OnnxAttribute& attribute : at.attributes)
      if (attribute.body != nullptr)
        for (const OnnxNode& inner : attribute.body->nodes) open.push_back(&inner);
  }
  return nullptr;
}

}  // namespace hone
