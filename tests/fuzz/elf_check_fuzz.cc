// The gate for artifacts: whatever the bytes, they are refused or accepted without reading outside them; what is
// accepted has its manifest inside the bytes. The corpus holds real artifacts, which mutation then damages.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "base/elf_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  hone::Result<hone::ArtifactLayout> layout = hone::CheckArtifact(bytes, {.other_machine = true});
  if (!layout) {
    HONE_CHECK(!layout.error().message.empty());
    return 0;
  }
  HONE_CHECK(!layout->manifest.empty());
  HONE_CHECK(layout->manifest.data() >= bytes.data());
  HONE_CHECK(layout->manifest.data() + layout->manifest.size() <= bytes.data() + bytes.size());
  return 0;
}
