// DeformConv's columns: what each element of its windows reads, between elements of an image, where offsets say.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "network/graph/host_operation.h"

namespace hone {

struct DeformedWindows {
  Shape image;                                    // N, C, H, W
  int64_t height = 1, width = 1;                  // of the result
  std::vector<int64_t> window, stride, dilation;  // rows, columns
  int64_t top = 0, left = 0;                      // padding
  int64_t offset_groups = 1;                      // of channels, each with offsets of its own

  Shape Columns() const { return {image[0], image[1] * window[0] * window[1], height, width}; }
  Shape Offsets() const { return {image[0], offset_groups * window[0] * window[1] * 2, height, width}; }
  Shape Mask() const { return {image[0], offset_groups * window[0] * window[1], height, width}; }
};

// offsets: rows and columns in turn for each element of the window; mask: a factor each, or nullptr. Outside the image
// there are zeros.
void DeformColumns(const DeformedWindows& of, const float* image, const float* offsets, const float* mask,
                   float* columns);
void DeformColumns(const DeformedWindows& of, const double* image, const double* offsets, const double* mask,
                   double* columns);

}  // namespace hone
