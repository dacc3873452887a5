// Walks over tensors in memory, a line of elements at a time.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "network/graph/evaluate_internal.h"

namespace hone::evaluating {

// A walk over a result, row-major, a line of its innermost elements at a time: dimensions that lie one behind the other
// for everything that is read are one, so that lines are long.
template <size_t kSets>
class LineWalk {
 public:
  LineWalk(const Shape& shape, std::array<std::vector<int64_t>, kSets> strides) {
    for (size_t d = 0; d < shape.size(); ++d) {
      if (shape[d] == 1) continue;
      const bool goes_on = !outer_.empty() && std::ranges::all_of(strides, [&](const auto& of_set) {
        return of_set[last_] == of_set[d] * shape[d];
      });
      if (goes_on)
        outer_.back() *= shape[d];
      else
        outer_.push_back(shape[d]);
      for (size_t s = 0; s < kSets; ++s) {
        if (!goes_on) strides_[s].emplace_back();
        strides_[s].back() = strides[s][d];
      }
      last_ = d;
    }
    if (outer_.empty()) return;
    count_ = outer_.back();
    outer_.pop_back();
    for (size_t s = 0; s < kSets; ++s) {
      inner_[s] = strides_[s].back();
      strides_[s].pop_back();
    }
  }

  // visit(first element of the line, elements of it, where it begins in each set, strides within it).
  template <typename Visit>
  void Walk(const Visit& visit) const {
    ForEach<kSets>(outer_, strides_, [&](size_t line, const std::array<int64_t, kSets>& at) {
      visit(static_cast<int64_t>(line) * count_, count_, at, inner_);
    });
  }

 private:
  Shape outer_;
  std::array<std::vector<int64_t>, kSets> strides_;
  std::array<int64_t, kSets> inner_{};
  int64_t count_ = 1;
  size_t last_ = 0;  // dimension that was taken
};

// to[i] = function(a[i], b[i]) for operands that broadcast to `shape`, in lines that are read one element after the
// other, or one element again and again.
template <typename From, typename To, typename Function>
void ForPairs(const Shape& of_a, const void* first_a, const Shape& of_b, const void* first_b, const Shape& shape,
              void* first_result, const Function& function) {
  const LineWalk<2> lines(shape, {BroadcastStrides(of_a, shape), BroadcastStrides(of_b, shape)});
  lines.Walk([&](int64_t first, int64_t count, const auto& at, const auto& stride) {
    const From *a = static_cast<const From*>(first_a) + at[0], *b = static_cast<const From*>(first_b) + at[1];
    To* to = static_cast<To*>(first_result) + first;
    if (stride[0] == 1 && stride[1] == 1)
      for (int64_t i = 0; i < count; ++i) to[i] = static_cast<To>(function(a[i], b[i]));
    else if (stride[0] == 0 && stride[1] == 1)
      for (int64_t i = 0; i < count; ++i) to[i] = static_cast<To>(function(*a, b[i]));
    else if (stride[0] == 1 && stride[1] == 0)
      for (int64_t i = 0; i < count; ++i) to[i] = static_cast<To>(function(a[i], *b));
    else
      for (int64_t i = 0; i < count; ++i) to[i] = static_cast<To>(function(a[i * stride[0]], b[i * stride[1]]));
  });
}

}  // namespace hone::evaluating
