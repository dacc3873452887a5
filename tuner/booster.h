// Boosted trees: XGBoost's C API, its handles, its errors and its memory, behind one class.
#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hone {

// Rows of features with what is to be learnt from them.
struct Table {
  size_t width = 0;
  std::vector<float> rows;
  std::vector<float> labels;
  std::vector<float> weights;    // empty: all alike
  std::vector<float> margins;    // where the trees start from; empty: at zero
  std::vector<unsigned> groups;  // lengths of runs of rows; for pairwise ranking
  size_t size() const { return labels.size(); }
};

struct TrainOptions {
  int rounds = 100;
  int depth = 6;
  double eta = 0.1;
  double columns = 0.5;  // share of the features that a tree sees
  bool pairwise = false;
  int threads = 1;
  uint64_t seed = 1;
  std::stop_token stop = {};  // seen after each round
};

class Booster;
using BoosterPtr = std::shared_ptr<const Booster>;

// Trees. Immutable once made: Predict may be called from several threads. Errors are kInternal with XGBoost's text.
class Booster {
 public:
  // kTimeout: told to stop.
  static Result<BoosterPtr> Train(const Table& table, const TrainOptions& options);

  // As Save wrote them. kCorrupt: anything but trees over `width` features.
  static Result<BoosterPtr> Load(std::string_view bytes, size_t width, int threads, uint64_t seed);

  ~Booster();
  Booster(const Booster&) = delete;

  // Adds the trees' output of each row to `out`.
  Result<void> Predict(const float* rows, size_t count, size_t width, std::vector<float>& out) const;

  // JSON: of XGBoost's two formats the one that CheckTrees reads.
  Result<std::string> Save() const;

 private:
  Booster() = default;
  Result<void> SetCommon(int threads, uint64_t seed);
  Result<void> Warm(size_t width);

  void* handle_ = nullptr;  // XGBoost's BoosterHandle
};

}  // namespace hone
