// Reads the whole cache and says what is sound. What is not is set aside, as if a lookup had met it.
#include <fmt/format.h>

#include <algorithm>

#include "cache/cache_impl.h"

namespace hone {
namespace {

constexpr size_t kMostFindings = 100;

}  // namespace

Result<VerifyReport> CacheImpl::Verify(std::stop_token stop) {
  VerifyReport report;
  auto add = [&](std::string text) {
    ++report.damaged;
    if (report.findings.size() < kMostFindings) report.findings.push_back(std::move(text));
  };
  {
    MutexLock lock(notes_mutex_);
    report.findings = losses_.unseen;
    report.losses = losses_.unseen.size();
  }
  uint64_t gaps = 0;
  store_->Scan(
      Family::kRecords, "",
      [&](std::string_view key, std::string_view value, CacheLayer layer) {
        if (stop.stop_requested()) return Take::kStop;
        Opened opened = Open(Family::kRecords, key, value, layer);
        if (opened.damage) add(fmt::format("record {}: {}", HexOf(key), opened.damage->message));
        if (!opened.record) return opened.take;
        const Record& record = *opened.record;
        ++report.records;
        if (!record.artifact_digest)
          ++report.without_artifact;
        else if (Result<std::optional<std::vector<std::byte>>> code = Artifact(record); code && *code)
          ++report.artifacts;
        else
          ++report.damaged;  // its record names it, and stays
        return opened.take;
      },
      &gaps);
  if (gaps > 0) add(fmt::format("{} stretches of records could not be read", gaps));
  if (report.losses > 0 && !options_.inspect && !stop.stop_requested()) {
    {
      MutexLock lock(notes_mutex_);
      losses_.unseen.erase(losses_.unseen.begin(), losses_.unseen.begin() + static_cast<ptrdiff_t>(std::min<uint64_t>(
                                                                                report.losses, losses_.unseen.size())));
    }
    WriteLosses();
  }
  return report;
}

}  // namespace hone
