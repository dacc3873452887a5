#include "ir/language/ops_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

namespace hone {
namespace {

Error Bad(const Attributes& attributes, std::string_view name, std::string message) {
  return Error{ErrorKind::kInvalid, std::move(message), WhereText(attributes.file, attributes[name].position)};
}

// ---- matrices

constexpr Attribute kMatmul[] = {{"M", AttributeKind::kSize, ""},
                                 {"N", AttributeKind::kSize, ""},
                                 {"K", AttributeKind::kSize, ""},
                                 {"ta", AttributeKind::kFlag, "0"},
                                 {"tb", AttributeKind::kFlag, "0"}};

constexpr Attribute kBatchMatmul[] = {{"B", AttributeKind::kSize, ""},   {"M", AttributeKind::kSize, ""},
                                      {"N", AttributeKind::kSize, ""},   {"K", AttributeKind::kSize, ""},
                                      {"ta", AttributeKind::kFlag, "0"}, {"tb", AttributeKind::kFlag, "0"}};

Result<OperationText> MatmulText(std::string_view batch, std::string_view batch_index, const Attributes& attributes) {
  bool ta = attributes.Lo("ta") != 0, tb = attributes.Lo("tb") != 0;
  OperationText text;
  text.inputs =
      fmt::format("a: $T[{}{}], {}b: $T[{}{}]", batch, ta ? "K, M" : "M, K", "$C", batch, tb ? "N, K" : "K, N");
  text.body = fmt::format("  $Y[{0}m, n] = sum(k) a[{0}{1}] * b[{0}{2}]\n", batch_index, ta ? "k, m" : "m, k",
                          tb ? "n, k" : "k, n");
  return text;
}

Result<OperationText> Matmul(const Attributes& attributes) {
  OperationText text = HONE_TRY(MatmulText("", "", attributes));
  text.name = "matmul";
  text.output = {"M", "N"};
  text.indices = {"m", "n"};
  text.channel = {1};
  return text;
}

Result<OperationText> BatchMatmul(const Attributes& attributes) {
  OperationText text = HONE_TRY(MatmulText("B, ", "b0, ", attributes));
  text.name = "batch_matmul";
  text.output = {"B", "M", "N"};
  text.indices = {"b0", "m", "n"};
  text.channel = {2};
  return text;
}

constexpr Attribute kDense[] = {
    {"M", AttributeKind::kSize, ""},         {"N", AttributeKind::kSize, ""},
    {"K", AttributeKind::kSize, ""},         {"weights", AttributeKind::kWord, "same|i8|u8|u4|bf16|f16"},
    {"block", AttributeKind::kOption, "0"},  {"zero", AttributeKind::kFlag, "0"},
    {"experts", AttributeKind::kOption, "0"}};

// Whether K is cut evenly: by a block of steps that have a scale of their own, by the two weights of a byte.
Result<void> CheckNarrowDense(const Attributes& a, bool is_packed) {
  const int64_t block = a.Lo("block");
  const std::vector<int64_t>& steps = a["K"].numbers;
  if ((block > 0 || is_packed) && steps[0] != steps[1])
    return Bad(a, "K", "K is a range, wanted one value where weights are in blocks or two a byte");
  if (block > 0 && steps[0] % block != 0)
    return Bad(a, "block", fmt::format("block={} does not divide K={}", block, steps[0]));
  if (is_packed && (block > 0 ? block : steps[0]) % 2 != 0)
    return Bad(a, block > 0 ? "block" : "K", "weights=u4 has two weights a byte, wanted an even number of steps");
  return {};
}

// With experts there are as many weights, and each row of x says by which it is multiplied.
struct Experts {
  std::string all, one;  // what stands before dimensions, and before indices
};

Experts AddExperts(const Attributes& a, OperationText& text) {
  if (a.Lo("experts") == 0) return {};
  text.abbreviations += fmt::format(", E={}", a.Lo("experts"));
  text.inputs += ", which: i32[M]";
  return {"E, ", "clamp(which[m], 0, E - 1), "};
}

// Weights as whole numbers of 8 or 4 bits, with a scale for each row or for each block of a row's steps. What they
// stand for is a stage of its own, which is computed where it is read. A byte holds two weights of 4 bits, the first
// one in its lower half.
void SetNarrowDense(const Attributes& a, OperationText& text) {
  const std::string& weights = a["weights"].text;
  const bool is_packed = weights == "u4", is_blocked = a.Lo("block") > 0, has_zero = a.Lo("zero") != 0;
  const std::string_view byte = weights == "i8" ? "i8" : "u8", block = is_blocked ? "b, " : "";
  if (is_blocked) text.abbreviations = fmt::format(", B={}", a.Lo("block"));
  text.floats_only = true;
  OperationText which;
  const Experts experts = AddExperts(a, which);
  text.abbreviations += which.abbreviations;
  // The dimensions of a row's steps: whole, as bytes, as weights in the order in which they are summed.
  const std::string cut = is_blocked ? "K/B, " : "", rest = is_blocked ? "B" : "K";
  const std::string steps = is_packed ? fmt::format("{}{}/2, 2", cut, rest) : cut + rest;
  const std::string bytes = is_packed ? fmt::format("{}{}/2", cut, rest) : cut + rest;
  const std::string summed = is_packed ? fmt::format("{}2, {}/2", cut, rest) : cut + rest;
  const std::string order = fmt::format("{}{}k", block, is_packed ? "half, " : "");
  const std::string parameters = experts.all + (is_blocked ? "N, K/B" : "N");
  const std::string parameter = experts.one + (is_blocked ? "n, b" : "n");

  text.inputs = fmt::format("x: $T[M, K] as [M, {0}], $Cw: {1}[{2}N, K{3}] as [{2}N, {4}], $Cscale: $T[{5}]", steps,
                            byte, experts.all, is_packed ? "/2" : "", bytes, parameters);
  if (has_zero) text.inputs += fmt::format(", $Czero: {}[{}]", byte, parameters);
  text.inputs += which.inputs;
  std::string weight = fmt::format("w[{}n, {}k]", experts.one, block);
  if (is_packed) weight = fmt::format("if(half == 0, {0} % 16, {0} / 16)", weight);
  const std::string_view middle = is_packed ? "8" : weights == "u8" ? "128" : "";
  if (has_zero)
    weight += fmt::format(" - zero[{}]", parameter);
  else if (!middle.empty())
    weight += fmt::format(" - {}", middle);
  std::string wide = fmt::format("float({})", weight), factor;
  (is_blocked ? wide : factor) += fmt::format(" * scale[{}]", parameter);
  if (experts.all.empty()) {
    text.body = fmt::format("  wide: $A[N, {}]\n  wide[n, {}] = {}\n", summed, order, wide);
    wide = fmt::format("wide[n, {}]", order);
  }
  text.body += fmt::format("  $Y[m, n] = (sum({}) x[m, {}{}] * ({})){}\n", order, block, is_packed ? "k, half" : "k",
                           wide, factor);
}

Result<OperationText> Dense(const Attributes& a) {
  OperationText text;
  text.name = "dense";
  text.output = {"M", "N"};
  text.indices = {"m", "n"};
  text.channel = {1};
  const std::string& weights = a["weights"].text;
  const bool is_float = weights == "bf16" || weights == "f16";
  if (weights != "same" && !is_float) {
    HONE_TRY(CheckNarrowDense(a, a["weights"].text == "u4"));
    text.name = fmt::format("dense_{}", a["weights"].text);
    SetNarrowDense(a, text);
    return text;
  }
  for (std::string_view name : {"block", "zero"})
    if (a.Lo(name) != 0) return Bad(a, name, fmt::format("{} is for weights=i8, u8 or u4", name));
  const Experts experts = AddExperts(a, text);
  if (is_float) text.name = fmt::format("dense_{}", weights), text.floats_only = true;
  text.inputs = fmt::format("x: $T[M, K], $Cw: {}[{}N, K]{}", is_float ? weights : "$T", experts.all, text.inputs);
  const std::string weight = fmt::format("w[{}n, k]", experts.one);
  text.body = fmt::format("  $Y[m, n] = sum(k) x[m, k] * {}\n", is_float ? "float(" + weight + ")" : weight);
  return text;
}

// ---- convolutions and pooling

// A window of extent (count − 1)·dilation + 1 must fit into the padded input, at the smallest size too.
Result<void> CheckWindow(const Attributes& a, std::string_view size, std::string_view window, int axis,
                         int64_t dilation) {
  const std::vector<int64_t>& pad = a["pad"].numbers;
  int64_t padded = a.Lo(size) + pad[static_cast<size_t>(axis)] + pad[static_cast<size_t>(axis) + 2];
  int64_t extent = 0;
  if (__builtin_mul_overflow(a.Lo(window) - 1, dilation, &extent) || extent >= padded)
    return Bad(a, window,
               fmt::format("the window {}={} (dilation {}) does not fit the padded input, {}={} with padding: {}",
                           window, a.Lo(window), dilation, size, a.Lo(size), padded));
  return {};
}

constexpr std::string_view kOutputExtents =
    ", OH=(H + pt + pb - (R - 1)*dh - 1)/sh + 1, OW=(W + pl + pr - (S - 1)*dw - 1)/sw + 1";

constexpr Attribute kDepthwise[] = {{"N", AttributeKind::kSize, "1"},       {"C", AttributeKind::kSize, ""},
                                    {"H", AttributeKind::kSize, ""},        {"W", AttributeKind::kSize, ""},
                                    {"R", AttributeKind::kCount, ""},       {"S", AttributeKind::kCount, ""},
                                    {"stride", AttributeKind::kPair, "1"},  {"pad", AttributeKind::kMargin, "0"},
                                    {"dilation", AttributeKind::kPair, "1"}};

Result<OperationText> Depthwise(const Attributes& a) {
  HONE_TRY(CheckWindow(a, "H", "R", 0, a["dilation"].numbers[0]));
  HONE_TRY(CheckWindow(a, "W", "S", 1, a["dilation"].numbers[1]));
  OperationText text;
  text.name = "depthwise_conv2d";
  text.inputs = "x: $T[N, C, H, W], $Cw: $T[C, 1, R, S]";
  text.output = {"N", "C", "OH", "OW"};
  text.indices = {"n", "c", "h", "w0"};
  text.channel = {1};
  text.abbreviations = kOutputExtents;
  text.body =
      "  xp: $T[N, C, H + pt + pb, W + pl + pr]\n"
      "  xp[n, c, h, w0] = pad(x[n, c, h - pt, w0 - pl], 0)\n"
      "  $Y[n, c, h, w0] = sum(r, s) xp[n, c, h*sh + r*dh, w0*sw + s*dw] * w[c, 0, r, s]\n";
  return text;
}

constexpr Attribute kConv[] = {{"N", AttributeKind::kSize, "1"},      {"C", AttributeKind::kSize, ""},
                               {"H", AttributeKind::kSize, ""},       {"W", AttributeKind::kSize, ""},
                               {"O", AttributeKind::kSize, ""},       {"R", AttributeKind::kCount, ""},
                               {"S", AttributeKind::kCount, ""},      {"stride", AttributeKind::kPair, "1"},
                               {"pad", AttributeKind::kMargin, "0"},  {"dilation", AttributeKind::kPair, "1"},
                               {"groups", AttributeKind::kCount, "1"}};

Result<OperationText> GroupedConv(const Attributes& a) {
  int64_t groups = a.Lo("groups");
  for (std::string_view name : {"C", "O"}) {
    const AttributeValue& channels = a[name];
    if (channels.numbers[0] != channels.numbers[1])
      return Bad(a, name, fmt::format("{} is a range, wanted one value where groups={}", name, groups));
    if (channels.numbers[0] % groups != 0)
      return Bad(a, name, fmt::format("groups={} does not divide {}={}", groups, name, channels.numbers[0]));
  }
  OperationText text;
  text.name = "conv2d";
  text.inputs = "x: $T[N, C, H, W] as [N, G, C/G, H, W], $Cw: $T[O, C/G, R, S] as [G, O/G, C/G, R, S]";
  text.output = {"N", "O", "OH", "OW"};
  text.view = {"N", "G", "O/G", "OH", "OW"};
  text.indices = {"n", "g", "o", "h", "w0"};
  text.channel = {1, 2};
  text.abbreviations = kOutputExtents;
  text.body =
      "  xp: $T[N, G, C/G, H + pt + pb, W + pl + pr]\n"
      "  xp[n, g, c, h, w0] = pad(x[n, g, c, h - pt, w0 - pl], 0)\n"
      "  $Y[n, g, o, h, w0] = sum(c, r, s) xp[n, g, c, h*sh + r*dh, w0*sw + s*dw] * w[g, o, c, r, s]\n";
  return text;
}

Result<OperationText> Conv(const Attributes& a) {
  HONE_TRY(CheckWindow(a, "H", "R", 0, a["dilation"].numbers[0]));
  HONE_TRY(CheckWindow(a, "W", "S", 1, a["dilation"].numbers[1]));
  int64_t groups = a.Lo("groups");
  // One channel a group in and out is the depthwise convolution: the same memory, the same class.
  bool one_value = a["C"].numbers[0] == a["C"].numbers[1] && a["O"].numbers[0] == a["O"].numbers[1];
  if (groups > 1 && one_value && a.Lo("C") == groups && a.Lo("O") == groups) return Depthwise(a);
  if (groups > 1) return GroupedConv(a);
  OperationText text;
  text.name = "conv2d";
  text.inputs = "x: $T[N, C, H, W], $Cw: $T[O, C, R, S]";
  text.output = {"N", "O", "OH", "OW"};
  text.indices = {"n", "o", "h", "w0"};
  text.channel = {1};
  text.abbreviations = kOutputExtents;
  text.body =
      "  xp: $T[N, C, H + pt + pb, W + pl + pr]\n"
      "  xp[n, c, h, w0] = pad(x[n, c, h - pt, w0 - pl], 0)\n"
      "  $Y[n, o, h, w0] = sum(c, r, s) xp[n, c, h*sh + r*dh, w0*sw + s*dw] * w[o, c, r, s]\n";
  return text;
}

constexpr Attribute kPool[] = {
    {"N", AttributeKind::kSize, "1"},       {"C", AttributeKind::kSize, ""},      {"H", AttributeKind::kSize, ""},
    {"W", AttributeKind::kSize, ""},        {"R", AttributeKind::kCount, ""},     {"S", AttributeKind::kCount, ""},
    {"stride", AttributeKind::kPair, "=R"}, {"pad", AttributeKind::kMargin, "0"}, {"ceil", AttributeKind::kFlag, "0"}};

// With ceil=1 the last window may hang over the padded input, but starts inside the input or its left padding, so that
// each window holds at least one element; padding stays below the window for the same reason.
Result<OperationText> PoolText(const Attributes& a) {
  for (int axis : {0, 1}) {
    std::string_view window = axis == 0 ? "R" : "S";
    HONE_TRY(CheckWindow(a, axis == 0 ? "H" : "W", window, axis, 1));
    for (int side : {axis, axis + 2})
      if (a["pad"].numbers[static_cast<size_t>(side)] >= a.Lo(window))
        return Bad(a, "pad",
                   fmt::format("padding {} is not below the window {}={}, so a window could be empty",
                               a["pad"].numbers[static_cast<size_t>(side)], window, a.Lo(window)));
  }
  OperationText text;
  text.inputs = "x: $T[N, C, H, W]";
  text.output = {"N", "C", "OH", "OW"};
  text.indices = {"n", "c", "h", "w0"};
  text.channel = {1};
  if (a.Lo("ceil") == 0) {
    text.abbreviations = ", OH=(H + pt + pb - R)/sh + 1, OW=(W + pl + pr - S)/sw + 1, PH=H + pt + pb, PW=W + pl + pr";
  } else {
    text.abbreviations =
        ", OH=min((H + pt + pb - R + sh - 1)/sh, (H + pt - 1)/sh) + 1"
        ", OW=min((W + pl + pr - S + sw - 1)/sw, (W + pl - 1)/sw) + 1"
        ", PH=max(H + pt + pb, (OH - 1)*sh + R), PW=max(W + pl + pr, (OW - 1)*sw + S)";
  }
  return text;
}

Result<OperationText> MaxPool(const Attributes& a) {
  OperationText text = HONE_TRY(PoolText(a));
  text.name = "maxpool2d";
  text.output_type = "$T";
  text.body =
      "  xp: $T[N, C, PH, PW]\n"
      "  xp[n, c, h, w0] = pad(x[n, c, h - pt, w0 - pl], $LOWEST)\n"
      "  $Y[n, c, h, w0] = max(r < R, s < S) xp[n, c, h*sh + r, w0*sw + s]\n";
  return text;
}

Result<OperationText> AvgPool(const Attributes& a) {
  OperationText text = HONE_TRY(PoolText(a));
  text.name = "avgpool2d";
  text.body =
      "  xp: $T[N, C, PH, PW]\n"
      "  xp[n, c, h, w0] = pad(x[n, c, h - pt, w0 - pl], 0)\n"
      "  total: $A[N, C, OH, OW]\n"
      "  total[n, c, h, w0] = sum(r < R, s < S) xp[n, c, h*sh + r, w0*sw + s]\n"
      "  $Y[n, c, h, w0] = total[n, c, h, w0] / float((min(h*sh - pt + R, H) - max(h*sh - pt, 0))\n"
      "                                               * (min(w0*sw - pl + S, W) - max(w0*sw - pl, 0)))\n";
  return text;
}

constexpr Attribute kGlobalPool[] = {{"N", AttributeKind::kSize, "1"},
                                     {"C", AttributeKind::kSize, ""},
                                     {"H", AttributeKind::kSize, ""},
                                     {"W", AttributeKind::kSize, ""}};

Result<OperationText> GlobalAvgPool(const Attributes&) {
  OperationText text;
  text.name = "global_avgpool";
  text.inputs = "x: $T[N, C, H, W]";
  text.output = {"N", "C", "1", "1"};
  text.indices = {"n", "c", "u", "v"};
  text.channel = {1};
  text.body =
      "  total: $A[N, C]\n"
      "  total[n, c] = sum(h, w) x[n, c, h, w]\n"
      "  $Y[n, c, u, v] = total[n, c] / float(H*W)\n";
  return text;
}

// The second of four dimensions or indices behind the last of them, wherever `opener` begins such a list.
std::string WithSecondLast(const std::string& text, std::string_view opener) {
  std::string result;
  size_t from = 0;
  for (size_t at; (at = text.find(opener, from)) != std::string::npos;) {
    const size_t begin = at + opener.size();
    const bool is_name = at == 0 || !(std::isalnum(static_cast<unsigned char>(text[at - 1])) || text[at - 1] == '_');
    std::vector<std::string> parts(1);
    size_t end = begin;
    for (int depth = 0; depth > 0 || text[end] != ']'; ++end) {
      depth += text[end] == '(' ? 1 : text[end] == ')' ? -1 : 0;
      if (depth == 0 && text[end] == ',')
        parts.emplace_back(), ++end;  // and the space behind it
      else
        parts.back() += text[end];
    }
    if (is_name && parts.size() == 4) std::rotate(parts.begin() + 1, parts.begin() + 2, parts.end());
    result += text.substr(from, begin - from) + fmt::format("{}", fmt::join(parts, ", "));
    from = end;
  }
  return result + text.substr(from);
}

}  // namespace

bool PutChannelsLast(OperationText& text) {
  if (text.output.size() != 4 || !text.view.empty() || !text.inputs.starts_with("x: $T[N, C, H, W]")) return false;
  text.inputs = WithSecondLast(text.inputs, "x: $T[");
  for (std::string_view opener : {"x[", "xp[", "xp: $T[", "total[", "total: $A[", "$Y["})
    text.body = WithSecondLast(text.body, opener);
  std::rotate(text.output.begin() + 1, text.output.begin() + 2, text.output.end());
  std::rotate(text.indices.begin() + 1, text.indices.begin() + 2, text.indices.end());
  text.channel = {3};
  return true;
}

namespace {

// ---- rows

constexpr Attribute kRows[] = {{"M", AttributeKind::kSize, ""}, {"N", AttributeKind::kSize, ""}};
constexpr Attribute kNorm[] = {
    {"M", AttributeKind::kSize, ""}, {"N", AttributeKind::kSize, ""}, {"eps", AttributeKind::kReal, "1e-5"}};

OperationText RowsText(std::string_view name, std::string_view inputs, std::string_view body) {
  OperationText text;
  text.name = name;
  text.inputs = inputs;
  text.output = {"M", "N"};
  text.indices = {"m", "n"};
  text.channel = {1};
  text.body = body;
  return text;
}

// The row's maximum is taken off first, so no exponential overflows.
Result<OperationText> Softmax(const Attributes&) {
  return RowsText("softmax", "x: $T[M, N]",
                  "  top: $T[M]\n"
                  "  top[m] = max(n) x[m, n]\n"
                  "  e: $A[M, N]\n"
                  "  e[m, n] = exp(x[m, n] - top[m])\n"
                  "  total: $A[M]\n"
                  "  total[m] = sum(n) e[m, n]\n"
                  "  scale: $A[M]\n"
                  "  scale[m] = 1.0 / total[m]\n"
                  "  $Y[m, n] = e[m, n] * scale[m]\n");
}

// Two passes: the variance of centred values does not cancel.
Result<OperationText> LayerNorm(const Attributes& a) {
  return RowsText("layer_norm", "x: $T[M, N], $Cgamma: $T[N], $Cbeta: $T[N]",
                  fmt::format("  total: $A[M]\n"
                              "  total[m] = sum(n) x[m, n]\n"
                              "  mean: $A[M]\n"
                              "  mean[m] = total[m] / float(N)\n"
                              "  centred: $A[M, N]\n"
                              "  centred[m, n] = x[m, n] - mean[m]\n"
                              "  squares: $A[M]\n"
                              "  squares[m] = sum(n) centred[m, n] * centred[m, n]\n"
                              "  inverse: $A[M]\n"
                              "  inverse[m] = rsqrt(squares[m] / float(N) + {})\n"
                              "  $Y[m, n] = centred[m, n] * inverse[m] * gamma[n] + beta[n]\n",
                              a["eps"].real));
}

Result<OperationText> RmsNorm(const Attributes& a) {
  return RowsText("rms_norm", "x: $T[M, N], $Cgamma: $T[N]",
                  fmt::format("  squares: $A[M]\n"
                              "  squares[m] = sum(n) x[m, n] * x[m, n]\n"
                              "  inverse: $A[M]\n"
                              "  inverse[m] = rsqrt(squares[m] / float(N) + {})\n"
                              "  $Y[m, n] = x[m, n] * inverse[m] * gamma[n]\n",
                              a["eps"].real));
}

Result<OperationText> ReduceSum(const Attributes&) {
  OperationText text;
  text.name = "reduce_sum";
  text.inputs = "x: $T[M, N]";
  text.output = {"M"};
  text.indices = {"m"};
  text.body = "  $Y[m] = sum(n) x[m, n]\n";
  return text;
}

Result<OperationText> Transpose(const Attributes&) {
  OperationText text;
  text.name = "transpose";
  text.inputs = "x: $T[M, N]";
  text.output = {"N", "M"};
  text.indices = {"n", "m"};
  text.channel = {1};
  text.body = "  $Y[n, m] = x[m, n]\n";
  text.output_type = "$T";
  return text;
}

Result<OperationText> Add(const Attributes&) {
  return RowsText("add", "a: $T[M, N], b: $T[M, N]", "  $Y[m, n] = a[m, n] + b[m, n]\n");
}

Result<OperationText> Mul(const Attributes&) {
  return RowsText("mul", "a: $T[M, N], b: $T[M, N]", "  $Y[m, n] = a[m, n] * b[m, n]\n");
}

Result<OperationText> Gelu(const Attributes&) {
  return RowsText("gelu", "x: $T[M, N]", "  $Y[m, n] = gelu(x[m, n])\n");
}

constexpr Operation kOperations[] = {
    {"matmul", kMatmul, false, Matmul},
    {"batch_matmul", kBatchMatmul, false, BatchMatmul},
    {"dense", kDense, false, Dense},
    {"conv2d", kConv, false, Conv},
    {"depthwise_conv2d", kDepthwise, false, Depthwise},
    {"maxpool2d", kPool, false, MaxPool},
    {"avgpool2d", kPool, true, AvgPool},
    {"global_avgpool", kGlobalPool, true, GlobalAvgPool},
    {"softmax", kRows, true, Softmax},
    {"layer_norm", kNorm, true, LayerNorm},
    {"rms_norm", kNorm, true, RmsNorm},
    {"reduce_sum", kRows, false, ReduceSum},
    {"transpose", kRows, false, Transpose},
    {"add", kRows, false, Add},
    {"mul", kRows, false, Mul},
    {"gelu", kRows, true, Gelu},
};

constexpr Epilogue kEpilogues[] = {
    {"bias", "$V + $B", "bias", true, false},        {"add", "$V + $B", "addend", false, false},
    {"mul", "($V) * $B", "factor", false, false},    {"relu", "relu($V)", "", false, false},
    {"relu6", "relu6($V)", "", false, false},        {"gelu", "gelu($V)", "", false, true},
    {"gelu_tanh", "gelu_tanh($V)", "", false, true}, {"silu", "silu($V)", "", false, true},
    {"sigmoid", "sigmoid($V)", "", false, true},     {"tanh", "tanh($V)", "", false, true},
    {"hardswish", "hardswish($V)", "", false, true},
};

}  // namespace

std::span<const Operation> OperationTable() { return kOperations; }
std::span<const Epilogue> EpilogueTable() { return kEpilogues; }

}  // namespace hone
