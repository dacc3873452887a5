// A process that has no descriptor left, for as long as this lives. What has one keeps it. Sanitizers want some for
// themselves: they take objects that they look at meanwhile for broken ones.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include "base/check.h"

namespace hone::testing {

class NoFreeDescriptor {
 public:
  NoFreeDescriptor() {
    HONE_CHECK(getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const int lowest = dup(STDIN_FILENO);
    HONE_CHECK(lowest >= 0 && close(lowest) == 0);
    const rlimit none{static_cast<rlim_t>(lowest), before_.rlim_max};
    HONE_CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
  }
  ~NoFreeDescriptor() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoFreeDescriptor(const NoFreeDescriptor&) = delete;
  NoFreeDescriptor& operator=(const NoFreeDescriptor&) = delete;

 private:
  rlimit before_{};
};

}  // namespace hone::testing
