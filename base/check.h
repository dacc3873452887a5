// HONE_CHECK: our own bugs trap, in release too, with the place and the condition.
#pragma once

namespace hone::internal {
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);
}

#define HONE_CHECK(condition) \
  (__builtin_expect(!!(condition), 1) ? (void)0 : ::hone::internal::CheckFailed(__FILE__, __LINE__, #condition))
