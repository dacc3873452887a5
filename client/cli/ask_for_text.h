// What `hone schedule` and `hone code` share.
#pragma once

#include <string>
#include <type_traits>

#include "client/cli/context.h"

namespace hone::cli {

// Has a kernel compiled and kept, if it is not yet.
Result<void> FetchFirst(Context& context, const NamedKernel& kernel, int threads, const std::string& target);

// Prints the text of the kernel that KERNEL, --threads and --target name, as CallForKernel does. `field`: its name in
// JSON.
int PrintKernelText(Context& context, const Arguments& arguments, TextKind what, const char* field);

// --threads beside KERNEL, 0 if not given. Errors are of wrong usage: no such number, or KERNEL is a fingerprint.
Result<int> ReadThreadsOfKernel(const Arguments& arguments);

// Asks about the kernel that `argument`, a fingerprint or written in full, and `threads` name; one that is not in the
// cache is asked for first, for `target` if that is not empty. `make`: the request.
template <typename Make, typename Reply = ReplyTo<std::invoke_result_t<Make, KernelName>>>
Result<Reply> CallForKernel(Context& context, const std::string& argument, int threads, const Make& make,
                            const std::string& target = "") {
  if (IsFingerprint(argument)) return context.Call(make(KernelName{argument, true}));
  NamedKernel kernel = HONE_TRY(ReadKernel(argument));
  const auto request = make(KernelName{kernel.text, false, static_cast<uint32_t>(threads)});
  Result<Reply> reply = context.Call(request);
  if (!reply && reply.error().kind == ErrorKind::kNotFound) {
    HONE_TRY(FetchFirst(context, kernel, threads, target));
    reply = context.Call(request);
  }
  if (!reply) return AtPlace(reply.error(), kernel);
  return reply;
}

}  // namespace hone::cli
