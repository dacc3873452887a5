// Operators that pick out parts by numbers that are known when the file is read: their results have sizes that such
// numbers decide.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "network/graph/walk.h"
#include "network/onnx/translate.h"

namespace hone {
namespace {

using evaluating::Arguments;
using Computed = Result<std::vector<Numbers>>;

// The slices along an axis (or elements of all, read as one line) for which a constant says so.
Result<Outputs> Compress(OperatorCall& call) {
  const Numbers condition = *HONE_TRY(call.Known(1, "the condition"));
  if (condition.is_real() || condition.shape.size() != 1)
    return call.build.Invalid("the condition is no vector of truth values");
  ValueId x = call.In(0);
  int64_t axis = 0;
  if (call.Find("axis") != nullptr) {
    axis = HONE_TRY(call.Axis(call.Whole("axis", 0), call.rank(0)));
  } else {
    x = HONE_TRY(call.build.Reshape(x, {CountOf(call.shape(0))}));
  }
  if (static_cast<int64_t>(condition.whole.size()) > call.build.shape(x)[static_cast<size_t>(axis)])
    return call.build.Invalid(fmt::format("{} conditions for {} along dimension {}", condition.whole.size(),
                                          ShapeText(call.build.shape(x)), axis));
  std::vector<int64_t> picked;
  for (size_t i = 0; i < condition.whole.size(); ++i)
    if (condition.whole[i] != 0) picked.push_back(static_cast<int64_t>(i));
  const auto count = static_cast<int64_t>(picked.size());
  Node node;
  node.kind = NodeKind::kGather;
  node.axis = axis;
  node.inputs = {x, call.build.Constant(WholeNumbers(picked, {count}))};
  return Outputs{HONE_TRY(call.build.Add(std::move(node)))};
}

// Cut or padded with zeros around the middle.
Result<Outputs> CenterCropPad(OperatorCall& call) {
  const std::vector<int64_t> wanted = HONE_TRY(call.ConstantInput(1, "the shape"));
  std::vector<int64_t> axes(static_cast<size_t>(call.rank(0)));
  std::iota(axes.begin(), axes.end(), 0);
  axes = call.Wholes("axes", axes);
  if (axes.size() != wanted.size())
    return call.build.Invalid(fmt::format("{} sizes for {} dimensions", wanted.size(), axes.size()));
  Node cut, pad;
  cut.kind = NodeKind::kSlice;
  cut.extents = call.shape(0);
  cut.starts.assign(cut.extents.size(), 0);
  cut.steps.assign(cut.extents.size(), 1);
  pad.kind = NodeKind::kPad;
  pad.starts.assign(cut.extents.size(), 0);
  pad.extents = cut.extents;
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto d = static_cast<size_t>(HONE_TRY(call.Axis(axes[i], call.rank(0))));
    const int64_t from = call.shape(0)[d], to = wanted[i];
    if (to < 0 || to > (int64_t{1} << 40)) return call.build.Invalid(fmt::format("a size of {}", to));
    cut.starts[d] = to < from ? (from - to) / 2 : 0;
    cut.extents[d] = std::min(from, to);
    pad.starts[d] = to > from ? (to - from) / 2 : 0;
    pad.extents[d] = to;
  }
  ValueId x = call.In(0);
  if (cut.extents != call.shape(0)) {
    cut.inputs = {x};
    x = HONE_TRY(call.build.Add(std::move(cut)));
  }
  if (pad.extents != call.build.shape(x)) {
    pad.inputs = {x};
    x = HONE_TRY(call.build.Add(std::move(pad)));
  }
  return Outputs{x};
}

// How often each n-gram of a pool stands in a row of whole numbers, with up to so many others between two of its words.
Result<Outputs> CountGrams(OperatorCall& call) {
  const OnnxAttribute* words = call.Find("pool_int64s");
  if (words == nullptr) return call.build.Unsupported("its pool holds strings");
  const std::vector<int64_t> pool = words->wholes, begins = call.Wholes("ngram_counts", {});
  const std::vector<int64_t> columns = call.Wholes("ngram_indexes", {});
  const int64_t least = call.Whole("min_gram_length", 1), most = call.Whole("max_gram_length", 1);
  int64_t skips = call.Whole("max_skip_count", 0);
  const std::string mode = call.Text("mode", "TF");
  const OnnxAttribute* weights = call.Find("weights");
  if (mode != "TF" && mode != "IDF" && mode != "TFIDF") return call.build.Invalid("mode=" + mode);
  if (least < 1 || most < least || most > 64 || skips < 0 || columns.empty())
    return call.build.Invalid("its lengths of n-grams cannot be");
  if (call.rank(0) < 1 || call.rank(0) > 2 || IsFloat(call.build.dtype(call.In(0))))
    return call.build.Invalid("it wants rows of whole numbers");
  std::map<std::vector<int64_t>, size_t> grams;  // → its number
  for (size_t n = 0, number = 0; n < begins.size(); ++n) {
    const int64_t end = n + 1 < begins.size() ? begins[n + 1] : static_cast<int64_t>(pool.size());
    if (begins[n] < 0 || end < begins[n] || end > static_cast<int64_t>(pool.size()))
      return call.build.Invalid("ngram_counts go beyond the pool");
    const auto width = static_cast<int64_t>(n) + 1;
    for (int64_t at = begins[n]; at + width <= end; at += width, ++number)
      if (width >= least && width <= most)
        grams.emplace(std::vector(pool.begin() + at, pool.begin() + at + width), number);
    if (number > columns.size()) return call.build.Invalid("ngram_indexes are fewer than the n-grams");
  }
  if (weights != nullptr && weights->reals.size() != columns.size())
    return call.build.Invalid("weights are not one an n-gram");
  const int64_t width = *std::max_element(columns.begin(), columns.end()) + 1;
  if (*std::min_element(columns.begin(), columns.end()) < 0 || width > (1 << 24))
    return call.build.Invalid("ngram_indexes cannot be");
  const Shape x = call.shape(0);
  skips = std::min(skips, x.back());  // what skips more is outside
  Shape shape = x;
  shape.back() = width;
  const std::vector<double> factors = weights != nullptr ? weights->reals : std::vector<double>(columns.size(), 1);
  auto compute = [=](Arguments in) -> Computed {
    Numbers out = MakeNumbers(DType::kF32, shape);
    const int64_t length = x.back(), rows = length == 0 ? 0 : CountOf(x) / length;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t gap = 1; gap <= skips + 1; ++gap) {
        for (int64_t n = least; n <= most; ++n) {
          if (n == 1 && gap > 1) continue;  // a word has no gaps
          for (int64_t begin = 0; begin + (n - 1) * gap < length; ++begin) {
            std::vector<int64_t> gram;
            for (int64_t k = 0; k < n; ++k)
              gram.push_back(in[0]->whole[static_cast<size_t>(row * length + begin + k * gap)]);
            const auto found = grams.find(gram);
            if (found != grams.end()) out.real[static_cast<size_t>(row * width + columns[found->second])] += 1;
          }
        }
      }
      for (size_t number = 0; number < columns.size() && mode != "TF"; ++number) {
        double& count = out.real[static_cast<size_t>(row * width + columns[number])];
        count = (mode == "IDF" ? std::min(count, 1.0) : count) * factors[number];
      }
    }
    return std::vector{std::move(out)};
  };
  const double steps =
      static_cast<double>(CountOf(x)) * static_cast<double>(skips + 1) * static_cast<double>((most - least + 1) * most);
  return call.build.Host({"TfIdfVectorizer", "w", {{DType::kF32, shape}}, compute, steps}, {call.In(0)});
}

}  // namespace

std::vector<Operator> SelectionOperators() {
  return {{"Compress", 2, Compress}, {"CenterCropPad", 2, CenterCropPad}, {"TfIdfVectorizer", 1, CountGrams}};
}

}  // namespace hone
