// What a hit costs, next to the least that it could cost: a ping-pong over a Unix socket that passes a descriptor, with
// the same message sizes and the same clients, in the same run.
//
//   serving_bench [--rounds N] [--seconds S] [--bin DIR]
//
// Closed loop: 1, 8 and 64 clients, each a thread with a connection of its own that asks again as soon as it was
// answered; honed and the ping-pong take turns, and the figures are medians over the rounds with their range. Open
// loop: 2,000 hits a second at fixed times, latency counted from when a request was due, alone and while every builder
// compiles misses. Then what a call of a held kernel costs beyond the code itself, and a loop over two threads.
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/subprocess.h"
#include "bench/mark.h"
#include "bench/serving_load.h"
#include "client/api/client.h"

namespace hone {
namespace {

using std::chrono::steady_clock;

struct Arguments {
  int rounds = 5;
  double seconds = 1;
  std::string bin;
};

// A figure over the rounds.
struct Spread {
  std::vector<double> values;
  double Median() { return Quantile(values, 0.5); }
  std::string Text() {
    double middle = Median();
    return fmt::format("{:.1f} ({:.1f} … {:.1f})", middle, *std::min_element(values.begin(), values.end()),
                       *std::max_element(values.begin(), values.end()));
  }
};

// Processor time of a whole process.
double CpuUs(pid_t process) {
  clockid_t clock;
  timespec used{};
  if (clock_getcpuclockid(process, &clock) != 0 || clock_gettime(clock, &used) != 0) return 0;
  return static_cast<double>(used.tv_sec) * 1e6 + static_cast<double>(used.tv_nsec) / 1e3;
}

class Daemon {
 public:
  Daemon(const std::string& bin, const std::string& folder) : socket(folder + "/honed.sock") {
    SubprocessOptions options;
    options.executable = bin + "/honed";
    options.arguments = {"--socket", socket, "--cache", folder + "/cache", "--log", "error", "--no-idle"};
    options.environment = {"HOME=" + folder};
    options.limits.open_files = 4096;
    process_.emplace(Must(Subprocess::Start(options)));
    close(Dial(socket));
  }
  // Builders aside.
  double CpuUs() const { return hone::CpuUs(process_->pid()); }
  const std::string socket;

 private:
  std::optional<Subprocess> process_;
};

// Keeps every builder at work with kernels that nobody asked for before.
class MissLoad {
 public:
  explicit MissLoad(Client& client) {
    for (int i = 0; i < 4; ++i) {
      threads_.emplace_back([this, &client, i] {
        for (int n = 1; !stop_; ++n) {
          GetOptions options;
          options.deadline = std::chrono::minutes(1);
          std::string kernel =
              fmt::format("conv2d(C=32,H=28,W=28,O={},R=3,S=3,pad=1,const=1)+bias+relu", n * 4 + i + 1);
          compiled_ += client.Fetch(kernel, options).has_value();
        }
      });
    }
  }
  int Stop() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
    return compiled_;
  }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<int> compiled_{0};
  std::vector<std::thread> threads_;
};

void CompareHits(const Arguments& arguments, Daemon& daemon, const std::string& ping_pong, pid_t yardstick,
                 const Messages& messages) {
  fmt::print("hit of {} bytes for {} bytes and a descriptor, {} rounds of {:.1f} s each\n", messages.reply,
             messages.request.size(), arguments.rounds, arguments.seconds);
  for (int clients : {1, 8, 64}) {
    Spread hit50, hit99, base50, base99, cpu, base_cpu, rate;
    for (int round = 0; round < arguments.rounds; ++round) {
      auto answers = [&](const LoopResult& loop) { return loop.per_second * arguments.seconds + kWarmUp * clients; };
      double base_before = CpuUs(yardstick);
      LoopResult base = ClosedLoop(ping_pong, messages, clients, arguments.seconds);
      base_cpu.values.push_back((CpuUs(yardstick) - base_before) / answers(base));
      double before = daemon.CpuUs();
      LoopResult hit = ClosedLoop(daemon.socket, messages, clients, arguments.seconds);
      cpu.values.push_back((daemon.CpuUs() - before) / answers(hit));
      hit50.values.push_back(hit.p50);
      hit99.values.push_back(hit.p99);
      base50.values.push_back(base.p50);
      base99.values.push_back(base.p99);
      rate.values.push_back(hit.per_second);
    }
    fmt::print(
        "{:>2} clients  hit p50 {} us, p99 {} us; ping-pong p50 {} us, p99 {} us; {:.0f} hits/s, {} us of CPU "
        "(ping-pong {})\n",
        clients, hit50.Text(), hit99.Text(), base50.Text(), base99.Text(), rate.Median(), cpu.Text(), base_cpu.Text());
    PrintMark(fmt::format("hit p50 / ping-pong, {} clients", clients), hit50.Median() / base50.Median(), "x", 1.5);
    PrintMark(fmt::format("hit p99 / ping-pong, {} clients", clients), hit99.Median() / base99.Median(), "x", 2);
    PrintMark(fmt::format("daemon CPU a hit, {} clients", clients), cpu.Median(), "us", 15);
  }
}

void OpenLoops(const Arguments& arguments, Daemon& daemon, const std::string& ping_pong, const Messages& messages,
               Client& client) {
  constexpr double kRate = 2000;
  Spread quiet, base, busy, base_busy;
  int compiled = 0;
  for (int round = 0; round < arguments.rounds; ++round) {
    base.values.push_back(OpenLoop(ping_pong, messages, kRate, arguments.seconds).p99 / 1e3);
    quiet.values.push_back(OpenLoop(daemon.socket, messages, kRate, arguments.seconds).p99 / 1e3);
  }
  {
    MissLoad load(client);
    for (int round = 0; round < arguments.rounds; ++round) {
      base_busy.values.push_back(OpenLoop(ping_pong, messages, kRate, arguments.seconds).p99 / 1e3);
      busy.values.push_back(OpenLoop(daemon.socket, messages, kRate, arguments.seconds).p99 / 1e3);
    }
    compiled = load.Stop();
  }
  fmt::print("open loop, {:.0f} hits/s: p99 {} ms alone (ping-pong {}), {} ms while {} misses compile (ping-pong {})\n",
             kRate, quiet.Text(), base.Text(), busy.Text(), compiled, base_busy.Text());
  PrintMark("hit p99 at 2,000/s", quiet.Median(), "ms", 1);
  PrintMark("hit p99 at 2,000/s during misses", busy.Median(), "ms", 5);
}

// From the question to a callable kernel, as applications see it: the client's own checks and mapping included.
void WholeGets(Client& client, const std::string& kernel) {
  std::vector<double> fetches, gets;
  for (int i = 0; i < 2000; ++i) {
    double begun = NowUs();
    (void)Must(client.Fetch(kernel, {}));
    fetches.push_back(NowUs() - begun);
  }
  for (int i = 0; i < 1000; ++i) {
    double begun = NowUs();
    auto handle = Must(client.Get(kernel, {}));
    gets.push_back(NowUs() - begun);
  }
  fmt::print("whole hone_get of a hit: {:.1f} us to the code, {:.1f} us to a callable kernel (p50)\n",
             Quantile(fetches, 0.5), Quantile(gets, 0.5));
}

void Calls(Client& client) {
  GetOptions options;
  options.threads = 1;
  auto handle = Must(client.Get("add(M=1,N=8)", options));
  options.frozen = true;
  auto frozen = Must(client.Get("add(M=1,N=8)", options));
  alignas(64) float a[8] = {}, b[8] = {}, c[8] = {};
  void* buffers[3] = {a, b, c};
  auto code = Must(LoadedArtifact::Load(Must(handle->artifact().Duplicate()), 0, "", ""));
  hone_env env{};
  env.struct_size = sizeof env;
  env.abi_version = HONE_ABI_VERSION;
  env.workers = 1;
  alignas(64) static char workspace[1 << 16];
  env.workspace = workspace;
  auto best = [](const auto& call) {
    double least = 1e30;
    for (int round = 0; round < 50; ++round) {
      double begun = NowUs();
      for (int i = 0; i < 10'000; ++i) call();
      least = std::min(least, (NowUs() - begun) / 10'000 * 1e3);
    }
    return least;
  };
  double bare = best([&] { code->entry()(&env, buffers, nullptr); });
  double whole = best([&] { handle->Call(buffers, nullptr); });
  double without_gate = best([&] { frozen->Call(buffers, nullptr); });
  // Every thread has a slot of its own in the gate: together they should be no slower than one.
  auto together = [&](KernelHandle& held) {
    double times[2] = {};
    std::thread other([&] {
      alignas(64) float x[8] = {}, y[8] = {}, z[8] = {};
      void* own[3] = {x, y, z};
      times[1] = best([&] { held.Call(own, nullptr); });
    });
    times[0] = best([&] { held.Call(buffers, nullptr); });
    other.join();
    return std::max(times[0], times[1]);
  };
  fmt::print("call of a held kernel: {:.1f} ns, frozen {:.1f} ns, the code alone {:.1f} ns\n", whole, without_gate,
             bare);
  fmt::print("from two threads at once: {:.1f} ns, frozen {:.1f} ns\n", together(*handle), together(*frozen));
  PrintMark("call overhead", whole - bare, "ns", 100);
  PrintMark("call overhead, frozen", without_gate - bare, "ns", 100);
}

void Dispatch() {
  ThreadPool pool({.threads = 2});
  auto nothing = [](int64_t, int64_t, int32_t, void*) {};
  struct Both {
    std::atomic<int> arrived{0};
  };
  auto run = [&](int rounds, std::chrono::microseconds pause) {
    std::vector<double> times;
    for (int i = 0; i < rounds; ++i) {
      if (pause.count() > 0) std::this_thread::sleep_for(pause);
      double begun = NowUs();
      pool.ParallelFor(2, 1, 2, nothing, nullptr);
      times.push_back(NowUs() - begun);
    }
    return Quantile(times, 0.5);
  };
  // Until both threads are at work: what a kernel that needs both has to wait.
  auto meet = [&](int rounds, std::chrono::microseconds pause) {
    std::vector<double> times;
    for (int i = 0; i < rounds; ++i) {
      if (pause.count() > 0) std::this_thread::sleep_for(pause);
      Both both;
      double begun = NowUs();
      pool.ParallelFor(
          2, 1, 2,
          [](int64_t, int64_t, int32_t, void* ctx) {
            auto& arrived = static_cast<Both*>(ctx)->arrived;
            ++arrived;
            while (arrived < 2) {}
          },
          &both);
      times.push_back(NowUs() - begun);
    }
    return Quantile(times, 0.5);
  };
  fmt::print("loop over two threads: {:.2f} us of overhead, {:.2f} us until both are at work; {:.1f} us from sleep\n",
             run(20'000, {}), meet(20'000, {}), meet(300, std::chrono::microseconds(2000)));
}

void Run(const Arguments& arguments) {
  std::string folder = (std::filesystem::temp_directory_path() / "hone-serving-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) Die("no temporary folder");
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);

  const std::string kernel = "conv2d(C=64,H=56,W=56,O=64,R=3,S=3,stride=1,pad=1,const=1)+bias+relu";
  // Forked before there are threads.
  Messages messages;
  messages.request = EncodeFrame(1, GetRequest{.kernel = kernel});
  {
    Daemon daemon(arguments.bin, folder);
    ClientOptions options;
    options.socket = daemon.socket;
    options.use_disk_cache = false;
    auto client = Must(Client::Create(options));
    (void)Must(client->Fetch(kernel, {}));
    Channel channel = Must(Channel::Connect(daemon.socket, steady_clock::now() + std::chrono::seconds(10)));
    if (!channel.Send(messages.request, steady_clock::now() + std::chrono::seconds(10))) Die("send");
    ReceivedFrame frame = Must(channel.Receive(steady_clock::now() + std::chrono::seconds(10)));
    messages.reply = kFrameHeaderBytes + frame.body.size();
    std::string ping_pong = folder + "/ping-pong.sock";
    pid_t yardstick = StartPingPong(ping_pong, messages.request.size(), messages.reply);
    CompareHits(arguments, daemon, ping_pong, yardstick, messages);
    OpenLoops(arguments, daemon, ping_pong, messages, *client);
    WholeGets(*client, kernel);
    Calls(*client);
    kill(yardstick, SIGKILL);
    waitpid(yardstick, nullptr, 0);
  }
  Dispatch();
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace hone

int main(int argc, char** argv) {
  hone::Arguments arguments;
  arguments.bin = std::filesystem::read_symlink("/proc/self/exe").parent_path().string();
  for (int i = 1; i + 1 < argc; i += 2) {
    std::string name = argv[i];
    if (name == "--rounds") arguments.rounds = std::max(1, atoi(argv[i + 1]));
    if (name == "--seconds") arguments.seconds = std::max(0.1, atof(argv[i + 1]));
    if (name == "--bin") arguments.bin = argv[i + 1];
  }
  hone::Run(arguments);
}
