// hone: the command line.
#include <cstdio>
#include <exception>

#include "base/standard_files.h"
#include "client/cli/command.h"
#include "client/cli/context.h"
#include "client/cli/parse_command_line.h"
#include "client/cli/print_values.h"

namespace {

// A command whose output did not arrive has failed, whatever it did.
int Ended(int status) {
  using namespace hone::cli;
  hone::Result<void> printed = FinishPrinting();
  if (printed) return status;
  PrintError(printed.error(), false);
  return status == kDone ? kFailed : status;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace hone::cli;
  hone::OpenStandardFiles();
  CleanUpOnInterrupt();
  auto parsed = ParseCommandLine(argc, argv);
  if (const int* status = std::get_if<int>(&parsed)) return Ended(*status);
  const Parsed& given = std::get<Parsed>(parsed);
  try {
    Context context(given.globals);
    return Ended(given.command->run(context, given.arguments));
  } catch (const std::exception& exception) {  // out of memory, most likely
    std::fprintf(stderr, "hone: %s\n", exception.what());
    return kFailed;
  }
}
