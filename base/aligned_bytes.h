// Memory for elements that kernels read in vectors: aligned, and of large pages where there is enough of it.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

namespace hone {

struct FreeAligned {
  void operator()(void* memory) const { std::free(memory); }
};
using AlignedBytes = std::unique_ptr<void, FreeAligned>;

// Aligned to 64 bytes, from 2 MiB on to 2 MiB; not written yet. Empty if there is no memory, or for no bytes.
AlignedBytes AllocateAligned(int64_t bytes);

}  // namespace hone
