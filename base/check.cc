#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace hone::internal {

void CheckFailed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "hone: internal error at %s:%d: %s does not hold\n", file, line, condition);
  std::fflush(stderr);
  std::abort();
}

}  // namespace hone::internal
