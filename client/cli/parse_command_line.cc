#include "client/cli/parse_command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <list>

#include "client/cli/print_values.h"

namespace hone::cli {
namespace {

constexpr const char* kAbout =
    R"(hone: gets tensor kernels from honed, and inspects its cache.

KERNEL is a library operation, such as 'dense(M=1,N=1000,K=512,const=1)+bias', or text in the kernel language. A FILE in
its place is a list (NAME.kernels), one kernel (NAME.hone) or a model (NAME.onnx). FP is a fingerprint, or its first
digits.)";

constexpr const char* kStatuses = "Exit status: 0 success, 1 failure, or failure for some kernels, 2 wrong usage.";

// Where CLI11 puts what it finds. Lives as long as the parser.
struct Sink {
  std::string name;
  std::vector<std::string> values;
  bool flag = false;
  CLI::Option* option = nullptr;
};

class Sinks {
 public:
  void Add(CLI::App& app, const Option& option) {
    Sink& sink = sinks_.emplace_back();
    sink.name = option.name;
    const std::string names = option.letter.empty() ? sink.name : std::string(option.letter) + "," + sink.name;
    if (option.value.empty()) {
      sink.option = app.add_flag(names, sink.flag, std::string(option.help));
    } else {
      sink.option = app.add_option(names, sink.values, std::string(option.help));
      sink.option->type_name(std::string(option.value))->expected(1)->allow_extra_args(false);
      if (option.many)
        sink.option->take_all();
      else
        sink.option->take_last();
    }
  }
  void Add(CLI::App& app, const Positional& positional) {
    Sink& sink = sinks_.emplace_back();
    sink.name = positional.name;
    sink.option = app.add_option(sink.name, sink.values, std::string(positional.help));
    sink.option->type_name("")->expected(positional.many ? -1 : 1)->allow_extra_args(positional.many);
    if (positional.required) sink.option->required();
  }
  Arguments Take() const {
    Arguments arguments;
    for (const Sink& sink : sinks_) {
      if (sink.option->count() > 0) arguments.Set(sink.name, sink.values);
    }
    return arguments;
  }

 private:
  std::list<Sink> sinks_;  // CLI11 keeps their addresses
};

}  // namespace

std::variant<Parsed, int> ParseCommandLine(int argc, char** argv) {
  CLI::App app(kAbout, "hone");
  app.footer(kStatuses);
  app.require_subcommand(1);
  app.fallthrough();
  app.set_version_flag("--version", "hone " HONE_VERSION);
  Sinks globals;
  for (const Option& option : GlobalOptions()) globals.Add(app, option);
  std::vector<std::pair<CLI::App*, Sinks>> commands;
  commands.reserve(Commands().size());
  for (const Command& command : Commands()) {
    CLI::App* parser = app.add_subcommand(std::string(command.name), std::string(command.summary));
    parser->footer(std::string(command.details));
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
    PrintError({ErrorKind::kInvalid, std::string(error.what()) + "; hone --help lists what there is", ""}, json);
    return kWrongUsage;
  }
  for (size_t i = 0; i < commands.size(); ++i) {
    if (commands[i].first->parsed()) return Parsed{&Commands()[i], globals.Take(), commands[i].second.Take()};
  }
  return kWrongUsage;
}

}  // namespace hone::cli
