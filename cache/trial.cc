#include "cache/trial.h"

#include <algorithm>
#include <limits>

#include "base/bytes.h"
#include "base/envelope.h"

namespace hone {
namespace {

constexpr size_t kChoicesLimit = 1 << 16;

Result<std::chrono::nanoseconds> ReadDuration(ByteReader& in) {
  return std::chrono::nanoseconds(
      static_cast<int64_t>(HONE_TRY(in.Count(static_cast<uint64_t>(std::numeric_limits<int64_t>::max()), 0))));
}

}  // namespace

std::string_view VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kTimed: return "timed";
    case Verdict::kNotBuilt: return "not built";
    case Verdict::kCrashed: return "crashed";
    case Verdict::kTimedOut: return "timed out";
    case Verdict::kWrong: return "wrong";
    case Verdict::kDisturbed: return "disturbed";
  }
  return "";
}

std::string EncodeTrial(const TrialRecord& trial) {
  ByteWriter out;
  out.String(std::string_view(trial.choices).substr(0, kChoicesLimit));
  out.U64(trial.program);
  out.U8(trial.verdict);
  out.Varint(static_cast<uint64_t>(std::max<int64_t>(0, trial.time.count())));
  out.Varint(static_cast<uint64_t>(std::max<int64_t>(0, trial.noise.count())));
  out.SignedVarint(trial.at.time_since_epoch().count());
  out.String(std::string_view(trial.why).substr(0, kTrialReasonBytes));
  return Seal(ValueType::kTrial, kTrialVersion, out.view());
}

Result<TrialRecord> DecodeTrial(std::string_view value) {
  ByteReader in(HONE_TRY(Unseal(ValueType::kTrial, kTrialVersion, value)));
  TrialRecord trial;
  trial.choices = std::string(HONE_TRY(in.String(kChoicesLimit)));
  trial.program = HONE_TRY(in.U64());
  trial.verdict = HONE_TRY(in.U8());
  trial.time = HONE_TRY(ReadDuration(in));
  trial.noise = HONE_TRY(ReadDuration(in));
  trial.at = WallTime(std::chrono::milliseconds(HONE_TRY(in.SignedVarint())));
  if (SealedVersion(value) > 1) trial.why = std::string(HONE_TRY(in.String(kTrialReasonBytes)));
  HONE_TRY(in.Finish());
  return trial;
}

}  // namespace hone
