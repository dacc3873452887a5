// A pool of runners and the smallest kernel to give it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <memory>

#include "backends/processes/runner_pool.h"
#include "tests/support/deadline.h"

namespace hone::testing {

inline constexpr char kRelu[] = "kernel relu(x: f32[N]) -> y: f32[N] where N=5003 { y[i] = max(x[i], 0.0) }";
inline constexpr char kReluLoop[] =
    "const float *x = b[0]; float *y = b[1]; for (int i = 0; i < 5003; ++i) y[i] = x[i] > 0 ? x[i] : 0;";

// Builds with sanitizers have none: LLVM and drivers' compilers are not what those are for.
inline bool HasBuilder() { return ::access(HONE_BIN_DIR "/hone-builder", X_OK) == 0; }
inline constexpr char kNoBuilder[] = "[SKIP] hone-builder is not built";

inline std::unique_ptr<RunnerPool> StartPool(int runners = 1) {
  RunnerPoolOptions options;
  options.executable = HONE_BIN_DIR "/hone-runner";
  options.runners = runners;
  Result<std::unique_ptr<RunnerPool>> pool = RunnerPool::Start(options);
  EXPECT_TRUE(pool) << pool.error().Text();
  return std::move(*pool);
}

}  // namespace hone::testing
