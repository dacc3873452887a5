#include "backends/runner/launcher.h"

#include "base/bytes.h"

namespace hone {

// launched ::= timed_out:bool code:svarint signal:svarint
std::string EncodeOutcome(const LaunchOutcome& outcome) {
  ByteWriter writer;
  writer.Bool(outcome.timed_out);
  writer.SignedVarint(outcome.status.code);
  writer.SignedVarint(outcome.status.signal);
  return writer.Take();
}

Result<LaunchOutcome> DecodeOutcome(std::string_view body) {
  ByteReader reader(body);
  LaunchOutcome outcome;
  outcome.timed_out = HONE_TRY(reader.Bool());
  outcome.status.code = static_cast<int>(HONE_TRY(reader.SignedVarint()));
  outcome.status.signal = static_cast<int>(HONE_TRY(reader.SignedVarint()));
  HONE_TRY(reader.Finish());
  return outcome;
}

}  // namespace hone
