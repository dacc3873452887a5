#include "ir/native_artifact.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/cpu_features.h"
#include "base/elf_check.h"
#include "ir/target.h"

namespace hone {

static_assert(kEntryName == kEntrySymbolName && kPackName == kPackSymbolName);

Result<Manifest> OpenNativeArtifact(std::span<const std::byte> bytes, const NativeExpectations& wanted) {
  ArtifactExpectations expectations;
  expectations.size = wanted.size;
  expectations.digest = wanted.digest;
  expectations.other_machine = wanted.other_machine;
  const ArtifactLayout layout = HONE_TRY(CheckArtifact(bytes, expectations));
  Manifest manifest = HONE_TRY(DecodeManifest(layout.manifest));
  const Target target = HONE_TRY(ParseTarget(manifest.target));
  if (!target.cpu())
    return Error{ErrorKind::kUnsupported,
                 fmt::format("the code is for a device of kind \"{}\", not for a CPU", target.kind()), "artifact"};
  // Now that the manifest says what the code needs of the processor.
  if (!wanted.other_machine) HONE_TRY(CheckProcessor(IsaName(target.cpu()->isa), target.cpu()->features));
  const bool packs = std::any_of(manifest.operands.begin(), manifest.operands.end(),
                                 [](const ManifestOperand& operand) { return operand.packed_bytes > 0; });
  if (packs && !layout.has_pack)
    return Error{ErrorKind::kInvalid, "the artifact has packed operands and no hone_pack", ""};
  return manifest;
}

}  // namespace hone
