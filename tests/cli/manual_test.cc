#include "client/cli/manual.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>

namespace hone::cli {
namespace {

// As roff prints a hyphen.
std::string Hyphens(std::string_view text) {
  std::string escaped;
  for (char c : text) escaped += c == '-' ? std::string("\\-") : std::string(1, c);
  return escaped;
}

TEST(Manual, HasEveryCommandWithItsArgumentsAndOptions) {
  const std::string manual = ManualOf(Commands());
  for (const Command& command : Commands()) {
    const size_t begin = manual.find(".TP\n\\fB" + std::string(command.name) + "\\fR");
    ASSERT_NE(begin, std::string::npos) << command.name;
    const std::string entry = manual.substr(begin, manual.find("\n.RE\n", begin) - begin);
    for (const Positional& positional : command.positionals)
      EXPECT_NE(entry.find("\\fI" + std::string(positional.name) + "\\fR"), std::string::npos) << positional.name;
    for (const Option& option : command.options) {
      EXPECT_NE(entry.find("\\fB" + Hyphens(option.name) + "\\fR"), std::string::npos) << option.name;
      EXPECT_NE(entry.find(Hyphens(option.help)), std::string::npos) << option.help;
    }
  }
}

TEST(Manual, HasNoRequestsButItsOwn) {
  const std::set<std::string> known = {".TP", ".RS", ".RE", ".PP", ".nf", ".fi"};
  std::istringstream lines(ManualOf(Commands()));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with('.') && !line.starts_with('\'')) continue;
    EXPECT_TRUE(known.contains(line)) << line;
  }
}

TEST(Manual, PrintsTextAsItIs) {
  const Command command{.name = "try",
                        .summary = "a summary",
                        .details = ".dots and 'quotes\n'at the start, a \\ within\n\nExample: hone try -x",
                        .positionals = {},
                        .options = {},
                        .run = nullptr};
  EXPECT_EQ(ManualOf({command}),
            ".TP\n\\fBtry\\fR\nA summary.\n.RS\n.PP\n\\&.dots and 'quotes\n\\&'at the start, a \\e within\n"
            ".PP\n.nf\nExample: hone try \\-x\n.fi\n.RE\n");
}

}  // namespace
}  // namespace hone::cli
