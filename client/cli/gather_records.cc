#include "client/cli/gather_records.h"

#include <span>
#include <utility>

#include "base/bytes.h"

namespace hone::cli {

Result<GatheredRecords> GatherRecords(Context& context, const ExportRequest& request) {
  Channel channel = HONE_TRY(context.Ask());
  const uint64_t id = HONE_TRY(channel.Ask(request, Context::Patience()));
  GatheredRecords gathered;
  for (bool more = true; more;) {
    ExportReply part = HONE_TRY(channel.Await<ExportReply>(id, Context::Patience()));
    more = part.more;
    for (ExportRow& row : part.rows) {
      BundleEntry entry{HONE_TRY(DecodeRecord(row.record)), std::move(row.class_text), row.calls};
      if (entry.record.artifact_digest) {
        const std::span<const std::byte> code = AsBytes(row.artifact);
        if (Hash256(code) != *entry.record.artifact_digest)
          return Error{ErrorKind::kCorrupt, "the code that honed sent is not the record's", entry.record.label};
        gathered.code.emplace(*entry.record.artifact_digest, std::vector(code.begin(), code.end()));
      }
      gathered.entries.push_back(std::move(entry));
    }
  }
  return gathered;
}

}  // namespace hone::cli
