// What `hone rm`, `pin` and `unpin` share.
#pragma once

#include "client/cli/context.h"

namespace hone::cli {

// Does it to every kernel that was named. On disk when this returns.
int EditRecords(Context& context, const Arguments& arguments, EditAction action, const char* done);

}  // namespace hone::cli
