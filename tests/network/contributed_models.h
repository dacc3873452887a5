// Models of one node of onnxruntime's operators, and numbers to fill them with.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "network/graph/evaluate_network.h"
#include "network/onnx/import_network.h"
#include "tests/network/model_files.h"

namespace hone::contributed_test {

constexpr double kNear = 1e-4;
constexpr int kBytes = 2, kSignedBytes = 3, kInts = 6, kWords = 7;  // ONNX's element types

// −1 … 1 in steps of 0.2, going round by `step`.
inline std::vector<float> Values(int64_t count, int64_t step = 7) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i * step % 11 - 5) / 5.0F);
  return values;
}

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

inline std::string Counting(int count, int most) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes.push_back(static_cast<char>(i * 37 % most));
  return bytes;
}

inline Result<std::vector<Numbers>> Computed(const ModelFileBuilder& builder) {
  OnnxModel model = HONE_TRY(ParseOnnx(builder.Bytes(), {"contributed.onnx", ""}));
  Network network = HONE_TRY(BuildNetwork(model, "contributed.onnx", {}));
  if (!network.left_out.empty()) return Error{ErrorKind::kUnsupported, network.left_out[0].reason, ""};
  return EvaluateNetwork(network.graph, {});
}

inline void ExpectNear(const Numbers& seen, size_t stride, const std::vector<double>& wanted) {
  ASSERT_GT(seen.real.size(), stride * (wanted.size() - 1));
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(seen.real[i * stride], wanted[i], kNear) << i;
}

}  // namespace hone::contributed_test
