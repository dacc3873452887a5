#include "tests/support/odd_kernels.h"

#include <fmt/format.h>

#include <initializer_list>
#include <iterator>
#include <utility>
#include <vector>

#include "ir/graph/dtype_traits.h"

namespace hone {
namespace {

class Maker {
 public:
  explicit Maker(Rng& rng) : rng_(rng) {}

  std::string Make() {
    const DType type = Type(4);
    const bool is_float = IsFloat(type);
    const std::string options = Pick({"", "", ",const=1", ",const=1"}) + TypeOption(type);
    switch (rng_.Below(14)) {
      case 0:
      case 1:
        return fmt::format("matmul(M={},N={},K={},ta={},tb={}{}){}", Size(), Size(), Size(), rng_.Below(2),
                           rng_.Below(2), options, Epilogue(is_float));
      case 2: return fmt::format("dense(M={},N={},K={}{}){}", Size(), Size(), Size(), options, Epilogue(is_float));
      case 3:
        return fmt::format("batch_matmul(B={},M={},N={},K={},ta={},tb={}{}){}", rng_.Between(1, 5), Size(), Size(),
                           Size(), rng_.Below(2), rng_.Below(2), options, Epilogue(is_float));
      case 4:
      case 5: return Convolution(options, is_float);
      case 6:
        return fmt::format("depthwise_conv2d(N={},C={},H={},W={},R={},S={},stride={},pad={}{}){}", rng_.Between(1, 2),
                           Size() % 20 + 1, rng_.Between(5, 19), rng_.Between(5, 37), rng_.Between(1, 5),
                           rng_.Between(1, 5), rng_.Between(1, 3), rng_.Below(3), options, Epilogue(is_float));
      case 7: {
        int64_t window = rng_.Between(2, 4);
        return fmt::format("{}pool2d(N={},C={},H={},W={},R={},S={},stride={},pad={},ceil={}){}", Pick({"max", "avg"}),
                           rng_.Between(1, 2), rng_.Between(1, 9), rng_.Between(4, 17), rng_.Between(4, 35), window,
                           rng_.Between(2, 3), rng_.Between(1, 3), rng_.Below(2), rng_.Below(2), Pick({"", "+relu"}));
      }
      case 8:
        return fmt::format("global_avgpool(C={},H={},W={}){}", Size(), Size() % 20 + 1, Size() % 20 + 1,
                           Pick({"", "+bias"}));
      case 9:
        return fmt::format("{}(M={},N={}){}", Pick({"softmax", "layer_norm", "rms_norm"}), Size(), Size(),
                           Pick({"", "", "+add", "+mul"}));
      case 10:
        return fmt::format("{}(M={},N={}{})", Pick({"reduce_sum", "transpose"}), Size(), Size(), TypeOption(Type(2)));
      case 11: return Stencil();
      case 12: return Joined();
      default: return fmt::format("{}(M={},N={}){}", Pick({"add", "mul", "gelu"}), Size(), Size(), Epilogue(true));
    }
  }

 private:
  // f32 as often as that, each of the others but i32 once.
  DType Type(size_t f32) {
    std::vector<DType> types(f32, DType::kF32);
    for (const DTypeTraits& row : DTypeTable())
      if (row.is_computed && row.type != DType::kBool && row.type != DType::kI32 && row.type != DType::kI64 &&
          row.type != DType::kF32)
        types.push_back(row.type);
    return types[rng_.Below(types.size())];
  }
  static std::string TypeOption(DType type) { return type == DType::kF32 ? "" : ",dtype=" + std::string(Name(type)); }

  // Tensors one after another along an axis, whole or in part, and what follows: rows of numbers, or a number or a
  // truth for each row.
  std::string Joined() {
    const int64_t parts = rng_.Between(2, 9), kind = rng_.Below(3);
    const std::string type = kind == 2 ? "bool" : "f32", columns = kind == 0 ? ", W" : "",
                      column = kind == 0 ? ", j" : "";
    int64_t rows = 0;
    std::string operands, value, closing;
    for (int64_t i = 0; i < parts; ++i) {
      const int64_t height = rng_.Between(1, 5);
      operands += fmt::format("{}x{}: {}[{}{}]", i == 0 ? "" : ", ", i, type, height, columns);
      const std::string load = fmt::format("x{}[i - {}{}]", i, rows, column);
      rows += height;
      value += i + 1 == parts ? load : fmt::format("if(i < {}, {}, ", rows, load);
      if (i + 1 < parts) closing += ")";
    }
    const std::string body =
        fmt::format(fmt::runtime(kind == 2 ? Pick({"if({}, r[j], s[i])", "f32({} or r[j] < s[i])"})
                                           : Pick({"{}", "max({} * s[i], 0)", "if(i != 2, {}, s[i])", "exp({}) + s[i]",
                                                   "if(r[j] < 0, {}, s[i])"})),
                    value + closing);
    return fmt::format(
        "kernel k({}, s: f32[{}], r: f32[W]) -> y: f32[{}, W] where W={} {{ y[i, j] = {} + 0 * s[i] * r[j] }}",
        operands, rows, rows, rng_.Between(1, kind == 0 ? 70 : 300), body);
  }

  // Windows and neighbours beyond whose borders something else than zero lies.
  std::string Stencil() {
    const std::string row = Pick({"clamp(i + r - 1, 0, H - 1)", "(i + r) % H", "max(abs(i + r - 1) - 1, 0)"});
    const std::string column =
        Pick({"clamp(j + s - 2, 0, W - 1)", "clamp(2*j - s, 1, W - 2)", "clamp(j + s, 0, 2*W - 1) / 2"});
    const std::string body =
        Pick({"sum(r < 3, s < 4) x[$row, $column]", "max(r < 2, s < 3) x[$row, $column] * 2",
              "sum(r < 3, s < 4) x[$row, $column] * w[r, s]",
              "x[clamp(i - 1, 0, H - 1), j] + x[i, clamp(j + 1, 0, W - 1)] * x[i, clamp(j - 3, 0, W - 1)]"});
    std::string text = fmt::format(
        "kernel k(x: f32[H, W], w: f32[3, 4]) -> y: f32[H, W] where H={}, W={} {{ y[i, j] = {} + 0 * w[0, 0] }}",
        rng_.Between(4, 19), rng_.Between(5, 45), body);
    for (const auto& [name, index] : {std::pair<std::string, std::string>("$row", row), {"$column", column}})
      for (size_t at; (at = text.find(name)) != std::string::npos;) text.replace(at, name.size(), index);
    return text;
  }

  std::string Convolution(const std::string& options, bool is_float) {
    int64_t groups = rng_.Chance(0.25) ? rng_.Between(2, 4) : 1;
    int64_t inputs = groups * rng_.Between(1, groups > 1 ? 5 : 19),
            outputs = groups * rng_.Between(1, groups > 1 ? 9 : 40);
    int64_t r = rng_.Chance(0.3) ? 1 : rng_.Between(1, 5), s = rng_.Chance(0.7) ? r : rng_.Between(1, 5);
    std::string stride = Pick({"1", "1", "2", "3", "[1,2]"}), pad = Pick({"0", "1", "1", "2", "[0,1,2,1]", "[2,0]"});
    if (r <= 2 || s <= 2) pad = r == 1 || s == 1 ? "0" : "1";
    return fmt::format("conv2d(N={},C={},H={},W={},O={},R={},S={},stride={},pad={},dilation={},groups={}{}){}",
                       rng_.Between(1, 2), inputs, rng_.Between(9, 17), rng_.Between(9, 33), outputs, r, s, stride, pad,
                       r <= 3 && s <= 3 ? Pick({"1", "1", "2"}) : "1", groups, options, Epilogue(is_float));
  }

  int64_t Size() {
    static constexpr int64_t kSizes[] = {1, 2, 3, 5, 7, 8, 13, 16, 17, 23, 31, 33, 47, 67, 97};
    return kSizes[rng_.Below(std::size(kSizes))];
  }
  std::string Pick(std::initializer_list<const char*> choices) {
    return *(choices.begin() + rng_.Below(choices.size()));
  }
  std::string Epilogue(bool is_float) {
    if (!is_float) return Pick({"", "+bias", "+relu", "+bias+relu", "+bias+add+relu"});
    return Pick({"", "", "+bias", "+bias+relu", "+relu6", "+bias+gelu", "+gelu_tanh", "+silu", "+sigmoid", "+tanh",
                 "+hardswish", "+mul", "+bias+add+relu", "+add+bias+gelu"});
  }

  Rng& rng_;
};

}  // namespace

std::string OddKernel(Rng& rng) { return Maker(rng).Make(); }

}  // namespace hone
