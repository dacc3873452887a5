#include "backends/runner/launcher.h"

#include "base/bytes.h"

namespace hone {

namespace {

constexpr size_t kMostError = 1 << 16;

void Write(ByteWriter& writer, const LaunchOutcome& outcome) {
  writer.Bool(outcome.timed_out);
  writer.SignedVarint(outcome.status.code);
  writer.SignedVarint(outcome.status.signal);
}

Result<LaunchOutcome> ReadOutcome(ByteReader& reader) {
  LaunchOutcome outcome;
  outcome.timed_out = HONE_TRY(reader.Bool());
  outcome.status.code = static_cast<int>(HONE_TRY(reader.SignedVarint()));
  outcome.status.signal = static_cast<int>(HONE_TRY(reader.SignedVarint()));
  return outcome;
}

}  // namespace

// launched ::= timed_out:bool code:svarint signal:svarint
std::string EncodeOutcome(const LaunchOutcome& outcome) {
  ByteWriter writer;
  Write(writer, outcome);
  return writer.Take();
}

Result<LaunchOutcome> DecodeOutcome(std::string_view body) {
  ByteReader reader(body);
  const LaunchOutcome outcome = HONE_TRY(ReadOutcome(reader));
  HONE_TRY(reader.Finish());
  return outcome;
}

// rehearsals ::= count:varint (known:bool [launched stage:u8 error:string])*
std::string EncodeRehearsals(const Rehearsals& rehearsals) {
  ByteWriter writer;
  writer.Varint(rehearsals.size());
  for (const std::optional<Rehearsal>& each : rehearsals) {
    writer.Bool(each.has_value());
    if (!each) continue;
    Write(writer, each->outcome);
    writer.U8(static_cast<uint8_t>(each->stage));
    writer.String(each->error);
  }
  return writer.Take();
}

Result<Rehearsals> DecodeRehearsals(std::string_view body) {
  ByteReader reader(body);
  Rehearsals rehearsals(HONE_TRY(reader.Count(kMostRehearsed)));
  for (std::optional<Rehearsal>& each : rehearsals) {
    if (!HONE_TRY(reader.Bool())) continue;
    each.emplace();
    each->outcome = HONE_TRY(ReadOutcome(reader));
    each->stage = HONE_TRY(reader.Enumerator(RunStage::kSetup, RunStage::kDone));
    each->error = HONE_TRY(reader.String(kMostError));
  }
  HONE_TRY(reader.Finish());
  return rehearsals;
}

}  // namespace hone
