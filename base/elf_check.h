// The gate that every artifact passes before it is mapped for execution: in the daemon when a builder hands it over, in
// the runner, and in the client when it arrives from the daemon or from the disk cache. Refuses everything that hone's
// own code generator does not emit, so what is left has no way to run code at load time or to reach other libraries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace hone {

inline constexpr std::string_view kEntrySymbolName = "hone_entry";
inline constexpr std::string_view kPackSymbolName = "hone_pack";
inline constexpr std::string_view kManifestSymbolName = "hone_manifest";

struct ArtifactExpectations {
  uint64_t size = 0;           // exact; 0: not known
  std::string digest = {};     // BLAKE2b-256, 32 raw bytes; "": not known
  bool other_machine = false;  // built for shipping: any architecture that we emit code for. Never load such a one
};

// Where things are in an accepted artifact, as offsets into its bytes.
struct ArtifactLayout {
  std::span<const std::byte> manifest;  // of the symbol hone_manifest; points into the checked bytes
  bool has_pack = false;                // exports hone_pack
};

// Accepts `bytes` as an artifact for this machine, or says what is wrong. kCorrupt: not the ELF file that hone emits
// (the message names the first offence); kInvalid: digest or size differ. What instructions the processor has to know
// is another question: CheckProcessor in base/cpu_features.h. Reads nothing outside `bytes`, whatever they hold.
// Thread-safe.
Result<ArtifactLayout> CheckArtifact(std::span<const std::byte> bytes, const ArtifactExpectations& expectations);

}  // namespace hone
