// What the C interfaces (hone.h, hone_network.h) have in common: translation of structures and errors, and no exception
// that leaves them.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <string>

#include "base/result.h"
#include "client/api/client.h"
#include "client/hone.h"

namespace hone {

// Cut at `size` bytes, but not within a UTF-8 sequence.
inline void CopyText(const std::string& text, char* out, size_t size) {
  size_t length = std::min(text.size(), size - 1);
  while (length > 0 && length < text.size() && (static_cast<unsigned char>(text[length]) & 0xc0) == 0x80) --length;
  std::memcpy(out, text.data(), length);
  out[length] = '\0';
}

inline int Report(const Error& from, hone_error* error, uint32_t retry_after_ms = 0) {
  if (error != nullptr && error->struct_size >= sizeof(hone_error)) {
    error->kind = static_cast<int32_t>(from.kind);
    error->retry_after_ms = retry_after_ms;
    CopyText(from.message, error->message, sizeof error->message);
    CopyText(from.where, error->where, sizeof error->where);
  }
  return static_cast<int>(from.kind);
}

// The caller's options as far as it knew them, defaults for the rest: programs built against an older header pass a
// shorter structure, newer ones a longer one, whose end must then be zero.
template <typename Options>
Result<Options> ReadOptions(const Options* from, const Options& defaults, const char* name) {
  Options options = defaults;
  if (from == nullptr) return options;
  uint32_t size = from->struct_size;
  if (size < sizeof(uint32_t)) {
    return Error{ErrorKind::kInvalid, "struct_size is not set; initialise with the macro", name};
  }
  auto* bytes = reinterpret_cast<const unsigned char*>(from);
  for (size_t i = sizeof(Options); i < size; ++i) {
    if (bytes[i] != 0) return Error{ErrorKind::kUnsupported, "options that this version of libhone lacks", name};
  }
  std::memcpy(&options, from, std::min<size_t>(size, sizeof(Options)));
  return options;
}

// Runs `body`, which returns a Result; what libraries throw (memory, above all) becomes an error.
template <typename Body>
auto Guard(const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Error{ErrorKind::kLimit, "out of memory", "libhone"};
  } catch (const std::exception& exception) { return Error{ErrorKind::kInternal, exception.what(), "libhone"}; }
}

inline Result<ClientOptions> ClientOptionsOf(const hone_connect_options* given) {
  hone_connect_options options =
      HONE_TRY(ReadOptions<hone_connect_options>(given, HONE_CONNECT_OPTIONS_INIT, "hone_connect_options"));
  if (options.threads < 0) return Error{ErrorKind::kInvalid, "threads are not negative", "hone_connect_options"};
  if (const uint32_t unknown = options.flags & ~(HONE_START_DAEMON | HONE_NO_DISK_CACHE); unknown != 0)
    return Error{ErrorKind::kInvalid, fmt::format("flags {:#x} mean nothing to this libhone", unknown),
                 "hone_connect_options"};
  ClientOptions to;
  if (options.socket != nullptr) to.socket = options.socket;
  if (options.disk_cache != nullptr) to.disk_cache = options.disk_cache;
  to.use_disk_cache = !(options.flags & HONE_NO_DISK_CACHE);
  to.start_daemon = options.flags & HONE_START_DAEMON;
  to.threads.threads = options.threads;
  if (options.spin_us != 0) to.threads.spin = std::chrono::microseconds(std::max(0, options.spin_us));
  if (options.parallel_for != nullptr) {
    if (options.threads < 1) {
      return Error{ErrorKind::kInvalid, "parallel_for needs `threads`: how many workers it has",
                   "hone_connect_options"};
    }
    to.application = {nullptr, options.pool, options.parallel_for, options.threads};
  }
  return to;
}

inline Result<GetOptions> GetOptionsOf(const hone_get_options* given) {
  hone_get_options options = HONE_TRY(ReadOptions<hone_get_options>(given, HONE_GET_OPTIONS_INIT, "hone_get_options"));
  if (options.threads < 0 || options.budget_us < 0 || options.deadline_us < 0) {
    return Error{ErrorKind::kInvalid, "threads, budget_us and deadline_us are not negative", "hone_get_options"};
  }
  GetOptions to;
  to.threads = options.threads;
  to.budget = std::chrono::microseconds(options.budget_us);
  // A year is for ever, and adds to a clock without overflow.
  constexpr int64_t kYear = int64_t{365} * 24 * 3600 * 1'000'000;
  if (options.deadline_us > 0) to.deadline = std::chrono::microseconds(std::min(options.deadline_us, kYear));
  to.frozen = options.frozen != 0;
  to.no_compile = options.no_compile != 0;
  return to;
}

}  // namespace hone
