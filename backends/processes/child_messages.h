// Bodies of the messages between the daemon and its builders and runners. Decoding never trusts: a child may have gone
// wild. Grammars stand with the code; strings are length-prefixed, numbers little-endian (base/bytes.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/processes/build_request.h"
#include "backends/processes/runner_pool.h"
#include "base/result.h"

namespace hone {

std::string EncodeBuildRequest(const BuildRequest& request);
Result<BuildRequest> DecodeBuildRequest(std::string_view body);

// What a builder answers besides the object, whose manifest is inside it.
struct BuiltReply {
  std::string schedule;
  BuildTimes times;
};
std::string EncodeBuilt(const BuiltReply& reply);
Result<BuiltReply> DecodeBuilt(std::string_view body);

// Whether the times that somebody says it took are numbers of microseconds within a day. They are added up, and become
// whole numbers of nanoseconds.
bool AreTimes(const BuildTimes& times);
bool AreTimes(const CheckReport& report);
bool AreTimes(const RunTiming& timing);

std::string EncodeCheckOptions(const CheckOptions& options);
Result<CheckOptions> DecodeCheckOptions(std::string_view body);
std::string EncodeCheckReport(const CheckReport& report);
Result<CheckReport> DecodeCheckReport(std::string_view body);

// Of artifacts that are rehearsed: how they would be checked.
struct RehearsalQuestion {
  int at_once = 1;
  CheckOptions check;
};
std::string EncodeRehearsalQuestion(const RehearsalQuestion& question);
Result<RehearsalQuestion> DecodeRehearsalQuestion(std::string_view body);
// Why each must not be used, if that is known.
std::string EncodeRehearsed(const std::vector<std::optional<Error>>& failures);
Result<std::vector<std::optional<Error>>> DecodeRehearsed(std::string_view body);

std::string EncodeTimeOptions(const TimeOptions& options);
Result<TimeOptions> DecodeTimeOptions(std::string_view body);
std::string EncodeTiming(const RunTiming& timing);
Result<RunTiming> DecodeTiming(std::string_view body);

}  // namespace hone
