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

}  // namespace hone
