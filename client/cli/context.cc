#include "client/cli/context.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <system_error>

#include "base/file.h"
#include "client/cli/model_file.h"
#include "client/protocol/start_daemon.h"
#include "ir/target.h"

namespace hone::cli {
namespace {

constexpr int kInspectorSocket = 3;
constexpr int64_t kMostCalls = 1'000'000'000'000;  // of a kernel of a list: those of all of them can be added up

std::string Absolute(const std::string& path) {
  if (path.empty() || path[0] == '/') return path;
  char* directory = get_current_dir_name();
  std::string absolute = directory == nullptr ? path : std::string(directory) + "/" + path;
  free(directory);
  return absolute;
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

// list ::= { [count kernel] [# comment] newline }
Result<std::vector<NamedKernel>> ParseList(std::string_view text, const std::string& path) {
  std::vector<NamedKernel> kernels;
  int line_number = 0;
  while (!text.empty()) {
    size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++line_number;
    line = Trim(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    NamedKernel kernel;
    kernel.place = path + ":" + std::to_string(line_number);
    auto [rest, code] = std::from_chars(line.data(), line.data() + line.size(), kernel.count);
    std::string_view spec(rest, static_cast<size_t>(line.data() + line.size() - rest));
    if (code != std::errc() || kernel.count < 1 || kernel.count > kMostCalls || spec.empty() ||
        !isspace(static_cast<unsigned char>(spec[0]))) {
      return Error{
          ErrorKind::kInvalid,
          fmt::format("saw \"{}\", wanted how often it is called, from 1 to {}, then a kernel", line, kMostCalls),
          kernel.place};
    }
    kernel.text = Trim(spec);
    kernels.push_back(std::move(kernel));
  }
  if (kernels.empty()) return Error{ErrorKind::kInvalid, "no kernel in this list", path};
  return kernels;
}

}  // namespace

Context::Context(const Arguments& globals)
    : json_(globals.Has("--json")),
      no_start_(globals.Has("--no-start")),
      socket_(Absolute(globals.Text("--socket"))),
      cache_(Absolute(globals.Text("--cache"))) {}

Result<Client*> Context::Daemon(int threads) {
  if (!client_) {
    ClientOptions options;
    options.socket = socket_;
    options.start_daemon = !no_start_;
    options.daemon_cache = cache_;
    options.use_disk_cache = false;  // what a command shows is what the daemon says
    options.threads.threads = threads;
    client_ = HONE_TRY(Client::Create(std::move(options)));
    if (!cache_.empty()) HONE_TRY(CheckCache());
  }
  return client_.get();
}

Result<void> Context::CheckCache() {
  Channel channel = HONE_TRY(client_->Connect(std::chrono::steady_clock::now() + std::chrono::seconds(30)));
  const StatusReply status = HONE_TRY(channel.Call(StatusRequest{}, Patience()));
  std::error_code different;
  if (std::filesystem::equivalent(status.cache, cache_, different)) return {};
  return Error{ErrorKind::kInvalid,
               fmt::format("the honed that listens has its kernels in {}; end it, or have another one started with "
                           "--socket",
                           status.cache.empty() ? "no cache" : status.cache),
               cache_};
}

Result<Channel> Context::Ask() {
  if (!cache_.empty()) return Inspect();
  Client* client = HONE_TRY(Daemon());
  return client->Connect(std::chrono::steady_clock::now() + std::chrono::seconds(30));
}

Result<Channel> Context::Inspect() {
  if (access(cache_.c_str(), F_OK) != 0) return ErrnoError(errno, "cannot look into this cache", cache_);
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return ErrnoError(errno, "cannot make a socket");
  UniqueFd ours(ends[0]), theirs(ends[1]);
  SubprocessOptions options;
  options.executable = HONE_TRY(FindDaemon());
  options.arguments = {"--inspect", std::to_string(kInspectorSocket), "--cache", cache_, "--log", "error"};
  options.fds = {{theirs.get(), kInspectorSocket}};
  options.limits.open_files = 4096;
  inspector_ = HONE_TRY(Subprocess::Start(options));
  theirs.Reset();
  Channel channel(std::move(ours));
  // It says whether it could open the cache by answering, or by ending with a reason.
  Result<HelloReply> hello = channel.Call(HelloRequest{.client = "hone " HONE_VERSION}, Patience());
  if (hello) return channel;
  inspector_->Wait(std::chrono::steady_clock::now() + std::chrono::seconds(5));
  std::string words = inspector_->ErrorTail();
  if (words.starts_with("honed: ")) words.erase(0, 7);
  if (words.empty()) return std::move(hello).error();
  return Error{ErrorKind::kIo, words, ""};
}

int Context::Fail(const Error& error) const {
  PrintError(error, json_);
  return kFailed;
}

int Context::WrongUsage(const Error& error) const {
  PrintError(error, json_);
  return kWrongUsage;
}

Result<std::vector<NamedKernel>> ReadKernels(const std::string& argument) {
  auto read = [&] { return ReadFile(argument, size_t{16} << 20); };
  if (argument.ends_with(".kernels")) return ParseList(HONE_TRY(read()), argument);
  if (argument.ends_with(".hone")) {
    std::vector<NamedKernel> kernels;
    kernels.push_back({HONE_TRY(read()), 1, argument, {}});
    return kernels;
  }
  if (NamesModel(argument)) {
    ModelFile model = HONE_TRY(ReadModel(argument, {}));
    PrintLeftOut(model);
    return model.Kernels();
  }
  // Only a file can be meant by a path: no kernel starts like one.
  if (argument.starts_with("/") || argument.starts_with("./") || argument.starts_with("../")) {
    return Error{ErrorKind::kInvalid, "wanted a kernel, NAME.kernels, NAME.hone or NAME.onnx", argument};
  }
  return std::vector<NamedKernel>{{argument, 1, "", ""}};
}

Result<NamedKernel> ReadKernel(const std::string& argument) {
  std::vector<NamedKernel> kernels = HONE_TRY(ReadKernels(argument));
  if (kernels.size() != 1) {
    return Error{ErrorKind::kInvalid, "one kernel is wanted, and this list has " + std::to_string(kernels.size()),
                 argument};
  }
  return std::move(kernels[0]);
}

Error AtPlace(Error error, const NamedKernel& kernel) {
  if (kernel.place.empty()) return error;
  // "kernel:LINE:COLUMN" is a place in the text: in a file of the kernel language it is the file's.
  if (kernel.place.ends_with(".hone") && error.where.starts_with("kernel:")) {
    error.where = kernel.place + error.where.substr(6);
  } else {
    error.where = error.where.empty() ? kernel.place : kernel.place + ": " + error.where;
  }
  return error;
}

bool IsFingerprint(const std::string& argument) {
  return !argument.empty() && argument.size() <= 32 &&
         argument.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
}

const Option kBudgetOption{
    "--budget", "TIME",
    "how long to wait (default: one build); 1s allows measuring other kernels' schedules, 10s a search"};
const Option kTargetOption{
    "--target", "T",
    "the device, such as opencl:0, avx2 or, if it can be emulated, cpu:neoverse-n1 (default: the daemon's machine)"};
const Option kTargetOrBestOption{"--target", "T",
                                 "the device, such as opencl:0, avx2 or, if it can be emulated, cpu:neoverse-n1; best: "
                                 "where a call takes the least time (default: the daemon's machine)"};
const Option kThreadsOption{"--threads", "N", "number of threads to generate code for (default: as the kernel says)"};
const Option kNoCompileOption{"--no-compile", "", "use what is in the cache, or fail"};

Result<int> ReadThreads(const Arguments& arguments) {
  return static_cast<int>(HONE_TRY(arguments.Number("--threads", 0, 1, 1024)));
}

Result<GetOptions> ReadGetOptions(const Arguments& arguments) {
  GetOptions options;
  options.frozen = true;  // what is shown is what was measured
  options.budget = HONE_TRY(arguments.Duration("--budget", std::chrono::microseconds(0)));
  options.deadline = std::chrono::minutes(2);
  options.threads = HONE_TRY(ReadThreads(arguments));
  options.no_compile = arguments.Has("--no-compile");
  options.target = arguments.Text("--target");
  return options;
}

Json ServedJson(const GetReply& reply, double served_us) {
  Json json;
  json.Set("fingerprint", reply.fingerprint)
      .Set("class", reply.class_name)
      .Set("target", reply.target)
      .Set("hit", reply.hit)
      .Set("pinned", reply.pinned)
      .Set("origin", reply.origin)
      .Set("served_us", served_us)
      .Set("expected_us", reply.expected_us)
      .Set("confidence", reply.confidence)
      .Set("verified", UncheckedName(reply.target).empty());
  return json;
}

}  // namespace hone::cli
