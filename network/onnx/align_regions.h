// RoiAlign: regions of images, read between their elements on a grid of points and averaged over bins.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "network/graph/host_operation.h"

namespace hone {

struct RegionGrid {
  Shape image;                     // N, C, H, W
  int64_t height = 1, width = 1;   // bins of a region
  int64_t ratio = 0;               // points of a bin along each side; 0: as many as its elements, rounded up
  double scale = 1;                // the image's elements for one of the regions' units
  bool has_centre_at_half = true;  // an element's centre is at a half
  bool is_max = false;             // the greatest of the weighted neighbours in place of the average
};

// regions: left, top, right, bottom of each; images: the number of its image. Reads and writes as memory holds them,
// f32 and i64. kInvalid: an image that is not there, a region of too many points.
Result<void> AlignRegions(const RegionGrid& grid, const float* image, const float* regions, const int64_t* images,
                          int64_t count, float* result);
// The same in double precision.
Result<Numbers> AlignRegions(const RegionGrid& grid, const Numbers& image, const Numbers& regions,
                             const Numbers& images, DType dtype);

}  // namespace hone
