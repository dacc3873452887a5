#include "backends/processes/child_messages.h"

#include <algorithm>
#include <initializer_list>

#include "backends/processes/child_channel.h"
#include "backends/runner/candidate_spec.h"
#include "base/bytes.h"

namespace hone {
namespace {

constexpr size_t kTextLimit = size_t{8} << 20;

using Milliseconds = std::chrono::milliseconds;
using Microseconds = std::chrono::microseconds;

// Times from outside: within a day, so that sums do not overflow.
Result<int64_t> ReadDuration(ByteReader& reader) {
  int64_t value = HONE_TRY(reader.SignedVarint());
  return std::clamp<int64_t>(value, 0, int64_t{86'400} * 1'000'000);
}

bool AreTimesOfADay(std::initializer_list<double> times) {
  constexpr double kDay = 86'400e6;
  return std::all_of(times.begin(), times.end(), [](double us) { return us >= 0 && us <= kDay; });
}

Result<int> ReadCount(ByteReader& reader, int limit) {
  return static_cast<int>(std::min<uint64_t>(HONE_TRY(reader.Varint()), static_cast<uint64_t>(limit)));
}

}  // namespace

// build ::= kernel:string schedule:string target:string
std::string EncodeBuildRequest(const BuildRequest& request) {
  ByteWriter writer;
  writer.String(request.kernel);
  writer.String(request.schedule);
  writer.String(PrintTarget(request.target));
  return writer.Take();
}

Result<BuildRequest> DecodeBuildRequest(std::string_view body) {
  ByteReader reader(body);
  BuildRequest request;
  request.kernel = HONE_TRY(reader.String(kTextLimit));
  request.schedule = HONE_TRY(reader.String(kTextLimit));
  request.target = HONE_TRY(ParseTarget(HONE_TRY(reader.String(4096))));
  HONE_TRY(reader.Finish());
  return request;
}

// built ::= schedule:string parse:f64 schedule:f64 lower:f64 emit:f64 optimize:f64 codegen:f64 link:f64
std::string EncodeBuilt(const BuiltReply& reply) {
  ByteWriter writer;
  writer.String(reply.schedule);
  const BuildTimes& t = reply.times;
  for (double us : {t.parse, t.schedule, t.lower, t.emit, t.optimize, t.codegen, t.link}) writer.F64(us);
  return writer.Take();
}

Result<BuiltReply> DecodeBuilt(std::string_view body) {
  ByteReader reader(body);
  BuiltReply reply;
  reply.schedule = HONE_TRY(reader.String(kTextLimit));
  BuildTimes& t = reply.times;
  for (double* us : {&t.parse, &t.schedule, &t.lower, &t.emit, &t.optimize, &t.codegen, &t.link})
    *us = HONE_TRY(reader.F64());
  HONE_TRY(reader.Finish());
  return reply;
}

bool AreTimes(const BuildTimes& t) {
  return AreTimesOfADay({t.parse, t.schedule, t.lower, t.emit, t.optimize, t.codegen, t.link});
}

bool AreTimes(const CheckReport& report) {
  return AreTimesOfADay({report.first_run_us, report.time_us, report.pack_us, report.check_us, report.prepare_us});
}

bool AreTimes(const RunTiming& timing) { return AreTimesOfADay({timing.median_us, timing.min_us, timing.spread_us}); }

void WriteSizes(ByteWriter& writer, const std::vector<int64_t>& sizes) {
  writer.Varint(sizes.size());
  for (int64_t size : sizes) writer.SignedVarint(size);
}

Result<std::vector<int64_t>> ReadSizes(ByteReader& reader) {
  std::vector<int64_t> sizes(HONE_TRY(reader.Count(kMaxDynamicSizes)));
  for (int64_t& size : sizes) size = HONE_TRY(reader.SignedVarint());
  return sizes;
}

// sizes ::= count:varint size:svarint*
// check ::= workers:varint run_limit_ms:svarint timed_runs:varint full:bool sizes
std::string EncodeCheckOptions(const CheckOptions& options) {
  ByteWriter writer;
  writer.Varint(static_cast<uint64_t>(std::max(options.workers, 0)));
  writer.SignedVarint(options.run_limit.count());
  writer.Varint(static_cast<uint64_t>(std::max(options.timed_runs, 0)));
  writer.Bool(options.full);
  WriteSizes(writer, options.sizes);
  return writer.Take();
}

Result<CheckOptions> DecodeCheckOptions(std::string_view body) {
  ByteReader reader(body);
  CheckOptions options;
  options.workers = HONE_TRY(ReadCount(reader, 4096));
  options.run_limit = Milliseconds(HONE_TRY(ReadDuration(reader)));
  options.timed_runs = HONE_TRY(ReadCount(reader, 1000));
  options.full = HONE_TRY(reader.Bool());
  options.sizes = HONE_TRY(ReadSizes(reader));
  HONE_TRY(reader.Finish());
  return options;
}

// checked ::= failed:bool [error:string] max_rel_err:f64 samples:svarint full:bool first_run_us:f64 time_us:f64
//             pack_us:f64 check_us:f64 prepare_us:f64
std::string EncodeCheckReport(const CheckReport& report) {
  ByteWriter writer;
  writer.Bool(report.failure.has_value());
  if (report.failure) writer.String(EncodeError(*report.failure));
  writer.F64(report.max_rel_err);
  writer.SignedVarint(report.samples);
  writer.Bool(report.full);
  for (double us : {report.first_run_us, report.time_us, report.pack_us, report.check_us, report.prepare_us})
    writer.F64(us);
  return writer.Take();
}

Result<CheckReport> DecodeCheckReport(std::string_view body) {
  ByteReader reader(body);
  CheckReport report;
  if (HONE_TRY(reader.Bool())) report.failure = DecodeError(HONE_TRY(reader.String(kTextLimit)));
  report.max_rel_err = HONE_TRY(reader.F64());
  report.samples = HONE_TRY(reader.SignedVarint());
  report.full = HONE_TRY(reader.Bool());
  for (double* us : {&report.first_run_us, &report.time_us, &report.pack_us, &report.check_us, &report.prepare_us})
    *us = HONE_TRY(reader.F64());
  HONE_TRY(reader.Finish());
  return report;
}

// rehearse ::= at_once:varint check:string
std::string EncodeRehearsalQuestion(const RehearsalQuestion& question) {
  ByteWriter writer;
  writer.Varint(static_cast<uint64_t>(std::max(question.at_once, 0)));
  writer.String(EncodeCheckOptions(question.check));
  return writer.Take();
}

Result<RehearsalQuestion> DecodeRehearsalQuestion(std::string_view body) {
  ByteReader reader(body);
  RehearsalQuestion question;
  question.at_once = HONE_TRY(ReadCount(reader, 4096));
  question.check = HONE_TRY(DecodeCheckOptions(HONE_TRY(reader.String(kTextLimit))));
  HONE_TRY(reader.Finish());
  return question;
}

// rehearsed ::= count:varint (failed:bool [error:string])*
std::string EncodeRehearsed(const std::vector<std::optional<Error>>& failures) {
  ByteWriter writer;
  writer.Varint(failures.size());
  for (const std::optional<Error>& failure : failures) {
    writer.Bool(failure.has_value());
    if (failure) writer.String(EncodeError(*failure));
  }
  return writer.Take();
}

Result<std::vector<std::optional<Error>>> DecodeRehearsed(std::string_view body) {
  ByteReader reader(body);
  std::vector<std::optional<Error>> failures(HONE_TRY(reader.Count(kMostRehearsed)));
  for (std::optional<Error>& failure : failures)
    if (HONE_TRY(reader.Bool())) failure = DecodeError(HONE_TRY(reader.String(kTextLimit)));
  HONE_TRY(reader.Finish());
  return failures;
}

// time ::= workers:varint warmup_us:svarint samples:varint max_samples:varint min_sample_us:svarint limit_ms:svarint
//          (give_up_us contender_us narrow : f64) sizes
std::string EncodeTimeOptions(const TimeOptions& options) {
  ByteWriter writer;
  writer.Varint(static_cast<uint64_t>(std::max(options.workers, 0)));
  writer.SignedVarint(options.warmup.count());
  writer.Varint(static_cast<uint64_t>(std::max(options.samples, 0)));
  writer.Varint(static_cast<uint64_t>(std::max(options.max_samples, 0)));
  writer.SignedVarint(options.min_sample.count());
  writer.SignedVarint(options.limit.count());
  for (double value : {options.give_up_us, options.contender_us, options.narrow}) writer.F64(value);
  WriteSizes(writer, options.sizes);
  return writer.Take();
}

Result<TimeOptions> DecodeTimeOptions(std::string_view body) {
  ByteReader reader(body);
  TimeOptions options;
  options.workers = HONE_TRY(ReadCount(reader, 4096));
  options.warmup = Microseconds(HONE_TRY(ReadDuration(reader)));
  options.samples = HONE_TRY(ReadCount(reader, 1000));
  options.max_samples = HONE_TRY(ReadCount(reader, 1000));
  options.min_sample = Microseconds(HONE_TRY(ReadDuration(reader)));
  options.limit = Milliseconds(HONE_TRY(ReadDuration(reader)));
  for (double* value : {&options.give_up_us, &options.contender_us, &options.narrow}) *value = HONE_TRY(reader.F64());
  options.sizes = HONE_TRY(ReadSizes(reader));
  HONE_TRY(reader.Finish());
  return options;
}

// timed ::= median_us:f64 min_us:f64 spread_us:f64 samples:varint disturbed:varint calls_per_sample:varint
//           workers:varint protocol:string
std::string EncodeTiming(const RunTiming& timing) {
  ByteWriter writer;
  for (double us : {timing.median_us, timing.min_us, timing.spread_us}) writer.F64(us);
  for (int count : {timing.samples, timing.disturbed, timing.calls_per_sample, timing.workers})
    writer.Varint(static_cast<uint64_t>(std::max(count, 0)));
  writer.String(timing.protocol);
  return writer.Take();
}

Result<RunTiming> DecodeTiming(std::string_view body) {
  ByteReader reader(body);
  RunTiming timing;
  for (double* us : {&timing.median_us, &timing.min_us, &timing.spread_us}) *us = HONE_TRY(reader.F64());
  for (int* count : {&timing.samples, &timing.disturbed, &timing.calls_per_sample, &timing.workers})
    *count = HONE_TRY(ReadCount(reader, INT32_MAX));
  timing.protocol = HONE_TRY(reader.String(4096));
  HONE_TRY(reader.Finish());
  return timing;
}

}  // namespace hone
