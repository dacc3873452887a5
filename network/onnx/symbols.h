// Dimensions that a model gives names instead of sizes ("batch"): a name has one size, whichever input it stands at.
#pragma once

#include <map>
#include <string>

#include "base/result.h"
#include "network/onnx/onnx_model.h"

namespace hone {

class Symbols {
 public:
  // An input of that shape gives sizes to the names in it. kInvalid, at the input: another rank or size than the file
  // says, or than another input gave to a name.
  Result<void> Bind(const OnnxValue& input, const Shape& shape);

  // As the file says it, with the sizes that are known; -1: not known. REQUIRES: the file says a shape.
  Shape ShapeOf(const OnnxValue& value) const;

 private:
  struct Size {
    int64_t value;
    std::string input;  // that it comes from
  };
  std::map<std::string, Size> sizes_;
};

// "1x3xheightx?": a shape as the file says it.
std::string ShapeText(const OnnxType& type);

}  // namespace hone
