// Whether code for a range of sizes computes a kernel of fixed ones.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace hone {

// The values of `ranged`'s dynamic sizes, in order, at which it is `wanted`; nullopt if it is at none of its sizes, or
// one of the texts is no kernel, or `wanted` has dynamic sizes itself. Both are canonical texts; for how many threads
// they are does not matter.
std::optional<std::vector<int64_t>> InstanceSizes(std::string_view wanted, std::string_view ranged);

}  // namespace hone
