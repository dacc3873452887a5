// A constant that is not in memory: where a kernel gets its elements when it packs them.
#pragma once

#include <memory>

#include "base/result.h"

namespace hone {

class ConstantSource {
 public:
  virtual ~ConstantSource() = default;
  // All elements, the same ones every time, aligned to 64 bytes, for as long as somebody keeps what is returned. From
  // any thread. Errors are those of whoever wanted them.
  virtual Result<std::shared_ptr<const void>> Read() const = 0;
};

}  // namespace hone
