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

// What became of a candidate. Stored in the log of trials: never reuse a number.
enum class Verdict : uint8_t {
  kTimed = 1,
  kNotBuilt = 2,   // the builder refused it, crashed on it or took too long
  kCrashed = 3,    // its code did: a forbidden call, a stray access
  kTimedOut = 4,   // its code ran for ever, or so much slower than the best that it was stopped
  kWrong = 5,      // its code computes something else
  kDisturbed = 6,  // the machine was never quiet enough
};
std::string_view VerdictName(Verdict verdict);  // "timed", "not built" …

struct TrialRecord {
  std::string choices;               // codegen/rules/choices.h; "" is the default schedule
  uint64_t program = 0;              // hash of the lowered program
  uint8_t verdict = 0;               // a Verdict's number; of a later hone maybe another
  std::chrono::nanoseconds time{0};  // of a call, median; 0 unless it was timed
  std::chrono::nanoseconds noise{0};
  WallTime at{};
  std::string why{};  // of every other verdict: a compiler's or a checker's words, their first kTrialReasonBytes
  bool operator==(const TrialRecord&) const = default;
};

inline constexpr uint8_t kTrialVersion = 2;  // 1: without a reason
inline constexpr size_t kTrialReasonBytes = 1024;

std::string EncodeTrial(const TrialRecord& trial);
Result<TrialRecord> DecodeTrial(std::string_view value);  // kCorrupt; kUnsupported: of a newer hone

}  // namespace hone
