// A evaluator on the builder and runner processes: the one that honed searches with.
#pragma once

#include <memory>
#include <stop_token>
#include <string>

#include "backends/processes/builder_pool.h"
#include "backends/processes/evaluator.h"
#include "backends/processes/runner_pool.h"
#include "base/idle_group.h"

namespace hone {

// Holds one runner for as long as it lives, another one when that is lost; the pools must outlive it. `kernel`:
// anything ParseKernel reads. `idle_group`: where it thinks; nullptr: where everybody does. kBusy: no runner came free.
// A request to stop ends at once what is built, checked or timed: kUnavailable.
Result<std::unique_ptr<Evaluator>> MakeProcessEvaluator(BuilderPool& builders, RunnerPool& runners, int builds_at_once,
                                                        std::string kernel, Target target,
                                                        const IdleGroup* idle_group = nullptr,
                                                        std::stop_token stop = {});

}  // namespace hone
