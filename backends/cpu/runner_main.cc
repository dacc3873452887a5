// hone-runner: checks and measures code for the CPU. Started by honed:
//
//   hone-runner
//   hone-runner --emulated                 by an emulator that filters no system calls (qemu-user)
//   hone-runner --emulate PROGRAM ARG…     locks itself in and becomes that: an emulator, and what it is to run
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "backends/cpu/fork_server.h"
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

}  // namespace

int main(int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  if (first == "--emulate" && argc > 2) return BecomeEmulator({argv + 2, argv + argc});
  if (first == "--emulated") hone::GoOnWithoutFilters();
  hone::MayUseTiles();  // while it may still be asked; candidates are forks
  return hone::RunRunner({.name = "hone-runner", .start_launcher = hone::StartForkServer});
}
