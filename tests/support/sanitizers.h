// Which sanitizers this program is built with.
#pragma once

namespace hone::testing {

// ThreadSanitizer, which of a driver's threads sees half.
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

// AddressSanitizer, which handles stray accesses and ends the process.
inline constexpr bool kSeesAddresses =
#if defined(__SANITIZE_ADDRESS__)
    true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
    true;
#else
    false;
#endif
#else
    false;
#endif

}  // namespace hone::testing
