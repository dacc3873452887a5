// hone pin: keep kernels whatever the size of the cache.
#include "client/cli/command.h"
#include "client/cli/edit.h"

namespace hone::cli {

Command PinCommand() {
  return {.name = "pin",
          .summary = "keep kernels whatever the size of the cache",
          .details = R"(Example: hone pin 3f9c)",
          .positionals = {{"FP", "fingerprints' first digits", true, true}},
          .options = {},
          .run = [](Context& context, const Arguments& arguments) {
            return EditRecords(context, arguments, EditAction::kPin, "pinned");
          }};
}

}  // namespace hone::cli
