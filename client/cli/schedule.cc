// hone schedule: print a kernel's schedule.
#include "client/cli/ask_for_text.h"
#include "client/cli/command.h"

namespace hone::cli {

Command ScheduleCommand() {
  return {.name = "schedule",
          .summary = "print a kernel's schedule",
          .details = R"(Examples:
  hone schedule 3f9c
  hone schedule 'matmul(M=512,N=512,K=512)'
  hone schedule 3f9c --target opencl:0)",
          .positionals = {{"KERNEL", "a fingerprint's first digits, a kernel or NAME.hone"}},
          .options = {kThreadsOption, kTargetOption},
          .run = [](Context& context, const Arguments& arguments) {
            return PrintKernelText(context, arguments, TextKind::kSchedule, "schedule");
          }};
}

}  // namespace hone::cli
