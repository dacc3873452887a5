// What the machine model computes: values of one thread, and what the operations of straight code make of them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "codegen/gpu/straight.h"

namespace hone::simt {

// A lane: floats in `real`, integers and conditions in `number`.
struct Lane {
  double real = 0;
  int64_t number = 0;
};
struct Slot {
  std::array<Lane, 4> lanes = {};
  std::vector<Lane> more = {};  // of a vector, behind those
  bool is_set = false;
  std::vector<std::array<Lane, 4>> words = {};  // of Do::kMatrices

  // Room for so many lanes.
  void Widen(int count) {
    if (count > 4) more.resize(static_cast<size_t>(count) - 4);
  }
  // REQUIRES: it has that lane.
  Lane& At(size_t lane) { return lane < 4 ? lanes[lane] : more[lane - 4]; }
  const Lane& At(size_t lane) const { return lane < 4 ? lanes[lane] : more[lane - 4]; }
};

// Lanes of others: kLane, kPack, kPart, kEverySecond.
Slot Arranged(const straight::Value& value, std::span<const Slot* const> of);
// One lane of what the value computes; `from`: the type of its first argument, `a`: that lane of all of them.
Lane Computed(const straight::Value& value, DType from, const Lane* a);

}  // namespace hone::simt
