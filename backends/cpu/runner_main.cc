// hone-runner: checks and measures code for the CPU. Started by honed:
//
//   hone-runner
//   hone-runner --emulated                 by an emulator that filters no system calls (qemu-user)
//   hone-runner --emulate PROGRAM ARG…     locks itself in and becomes that: an emulator, and what it is to run
//
// or on a device, for another machine's honed (hone tune --on): hone-runner --stdio.
#include <getopt.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "backends/cpu/fork_server.h"
#include "backends/cpu/serve_stdio.h"
#include "backends/runner/serve_runner.h"
#include "backends/sandbox/sandbox.h"
#include "backends/sandbox/seccomp_filter.h"
#include "base/tiles.h"

namespace {

int BecomeEmulator(std::vector<std::string> command) {
  if (hone::Result<hone::Confinement> confined = hone::EnterEmulatorSandbox(); !confined) {
    std::fprintf(stderr, "hone-runner: %s\n", confined.error().Text().c_str());
    return 1;
  }
  command.emplace_back("--emulated");
  std::vector<char*> words;
  for (std::string& word : command) words.push_back(word.data());
  words.push_back(nullptr);
  ::execv(words[0], words.data());
  std::perror(words[0]);
  return 1;
}

constexpr const char* kHelp =
    R"(hone-runner: checks and times code for this machine's processor. honed starts it.

usage: hone-runner --stdio [options]      on a device, for honed on another machine, over standard input and output:
                                          hone tune --on 'ssh board hone-runner --stdio' KERNEL
  --target TARGET    pass for that: a name such as x86-64-v3, or a whole target as honed-edge --describe-target prints
                     it. This processor has to run its code (default: this device)
  --runner PROGRAM   what checks and times (default: this program)
  --emulated         run by an emulator that filters no system calls
  --version, --help
)";

int WrongUsage(const std::string& what) {
  std::fprintf(stderr, "hone-runner: %s; hone-runner --help lists the options\n", what.c_str());
  return 2;
}

int RunDevice(int argc, char** argv) {
  enum { kStdio = 256, kTarget, kRunner, kEmulated };
  static const option kOptions[] = {{"stdio", no_argument, nullptr, kStdio},
                                    {"target", required_argument, nullptr, kTarget},
                                    {"runner", required_argument, nullptr, kRunner},
                                    {"emulated", no_argument, nullptr, kEmulated},
                                    {}};
  hone::StdioOptions options;
  bool is_device = false;
  opterr = 0;
  for (int code; (code = getopt_long(argc, argv, "", kOptions, nullptr)) != -1;) {
    switch (code) {
      case kStdio: is_device = true; break;
      case kTarget: options.target = optarg; break;
      case kRunner: options.runner = optarg; break;
      case kEmulated: options.is_emulated = true; break;
      default: return WrongUsage(std::string("unknown or incomplete option ") + argv[optind - 1]);
    }
  }
  if (optind < argc) return WrongUsage(std::string("unexpected argument ") + argv[optind]);
  if (!is_device) return WrongUsage("without --stdio only honed starts it");
  return hone::ServeStdio(options);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  if (first == "--emulate" && argc > 2) return BecomeEmulator({argv + 2, argv + argc});
  if (first == "--help") return std::fputs(kHelp, stdout), 0;
  if (first == "--version") return std::puts("hone-runner " HONE_VERSION), 0;
  if (argc > 2 || (argc > 1 && first != "--emulated")) return RunDevice(argc, argv);
  if (first == "--emulated") hone::GoOnWithoutFilters();
  hone::MayUseTiles();  // while it may still be asked; candidates are forks
  return hone::RunRunner({.name = "hone-runner", .start_launcher = hone::StartForkServer});
}
