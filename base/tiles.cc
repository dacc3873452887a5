#include "base/tiles.h"

#include "base/cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#endif

namespace hone {

#if defined(__x86_64__)

bool MayUseTiles() {
  // asm/prctl.h of Linux 5.16, written out: older headers lack it.
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  static const bool may = CpuHasFeature("amx-tile") && ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return may;
}

bool HasTilesInUse() {
  // Intel SDM volume 1, 13.6: XGETBV of 1 tells which state is not in its initial form, where CPUID.(0DH,1):EAX[2].
  constexpr uint32_t kTileState = 3u << 17;
  static const bool can_tell = [] {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return CpuHasFeature("amx-tile") && __get_cpuid_count(0xd, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> 2 & 1) != 0;
  }();
  if (!can_tell) return false;
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
  return (low & kTileState) != 0;
}

#else

bool MayUseTiles() { return false; }
bool HasTilesInUse() { return false; }

#endif

}  // namespace hone
