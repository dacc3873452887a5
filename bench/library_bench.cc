// hone's kernels beside OpenBLAS and oneDNN, called from one process in turns, on the same operands.
//
//   library_bench --socket PATH [--threads N] [--rounds N] KERNEL… | FILE.kernels…
//
// A line of JSON per kernel; bench/libraries.py starts a daemon, searches, and reads them. Each round every one of them
// has a burst of a few milliseconds, beginning with another one each time, after a call that brings its data back; with
// several threads, after a pause in which the former one's stop looking for work, and a longer burst in which its own
// come to run on cores of their own. Times are medians over the rounds, less what a call costs that has nothing to do.
// A peer's ratio is its time over hone's, round by round.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <thread>

#include "bench/library_peers.h"
#include "client/hone.h"

namespace hone {
namespace {

constexpr double kBurstS = 0.006;
constexpr std::chrono::milliseconds kSettle{40};  // OpenBLAS's threads spin for 2²⁶ cycles
constexpr double kGatherS = 0.03;
constexpr int kEmptyCalls = 2000;

struct Lab {
  std::string socket;
  int threads = 1;
  int rounds = 15;
  hone_client* client = nullptr;
  double hone_overhead = 0;
  std::map<std::string, double> overheads;
};

double Seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double Burst(const std::function<void()>& work, int count) {
  double begin = Seconds();
  for (int i = 0; i < count; ++i) work();
  return (Seconds() - begin) / count;
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

double EmptyCall(const std::function<void()>& nothing) {
  std::vector<double> times;
  for (int i = 0; i < 9; ++i) times.push_back(Burst(nothing, kEmptyCalls));
  return Median(times);
}

// conv2d(C=3,…)+bias+relu taken apart; attributes that are words (accuracy=relaxed) are left out.
Problem Parse(const std::string& kernel) {
  Problem problem;
  size_t open = kernel.find('('), close = kernel.find(')');
  problem.name = kernel.substr(0, open);
  for (size_t at = open + 1; at < close;) {
    size_t end = std::min(kernel.find(',', at), close), equals = kernel.find('=', at);
    char* rest = nullptr;
    std::string value = kernel.substr(equals + 1, end - equals - 1);
    double number = std::strtod(value.c_str(), &rest);
    if (*rest == '\0') problem.attributes[kernel.substr(at, equals - at)] = number;
    at = end + 1;
  }
  for (size_t at = close + 1; at < kernel.size();) {
    size_t end = std::min(kernel.find('+', at + 1), kernel.size());
    problem.epilogues.push_back(kernel.substr(at + 1, end - at - 1));
    at = end;
  }
  return problem;
}

struct Buffers {
  std::vector<float*> all;
  ~Buffers() {
    for (float* data : all) std::free(data);
  }
};

std::string Json(const std::string& text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

// Of two results, as a share of the largest value.
double Difference(const float* ours, const float* theirs, int64_t count) {
  double largest = 1e-6, worst = 0;
  for (int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(theirs[i])));
    double difference = std::abs(static_cast<double>(ours[i]) - theirs[i]);
    if (!(difference <= worst)) worst = difference;  // a NaN stays
  }
  return worst / largest;
}

int Fail(const std::string& kernel, const std::string& why) {
  fmt::print("{{\"kernel\":{},\"error\":{}}}\n", Json(kernel), Json(why));
  std::fflush(stdout);
  return 1;
}

int Run(const Lab& lab, const std::string& kernel) {
  hone_error error = HONE_ERROR_INIT;
  hone_get_options options = HONE_GET_OPTIONS_INIT;
  options.threads = lab.threads;
  options.frozen = 1;
  options.deadline_us = 60'000'000;
  hone_kernel* held = hone_get(lab.client, kernel.c_str(), &options, &error);
  if (held == nullptr) return Fail(kernel, error.message);
  hone_kernel_info info = HONE_KERNEL_INFO_INIT;
  hone_info(held, &info);

  Problem problem = Parse(kernel);
  Buffers buffers;
  std::vector<void*> given;
  std::mt19937 random(1);
  for (int32_t o = 0; o < info.operand_count; ++o) {
    const hone_operand_info& operand = info.operands[o];
    problem.shapes.emplace_back(operand.shape, operand.shape + operand.rank);
    if (operand.dtype != HONE_F32) {
      hone_release(held);
      return Fail(kernel, "an operand is not f32");
    }
    auto* data = static_cast<float*>(std::aligned_alloc(64, static_cast<size_t>(operand.bytes + 63) / 64 * 64));
    if (data == nullptr) std::abort();
    buffers.all.push_back(data);
    for (int64_t i = 0; i < operand.bytes / 4; ++i) data[i] = static_cast<float>(random() >> 8) / (1 << 23) - 1.0f;
    if (!operand.is_output) problem.inputs.push_back(data);
    given.push_back(operand.is_const ? nullptr : data);
    if (operand.is_const && hone_bind(held, o, data, &error) != 0) return Fail(kernel, error.message);
  }
  std::function<void()> ours = [&] {
    if (hone_call(held, given.data(), nullptr) != 0) std::abort();
  };
  ours();

  struct Timed {
    std::function<void()> call;
    double overhead = 0;
    int count = 1;
    std::vector<double> times;
  };
  std::vector<Peer> peers = MakePeers(problem);
  const hone_operand_info& output = info.operands[info.operand_count - 1];
  std::vector<Timed> timed{{ours, lab.hone_overhead, 1, {}}};
  for (const Peer& peer : peers) timed.push_back({peer.call, lab.overheads.at(peer.library), 1, {}});
  for (Timed& each : timed) {
    each.call();
    each.count = std::clamp(static_cast<int>(kBurstS / std::max(Burst(each.call, 2), 1e-7)), 1, 20000);
  }
  for (int round = 0; round < lab.rounds; ++round) {
    for (size_t place = 0; place < timed.size(); ++place) {
      Timed& each = timed[(static_cast<size_t>(round) + place) % timed.size()];
      if (lab.threads > 1) std::this_thread::sleep_for(kSettle);
      each.call();
      if (lab.threads > 1) Burst(each.call, std::max(1, static_cast<int>(each.count * kGatherS / kBurstS)));
      each.times.push_back(std::max(1e-8, Burst(each.call, each.count) - each.overhead));
    }
  }
  const std::vector<double>& hone_times = timed[0].times;
  auto [least, most] = std::minmax_element(hone_times.begin(), hone_times.end());
  fmt::print(
      "{{\"kernel\":{},\"threads\":{},\"flops\":{},\"origin\":{},\"hone_us\":{:.3f},\"hone_least_us\":{:.3f},"
      "\"hone_most_us\":{:.3f},\"peers\":[",
      Json(kernel), lab.threads, info.flops, Json(info.origin), Median(hone_times) * 1e6, *least * 1e6, *most * 1e6);
  for (size_t p = 0; p < peers.size(); ++p) {
    if (peers[p].finish) peers[p].finish();
    const std::vector<double>& times = timed[p + 1].times;
    std::vector<double> ratios;
    for (size_t r = 0; r < times.size(); ++r) ratios.push_back(times[r] / hone_times[r]);
    auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
    static constexpr const char* kKinds[] = {"same", "blocked", "relaxed"};
    fmt::print(
        "{}{{\"name\":{},\"kind\":\"{}\",\"us\":{:.3f},\"ratio\":{:.4f},\"least\":{:.4f},\"most\":{:.4f},"
        "\"difference\":{:.3g}}}",
        p == 0 ? "" : ",", Json(peers[p].name), kKinds[static_cast<int>(peers[p].kind)], Median(times) * 1e6,
        Median(ratios), *low, *high, Difference(buffers.all.back(), peers[p].result, output.bytes / 4));
  }
  fmt::print("]}}\n");
  std::fflush(stdout);
  hone_release(held);
  return 0;
}

int Main(int argc, char** argv) {
  Lab lab;
  std::vector<std::string> kernels;
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    auto value = [&]() -> std::string { return i + 1 < argc ? argv[++i] : ""; };
    if (word == "--socket") {
      lab.socket = value();
    } else if (word == "--threads") {
      lab.threads = std::max(1, std::atoi(value().c_str()));
    } else if (word == "--rounds") {
      lab.rounds = std::max(1, std::atoi(value().c_str()));
    } else if (word.ends_with(".kernels")) {
      std::ifstream file(word);
      for (std::string line; std::getline(file, line);)
        if (!line.empty() && line[0] != '#') kernels.push_back(line.substr(line.find(' ') + 1));
    } else {
      kernels.push_back(word);
    }
  }
  hone_connect_options options = HONE_CONNECT_OPTIONS_INIT;
  options.flags = HONE_NO_DISK_CACHE;
  options.socket = lab.socket.empty() ? nullptr : lab.socket.c_str();
  options.threads = lab.threads;
  hone_error error = HONE_ERROR_INIT;
  lab.client = hone_connect(&options, &error);
  if (lab.client == nullptr) {
    fmt::print(stderr, "library_bench: {}\n", error.message);
    return 2;
  }
  SetLibraryThreads(lab.threads);
  void* nothing = nullptr;
  lab.hone_overhead = EmptyCall([&] { hone_call(nullptr, &nothing, nullptr); });
  for (auto& [library, call] : EmptyCalls()) lab.overheads[library] = EmptyCall(call);
  fmt::print("{{\"overheads_us\":{{\"hone\":{:.3f}", lab.hone_overhead * 1e6);
  for (auto& [library, seconds] : lab.overheads) fmt::print(",{}:{:.3f}", Json(library), seconds * 1e6);
  fmt::print("}}}}\n");
  int status = 0;
  for (const std::string& kernel : kernels) status |= Run(lab, kernel);
  hone_close(lab.client);
  return status;
}

}  // namespace
}  // namespace hone

int main(int argc, char** argv) { return hone::Main(argc, argv); }
