// store_tool: looks into a cache's directory, and puts into it what no program of ours would.
//
//   store_tool trials CACHE                        a line for every trial: kernel, verdict, nanoseconds, choices,
//                                                  reason, between tabs, in the order of the log
//   store_tool model CACHE                         "none", "good", or why the stored cost model is of no use
//   store_tool model CACHE damaged|newer|garbage   spoils it: one bit, another feature version, other bytes
//   store_tool schedule CACHE KERNEL TEXT          another schedule of the kernel with that fingerprint; its code is
//                                                  built from it when it is asked for
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <string>

#include "base/bytes.h"
#include "base/envelope.h"
#include "cache/schedule_cache.h"
#include "tuner/features.h"
#include "tuner/recording.h"
#include "tuner/xgb_model.h"

namespace hone {
namespace {

constexpr std::string_view kName = "cpu";

Result<void> ListTrials(const std::string& directory) {
  for (const Recording& recording : HONE_TRY(ReadRecordings(directory))) {
    for (const TrialRecord& trial : recording.trials) {
      std::string why = trial.why;
      std::ranges::replace_if(why, [](char c) { return c == '\t' || c == '\n'; }, ' ');
      std::cout << recording.name << '\t' << VerdictName(static_cast<Verdict>(trial.verdict)) << '\t'
                << trial.time.count() << '\t' << trial.choices << '\t' << why << '\n';
    }
  }
  return {};
}

Result<void> Model(const std::string& directory, const std::string& fault) {
  CacheOptions options;
  options.directory = directory;
  options.inspect = fault.empty();
  std::unique_ptr<ScheduleCache> cache = HONE_TRY(ScheduleCache::Open(std::move(options)));
  std::optional<std::string> model = HONE_TRY(cache->GetModel(kName));
  if (fault.empty()) {
    Result<std::unique_ptr<CostModel>> loaded = LoadXgbModel(model.value_or(""));
    std::cout << (!model ? "none" : loaded ? "good" : loaded.error().Text()) << '\n';
    return {};
  }
  std::string spoilt = "no model at all";
  if (fault == "damaged" && model) {
    spoilt = *model;
    spoilt[spoilt.size() / 2] = static_cast<char>(spoilt[spoilt.size() / 2] ^ 1);
  } else if (fault == "newer") {
    ByteWriter body;
    body.U32(kFeatureVersion + 1);
    spoilt = Seal(ValueType::kModel, 1, body.view());
  }
  HONE_TRY(cache->PutModel(kName, spoilt));
  return cache->Flush();
}

Result<void> Reschedule(const std::string& directory, const std::string& fingerprint, const std::string& schedule) {
  CacheOptions options;
  options.directory = directory;
  std::unique_ptr<ScheduleCache> cache = HONE_TRY(ScheduleCache::Open(std::move(options)));
  for (Record& record : HONE_TRY(cache->RecordsOf(HONE_TRY(cache->Resolve(fingerprint))))) {
    record.schedule = schedule;
    record.artifact_digest.reset();
    record.artifact_bytes = 0;
    record.measured.reset();
    NewRecord entry;
    entry.record = std::move(record);
    for (const ClassSummary& known : HONE_TRY(cache->Classes()))
      if (known.info.fingerprint == entry.record.key.class_fingerprint) entry.class_text = known.info.class_text;
    HONE_TRY(cache->Put(entry, Durability::kSynced));
  }
  return cache->Flush();
}

int Main(int argc, char** argv) {
  const std::string what = argc > 2 ? argv[1] : "", directory = argc > 2 ? argv[2] : "";
  Result<void> done = what == "trials"  ? ListTrials(directory)
                      : what == "model" ? Model(directory, argc > 3 ? argv[3] : "")
                      : what == "schedule" && argc == 5
                          ? Reschedule(directory, argv[3], argv[4])
                          : Result<void>(Error{ErrorKind::kInvalid, "wrong usage", "store_tool"});
  if (done) return 0;
  std::cerr << done.error().Text() << '\n';
  return 1;
}

}  // namespace
}  // namespace hone

int main(int argc, char** argv) { return hone::Main(argc, argv); }
