// Files with quantised values, as onnxruntime's tools write them.
#pragma once

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "network/onnx/import_network.h"
#include "network/onnx/onnx_model.h"
#include "network/run/missing_operators.h"
#include "tests/network/model_files.h"

namespace hone {

constexpr int kUint8 = 2, kInt8 = 3, kInt32 = 6;
using Attributes = std::vector<ModelFileBuilder::Attribute>;

struct Values {
  std::vector<int64_t> shape;
  int type;
};

inline std::string RandomBytes(const Values& values, uint32_t seed, int lowest = -128, int highest = 127) {
  std::mt19937 random(seed);
  std::string bytes;
  for (int64_t i = 0; i < CountOf(values.shape); ++i) {
    const auto value = static_cast<int32_t>(random() % static_cast<uint32_t>(highest - lowest + 1)) + lowest;
    bytes.append(reinterpret_cast<const char*>(&value), values.type == kInt32 ? 4 : 1);
  }
  return bytes;
}

// A file of quantised operators, by opset 13.
class Model {
 public:
  ModelFileBuilder file{21};

  Model& Byte(const std::string& name, int value, int type = kUint8) {
    file.Raw(name, {}, type, std::string(1, static_cast<char>(value)));
    return *this;
  }
  // x, bytes that come from outside, as a float: `name`.
  Model& Input(const std::string& name, const std::vector<int64_t>& shape, float scale, int zero, int type = kUint8) {
    file.Input(name + "_q", shape, type);
    return Dequantized(name, scale, zero, type);
  }
  Model& Dequantized(const std::string& name, float scale, int zero, int type = kUint8) {
    file.Scalar(name + "_s", scale);
    Byte(name + "_z", zero, type);
    file.Node("DequantizeLinear", {name + "_q", name + "_s", name + "_z"}, {name});
    return *this;
  }
  // A constant with a scale for each index of `axis`.
  Model& Weight(const std::string& name, const Values& values, int64_t axis, int zero = 0, int lowest = -128,
                int highest = 127) {
    const int64_t count = values.shape[static_cast<size_t>(axis)];
    std::vector<float> scales;
    for (int64_t i = 0; i < count; ++i) scales.push_back(i % 2 == 0 ? 0.25F : 0.125F);
    file.Raw(name + "_q", values.shape, values.type, RandomBytes(values, 3, lowest, highest))
        .Floats(name + "_s", {count}, scales);
    file.Raw(name + "_z", {count}, values.type, std::string(static_cast<size_t>(count), static_cast<char>(zero)));
    file.Node("DequantizeLinear", {name + "_q", name + "_s", name + "_z"}, {name}, {{"axis", axis}});
    return *this;
  }
  // In 32 bits, with the scales of x times the weight's.
  Model& Bias(const std::string& name, int64_t count, float x_scale) {
    std::vector<float> scales;
    for (int64_t i = 0; i < count; ++i) scales.push_back(x_scale * (i % 2 == 0 ? 0.25F : 0.125F));
    file.Raw(name + "_q", {count}, kInt32, RandomBytes({{count}, kInt32}, 5, -3000, 3000))
        .Floats(name + "_s", {count}, scales);
    file.Node("DequantizeLinear", {name + "_q", name + "_s"}, {name}, {{"axis", int64_t{0}}});
    return *this;
  }
  Model& Quantized(const std::string& name, float scale, int zero, int type = kUint8) {
    file.Scalar(name + "_s", scale);
    Byte(name + "_z", zero, type);
    file.Node("QuantizeLinear", {name, name + "_s", name + "_z"}, {name + "_q"});
    return *this;
  }
  Model& Output(const std::string& name, int type = kUint8) {
    file.Output(name, {}, type);
    return *this;
  }
};

inline Result<Network> ImportedQuantized(const ModelFileBuilder& builder) {
  OnnxModel model = HONE_TRY(ParseOnnx(builder.Bytes(), {"quantized.onnx", ""}));
  Network network = HONE_TRY(BuildNetwork(model, "quantized.onnx", {}));
  HONE_TRY(CheckComplete(network, "quantized.onnx"));
  return network;
}

}  // namespace hone
