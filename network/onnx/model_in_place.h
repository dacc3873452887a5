// A model whose large tensors are still in its file.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "network/onnx/large_tensors.h"
#include "network/onnx/model_file.h"
#include "network/onnx/onnx_model.h"

namespace hone {

struct ModelInPlace {
  OnnxModel model;
  TensorCopies tensors;             // the large ones of `model`, which are not copied yet
  std::shared_ptr<ModelFile> file;  // mapped: they may be read while it is
};

// As ReadOnnx, of which it has the errors.
Result<ModelInPlace> ReadOnnxInPlace(const std::string& path);

}  // namespace hone
