// Threads that the system may refuse: a user and a control group may have so many processes and threads and no more.
#pragma once

#include <functional>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/result.h"

namespace hone {

// kBusy: `code` is why the system has no `what`, "thread" or "process", to give.
Error NoTask(std::string_view what, int code);

// As std::jthread's constructor; kBusy where that throws.
template <typename Work>
Result<std::jthread> StartThread(Work work) {
  try {
    return std::jthread(std::move(work));
  } catch (const std::system_error& error) { return NoTask("thread", error.code().value()); }
}

// As `start`; kBusy where that throws for want of a thread.
Result<void> OrNoThread(const std::function<Result<void>()>& start);

}  // namespace hone
