// An ONNX file as plain values: what network/onnx/onnx_import reads, before anything but sequences is understood. Names
// are the file's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "network/graph/host_tensor.h"

namespace hone {

// Where tensors may lie outside the file.
struct OnnxSource {
  std::string path;    // for messages
  std::string folder;  // external data is read from below it; "": refused
};

struct OnnxDimension {
  int64_t value = -1;  // -1: not given
  std::string symbol;  // "batch"
};

struct SmallType;  // network/onnx/small_types.h

// An element type that hone has no word for keeps its name ("string") and no dtype; a small one has that of its numbers
// here.
struct OnnxType {
  bool is_tensor = false;
  bool has_dtype = false;
  bool has_shape = false;
  DType dtype = DType::kF32;
  std::string type_name;
  const SmallType* small = nullptr;
  std::vector<OnnxDimension> dimensions;
};

struct OnnxValue {
  std::string name;
  OnnxType type;
};

struct OnnxTensor {
  std::string name;
  std::shared_ptr<const HostTensor> tensor;
  const SmallType* small = nullptr;  // that the file has its numbers in
};

struct OnnxBody;

struct OnnxAttribute {
  enum class Kind : uint8_t { kInt, kFloat, kText, kInts, kFloats, kTexts, kTensor, kGraph, kOther };
  std::string name;
  Kind kind = Kind::kOther;
  int64_t whole = 0;
  double real = 0;
  std::string text;
  std::vector<int64_t> wholes;
  std::vector<double> reals;
  std::vector<std::string> texts;
  std::shared_ptr<const HostTensor> tensor;
  const SmallType* small = nullptr;  // that the file has the tensor's numbers in
  std::shared_ptr<const OnnxBody> body;
  std::string reference;  // in a function: it is what the function's call has under this name
};

struct OnnxNode {
  std::string name;
  std::string domain;
  std::string op;
  std::string overload;             // which of a file's functions of one name
  int64_t opset = 0;                // of the function that it is from; 0: the model's
  std::vector<std::string> inputs;  // "": left out
  std::vector<std::string> outputs;
  std::vector<OnnxAttribute> attributes;
  std::vector<std::string> captured;  // what the bodies among the attributes read from around them
};

// A graph inside of a node: a branch. Its nodes see the values around it.
struct OnnxBody {
  std::vector<OnnxNode> nodes;
  std::vector<OnnxTensor> initializers;
  std::vector<std::string> inputs, outputs;
  std::vector<OnnxValue> declared;  // outputs, by the types that the file says
};

// "Conv"; with its domain unless that is the standard one: "com.microsoft.Gelu".
inline std::string OperatorName(const OnnxNode& node) {
  return node.domain.empty() ? node.op : node.domain + "." + node.op;
}

struct OnnxModel {
  std::string producer;
  int64_t opset = 0;  // of the standard domain
  std::vector<OnnxNode> nodes;
  std::vector<OnnxTensor> initializers;
  std::vector<OnnxValue> inputs, outputs, values;
};

// ONNX's numbers of element types, as casts have them; nullopt: hone has no word for it.
std::optional<DType> ElementTypeOf(int64_t onnx);

// Opsets whose operators are understood.
inline constexpr int64_t kOldestOpset = 1;
inline constexpr int64_t kOldestWholeOpset = 7;  // before it, only those that mean the same today
inline constexpr int64_t kNewestOpset = 27;

// kCorrupt: no ONNX, truncated, tensors whose bytes do not fit their shape; kUnsupported: an opset outside
// kOldestOpset … kNewestOpset, element types that no constant can have; kLimit: 2 GiB and more (protobuf's own limit);
// kInvalid: external data outside the folder; kNotFound, kIo: external data that is not there.
Result<OnnxModel> ParseOnnx(std::string_view bytes, const OnnxSource& source);
// The same of a file. Errors name it.
Result<OnnxModel> ReadOnnx(const std::string& path);

// A model's file again, complete in itself: with the data that lies in files beside it, and initialisers in the place
// of inputs without values. kInvalid for a tensor that is no input of the model; kLimit: it would have 2 GiB or more.
Result<std::string> WithWeights(const std::string& path, const std::vector<OnnxTensor>& tensors);

}  // namespace hone
