// Operators that ONNX tried in its first opsets and dropped. Files that Core ML's and Caffe2's converters wrote have
// them, and onnxruntime takes them in every opset.
#include <fmt/format.h>

#include <set>
#include <string_view>

#include "network/onnx/translate.h"

namespace hone {
namespace {

// An attribute of the operator as a scalar of its input's type.
ValueId Attribute(OperatorCall& call, std::string_view name, double standard) {
  return call.build.Scalar(call.Real(name, standard), call.build.dtype(call.In(0)));
}

// alpha·x + beta
Result<Outputs> Affine(OperatorCall& call) {
  const ValueId y = HONE_TRY(call.build.Binary("mul", call.In(0), Attribute(call, "alpha", 1)));
  return Outputs{HONE_TRY(call.build.Binary("add", y, Attribute(call, "beta", 0)))};
}

Result<Outputs> Scale(OperatorCall& call) {
  return Outputs{HONE_TRY(call.build.Binary("mul", call.In(0), Attribute(call, "scale", 1)))};
}

// alpha · tanh(beta · x)
Result<Outputs> ScaledTanh(OperatorCall& call) {
  ValueId y = HONE_TRY(call.build.Binary("mul", call.In(0), Attribute(call, "beta", 0)));
  y = HONE_TRY(call.build.Unary("tanh", y));
  return Outputs{HONE_TRY(call.build.Binary("mul", y, Attribute(call, "alpha", 0)))};
}

// alpha · log(1 + exp(beta · x))
Result<Outputs> ParametricSoftplus(OperatorCall& call) {
  ValueId y = HONE_TRY(call.build.Binary("mul", call.In(0), Attribute(call, "beta", 0)));
  y = HONE_TRY(Apply(call, "Softplus", {y}));
  return Outputs{HONE_TRY(call.build.Binary("mul", y, Attribute(call, "alpha", 0)))};
}

// Images [N, C, H, W], scaled, and a bias a channel.
Result<Outputs> ImageScaler(OperatorCall& call) {
  const OnnxAttribute* bias = call.Find("bias");
  if (call.rank(0) != 4 || bias == nullptr || static_cast<int64_t>(bias->reals.size()) != call.shape(0)[1])
    return call.build.Invalid(fmt::format("its bias is not one a channel of {}", ShapeText(call.shape(0))));
  if (!IsFloat(call.build.dtype(call.In(0)))) return call.build.Invalid("it wants floats");
  Numbers each = MakeNumbers(call.build.dtype(call.In(0)), {call.shape(0)[1], 1, 1});
  each.real = bias->reals;
  const ValueId y = HONE_TRY(call.build.Binary("mul", call.In(0), Attribute(call, "scale", 1)));
  return Outputs{HONE_TRY(call.build.Binary("add", y, call.build.Constant(each)))};
}

// Images without their borders: left, top, right, bottom; or from the first two on, of a given height and width.
Result<Outputs> Crop(OperatorCall& call) {
  const std::vector<int64_t> border = call.Wholes("border", {}), wanted = call.Wholes("scale", {});
  if (call.rank(0) != 4 || border.size() != 4 || (!wanted.empty() && wanted.size() != 2))
    return call.build.Invalid("it wants images, four borders, and two sizes or none");
  ValueId y = call.In(0);
  for (size_t d : {0, 1}) {
    const int64_t size = call.shape(0)[2 + d], before = border[1 - d], after = border[3 - d];
    const int64_t rest = before < 0 || after < 0 || before > size || after > size ? 0 : size - before - after;
    const int64_t count = wanted.empty() ? rest : wanted[d];
    if (count < 1 || before < 0 || count > size - before)
      return call.build.Invalid(fmt::format("borders {} of {}", fmt::join(border, ", "), ShapeText(call.shape(0))));
    y = HONE_TRY(call.build.Slice(y, 2 + d, before, count));
  }
  return Outputs{y};
}

}  // namespace

bool IsAsOldAsOnnx(std::string_view op) {
  static const std::set<std::string_view> unchanged = {"Abs",
                                                       "Affine",
                                                       "AveragePool",
                                                       "Ceil",
                                                       "Constant",
                                                       "Conv",
                                                       "Crop",
                                                       "Elu",
                                                       "Exp",
                                                       "Floor",
                                                       "GlobalAveragePool",
                                                       "GlobalMaxPool",
                                                       "HardSigmoid",
                                                       "Identity",
                                                       "ImageScaler",
                                                       "InstanceNormalization",
                                                       "LeakyRelu",
                                                       "Log",
                                                       "LogSoftmax",
                                                       "MatMul",
                                                       "MaxPool",
                                                       "Neg",
                                                       "Not",
                                                       "ParametricSoftplus",
                                                       "Reciprocal",
                                                       "Relu",
                                                       "Scale",
                                                       "ScaledTanh",
                                                       "Selu",
                                                       "Shape",
                                                       "Sigmoid",
                                                       "Softmax",
                                                       "Softplus",
                                                       "Softsign",
                                                       "Sqrt",
                                                       "Squeeze",
                                                       "Tanh",
                                                       "Transpose",
                                                       "Unsqueeze"};
  return unchanged.contains(op);
}

std::vector<Operator> OldOperators() {
  return {{"Affine", 1, Affine},           {"Scale", 1, Scale},
          {"ScaledTanh", 1, ScaledTanh},   {"ParametricSoftplus", 1, ParametricSoftplus},
          {"ImageScaler", 1, ImageScaler}, {"Crop", 1, Crop}};
}

}  // namespace hone
