#include "client/cli/parse_command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <list>
#include <memory>
#include <sstream>

#include "client/cli/print_values.h"
#include "client/cli/terminal.h"
#include "client/cli/text_layout.h"

namespace hone::cli {
namespace {

constexpr const char* kAbout =
    R"(hone: gets tensor kernels from honed, and inspects its cache.

KERNEL is a library operation, such as 'dense(M=1,N=1000,K=512,const=1)+bias', or text in the kernel language. A FILE in
its place is a list (NAME.kernels), one kernel (NAME.hone) or a model (NAME.onnx). FP is a fingerprint, or its first
digits.)";

constexpr const char* kStatuses = "Exit status: 0 success, 1 failure, or failure for some kernels, 2 wrong usage.";

// CLI11 prints options' names in a column of so many characters, and takes its texts as they are.
constexpr size_t kNames = 30;

// As wide as the terminal. Paragraphs are filled; the examples, which come last, keep their lines.
std::string Filled(std::string_view text, size_t indent = 0) {
  constexpr size_t kWidest = 120;
  const size_t columns = std::min(SizeOfTerminal().columns, kWidest);
  const size_t examples = std::min(text.find("Example"), text.size());
  std::string filled, last(text.substr(examples));
  text = text.substr(0, examples);
  while (!text.empty()) {
    const size_t end = std::min(text.find("\n\n"), text.size());
    filled += (filled.empty() ? "" : "\n\n") + Wrap(text.substr(0, end), std::max(columns, indent + 1) - indent, 0);
    text.remove_prefix(std::min(text.size(), end + 2));
  }
  return filled + (filled.empty() || last.empty() ? "" : "\n\n") + last;
}

// A command's summary stands beside its name in the list of commands, and alone above its own help.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_subcommand(const CLI::App* command) const override {
    std::ostringstream line;
    CLI::detail::format_help(line, command->get_name(), Filled(command->get_description(), kNames), column_width_);
    return line.str();
  }
};

bool IsPath(std::string_view value) {
  constexpr std::string_view kPaths[] = {"DIR", "FILE", "KEY", "MODEL", "OTHER", "PATH"};
  return std::ranges::find(kPaths, value) != std::end(kPaths);
}

// As a variable that is not set makes it: taken for "not given", another file than was meant would be used.
void RefuseEmpty(CLI::Option& option) {
  option.check([](const std::string& path) { return path.empty() ? "is empty, wanted a path" : ""; });
}

// Where CLI11 puts what it finds. Lives as long as the parser.
struct Sink {
  std::string name;
  std::vector<std::string> values;
  bool is_flag = false, flag = false;
  CLI::Option* option = nullptr;
};

class Sinks {
 public:
  void Add(CLI::App& app, const Option& option) {
    Sink& sink = sinks_.emplace_back();
    sink.name = option.name;
    const std::string names = option.letter.empty() ? sink.name : std::string(option.letter) + "," + sink.name;
    sink.is_flag = option.value.empty();
    if (sink.is_flag) {
      sink.option = app.add_flag(names, sink.flag, Filled(option.help, kNames));
    } else {
      sink.option = app.add_option(names, sink.values, Filled(option.help, kNames));
      sink.option->type_name(std::string(option.value))->expected(1)->allow_extra_args(false);
      if (IsPath(option.value)) RefuseEmpty(*sink.option);
      if (option.many)
        sink.option->take_all();
      else
        sink.option->take_last();
    }
  }
  void Add(CLI::App& app, const Positional& positional) {
    Sink& sink = sinks_.emplace_back();
    sink.name = positional.name;
    sink.option = app.add_option(sink.name, sink.values, Filled(positional.help, kNames));
    sink.option->type_name("")->expected(positional.many ? -1 : 1)->allow_extra_args(positional.many);
    if (positional.required) sink.option->required();
    if (IsPath(positional.name)) RefuseEmpty(*sink.option);
  }
  Arguments Take() const {
    Arguments arguments;
    for (const Sink& sink : sinks_) {
      const bool is_off = sink.is_flag && !sink.flag;  // --json=false
      if (sink.option->count() > 0 && !is_off) arguments.Set(sink.name, sink.values);
    }
    return arguments;
  }

 private:
  std::list<Sink> sinks_;  // CLI11 keeps their addresses
};

// CLI11 does not say which command it does not know, only that it wants one.
std::string WhatIsWrong(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<CLI::App*> commands = app.get_subcommands();  // those that were named
  if (!commands.empty()) return fmt::format("{}; hone {} --help shows how", error.what(), commands[0]->get_name());
  const std::vector<std::string> unknown = app.remaining();
  if (unknown.empty() || error.get_name() != "RequiredError")
    return fmt::format("{}; hone --help lists what there is", error.what());
  return fmt::format("there is no {} \"{}\"; hone --help lists what there is",
                     unknown[0].starts_with('-') ? "option" : "command", unknown[0]);
}

}  // namespace

std::variant<Parsed, int> ParseCommandLine(int argc, char** argv) {
  CLI::App app(Filled(kAbout), "hone");
  app.footer(Filled(kStatuses));
  app.require_subcommand(1);
  app.formatter(std::make_shared<HelpFormatter>());
  app.get_formatter()->label("SUBCOMMAND", "COMMAND");
  app.fallthrough();
  app.set_version_flag("--version", "hone " HONE_VERSION);
  Sinks globals;
  for (const Option& option : GlobalOptions()) globals.Add(app, option);
  std::vector<std::pair<CLI::App*, Sinks>> commands;
  commands.reserve(Commands().size());
  for (const Command& command : Commands()) {
    CLI::App* parser = app.add_subcommand(std::string(command.name), Filled(command.summary));
    parser->footer(Filled(command.details));
    parser->group("Commands");
    auto& [_, sinks] = commands.emplace_back(parser, Sinks());
    for (const Positional& positional : command.positionals) sinks.Add(*parser, positional);
    for (const Option& option : command.options) sinks.Add(*parser, option);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      app.exit(error);
      return kDone;
    }
    bool json = std::any_of(argv, argv + argc, [](const char* word) { return std::string_view(word) == "--json"; });
    PrintError({ErrorKind::kInvalid, WhatIsWrong(app, error), ""}, json);
    return kWrongUsage;
  }
  for (size_t i = 0; i < commands.size(); ++i) {
    if (commands[i].first->parsed()) return Parsed{&Commands()[i], globals.Take(), commands[i].second.Take()};
  }
  return kWrongUsage;
}

}  // namespace hone::cli
