#include "client/cli/lent_device.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

#include "base/file.h"
#include "client/cli/context.h"

extern char** environ;

namespace hone::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kToEnd{2'000};      // after its input has ended; then it is told, then killed
constexpr milliseconds kToSayHow{500};     // it ends when the device is lost, or it is why
constexpr std::chrono::minutes kHello{2};  // honed gives it less

// With the socket as its input and output. An interrupt at the terminal is for this program: the command goes on, so
// that what was found can still be compared.
Result<pid_t> Spawn(const std::string& command, int socket) {
  std::string shell = "sh", flag = "-c", text = command;
  char* arguments[] = {shell.data(), flag.data(), text.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, socket, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, socket, STDOUT_FILENO);
  struct sigaction ignore{}, before{};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGINT, &ignore, &before);
  pid_t child = -1;
  const int code = posix_spawn(&child, "/bin/sh", &actions, nullptr, arguments, environ);
  sigaction(SIGINT, &before, nullptr);
  posix_spawn_file_actions_destroy(&actions);
  if (code != 0) return ErrnoError(code, "cannot start the command", "--on");
  return child;
}

}  // namespace

LentDevice::LentDevice(std::string name, pid_t pid, UniqueFd socket, Channel keeper)
    : name_(std::move(name)),
      pid_(pid),
      socket_(std::move(socket)),
      keeper_(std::move(keeper)),
      watcher_([pid, fd = socket_.get()] {
        // What it started may hold the socket still: honed is told that it is over.
        siginfo_t info;
        while (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {}
        shutdown(fd, SHUT_RDWR);
      }) {}

Result<std::unique_ptr<LentDevice>> LentDevice::Start(Context& context, const std::string& command,
                                                      milliseconds silence) {
  Channel channel = HONE_TRY(context.Ask());
  AttachRequest request;
  request.silence_ms = static_cast<uint64_t>(silence.count());
  AttachReply reply = HONE_TRY(channel.Call(request, Context::Patience()));
  // From here on the connection is the device's.
  UniqueFd socket(fcntl(channel.fd(), F_DUPFD_CLOEXEC, 3));
  if (!socket) return ErrnoError(errno, "cannot keep the device's connection");
  fcntl(socket.get(), F_SETFL, fcntl(socket.get(), F_GETFL) & ~O_NONBLOCK);  // programs expect such input
  Channel keeper = HONE_TRY(context.Ask());
  const pid_t pid = HONE_TRY(Spawn(command, socket.get()));
  std::unique_ptr<LentDevice> device(
      new LentDevice(std::move(reply.device), pid, std::move(socket), std::move(keeper)));
  Result<DeviceReply> known = device->keeper_.Call(DeviceRequest{device->name_}, steady_clock::now() + kHello);
  if (!known) {
    Error error = std::move(known).error();
    error.message += device->HowItEnded();
    return error;
  }
  device->target_ = std::move(known->target);
  return device;
}

bool LentDevice::WaitEnded(milliseconds time) const {
  const auto end = steady_clock::now() + time;
  while (true) {
    siginfo_t info{};
    if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0)
      return true;
    if (steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(milliseconds(5));
  }
}

std::string LentDevice::HowItEnded() const {
  if (!WaitEnded(kToSayHow)) return "";
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
  if (info.si_code == CLD_EXITED) return fmt::format("; the command ended with exit status {}", info.si_status);
  return fmt::format("; the command was ended by signal {} ({})", info.si_status, strsignal(info.si_status));
}

LentDevice::~LentDevice() {
  shutdown(socket_.get(), SHUT_RDWR);
  if (!WaitEnded(kToEnd)) kill(pid_, SIGTERM);
  if (!WaitEnded(kToEnd)) kill(pid_, SIGKILL);
  watcher_.join();
  waitpid(pid_, nullptr, 0);
}

bool IsOfDevice(const Error& error) { return error.where == "device"; }

const Option kOnOption{"--on", "COMMAND",
                       "check and time on another machine: COMMAND leads to hone-runner --stdio there, as \"ssh board "
                       "hone-runner --stdio\" does"};
const Option kSilenceOption{
    "--silence", "TIME",
    "with --on: give the device up if it is silent for so long at work (10s); it has a minute to say what it is"};

Result<void> CheckLentDevice(const Arguments& arguments) {
  if (arguments.Has("--on") && arguments.Has("--target"))
    return Error{ErrorKind::kInvalid, "the device of --on says itself what it is", "--target"};
  if (arguments.Has("--silence") && !arguments.Has("--on"))
    return Error{ErrorKind::kInvalid, "wanted --on beside it", "--silence"};
  HONE_TRY(arguments.Duration("--silence", std::chrono::microseconds(0)));
  return {};
}

Result<std::unique_ptr<LentDevice>> StartLentDevice(Context& context, const Arguments& arguments) {
  if (!arguments.Has("--on")) return std::unique_ptr<LentDevice>();
  const std::chrono::microseconds silence = HONE_TRY(arguments.Duration("--silence", std::chrono::microseconds(0)));
  auto device =
      HONE_TRY(LentDevice::Start(context, arguments.Text("--on"), std::chrono::duration_cast<milliseconds>(silence)));
  if (!context.json()) Print(fmt::format("on {}\n", device->target()));
  return device;
}

}  // namespace hone::cli
