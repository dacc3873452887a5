// hone: the command line.
#include <cstdio>
#include <exception>

#include "client/cli/command.h"
#include "client/cli/context.h"
#include "client/cli/parse_command_line.h"
#include "client/cli/print_values.h"

int main(int argc, char** argv) {
  using namespace hone::cli;
  CleanUpOnInterrupt();
  auto parsed = ParseCommandLine(argc, argv);
  if (const int* status = std::get_if<int>(&parsed)) return *status;
  const Parsed& given = std::get<Parsed>(parsed);
  try {
    Context context(given.globals);
    return given.command->run(context, given.arguments);
  } catch (const std::exception& exception) {  // out of memory, most likely
    std::fprintf(stderr, "hone: %s\n", exception.what());
    return kFailed;
  }
}
