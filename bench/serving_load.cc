#include "bench/serving_load.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>

namespace hone {
namespace {

sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  return address;
}

void SendWithDescriptor(int socket, const std::string& bytes, int fd) {
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  if (sendmsg(socket, &message, MSG_NOSIGNAL) < 0 && errno != EPIPE) Die("ping-pong: sendmsg");
}

// One question and its answer, descriptor included.
void PingPong(int socket, const Messages& messages, char* buffer) {
  if (send(socket, messages.request.data(), messages.request.size(), MSG_NOSIGNAL) < 0) Die("send");
  for (size_t have = 0; have < messages.reply;) {
    iovec part{buffer + have, messages.reply - have};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    ssize_t got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    if (got <= 0) Die("the server closed the connection");
    if (cmsghdr* header = CMSG_FIRSTHDR(&message)) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
      close(fd);
    } else if (have == 0) {
      Die("an answer without a descriptor");
    }
    have += static_cast<size_t>(got);
  }
}

}  // namespace

double NowUs() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

[[noreturn]] void Die(const std::string& what) {
  fmt::print(stderr, "serving_bench: {}\n", what);
  exit(1);
}

double Quantile(std::vector<double>& values, double q) {
  if (values.empty()) return 0;
  auto at = values.begin() + static_cast<std::ptrdiff_t>(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

int Dial(const std::string& path) {
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = AddressOf(path);
  while (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    if (errno != ENOENT && errno != ECONNREFUSED && errno != EAGAIN) Die("cannot connect to " + path);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return fd;
}

pid_t StartPingPong(const std::string& path, size_t request, size_t reply) {
  pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address = AddressOf(path);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || listen(listener, 256) != 0)
    _exit(1);
  int fd = memfd_create("ping-pong", MFD_CLOEXEC);
  int poll = epoll_create1(0);
  epoll_event event{EPOLLIN, {.fd = listener}};
  epoll_ctl(poll, EPOLL_CTL_ADD, listener, &event);
  std::string answer(reply, 'x');
  std::vector<char> buffer(request);
  epoll_event ready[128];
  for (;;) {
    int count = epoll_wait(poll, ready, 128, -1);
    for (int i = 0; i < count; ++i) {
      if (ready[i].data.fd == listener) {
        int client = accept(listener, nullptr, nullptr);
        epoll_event added{EPOLLIN, {.fd = client}};
        epoll_ctl(poll, EPOLL_CTL_ADD, client, &added);
        continue;
      }
      ssize_t got = recv(ready[i].data.fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
      if (got <= 0) {
        close(ready[i].data.fd);
      } else if (static_cast<size_t>(got) == request) {
        SendWithDescriptor(ready[i].data.fd, answer, fd);
      } else {
        _exit(2);
      }
    }
  }
}

LoopResult ClosedLoop(const std::string& path, const Messages& messages, int clients, double seconds) {
  std::vector<std::vector<double>> times(clients);
  std::atomic<int> ready{0};
  std::atomic<bool> go{false};
  double end = 0;
  std::vector<std::thread> threads;
  for (int c = 0; c < clients; ++c) {
    threads.emplace_back([&, c] {
      int socket = Dial(path);
      std::vector<char> buffer(messages.reply);
      times[c].reserve(200'000);
      for (int i = 0; i < kWarmUp; ++i) PingPong(socket, messages, buffer.data());
      ++ready;
      go.wait(false);
      for (double before = NowUs(); before < end;) {
        PingPong(socket, messages, buffer.data());
        double after = NowUs();
        times[c].push_back(after - before);
        before = after;
      }
      close(socket);
    });
  }
  while (ready < clients) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  end = NowUs() + seconds * 1e6;
  go = true;
  go.notify_all();
  for (std::thread& thread : threads) thread.join();
  std::vector<double> all;
  for (const auto& some : times) all.insert(all.end(), some.begin(), some.end());
  return {Quantile(all, 0.5), Quantile(all, 0.99), static_cast<double>(all.size()) / seconds};
}

LoopResult OpenLoop(const std::string& path, const Messages& messages, double rate, double seconds) {
  constexpr int kConnections = 8;
  std::vector<std::vector<double>> times(kConnections);
  std::vector<std::thread> threads;
  double begin = NowUs() + 20'000;
  for (int c = 0; c < kConnections; ++c) {
    threads.emplace_back([&, c] {
      prctl(PR_SET_TIMERSLACK, 1);
      int socket = Dial(path);
      std::vector<char> buffer(messages.reply);
      PingPong(socket, messages, buffer.data());
      double period = kConnections * 1e6 / rate;
      for (int64_t i = 0;; ++i) {
        double due = begin + period * (static_cast<double>(i) + static_cast<double>(c) / kConnections);
        if (due > begin + seconds * 1e6) break;
        timespec when{static_cast<time_t>(due / 1e6), static_cast<long>(std::fmod(due, 1e6) * 1e3)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, nullptr);
        PingPong(socket, messages, buffer.data());
        times[c].push_back(NowUs() - due);
      }
      close(socket);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<double> all;
  for (const auto& some : times) all.insert(all.end(), some.begin(), some.end());
  return {Quantile(all, 0.5), Quantile(all, 0.99), static_cast<double>(all.size()) / seconds};
}

}  // namespace hone
