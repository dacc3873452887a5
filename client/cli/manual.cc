#include "client/cli/manual.h"

#include <cctype>
#include <string_view>

namespace hone::cli {
namespace {

// So that roff prints it as it is: hyphens that can be copied, no escapes, no requests.
std::string Escaped(std::string_view text) {
  std::string escaped;
  bool at_start = true;
  for (char c : text) {
    if (at_start && (c == '.' || c == '\'')) escaped += "\\&";
    if (c == '\\') {
      escaped += "\\e";
    } else if (c == '-') {
      escaped += "\\-";
    } else {
      escaped += c;
    }
    at_start = c == '\n';
  }
  return escaped;
}

std::string Bold(std::string_view text) { return "\\fB" + Escaped(text) + "\\fR"; }
std::string Italic(std::string_view text) { return "\\fI" + Escaped(text) + "\\fR"; }

std::string NamesOf(const Option& option) {
  std::string names = Bold(option.name);
  if (!option.letter.empty()) names = Bold(option.letter) + ", " + names;
  return option.value.empty() ? names : names + " " + Italic(option.value);
}

std::string Synopsis(const Command& command) {
  std::string line = Bold(command.name);
  for (const Positional& positional : command.positionals) {
    const std::string name = Italic(positional.name) + (positional.many ? "..." : "");
    line += positional.required ? " " + name : " [" + name + "]";
  }
  for (const Option& option : command.options) line += " [" + NamesOf(option) + "]";
  return line;
}

std::string Item(const std::string& name, std::string_view help) {
  return ".TP\n" + name + "\n" + Escaped(help) + "\n";
}

// The paragraphs up to the examples are filled; the examples keep their lines.
std::string Details(std::string_view details) {
  const size_t examples = details.find("Example");
  std::string_view text = details.substr(0, examples);
  while (text.ends_with('\n')) text.remove_suffix(1);
  std::string roff;
  if (!text.empty()) roff += ".PP\n" + Escaped(text) + "\n";
  if (examples != std::string_view::npos) roff += ".PP\n.nf\n" + Escaped(details.substr(examples)) + "\n.fi\n";
  return roff;
}

}  // namespace

std::string ManualOf(const std::vector<Command>& commands) {
  std::string roff;
  for (const Command& command : commands) {
    std::string summary(command.summary);
    summary[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(summary[0])));
    roff += ".TP\n" + Synopsis(command) + "\n" + Escaped(summary) + ".\n.RS\n" + Details(command.details);
    for (const Positional& positional : command.positionals) roff += Item(Italic(positional.name), positional.help);
    for (const Option& option : command.options) roff += Item(NamesOf(option), option.help);
    roff += ".RE\n";
  }
  return roff;
}

}  // namespace hone::cli
