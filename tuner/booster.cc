#include "tuner/booster.h"

#include <fmt/format.h>
#include <xgboost/c_api.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "tuner/check_trees.h"

namespace hone {
namespace {

Error XgbError(std::string_view what) {
  std::string_view text = XGBGetLastError();
  return {ErrorKind::kInternal, fmt::format("{}: xgboost: {}", what, text.substr(0, text.find('\n'))), ""};
}

#define HONE_XGB(call) \
  if ((call) != 0) return XgbError(#call)

class Matrix {
 public:
  static Result<Matrix> Of(const Table& table, bool pairwise, int threads) {
    Matrix matrix;
    const float missing = std::numeric_limits<float>::quiet_NaN();
    HONE_XGB(
        XGDMatrixCreateFromMat_omp(table.rows.data(), table.size(), table.width, missing, &matrix.handle_, threads));
    HONE_XGB(XGDMatrixSetFloatInfo(matrix.handle_, "label", table.labels.data(), table.labels.size()));
    if (!table.weights.empty() && !pairwise)
      HONE_XGB(XGDMatrixSetFloatInfo(matrix.handle_, "weight", table.weights.data(), table.weights.size()));
    if (!table.margins.empty())
      HONE_XGB(XGDMatrixSetFloatInfo(matrix.handle_, "base_margin", table.margins.data(), table.margins.size()));
    if (pairwise) HONE_XGB(XGDMatrixSetUIntInfo(matrix.handle_, "group", table.groups.data(), table.groups.size()));
    return matrix;
  }
  Matrix(Matrix&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  ~Matrix() {
    if (handle_) XGDMatrixFree(handle_);
  }
  DMatrixHandle handle() const { return handle_; }

 private:
  Matrix() = default;
  DMatrixHandle handle_ = nullptr;
};

}  // namespace

Result<BoosterPtr> Booster::Train(const Table& table, const TrainOptions& options) {
  Matrix matrix = HONE_TRY(Matrix::Of(table, options.pairwise, options.threads));
  auto booster = std::shared_ptr<Booster>(new Booster);
  DMatrixHandle handles[] = {matrix.handle()};
  HONE_XGB(XGBoosterCreate(handles, 1, &booster->handle_));
  HONE_TRY(booster->SetCommon(options.threads, options.seed));
  const std::pair<const char*, std::string> parameters[] = {
      {"objective", options.pairwise ? "rank:pairwise" : "reg:squarederror"},
      {"base_score", "0"},
      {"tree_method", "hist"},
      {"max_bin", "32"},
      {"max_depth", std::to_string(options.depth)},
      {"eta", fmt::format("{}", options.eta)},
      {"colsample_bytree", fmt::format("{}", options.columns)},
  };
  for (const auto& [name, value] : parameters) HONE_XGB(XGBoosterSetParam(booster->handle_, name, value.c_str()));
  for (int round = 0; round < options.rounds; ++round) {
    if (options.stop.stop_requested()) return Error{ErrorKind::kTimeout, "told to stop", "training"};
    HONE_XGB(XGBoosterUpdateOneIter(booster->handle_, round, matrix.handle()));
  }
  HONE_TRY(booster->Warm(table.width));
  return BoosterPtr(std::move(booster));
}

Result<BoosterPtr> Booster::Load(std::string_view bytes, size_t width, int threads, uint64_t seed) {
  // The library chooses a reader by the first bytes: that of JSON, since those of its binary formats trust lengths that
  // they read.
  const std::string trees = HONE_TRY(CheckTrees(bytes, width));
  auto booster = std::shared_ptr<Booster>(new Booster);
  HONE_XGB(XGBoosterCreate(nullptr, 0, &booster->handle_));
  auto corrupt = [](Error error) { return Error{ErrorKind::kCorrupt, std::move(error.message), ""}; };
  if (XGBoosterLoadModelFromBuffer(booster->handle_, trees.data(), trees.size()) != 0)
    return corrupt(XgbError("trees"));
  HONE_TRY(booster->SetCommon(threads, seed));
  if (Result<void> warmed = booster->Warm(width); !warmed) return corrupt(std::move(warmed).error());
  return BoosterPtr(std::move(booster));
}

Booster::~Booster() {
  if (handle_ != nullptr) XGBoosterFree(handle_);
}

Result<void> Booster::Predict(const float* rows, size_t count, size_t width, std::vector<float>& out) const {
  const std::string array = fmt::format(R"({{"data":[{},true],"shape":[{},{}],"typestr":"<f4","version":3}})",
                                        reinterpret_cast<uintptr_t>(rows), count, width);
  static constexpr const char* kConfig =
      R"({"type":1,"training":false,"iteration_begin":0,"iteration_end":0,"strict_shape":false,"missing":NaN,"cache_id":0})";
  const bst_ulong* shape = nullptr;
  bst_ulong dimensions = 0;
  const float* result = nullptr;
  HONE_XGB(XGBoosterPredictFromDense(handle_, array.c_str(), kConfig, nullptr, &shape, &dimensions, &result));
  bst_ulong values = 1;
  for (bst_ulong d = 0; d < dimensions; ++d) values *= shape[d];
  if (values != count)
    return Error{ErrorKind::kInternal, fmt::format("xgboost predicted {} values for {} rows", values, count), ""};
  for (size_t i = 0; i < count; ++i) out[i] += result[i];
  return {};
}

Result<std::string> Booster::Save() const {
  bst_ulong size = 0;
  const char* bytes = nullptr;
  HONE_XGB(XGBoosterSaveModelToBuffer(handle_, R"({"format":"json"})", &size, &bytes));
  return std::string(bytes, size);
}

Result<void> Booster::SetCommon(int threads, uint64_t seed) {
  HONE_XGB(XGBoosterSetParam(handle_, "verbosity", "0"));
  HONE_XGB(XGBoosterSetParam(handle_, "nthread", std::to_string(std::max(1, threads)).c_str()));
  HONE_XGB(XGBoosterSetParam(handle_, "seed", std::to_string(seed & 0x7fffffff).c_str()));
  return {};
}

// The library settles its configuration at the first prediction; afterwards it only reads.
Result<void> Booster::Warm(size_t width) {
  std::vector<float> row(width, 0), out(1, 0);
  return Predict(row.data(), 1, width, out);
}

#undef HONE_XGB

}  // namespace hone
