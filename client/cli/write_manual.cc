// Writes hone's manual when it is built: standard input, with the commands in place of @COMMANDS@.
#include <iostream>
#include <string>

#include "client/cli/manual.h"

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "@COMMANDS@") {
      std::cout << hone::cli::ManualOf(hone::cli::Commands());
    } else {
      std::cout << line << "\n";
    }
  }
  return std::cout.flush() ? 0 : 1;
}
