#include "tests/support/run_cases.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/check.h"

namespace hone {
namespace {

constexpr unsigned kWaiting = 4;  // times a case's limit, for all of its time

// Shared by the parent and its children.
struct Board {
  std::atomic<int> next{0};
};
struct Place {
  int index = -1;  // of the case under way
  char note[64 << 10] = {};
};

// A message from child to parent: kind, index, length, text.
struct Header {
  char kind;  // 'n': the note of the failure that follows, 'f': failure, 'c': count
  int32_t index;
  uint32_t length;
};

void WriteAll(int fd, const void* data, size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    ssize_t written = write(fd, at, size);
    if (written <= 0) _exit(1);
    at += written;
    size -= static_cast<size_t>(written);
  }
}

class PipeLog : public CaseLog {
 public:
  PipeLog(int fd, Place& place) : fd_(fd), place_(place) {}
  void Note(const std::string& text) override {
    size_t length = std::min(text.size(), sizeof place_.note - 1);
    std::memcpy(place_.note, text.data(), length);
    place_.note[length] = '\0';
  }
  void Fail(const std::string& text) override {
    Send('n', place_.note);
    Send('f', text);
  }
  void Count(const std::string& label) override { ++counts_[label]; }
  void SendCounts() {
    for (const auto& [label, count] : counts_) Send('c', fmt::format("{} {}", count, label));
    counts_.clear();
  }

 private:
  void Send(char kind, const std::string& text) {
    Header header{kind, place_.index, static_cast<uint32_t>(text.size())};
    WriteAll(fd_, &header, sizeof header);
    WriteAll(fd_, text.data(), text.size());
  }
  int fd_;
  Place& place_;
  std::map<std::string, int64_t> counts_;
};

template <typename T>
T* MapShared() {
  void* memory = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  HONE_CHECK(memory != MAP_FAILED);
  return new (memory) T;
}

struct Child {
  pid_t pid = -1;
  int fd = -1;
  Place* place = nullptr;
  std::string received;
  std::string note;
};

class Runner {
 public:
  Runner(int count, const std::function<void(int, CaseLog&)>& run, int seconds, size_t max_failures)
      : count_(count), run_(run), seconds_(seconds), max_failures_(max_failures), board_(MapShared<Board>()) {}
  ~Runner() { munmap(board_, sizeof(Board)); }

  CaseReport Run() {
    std::vector<Child> children(
        static_cast<size_t>(std::clamp<int>(static_cast<int>(std::thread::hardware_concurrency()), 1, count_)));
    for (Child& child : children) {
      child.place = MapShared<Place>();
      Start(child);
    }
    while (std::any_of(children.begin(), children.end(), [](const Child& c) { return c.fd >= 0; })) {
      std::vector<pollfd> polls;
      for (const Child& child : children) polls.push_back({child.fd, POLLIN, 0});
      poll(polls.data(), polls.size(), -1);
      for (size_t i = 0; i < children.size(); ++i)
        if (polls[i].revents != 0) Receive(children[i]);
    }
    for (Child& child : children) munmap(child.place, sizeof(Place));
    std::sort(report_.failures.begin(), report_.failures.end(),
              [](const CaseFailure& a, const CaseFailure& b) { return a.index < b.index; });
    return std::move(report_);
  }

 private:
  void Start(Child& child) {
    int ends[2];
    HONE_CHECK(pipe(ends) == 0);
    child.place->index = -1;
    child.received.clear();
    std::fflush(nullptr);
    child.pid = fork();
    HONE_CHECK(child.pid >= 0);
    if (child.pid == 0) {
      close(ends[0]);
      RunChild(ends[1], *child.place);
    }
    close(ends[1]);
    child.fd = ends[0];
  }

  [[noreturn]] void RunChild(int fd, Place& place) {
    std::signal(SIGALRM, SIG_DFL);
    std::signal(SIGPROF, SIG_DFL);
    PipeLog log(fd, place);
    for (int index; (index = board_->next++) < count_;) {
      place.index = index;
      log.Note("");
      Limit(seconds_);
      run_(index, log);
      Limit(0);
      log.SendCounts();
      place.index = -1;
    }
    _exit(0);
  }

  // Of the processor's time, since others run beside this; and of any, for what waits for ever. 0: none.
  static void Limit(int seconds) {
    itimerval limit{};
    limit.it_value.tv_sec = seconds;
    setitimer(ITIMER_PROF, &limit, nullptr);
    alarm(static_cast<unsigned>(seconds) * kWaiting);
  }

  void Receive(Child& child) {
    char buffer[4096];
    ssize_t size = read(child.fd, buffer, sizeof buffer);
    if (size > 0) {
      child.received.append(buffer, static_cast<size_t>(size));
      TakeMessages(child);
      return;
    }
    close(child.fd);
    child.fd = -1;
    int status = 0;
    waitpid(child.pid, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    std::string how = WIFSIGNALED(status) && WTERMSIG(status) == SIGPROF
                          ? fmt::format("still running after {} s of a processor", seconds_)
                      : WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM
                          ? fmt::format("still running after {} s", static_cast<unsigned>(seconds_) * kWaiting)
                      : WIFSIGNALED(status)
                          ? fmt::format("killed by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)))
                          : fmt::format("exit status {}", WEXITSTATUS(status));
    Add({child.place->index, how, child.place->note});
    if (board_->next < count_) Start(child);
  }

  void TakeMessages(Child& child) {
    std::string& received = child.received;
    while (received.size() >= sizeof(Header)) {
      Header header;
      std::memcpy(&header, received.data(), sizeof header);
      if (received.size() < sizeof header + header.length) return;
      std::string text = received.substr(sizeof header, header.length);
      received.erase(0, sizeof header + header.length);
      if (header.kind == 'n') {
        child.note = std::move(text);
      } else if (header.kind == 'f') {
        Add({header.index, std::move(text), child.note});
      } else {
        size_t blank = text.find(' ');
        report_.counts[text.substr(blank + 1)] += std::strtoll(text.c_str(), nullptr, 10);
      }
    }
  }

  void Add(CaseFailure failure) {
    report_.failures.push_back(std::move(failure));
    if (report_.failures.size() >= max_failures_) board_->next = count_;
  }

  const int count_;
  const std::function<void(int, CaseLog&)>& run_;
  const int seconds_;
  const size_t max_failures_;
  Board* board_;
  CaseReport report_;
};

}  // namespace

std::string CaseReport::Text(size_t most) const {
  std::string text;
  for (size_t i = 0; i < std::min(most, failures.size()); ++i)
    text += fmt::format("case {}: {}\n{}\n\n", failures[i].index, failures[i].text, failures[i].note);
  if (failures.size() > most) text += fmt::format("and {} more\n", failures.size() - most);
  return text;
}

CaseReport RunCases(int count, const std::function<void(int index, CaseLog& log)>& run, int seconds,
                    size_t max_failures) {
  if (count <= 0) return {};
  return Runner(count, run, seconds, max_failures).Run();
}

uint64_t SeedFromEnvironment(uint64_t usual) {
  const char* text = std::getenv("HONE_SEED");
  return text ? std::strtoull(text, nullptr, 10) : usual;
}

int RoundsFromEnvironment(int usual) {
  const char* text = std::getenv("HONE_ROUNDS");
  return text ? static_cast<int>(static_cast<double>(usual) * std::strtod(text, nullptr)) : usual;
}

}  // namespace hone
