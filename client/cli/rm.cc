// hone rm: remove kernels from the cache, with their schedules and code.
#include "client/cli/command.h"
#include "client/cli/edit.h"

namespace hone::cli {

Command RemoveCommand() {
  return {.name = "rm",
          .summary = "remove kernels from the cache, with their schedules and code",
          .details = R"(The logs of their trials go, too. The next request for such a kernel compiles it again.

Example: hone rm 3f9c)",
          .positionals = {{"FP", "fingerprints' first digits", true, true}},
          .options = {},
          .run = [](Context& context, const Arguments& arguments) {
            return EditRecords(context, arguments, EditAction::kRemove, "removed");
          }};
}

}  // namespace hone::cli
