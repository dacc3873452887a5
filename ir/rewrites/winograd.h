// Winograd's minimal filtering F(m×m, 3×3) as a rewrite of the stage graph: tiles of m×m outputs of a convolution from
// (m+2)×(m+2) inputs with (m+2)² multiplications where the direct form has 9·m² (Lavin, Gray 2016). The function is the
// same over real numbers; rounding is not, so schedules use it only where the kernel's accuracy allows.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "ir/graph/kernel.h"

namespace hone {

// The stages that the rewrite makes out of y[…, h, w] = Σ x[…, h + r, w + s] · f[…, r, s], all named base_…; tiles are
// numbered t = row · columns + column.
struct WinogradNames {
  explicit WinogradNames(const std::string& base)
      : input(base + "_x"),
        rows(base + "_r"),
        tiles(base + "_v"),
        filter_rows(base + "_g"),
        filter(base + "_u"),
        product(base + "_m"),
        half(base + "_z"),
        result(base + "_y") {}
  std::string input;        // x, with zeros around it up to whole tiles
  std::string rows;         // [i, …, row, column of x]: Bᵀ·x
  std::string tiles;        // [i, j, …, row, column]: Bᵀ·x·B
  std::string filter_rows;  // [i, …, column of f]: G·f
  std::string filter;       // [i, j, …]: G·f·Gᵀ
  std::string product;      // [i, j, …, t]: summed over the channels
  std::string half;         // [u, j, …, t]: Aᵀ·product
  std::string result;       // [u, v, …, t]: Aᵀ·product·A, of which y is a copy in its own order
};

// What refuses such a rewrite of the stage y (by index), names apart. `m`: 2 or 4. `columns`: tiles in a row, at least
// as many as y's width needs. kInvalid: no such convolution; another window than 3×3, strides, dilation, integers,
// dynamic sizes. y itself becomes a copy of `result`.
Result<void> CheckWinograd(const Kernel& kernel, StageId stage, int64_t m, int64_t columns);

}  // namespace hone
