// hone code: print a kernel's generated code: of processors LLVM IR and assembly, of GPUs the source of their launches.
#include "client/cli/ask_for_text.h"
#include "client/cli/command.h"

namespace hone::cli {

Command CodeCommand() {
  return {
      .name = "code",
      .summary = "print a kernel's generated code: LLVM IR and assembly, or a GPU's source",
      .details =
          R"(The builder generates the code again from the schedule. For a GPU, prints the schedule, the loop program and the source:
OpenCL C, GLSL or CUDA C.

Examples:
  hone code 3f9c
  hone code jacobi.hone
  hone code 'softmax(M=64,N=256)' --target cuda:sm_90)",
      .positionals = {{"KERNEL", "a fingerprint's first digits, a kernel or NAME.hone"}},
      .options = {kThreadsOption, kTargetOption},
      .run = [](Context& context, const Arguments& arguments) {
        return PrintKernelText(context, arguments, TextKind::kCode, "code");
      }};
}

}  // namespace hone::cli
