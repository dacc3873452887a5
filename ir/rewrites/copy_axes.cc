#include "ir/rewrites/copy_axes.h"

#include <fmt/format.h>

#include <string>

namespace hone {

void AddCopyAxes(Stage& copy, const Kernel& kernel, const Stage& reader, const Expr& load) {
  const std::vector<Expr>& shape = kernel.tensors[load.tensor()].shape;
  for (size_t d = 0; d < shape.size(); ++d) {
    const std::string plain = fmt::format("d{}", d);
    std::string axis = load.arg(d).op() == Op::kAxis ? reader.axis(load.arg(d).axis()).name : plain;
    for (const Axis& taken : copy.axes)
      if (taken.name == axis) axis = plain;
    copy.axes.push_back({axis, shape[d]});
  }
}

}  // namespace hone
