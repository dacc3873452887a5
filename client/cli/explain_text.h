// What `hone explain` prints, from what the daemon said: for people at so many columns, and as JSON.
#pragma once

#include <string>

#include "client/cli/json.h"
#include "client/protocol/protocol.h"

namespace hone::cli {

std::string ExplainText(const ExplainReply& reply, size_t columns);
Json ExplainJson(const ExplainReply& reply);

// Shared with the page that `hone report` writes.
std::string FlopsText(double flops);                  // "231 MFLOP"
std::string RateText(double gflops);                  // "190 GFLOP/s", "1.2 TFLOP/s"
std::string RatioText(double ratio);                  // "1.21x"; "-" for 0
std::string ChoiceText(const ChoiceRow& row);         // "2 -> 4"; "no -> yes" for a flag
std::string VerdictsText(const ExplainReply& reply);  // "64: 60 timed, 4 wrong"

}  // namespace hone::cli
