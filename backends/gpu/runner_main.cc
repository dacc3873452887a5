// hone-device-runner: checks and measures code for devices with drivers. With --list KIND it says which there are,
// with --copies TARGET how fast copies to one are.
#include <cstdio>
#include <cstring>

#include "backends/gpu/device_host.h"
#include "backends/processes/child_pool.h"
#include "backends/runner/serve_runner.h"

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--list") == 0)
    hone::ListDevicesLockedIn(hone::ChildChannel{hone::UniqueFd(hone::kChildChannelFd)}, argv[2]);
  if (argc == 3 && std::strcmp(argv[1], "--copies") == 0)
    hone::MeasureCopiesLockedIn(hone::ChildChannel{hone::UniqueFd(hone::kChildChannelFd)}, argv[2]);
  return hone::RunRunner(
      {.name = "hone-device-runner", .start_launcher = hone::StartDeviceHost, .launcher_opens_files = true});
}
