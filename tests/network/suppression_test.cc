// Non-maximum suppression, beside the plain definition.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "network/onnx/data_shaped.h"

namespace hone::suppression_test {
namespace {

struct Boxes {
  Numbers boxes, scores;  // [1, n, 4], [1, 1, n]
};

// Each box in turn is kept unless one that was kept overlaps it by more than `most`.
std::vector<int64_t> ByDefinition(const Boxes& given, double most) {
  const auto count = static_cast<size_t>(given.scores.shape[2]);
  std::vector<size_t> order(count), kept;
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return given.scores.real[a] > given.scores.real[b]; });
  auto side = [&](size_t box, size_t d, bool is_high) {
    const double a = given.boxes.real[4 * box + d], b = given.boxes.real[4 * box + 2 + d];
    return is_high ? std::max(a, b) : std::min(a, b);
  };
  auto overlap = [&](size_t a, size_t b) {
    double common = 1, one = 1, other = 1;
    for (size_t d : {0, 1}) {
      common *=
          std::max(0.0, std::min(side(a, d, true), side(b, d, true)) - std::max(side(a, d, false), side(b, d, false)));
      one *= side(a, d, true) - side(a, d, false);
      other *= side(b, d, true) - side(b, d, false);
    }
    return one <= 0 || other <= 0 || common <= 0 ? 0 : common / (one + other - common);
  };
  std::vector<int64_t> rows;
  for (size_t box : order) {
    if (std::any_of(kept.begin(), kept.end(), [&](size_t other) { return overlap(box, other) > most; })) continue;
    kept.push_back(box);
    rows.insert(rows.end(), {0, 0, static_cast<int64_t>(box)});
  }
  return rows;
}

// `classes` of boxes that lie apart, as detectors move them to suppress all at once.
Boxes RandomBoxes(int64_t count, int64_t classes, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> place(0, 100), size(0, 40);
  Boxes made{MakeNumbers(DType::kF32, {1, count, 4}), MakeNumbers(DType::kF32, {1, 1, count})};
  for (int64_t i = 0; i < count; ++i) {
    double* box = made.boxes.real.data() + 4 * i;
    for (int d : {0, 1}) {
      box[d] = place(random) + 150 * static_cast<double>(i % classes);
      box[2 + d] = box[d] + (i % 7 == 0 ? -size(random) : size(random));  // corners in either order
    }
    made.scores.real[static_cast<size_t>(i)] = static_cast<double>(random() % 50);
  }
  return made;
}

std::vector<int64_t> Suppressed(const Boxes& given, double most) {
  OnnxNode node;
  node.op = "NonMaxSuppression";
  const Numbers count = WholeNumbers({std::numeric_limits<int64_t>::max()}, {});
  Numbers overlap = MakeNumbers(DType::kF32, {});
  overlap.real = {most};
  const std::vector<const Numbers*> inputs = {&given.boxes, &given.scores, &count, &overlap};
  Result<std::vector<Numbers>> result = FindDataShaped(node.op)->compute(node, inputs);
  EXPECT_TRUE(result) << result.error().Text();
  return result ? result->front().whole : std::vector<int64_t>();
}

TEST(Suppression, KeepsWhatTheDefinitionKeeps) {
  for (int64_t classes : {1, 2, 9}) {
    for (double most : {-1.0, 0.0, 0.3, 0.7, 1.0}) {
      const Boxes boxes = RandomBoxes(300, classes, static_cast<uint32_t>(classes));
      EXPECT_EQ(Suppressed(boxes, most), ByDefinition(boxes, most)) << classes << " classes, overlap " << most;
    }
  }
}

TEST(Suppression, TakesBoxesThatAreNone) {
  Boxes boxes = RandomBoxes(60, 3, 4);
  boxes.boxes.real[8] = INFINITY;
  boxes.boxes.real[100] = -INFINITY;
  EXPECT_EQ(Suppressed(boxes, 0.4), ByDefinition(boxes, 0.4));
  for (double& each : boxes.boxes.real) each = 5;  // points
  EXPECT_EQ(Suppressed(boxes, 0.4).size(), 180U);
}

}  // namespace
}  // namespace hone::suppression_test
