// hone warm: note and serve every kernel of a list, so that applications find them in the cache.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "base/mutex.h"
#include "client/cli/command.h"
#include "client/cli/context.h"

namespace hone::cli {
namespace {

struct Outcome {
  Result<GetReply> reply = Error{};
  double served_us = 0;
};

// Asks for kernels over several connections at once and hands the outcomes out in the list's order.
class Crew {
 public:
  Crew(Client& client, const std::vector<NamedKernel>& kernels, const GetOptions& options, int threads)
      : client_(client), kernels_(kernels), options_(options), outcomes_(kernels.size()), done_(kernels.size()) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
  }
  ~Crew() {
    for (std::thread& thread : threads_) thread.join();
  }

  const Outcome& Wait(size_t index) {
    MutexLock lock(mutex_);
    while (!done_[index]) changed_.Wait(mutex_);
    return outcomes_[index];
  }

 private:
  void Work() {
    for (size_t i; (i = next_.fetch_add(1)) < kernels_.size();) {
      Stopwatch stopwatch;
      Result<Served> served = client_.Fetch(kernels_[i].text, options_);
      Outcome outcome;
      outcome.served_us = stopwatch.Microseconds();
      if (served) {
        outcome.reply = std::move(served->reply);
      } else {
        outcome.reply = AtPlace(served.error(), kernels_[i]);
      }
      MutexLock lock(mutex_);
      outcomes_[i] = std::move(outcome);
      done_[i] = true;
      changed_.NotifyAll();
    }
  }

  Client& client_;
  const std::vector<NamedKernel>& kernels_;
  const GetOptions options_;
  std::atomic<size_t> next_{0};
  Mutex mutex_;
  CondVar changed_;
  std::vector<Outcome> outcomes_ HONE_GUARDED_BY(mutex_);
  std::vector<bool> done_ HONE_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

struct Summary {
  size_t kernels = 0, hits = 0, compiled = 0, failed = 0;
  double elapsed_s = 0;
};

Json ToJson(const NamedKernel& kernel, const Outcome& outcome) {
  Json json;
  json.Set("kernel", kernel.text).Set("count", kernel.count);
  if (!outcome.reply) return json.Set("error", ErrorJson(outcome.reply.error()));
  json.Append(ServedJson(*outcome.reply, outcome.served_us));
  return json;
}

int Finish(Context& context, const Summary& summary, const Table& table) {
  if (context.json()) {
    Json json;
    json.Set("kernels", summary.kernels)
        .Set("hits", summary.hits)
        .Set("compiled", summary.compiled)
        .Set("failed", summary.failed)
        .Set("elapsed_s", summary.elapsed_s);
    Print(json.Dump() + "\n");
  } else {
    Print(table.Text());
    Print(fmt::format("{} kernels in {}: {} from the cache, {} compiled{}\n", summary.kernels,
                      TimeText(summary.elapsed_s * 1e6), summary.hits, summary.compiled,
                      summary.failed ? fmt::format(", {} failed", summary.failed) : ""));
  }
  return summary.failed ? kFailed : kDone;
}

int Run(Context& context, const Arguments& arguments) {
  Result<GetOptions> options = ReadGetOptions(arguments);
  if (!options) return context.WrongUsage(options.error());
  std::vector<NamedKernel> kernels;
  for (const std::string& argument : arguments.Texts("FILE")) {
    Result<std::vector<NamedKernel>> some = ReadKernels(argument);
    if (!some) return context.Fail(some.error());
    std::move(some->begin(), some->end(), std::back_inserter(kernels));
  }
  Result<Client*> client = context.Daemon();
  if (!client) return context.Fail(client.error());
  // Starts the daemon once, before many connections ask for it; and says at once if it cannot be reached.
  Result<StatusReply> status = (*client)->Call<StatusReply>(StatusRequest{}, Context::Patience());
  if (!status) return context.Fail(status.error());
  options->deadline = std::chrono::minutes(10);
  Stopwatch stopwatch;
  // One request more than there are builders keeps each of them at work.
  Crew crew(**client, kernels, *options, static_cast<int>(std::min<size_t>(kernels.size(), status->builders + 1)));
  Summary summary{.kernels = kernels.size()};
  Table table(
      {{"count", Table::Align::kRight}, {"kernel"}, {"fingerprint"}, {"origin"}, {"served", Table::Align::kRight}});
  ProgressBar bar(kernels.size());
  for (size_t i = 0; i < kernels.size(); ++i) {
    bar.Show(i, kernels[i].text);
    const Outcome& outcome = crew.Wait(i);
    if (outcome.reply) {
      ++(outcome.reply->hit ? summary.hits : summary.compiled);
      table.Add({std::to_string(kernels[i].count), kernels[i].text, outcome.reply->fingerprint.substr(0, 12),
                 outcome.reply->hit ? "cache, " + outcome.reply->origin : outcome.reply->origin,
                 TimeText(outcome.served_us)});
    } else {
      ++summary.failed;
      bar.Clear();
      PrintError(outcome.reply.error(), false);
      table.Add({std::to_string(kernels[i].count), kernels[i].text, "-",
                 std::string(ErrorKindName(outcome.reply.error().kind)), "-"});
    }
    if (context.json()) Print(ToJson(kernels[i], outcome).Dump() + "\n");
  }
  bar.Clear();
  summary.elapsed_s = stopwatch.Microseconds() / 1e6;
  return Finish(context, summary, table);
}

}  // namespace

Command WarmCommand() {
  return {
      .name = "warm",
      .summary = "serve every kernel of a list, so that applications find them in the cache",
      .details =
          R"(A list (NAME.kernels) has one kernel a line: how often it is called, then the kernel; # starts a comment.

Examples:
  hone warm models/resnet18.kernels
  hone warm models/*.kernels --json)",
      .positionals = {{"FILE", "lists of kernels, or kernels", true, true}},
      .options = {kBudgetOption, kTargetOption, kThreadsOption, kNoCompileOption},
      .run = Run};
}

}  // namespace hone::cli
