// What commands share: the way to the daemon (or into a cache without one), and how results are shown.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/subprocess.h"
#include "client/api/client.h"
#include "client/cli/command.h"
#include "client/cli/print_values.h"
#include "client/protocol/channel.h"

namespace hone::cli {

class Context {
 public:
  explicit Context(const Arguments& globals);

  bool json() const { return json_; }

  // A client of the daemon, which is started if nothing listens (unless --no-start). `threads` of its pool, 0: all.
  Result<Client*> Daemon(int threads = 0);
  // A connection for questions about the cache: with --cache to a process that looks into that directory, else to the
  // daemon.
  Result<Channel> Ask();
  template <typename Request>
  Result<ReplyTo<Request>> Call(const Request& request) {
    Channel channel = HONE_TRY(Ask());
    return channel.Call(request, Patience());
  }
  // How long a command waits for an answer: people interrupt sooner, scripts do not hang.
  static Deadline Patience() { return std::chrono::steady_clock::now() + std::chrono::minutes(10); }

  // Says what went wrong; the exit status for it.
  int Fail(const Error& error) const;
  int WrongUsage(const Error& error) const;

 private:
  Result<Channel> Inspect();
  // kInvalid: the daemon is there already, and has another cache than --cache.
  Result<void> CheckCache();

  const bool json_;
  const bool no_start_;
  std::string socket_;
  std::string cache_;
  std::unique_ptr<Client> client_;
  std::optional<Subprocess> inspector_;
};

// A kernel as the command line names it.
struct NamedKernel {
  std::string text;
  int64_t count = 1;  // how often it is called, from a list
  std::string place;  // "resnet18.kernels:3", "conv.hone"; "" if it stood on the command line
  std::string
      label;  // what people see in place of a text that a model's import wrote; "": the file's name, or the text

  const std::string& shown() const {
    const bool is_file = place.ends_with(".hone");  // whose text has many lines
    return !label.empty() ? label : is_file ? place : text;
  }
};

// KERNEL, FILE.kernels, FILE.hone or MODEL.onnx, of which what was left out is said on standard error. kNotFound,
// kInvalid with the line; errors of ImportModel.
Result<std::vector<NamedKernel>> ReadKernels(const std::string& argument);
// The same where one kernel is wanted.
Result<NamedKernel> ReadKernel(const std::string& argument);

// An error about a kernel, with the place that the kernel came from.
Error AtPlace(Error error, const NamedKernel& kernel);

// True for what can only be a fingerprint's digits: kernels have parentheses or spaces.
bool IsFingerprint(const std::string& argument);

// --budget, --target, --threads and --no-compile, for the commands that ask for kernels.
Result<GetOptions> ReadGetOptions(const Arguments& arguments);
Result<int> ReadThreads(const Arguments& arguments);  // 0: not given
extern const Option kBudgetOption;
extern const Option kTargetOption;
extern const Option kTargetOrBestOption;  // of the commands that take "best" (best_target.h)
extern const Option kThreadsOption;
extern const Option kNoCompileOption;

// The fields that `get` promises.
Json ServedJson(const GetReply& reply, double served_us);

}  // namespace hone::cli
