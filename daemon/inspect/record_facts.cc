#include "daemon/inspect/record_facts.h"

#include <fmt/format.h>
#include <time.h>

#include <chrono>
#include <ctime>
#include <utility>

#include "daemon/serve/request_path.h"
#include "ir/language/without_comments.h"
#include "ir/target.h"

namespace hone {
namespace {

constexpr size_t kLongestShown = 4096;

double Us(std::chrono::nanoseconds time) { return std::chrono::duration<double, std::micro>(time).count(); }

std::string TimeText(WallTime time) {
  time_t seconds = std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count();
  if (seconds == 0) return "unknown";
  tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string MeasuredText(const Timing& timing) {
  return fmt::format("{:.1f} us ± {:.1f}, {} of {}, {} cache, {} thread{}", Us(timing.time), Us(timing.noise),
                     timing.statistic == TimeStatistic::kMedian    ? "median"
                     : timing.statistic == TimeStatistic::kMinimum ? "best"
                                                                   : "mean",
                     timing.repeats, timing.temperature == CacheTemperature::kWarm ? "warm" : "cold", timing.threads,
                     timing.threads == 1 ? "" : "s");
}

std::string SourceText(const RecordSource& source) {
  return fmt::format("bundle {} version {}, {} there, {}", source.bundle, source.version, OriginName(source.origin),
                     source.key ? "signed by " + HexOf(*source.key).substr(0, 16) : "vouched for by nobody");
}

}  // namespace

std::vector<Fact> FactsOf(const Record& record) {
  std::vector<Fact> facts;
  facts.push_back({"target", record.key.target});
  facts.push_back({"threads", std::to_string(record.key.threads)});
  facts.push_back({"origin", std::string(OriginName(record.origin))});
  if (record.source) facts.push_back({"source", SourceText(*record.source)});
  if (record.donor) facts.push_back({"donor", record.donor->Hex()});
  const bool is_elsewhere = record.source && record.source->times_elsewhere;  // it has not run here yet
  const std::string where = is_elsewhere ? ", on another machine" : "";
  if (record.measured) facts.push_back({"measured", MeasuredText(*record.measured) + where});
  if (record.expected) facts.push_back({"expected", fmt::format("{:.1f} us", Us(*record.expected))});
  const bool is_checked = UncheckedName(record.key.target).empty();
  facts.push_back({"verified", is_checked && !is_elsewhere ? "yes" : "no"});
  if (is_checked) facts.push_back({"max_rel_err", fmt::format("{:.3g}", record.check.max_rel_err)});
  facts.push_back({"checked", !is_checked         ? "never: built for a device that is not here"
                              : record.check.full ? "every element" + where
                                                  : fmt::format("{} elements{}", record.check.samples, where)});
  facts.push_back({"artifact", record.artifact_digest
                                   ? fmt::format("{} bytes, {}", record.artifact_bytes, HexOf(*record.artifact_digest))
                                   : "none: only the schedule is kept"});
  facts.push_back({"built_by", record.key.code});
  facts.push_back({"pinned", record.pinned ? "yes" : "no"});
  facts.push_back({"created", TimeText(record.created)});
  facts.push_back({"updated", TimeText(record.updated)});
  return facts;
}

std::vector<Fact> ReasonsOf(const Record& record, const ArtifactState& artifact) {
  std::vector<Fact> reasons;
  switch (record.origin) {
    case Origin::kDefault:
      reasons.push_back({"schedule", "derived from the machine's registers and caches; nothing better is known yet"});
      break;
    case Origin::kTuned: reasons.push_back({"schedule", "the best that tuning found on this machine"}); break;
    case Origin::kTransferred:
      reasons.push_back(
          {"schedule", "fitted from another kernel's" + (record.donor ? ", " + record.donor->Hex() : std::string())});
      break;
    case Origin::kImported:
      reasons.push_back(
          {"schedule", record.source ? "came in a bundle: " + SourceText(*record.source) : "came in a bundle"});
      break;
  }
  reasons.push_back(
      {"target", artifact.is_ours ? "this machine" : "another machine; requests for this one do not get it"});
  if (!record.artifact_digest) {
    reasons.push_back({"artifact", "not kept; the next request compiles the schedule again"});
  } else if (!artifact.is_ours) {
    reasons.push_back({"artifact", "kept, for the other machine"});
  } else if (!artifact.is_current) {
    reasons.push_back({"artifact", "made by another compiler; the next request compiles the schedule again"});
  } else if (artifact.is_to_check) {
    reasons.push_back({"artifact", "came with the schedule, signed by a trusted key; the next request checks it here"});
  } else if (!artifact.is_checked) {
    reasons.push_back({"artifact",
                       "kept, but nothing shows that this user checked it on this machine; the next request compiles "
                       "the schedule again"});
  } else {
    reasons.push_back({"artifact", "kept; a request compiles nothing"});
  }
  const bool is_elsewhere = record.source && record.source->times_elsewhere;
  if (UncheckedName(record.key.target).empty())
    reasons.push_back(
        {"check", fmt::format("compared with the reference{} at {}, off by at most {:.3g} of the bound's scale",
                              is_elsewhere ? " on another machine, to be done here," : "",
                              record.check.full ? "every element" : fmt::format("{} elements", record.check.samples),
                              record.check.max_rel_err)});
  else
    reasons.push_back({"check", "none: built for a device that is not here, and never run"});
  if (record.measured) {
    reasons.push_back(
        {"expectation", (is_elsewhere ? "from another machine, to be measured here: " : "from measured calls: ") +
                            MeasuredText(*record.measured)});
  } else if (record.expected) {
    reasons.push_back({"expectation", "from its first call, not measured yet"});
  }
  if (record.pinned)
    reasons.push_back({"pinned", "stays in the cache whatever its size, and is neither refined nor replaced"});
  return reasons;
}

RecordRow RowOf(const Record& record, const KernelUse& use) {
  GetReply facts = ReplyFrom(record);
  RecordRow row;
  row.fingerprint = std::move(facts.fingerprint);
  row.class_name = std::move(facts.class_name);
  row.kernel = record.request;
  row.target = std::move(facts.target);
  row.origin = std::move(facts.origin);
  row.pinned = record.pinned;
  row.expected_us = facts.expected_us;
  row.artifact_bytes = record.artifact_digest ? record.artifact_bytes : 0;
  row.requests = use.calls;
  row.last_used_s = std::chrono::duration_cast<std::chrono::seconds>(use.last_used.time_since_epoch()).count();
  return row;
}

RecordRow RowForOthers(const Record& record) {
  RecordRow row;
  row.fingerprint = record.key.fingerprint.Hex();
  row.kernel = ShownText(record.key.canonical);
  row.target = record.key.target;
  row.origin = OriginName(record.origin);
  return row;
}

std::string ShownText(std::string_view kernel) {
  std::string text = WithoutComments(kernel);
  if (text.size() <= kLongestShown) return text;
  size_t end = kLongestShown;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;  // a letter's later bytes
  return text.substr(0, end) + "…";
}

}  // namespace hone
