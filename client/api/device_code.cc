#include "client/api/device_code.h"

#include "base/bytes.h"
#include "base/hash.h"
#include "ir/language/canonical.h"
#include "ir/target.h"

namespace hone {

bool IsForDevice(const Served& served) { return KindOfTarget(served.reply.target) != kCpuKind; }

Result<DeviceArtifact> OpenDeviceCode(const Served& served) {
  return OpenDeviceCode(served.artifact, served.reply, served.canonical);
}

Result<DeviceArtifact> OpenDeviceCode(const SealedMemfd& file, const GetReply& reply, std::string_view canonical) {
  const ReadOnlyMapping mapping = HONE_TRY(file.Map());
  const Digest256 digest = Hash256(mapping.bytes());
  if (AsText(std::as_bytes(std::span(digest))) != reply.digest)
    return Error{ErrorKind::kCorrupt, "the code is not what honed announced", "artifact"};
  DeviceArtifact artifact = HONE_TRY(DecodeDeviceArtifact(mapping.bytes(), reply.size));
  if (!canonical.empty() && !SameButThreads(canonical, artifact.manifest.kernel))
    return Error{ErrorKind::kCorrupt, "the code is another kernel's", "artifact"};
  return artifact;
}

}  // namespace hone
