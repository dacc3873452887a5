// hone rm: forget kernels: their schedules and their code.
#include "client/cli/command.h"
#include "client/cli/edit.h"

namespace hone::cli {

Command RemoveCommand() {
  return {.name = "rm",
          .summary = "forget kernels: their schedules and their code",
          .details = R"(The next request compiles them again.

Example: hone rm 3f9c)",
          .positionals = {{"FP", "fingerprints' first digits", true, true}},
          .options = {},
          .run = [](Context& context, const Arguments& arguments) {
            return EditRecords(context, arguments, EditAction::kRemove, "removed");
          }};
}

}  // namespace hone::cli
