// Counters and times as Prometheus reads them (text format 0.0.4).
#pragma once

#include <span>
#include <string>

#include "client/protocol/protocol.h"

namespace hone {

inline constexpr const char* kPrometheusType = "text/plain; version=0.0.4; charset=utf-8";

// Each stat under "hone_": counters end in _total, times are in seconds, quantiles belong to a summary, and a family of
// the cache is a label.
std::string PrometheusText(std::span<const Stat> stats);

}  // namespace hone
