// hone completion: the script that completes command lines, made from the same tables as the help.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <set>

#include "client/cli/command.h"
#include "client/cli/context.h"

namespace hone::cli {
namespace {

std::string Words(const std::vector<Option>& options) {
  std::string words;
  for (const Option& option : options) words += " " + std::string(option.name);
  return words;
}

// What bash is to offer where an operand is wanted: "kernels" for a kernel or what has some in it, "files" for any
// file.
std::string_view OperandsOf(const Command& command) {
  for (const Positional& positional : command.positionals) {
    if (positional.name == "KERNEL") return "kernels";
    if (positional.name == "FILE" || positional.name == "MODEL") return "files";
  }
  return "";
}

// The names of all options whose value is one of these, as a pattern of bash's.
std::string Pattern(std::initializer_list<std::string_view> values) {
  std::set<std::string_view> names;
  const auto add = [&](const std::vector<Option>& options) {
    for (const Option& option : options) {
      if (std::find(values.begin(), values.end(), option.value) == values.end()) continue;
      names.insert(option.name);
      if (!option.letter.empty()) names.insert(option.letter);
    }
  };
  add(GlobalOptions());
  for (const Command& command : Commands()) add(command.options);
  return fmt::format("{}", fmt::join(names, "|"));
}

std::string Bash() {
  std::string names, cases;
  for (const Command& command : Commands()) {
    names += " " + std::string(command.name);
    cases += "    " + std::string(command.name) + ") words='--help" + Words(command.options) + "'";
    const std::string_view operands = OperandsOf(command);
    cases += operands.empty() ? " ;;\n" : fmt::format("; operands={} ;;\n", operands);
  }
  return R"(# bash completion of hone; source it, or put it into bash-completion's folder.
_hone() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} command= words= operands= i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case ${COMP_WORDS[i]} in
      --socket|--cache) ((++i)) ;;
      -*) ;;
      *) command=${COMP_WORDS[i]}; break ;;
    esac
  done
  case $previous in
    )" + Pattern({"FILE", "PATH", "KEY"}) +
         R"() COMPREPLY=($(compgen -f -- "$current")); return ;;
    )" + Pattern({"DIR"}) +
         R"() COMPREPLY=($(compgen -d -- "$current")); return ;;
  esac
  case $command in
    '') words=')" +
         names.substr(1) + R"( --help --version' ;;
)" + cases +
         R"(  esac
  COMPREPLY=($(compgen -W "$words)" +
         Words(GlobalOptions()) + R"(" -- "$current"))
  if [[ $current != -* ]]; then
    case $operands in
      files) COMPREPLY+=($(compgen -f -- "$current")) ;;
      kernels)
        for i in kernels hone onnx; do COMPREPLY+=($(compgen -f -X "!*.$i" -- "$current")); done
        COMPREPLY+=($(compgen -d -- "$current")) ;;
    esac
  fi
}
complete -o filenames -F _hone hone
)";
}

int RunCompletion(Context& context, const Arguments& arguments) {
  if (arguments.Text("SHELL") != "bash") {
    return context.WrongUsage({ErrorKind::kInvalid, "saw \"" + arguments.Text("SHELL") + "\", wanted bash", "SHELL"});
  }
  Print(Bash());
  return kDone;
}

}  // namespace

Command CompletionCommand() {
  return {.name = "completion",
          .summary = "print the completion script of a shell",
          .details = "Example: hone completion bash > ~/.local/share/bash-completion/completions/hone",
          .positionals = {{"SHELL", "bash"}},
          .options = {},
          .run = RunCompletion};
}

}  // namespace hone::cli
