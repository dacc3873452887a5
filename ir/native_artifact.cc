#include "ir/native_artifact.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/cpu_features.h"
#include "base/elf_check.h"
#include "base/tiles.h"

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

std::optional<Target> WithoutRefusedTiles(const Target& target) {
  if (target.cpu() == nullptr) return std::nullopt;
  CpuTarget cpu = *target.cpu();
  const auto left_out = std::erase_if(cpu.features, [](const std::string& name) { return name.starts_with("amx-"); });
  if (left_out == 0 || MayUseTiles()) return std::nullopt;
  return Target(std::move(cpu));
}

}  // namespace hone
