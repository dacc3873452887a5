// AMX in software, for machines without it: its instructions raise SIGILL there, and a handler does what the processor
// would (Intel SDM volume 2), so that generated code itself is run, byte for byte. Slow: for small kernels.
#pragma once

#include <cstdint>

namespace hone {

// From now on this process and what it forks has tiles. False where it cannot: another architecture, or no AVX-512,
// which the code beside them uses. Where the processor has AMX itself, that is asked for instead.
bool ProvideTiles();

struct TileCounts {
  int64_t configured = 0, released = 0, multiplied = 0;
};
// Of this process, in software; zeros where the processor does it.
TileCounts SoftTileCounts();

}  // namespace hone
