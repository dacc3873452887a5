#include "base/start_thread.h"

#include <fmt/format.h>

#include <cstring>

namespace hone {

Error NoTask(std::string_view what, int code) {
  return {ErrorKind::kBusy,
          fmt::format("no {} can be started: {}; if that lasts, allow more of them (ulimit -u, systemd: TasksMax=)",
                      what, std::strerror(code)),
          ""};
}

Result<void> OrNoThread(const std::function<Result<void>()>& start) {
  try {
    return start();
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::resource_unavailable_try_again) throw;
    return NoTask("thread", error.code().value());
  }
}

}  // namespace hone
