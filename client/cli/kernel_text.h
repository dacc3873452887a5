// What `hone schedule` and `hone code` share.
#pragma once

#include <string>

#include "client/cli/context.h"

namespace hone::cli {

// Prints the text of a kernel named by fingerprint or in full; one that is not in the cache is asked for first.
// `field`: its name in JSON.
int PrintKernelText(Context& context, const std::string& argument, TextKind what, const char* field);

}  // namespace hone::cli
