// hone pin: keep kernels as they are.
#include "client/cli/command.h"
#include "client/cli/edit.h"

namespace hone::cli {

Command PinCommand() {
  return {
      .name = "pin",
      .summary = "keep kernels as they are: not refined, not replaced, not evicted",
      .details = R"(Neither idle time nor tune replaces their code, the cache does not evict it, and programs that hold
it see no change.

Example: hone pin 3f9c)",
      .positionals = {{"FP", "fingerprints' first digits", true, true}},
      .options = {},
      .run = [](Context& context, const Arguments& arguments) {
        return EditRecords(context, arguments, EditAction::kPin, "pinned");
      }};
}

}  // namespace hone::cli
