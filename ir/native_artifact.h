// Artifacts that a process maps and calls, as CPUs have them: the gate (base/elf_check.h), and what the manifest inside
// says. One function for whoever meets such code: the pool that a builder hands it to, the runner, the client.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/result.h"
#include "ir/manifest.h"
#include "ir/target.h"

namespace hone {

inline constexpr const char* kEntryName = "hone_entry";  // hone_entry_fn
inline constexpr const char* kPackName = "hone_pack";    // hone_pack_fn

struct NativeExpectations {
  uint64_t size = 0;             // exact; 0: not known
  std::string_view digest = {};  // BLAKE2b-256, 32 raw bytes; "": not known
  bool other_machine = false;    // for shipping: need not run here. Never map such a one
};

// The manifest of an artifact that may be mapped here, or what is wrong with it: kCorrupt (not what hone emits),
// kInvalid (size or digest differ), kUnsupported (this processor lacks what its target needs, or it is no CPU's).
Result<Manifest> OpenNativeArtifact(std::span<const std::byte> bytes, const NativeExpectations& expectations = {});

// The target of a CPU without AMX, if it has that and Linux refuses it to this process: what to ask for instead.
// nullopt: there is nothing to leave out. Asks Linux (base/tiles.h).
std::optional<Target> WithoutRefusedTiles(const Target& target);

}  // namespace hone
