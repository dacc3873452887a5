// Host operations on elements of one type, written once: over numbers, which constants and checks want, and over
// elements where memory has them, which sessions run.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "ir/graph/element.h"
#include "network/graph/host_operation.h"

namespace hone {

// What is added up of elements of type T, so that it is the same in memory as of numbers: reals in double precision,
// whole numbers in 64 bits that wrap around.
template <typename T>
using WideElement = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;

// Has `host` compute by body(std::type_identity<T>(), inputs, results), with pointers to elements: of type T for the
// operand type `dtype`, in memory; T is double, int64_t or uint64_t where they are numbers. Operands of i64 and f64 are
// int64_t and double in both. A result that nobody reads is nullptr. Truth values are only numbers: memory would hold
// what `body` writes of them. `host` has its types.
template <typename Body>
void ComputeOnElements(HostOperation& host, DType dtype, Body body) {
  host.compute = [dtype, body, types = host.types](std::span<const Numbers* const> in) -> Result<std::vector<Numbers>> {
    std::vector<Numbers> results;
    std::vector<const void*> from;
    std::vector<void*> to;
    for (const Numbers* each : in)
      from.push_back(each->is_real() ? static_cast<const void*>(each->real.data()) : each->whole.data());
    for (const TensorType& type : types) results.push_back(MakeNumbers(type.dtype, type.shape));
    for (Numbers& each : results)
      to.push_back(each.is_real() ? static_cast<void*>(each.real.data()) : each.whole.data());
    const auto compute = [&](auto type) -> Result<void> {
      return body(type, std::span<const void* const>(from), std::span<void* const>(to));
    };
    if (IsFloat(dtype))
      HONE_TRY(compute(std::type_identity<double>()));
    else if (dtype == DType::kU64)
      HONE_TRY(compute(std::type_identity<uint64_t>()));
    else
      HONE_TRY(compute(std::type_identity<int64_t>()));
    return results;
  };
  if (dtype == DType::kBool) return;
  host.run = [dtype, body](std::span<const void* const> in, std::span<void* const> out) -> Result<void> {
    return VisitElement(dtype, [&](auto type) -> Result<void> { return body(type, in, out); });
  };
}

}  // namespace hone
