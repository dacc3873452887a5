#include "daemon/inspect/admin.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "base/generated_code.h"
#include "daemon/inspect/record_facts.h"

namespace hone {

clockid_t CpuClockOfThisThread() {
  clockid_t clock = 0;
  pthread_getcpuclockid(pthread_self(), &clock);
  return clock;
}

// The record for this machine if the kernel has one, its CPU's before its other devices', else for another.
Result<Record> Admin::FindRecord(const std::string& fingerprint_digits) {
  Fingerprint fingerprint = HONE_TRY(cache.Resolve(fingerprint_digits));
  std::vector<Record> records = HONE_TRY(cache.RecordsOf(fingerprint));
  if (records.empty()) {
    return Error{ErrorKind::kNotFound, "there is no record of it; `hone ls` lists those there are", fingerprint_digits};
  }
  for (const ServedDevice& device : path.devices().all()) {
    auto ours =
        std::ranges::find_if(records, [&](const Record& record) { return record.key.target == device.target_text; });
    if (ours != records.end()) return std::move(*ours);
  }
  return std::move(records.front());
}

void Admin::ForgetSoon(std::vector<Imported> stored) {
  loop.Post([this, stored = std::move(stored)] {
    for (const Imported& kernel : stored) forget(kernel.fingerprint);
  });
}

Result<Record> Admin::FindRecordOf(const KernelName& name) {
  if (name.is_fingerprint) return FindRecord(name.kernel);
  const int threads = static_cast<int>(std::min(name.threads, 4096u));
  ResolvedKernel identity = HONE_TRY(path.Identify({.kernel = name.kernel, .target = "", .threads = threads}));
  return FindRecord(identity.key.fingerprint.Hex());
}

std::vector<Fact> Admin::ReasonsFor(const Record& record) const {
  ArtifactState artifact;
  const ServedDevice* device = path.devices().Find(record.key.target);
  artifact.is_ours = device != nullptr;
  artifact.is_current =
      device != nullptr && record.key.code == CodeKey(device->compiler, HONE_ABI_VERSION, device->target);
  const ArtifactCheck check = cache.CheckOf(record);
  artifact.is_checked = check == ArtifactCheck::kHere;
  artifact.is_to_check = check == ArtifactCheck::kTrusted;
  return ReasonsOf(record, artifact);
}

}  // namespace hone
