// A system that has no thread to give: what wants one hears so, as where a user or a control group may have no more.
#pragma once

#include <pthread.h>

namespace hone::testing {

// While it lives, no thread can be started in this process: each would have a stack larger than all addresses.
class NoThreads {
 public:
  NoThreads() {
    ::pthread_getattr_default_np(&before_);
    pthread_attr_t endless;
    ::pthread_attr_init(&endless);
    ::pthread_attr_setstacksize(&endless, size_t{1} << 60);
    ::pthread_setattr_default_np(&endless);
    ::pthread_attr_destroy(&endless);
  }
  ~NoThreads() {
    ::pthread_setattr_default_np(&before_);
    ::pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_;
};

}  // namespace hone::testing
