// One trial of a search, as the log keeps it: what was tried and what became of it. What a cost model learns from is
// made from it again, so that features may change without losing what was measured.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace hone {

struct TrialRecord {
  std::string choices;               // codegen/rules/choices.h; "" is the default schedule
  uint64_t program = 0;              // hash of the lowered program
  uint8_t verdict = 0;               // tuner/measure.h: Verdict's number
  std::chrono::nanoseconds time{0};  // of a call, median; 0 unless it was timed
  std::chrono::nanoseconds noise{0};
  WallTime at{};
  bool operator==(const TrialRecord&) const = default;
};

inline constexpr uint8_t kTrialVersion = 1;

std::string EncodeTrial(const TrialRecord& trial);
Result<TrialRecord> DecodeTrial(std::string_view value);  // kCorrupt; kUnsupported: of a newer hone

}  // namespace hone
