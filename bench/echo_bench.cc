// echo_bench: how long a server on this machine takes to answer, with nothing to do in between: the program that
// notices first when somebody else uses the processor.
//
//   echo_bench [--seconds S] [--rate N]
//
// A client asks N times a second (1000), 64 bytes over a loopback TCP connection to a process of its own, and waits for
// each answer. Each has a core of its own where there are two, so that runs do not differ by where they were put. One
// line of JSON: {"asked","p50_us","p99_us","most_us"}, each from the sending to the whole answer.
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kBytes = 64;

[[noreturn]] void Die(const char* what) {
  fmt::print(stderr, "echo_bench: {}: errno {}\n", what, errno);
  exit(1);
}

bool ReadAll(int fd, char* bytes, size_t size) {
  while (size > 0) {
    ssize_t got = read(fd, bytes, size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    bytes += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

bool WriteAll(int fd, const char* bytes, size_t size) { return write(fd, bytes, size) == static_cast<ssize_t>(size); }

void SetNoDelay(int fd) {
  int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void StayOn(int core) {
  if (std::thread::hardware_concurrency() < 2) return;
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  sched_setaffinity(0, sizeof cores, &cores);  // where it is not allowed, placement stays the kernel's
}

// Echoes one connection until it ends.
[[noreturn]] void Serve(int listener) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  StayOn(1);
  int fd = accept(listener, nullptr, nullptr);
  if (fd < 0) Die("accept");
  SetNoDelay(fd);
  char bytes[kBytes];
  while (ReadAll(fd, bytes, kBytes))
    if (!WriteAll(fd, bytes, kBytes)) break;
  _exit(0);
}

double Quantile(const std::vector<double>& sorted, double q) {
  return sorted[static_cast<size_t>(std::ceil(q * static_cast<double>(sorted.size()))) - 1];
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = 2, rate = 1000;
  for (int i = 1; i + 1 < argc; i += 2) {
    std::string word = argv[i];
    if (word == "--seconds") seconds = std::max(0.01, atof(argv[i + 1]));
    if (word == "--rate") rate = std::max(1.0, atof(argv[i + 1]));
  }
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener, 1) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    Die("listen");
  pid_t server = fork();
  if (server < 0) Die("fork");
  if (server == 0) Serve(listener);
  StayOn(0);
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), size) != 0) Die("connect");
  SetNoDelay(fd);
  char bytes[kBytes] = {};
  std::vector<double> times;
  auto every = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(1 / rate));
  auto due = Clock::now(),
       end = due + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  for (; due < end; due += every) {
    std::this_thread::sleep_until(due);
    auto sent = Clock::now();
    if (!WriteAll(fd, bytes, kBytes) || !ReadAll(fd, bytes, kBytes)) Die("the server is gone");
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - sent).count());
  }
  close(fd);
  waitpid(server, nullptr, 0);
  std::sort(times.begin(), times.end());
  fmt::print("{{\"asked\":{},\"p50_us\":{:.2f},\"p99_us\":{:.2f},\"most_us\":{:.2f}}}\n", times.size(),
             Quantile(times, 0.5), Quantile(times, 0.99), times.back());
  return 0;
}
