// hone unpin: allow kernels to be refined, replaced and evicted again.
#include "client/cli/command.h"
#include "client/cli/edit.h"

namespace hone::cli {

Command UnpinCommand() {
  return {.name = "unpin",
          .summary = "allow kernels to be refined, replaced and evicted again",
          .details = R"(Example: hone unpin 3f9c)",
          .positionals = {{"FP", "fingerprints' first digits", true, true}},
          .options = {},
          .run = [](Context& context, const Arguments& arguments) {
            return EditRecords(context, arguments, EditAction::kUnpin, "unpinned");
          }};
}

}  // namespace hone::cli
