// hone completion: the script that completes command lines, made from the same tables as the help.
#include "client/cli/command.h"
#include "client/cli/context.h"

namespace hone::cli {
namespace {

std::string Words(const std::vector<Option>& options) {
  std::string words;
  for (const Option& option : options) words += " " + std::string(option.name);
  return words;
}

bool TakesFile(const Command& command) {
  for (const Positional& positional : command.positionals) {
    if (positional.name == "KERNEL" || positional.name == "FILE") return true;
  }
  return false;
}

std::string Bash() {
  std::string names, cases;
  for (const Command& command : Commands()) {
    names += " " + std::string(command.name);
    cases += "    " + std::string(command.name) + ") words='--help" + Words(command.options) + "'";
    cases += TakesFile(command) ? "; files=1 ;;\n" : " ;;\n";
  }
  return R"(# bash completion of hone; source it, or put it into bash-completion's folder.
_hone() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} command= words= files= i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case ${COMP_WORDS[i]} in
      --socket|--cache) ((++i)) ;;
      -*) ;;
      *) command=${COMP_WORDS[i]}; break ;;
    esac
  done
  case $previous in
    --socket|--out|-o) COMPREPLY=($(compgen -f -- "$current")); return ;;
    --cache) COMPREPLY=($(compgen -d -- "$current")); return ;;
  esac
  case $command in
    '') words=')" +
         names.substr(1) + R"( --help --version' ;;
)" + cases +
         R"(  esac
  COMPREPLY=($(compgen -W "$words)" +
         Words(GlobalOptions()) + R"(" -- "$current"))
  if [[ $files && $current != -* ]]; then
    COMPREPLY+=($(compgen -f -X '!*.kernels' -- "$current") $(compgen -f -X '!*.hone' -- "$current")
                $(compgen -d -- "$current"))
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
