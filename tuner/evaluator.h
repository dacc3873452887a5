// What searches ask of an evaluator (backends/processes/evaluator.h), whatever it measures with.
#pragma once

#include "backends/processes/evaluator.h"
#include "base/result.h"

namespace hone {

// Errors that say nothing about a candidate: measuring itself does not work.
bool IsEvaluatorFailure(const Error& error);

// How a candidate is timed, and what it is held against.
TimeOptions TrialTiming(int workers);

}  // namespace hone
