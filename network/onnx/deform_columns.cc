#include "network/onnx/deform_columns.h"

#include <cmath>

namespace hone {
namespace {

// Where a channel's plane is read, and by which shares: four elements, those outside with a share of 0.
template <typename Real>
struct Read {
  int64_t at[4] = {};
  Real share[4] = {};
};

template <typename Real>
Read<Real> ReadAt(double y, double x, int64_t height, int64_t width, double factor) {
  Read<Real> read;
  if (!(y > -1 && y < static_cast<double>(height) && x > -1 && x < static_cast<double>(width))) return read;
  const double y0 = std::floor(y), x0 = std::floor(x), down = y - y0, right = x - x0;
  for (int i = 0; i < 4; ++i) {
    const int64_t row = static_cast<int64_t>(y0) + i / 2, column = static_cast<int64_t>(x0) + i % 2;
    if (row < 0 || row >= height || column < 0 || column >= width) continue;
    read.at[i] = row * width + column;
    read.share[i] = static_cast<Real>(factor * (i / 2 != 0 ? down : 1 - down) * (i % 2 != 0 ? right : 1 - right));
  }
  return read;
}

template <typename Real>
void Fill(const DeformedWindows& of, const Real* image, const Real* offsets, const Real* mask, Real* columns) {
  const int64_t taps = of.window[0] * of.window[1], places = of.height * of.width;
  const int64_t channels = of.image[1], plane = of.image[2] * of.image[3];
  const int64_t of_group = channels / of.offset_groups;
  std::vector<Read<Real>> reads(static_cast<size_t>(places));
  for (int64_t n = 0; n < of.image[0]; ++n) {
    for (int64_t group = 0; group < of.offset_groups; ++group) {
      for (int64_t tap = 0; tap < taps; ++tap) {
        const int64_t number = (n * of.offset_groups + group) * taps + tap;
        const Real *rows = offsets + number * 2 * places, *columns_off = rows + places;
        for (int64_t p = 0; p < places; ++p) {
          const int64_t i = p / of.width, j = p % of.width;
          const auto y = static_cast<double>(i * of.stride[0] - of.top + tap / of.window[1] * of.dilation[0]);
          const auto x = static_cast<double>(j * of.stride[1] - of.left + tap % of.window[1] * of.dilation[1]);
          reads[static_cast<size_t>(p)] =
              ReadAt<Real>(y + static_cast<double>(rows[p]), x + static_cast<double>(columns_off[p]), of.image[2],
                           of.image[3], mask == nullptr ? 1 : static_cast<double>(mask[number * places + p]));
        }
        for (int64_t c = group * of_group; c < (group + 1) * of_group; ++c) {
          const Real* from = image + (n * channels + c) * plane;
          Real* to = columns + ((n * channels + c) * taps + tap) * places;
          for (const Read<Real>& read : reads) {
            Real sum = 0;
            for (int i = 0; i < 4; ++i)
              if (read.share[i] != 0) sum += read.share[i] * from[read.at[i]];
            *to++ = sum;
          }
        }
      }
    }
  }
}

}  // namespace

void DeformColumns(const DeformedWindows& of, const float* image, const float* offsets, const float* mask,
                   float* columns) {
  Fill(of, image, offsets, mask, columns);
}

void DeformColumns(const DeformedWindows& of, const double* image, const double* offsets, const double* mask,
                   double* columns) {
  Fill(of, image, offsets, mask, columns);
}

}  // namespace hone
