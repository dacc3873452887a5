// What `hone schedule` and `hone code` share.
#pragma once

#include <string>

#include "client/cli/context.h"

namespace hone::cli {

// Has a kernel compiled and kept, if it is not yet.
Result<void> FetchFirst(Context& context, const NamedKernel& kernel);

// Prints the text of a kernel named by fingerprint or in full; one that is not in the cache is asked for first.
// `field`: its name in JSON.
int PrintKernelText(Context& context, const std::string& argument, TextKind what, const char* field);

// Asks about a kernel that is named by fingerprint or in full; one that is not in the cache is asked for first.
// `make`: the request of a name and whether it is a fingerprint.
template <typename Reply, typename Make>
Result<Reply> CallForKernel(Context& context, const std::string& argument, const Make& make) {
  if (IsFingerprint(argument)) return context.Call<Reply>(make(argument, true));
  NamedKernel kernel = HONE_TRY(ReadKernel(argument));
  const auto request = make(kernel.text, false);
  Result<Reply> reply = context.Call<Reply>(request);
  if (!reply && reply.error().kind == ErrorKind::kNotFound) {
    HONE_TRY(FetchFirst(context, kernel));
    reply = context.Call<Reply>(request);
  }
  if (!reply) return AtPlace(reply.error(), kernel);
  return reply;
}

}  // namespace hone::cli
