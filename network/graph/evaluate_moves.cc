// Nodes that move elements and compute nothing.
#include <fmt/format.h>

#include <algorithm>

#include "network/graph/evaluate_internal.h"

namespace hone::evaluating {

std::vector<int64_t> StridesOf(const Shape& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}

std::vector<int64_t> BroadcastStrides(const Shape& shape, const Shape& out) {
  std::vector<int64_t> own = StridesOf(shape), strides(out.size(), 0);
  for (size_t i = 0; i < shape.size(); ++i) {
    size_t d = shape.size() - 1 - i;
    if (shape[d] != 1) strides[out.size() - 1 - i] = own[d];
  }
  return strides;
}

void CopyElement(const Numbers& x, int64_t from, Numbers& out, size_t to) {
  if (out.is_real()) {
    out.real[to] = x.real[static_cast<size_t>(from)];
  } else {
    out.whole[to] = x.whole[static_cast<size_t>(from)];
  }
}

Numbers ReadStrided(const Numbers& x, const Shape& shape, std::vector<int64_t> strides, int64_t base) {
  Numbers out = MakeNumbers(x.dtype, shape);
  ForEach<1>(shape, {std::move(strides)},
             [&](size_t i, const auto& offsets) { CopyElement(x, base + offsets[0], out, i); });
  return out;
}

Numbers Transpose(const Node& node, const Numbers& x, const TensorType& type) {
  std::vector<int64_t> own = StridesOf(x.shape), strides;
  for (int64_t axis : node.axes) strides.push_back(own[static_cast<size_t>(axis)]);
  return ReadStrided(x, type.shape, std::move(strides), 0);
}

Numbers Expand(const Numbers& x, const TensorType& type) {
  return ReadStrided(x, type.shape, BroadcastStrides(x.shape, type.shape), 0);
}

Numbers Slice(const Node& node, const Numbers& x, const TensorType& type) {
  std::vector<int64_t> strides = StridesOf(x.shape);
  int64_t base = 0;
  for (size_t d = 0; d < strides.size(); ++d) {
    base += node.starts[d] * strides[d];
    strides[d] *= node.steps[d];
  }
  return ReadStrided(x, type.shape, std::move(strides), base);
}

int64_t GoesOn(std::string_view function, int64_t at, int64_t extent) {
  if (function == "edge") return std::clamp<int64_t>(at, 0, extent - 1);
  const int64_t period = function == "wrap" ? extent : std::max<int64_t>(2 * (extent - 1), 1);
  const int64_t within = (at % period + period) % period;
  return within < extent ? within : period - within;
}

Numbers PadFromWithin(const Node& node, const Numbers& x, const TensorType& type) {
  Numbers out = MakeNumbers(type.dtype, type.shape);
  const std::vector<int64_t> strides = StridesOf(x.shape);
  const int64_t count = CountOf(type.shape);
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, source = 0;
    for (size_t d = type.shape.size(); d-- > 0;) {
      source += GoesOn(node.function, rest % type.shape[d] - node.starts[d], x.shape[d]) * strides[d];
      rest /= type.shape[d];
    }
    CopyElement(x, source, out, static_cast<size_t>(i));
  }
  return out;
}

Numbers Pad(const Node& node, const Numbers& x, const TensorType& type) {
  if (!node.function.empty()) return PadFromWithin(node, x, type);
  Numbers out = MakeNumbers(type.dtype, type.shape);
  std::fill(out.real.begin(), out.real.end(), node.fill);
  std::fill(out.whole.begin(), out.whole.end(), node.whole_fill);
  std::vector<int64_t> to = StridesOf(type.shape);
  ForEach<1>(x.shape, {to}, [&](size_t i, const auto& at) {
    int64_t rest = static_cast<int64_t>(i), target = 0;
    (void)at;
    for (size_t d = x.shape.size(); d-- > 0;) {
      int64_t index = rest % x.shape[d] + node.starts[d];
      rest /= x.shape[d];
      if (index < 0 || index >= type.shape[d]) return;
      target += index * to[d];
    }
    CopyElement(x, static_cast<int64_t>(i), out, static_cast<size_t>(target));
  });
  return out;
}

Numbers Concat(const Node& node, Arguments in, const TensorType& type) {
  Numbers out = MakeNumbers(type.dtype, type.shape);
  auto axis = static_cast<size_t>(node.axis);
  std::vector<int64_t> strides = StridesOf(type.shape);
  int64_t begin = 0;
  for (const Numbers* x : in) {
    ForEach<1>(x->shape, {strides}, [&](size_t i, const auto& at) {
      CopyElement(*x, static_cast<int64_t>(i), out, static_cast<size_t>(begin * strides[axis] + at[0]));
    });
    begin += x->shape[axis];
  }
  return out;
}

Result<Numbers> Gather(const Node& node, Arguments in, const TensorType& type) {
  const Numbers &x = *in[0], &indices = *in[1];
  Numbers out = MakeNumbers(type.dtype, type.shape);
  auto axis = static_cast<size_t>(node.axis);
  int64_t extent = x.shape[axis], inner = 1, outer = 1;
  for (size_t d = 0; d < axis; ++d) outer *= x.shape[d];
  for (size_t d = axis + 1; d < x.shape.size(); ++d) inner *= x.shape[d];
  size_t to = 0;
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t index : indices.whole) {
      if (index < -extent || index >= extent) {
        return Error{ErrorKind::kInvalid, fmt::format("index {} of {} elements", index, extent), ""};
      }
      if (index < 0) index += extent;
      for (int64_t i = 0; i < inner; ++i) CopyElement(x, (o * extent + index) * inner + i, out, to++);
    }
  }
  return out;
}

Result<Numbers> GatherElements(const Node& node, Arguments in, const TensorType& type) {
  const Numbers &x = *in[0], &indices = *in[1];
  Numbers out = MakeNumbers(type.dtype, type.shape);
  auto axis = static_cast<size_t>(node.axis);
  std::vector<int64_t> strides = StridesOf(x.shape), others = strides;
  others[axis] = 0;
  int64_t extent = x.shape[axis], wrong = 0;
  ForEach<1>(type.shape, {others}, [&](size_t i, const auto& at) {
    int64_t index = indices.whole[i];
    if (index < -extent || index >= extent) {
      wrong = index;
      return;
    }
    CopyElement(x, at[0] + (index < 0 ? index + extent : index) * strides[axis], out, i);
  });
  if (wrong != 0) return Error{ErrorKind::kInvalid, fmt::format("index {} of {} elements", wrong, extent), ""};
  return out;
}

}  // namespace hone::evaluating
