// hone code: print a kernel's generated code, as LLVM IR and as assembly.
#include "client/cli/ask_for_text.h"
#include "client/cli/command.h"

namespace hone::cli {

Command CodeCommand() {
  return {.name = "code",
          .summary = "print a kernel's generated code: LLVM IR, then assembly",
          .details = R"(The builder generates the code again from the schedule.

Examples:
  hone code 3f9c
  hone code jacobi.hone)",
          .positionals = {{"KERNEL", "a fingerprint's first digits, a kernel or NAME.hone"}},
          .options = {kThreadsOption},
          .run = [](Context& context, const Arguments& arguments) {
            return PrintKernelText(context, arguments, TextKind::kCode, "code");
          }};
}

}  // namespace hone::cli
