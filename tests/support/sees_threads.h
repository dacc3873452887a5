// Whether this program is built with ThreadSanitizer, which of a driver's threads sees half.
#pragma once

namespace hone::testing {

inline constexpr bool kSeesThreads =
#if defined(__SANITIZE_THREAD__)
    true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
    true;
#else
    false;
#endif
#else
    false;
#endif

}  // namespace hone::testing
