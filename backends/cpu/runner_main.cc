// hone-runner: checks and measures code for the CPU.
#include "backends/cpu/fork_server.h"
#include "backends/runner/serve_runner.h"

int main() { return hone::RunRunner({.name = "hone-runner", .start_launcher = hone::StartForkServer}); }
