#include "daemon/serve/get_ready.h"

#include <optional>
#include <string>

#include "daemon/serve/devices.h"

namespace hone {

void GetReady::Add(const std::vector<Imported>& kernels) {
  for (const Imported& kernel : kernels) waiting_.push(kernel);
  metrics_.imports_waiting = waiting_.size();
  if (!is_at_work_) Next();
}

void GetReady::Next() {
  is_at_work_ = !waiting_.empty();
  if (!is_at_work_) return;
  const Imported next = waiting_.top();
  waiting_.pop();
  metrics_.imports_waiting = waiting_.size();
  misses_.Prepare(
      [this, next](const Devices& devices) -> std::optional<KernelRequest> {
        Result<std::vector<Record>> records = cache_.RecordsOf(next.fingerprint);
        if (!records || devices.Find(next.target) == nullptr) return std::nullopt;
        for (const Record& record : *records)
          if (record.origin == Origin::kImported && record.key.target == next.target)
            return KernelRequest{record.key.canonical, record.key.target};
        return std::nullopt;
      },
      [this] { Next(); });
}

}  // namespace hone
