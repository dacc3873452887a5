#include "client/api/linker_use.h"

#include <chrono>
#include <thread>

namespace hone {

void LinkerUse::Close() {
  constexpr std::chrono::microseconds kPause{100};
  constexpr int kMostPauses = 2'000;
  door_.Lock();
  for (int i = 0; i < kMostPauses && users_ != 0; ++i) std::this_thread::sleep_for(kPause);
}

}  // namespace hone
