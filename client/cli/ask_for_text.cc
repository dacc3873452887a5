#include "client/cli/ask_for_text.h"

namespace hone::cli {

Result<void> FetchFirst(Context& context, const NamedKernel& kernel, int threads, const std::string& target) {
  Client* client = HONE_TRY(context.Daemon());
  GetOptions options;
  options.deadline = std::chrono::minutes(2);
  options.threads = threads;
  options.target = target;
  if (Result<Served> served = client->Fetch(kernel.text, options); !served) return AtPlace(served.error(), kernel);
  return {};
}

Result<int> ReadThreadsOfKernel(const Arguments& arguments) {
  int threads = HONE_TRY(ReadThreads(arguments));
  std::string kernel = arguments.Text("KERNEL");
  if (threads > 0 && IsFingerprint(kernel))
    return Error{ErrorKind::kInvalid, "a fingerprint has its number of threads: leave --threads out", kernel};
  return threads;
}

namespace {

struct KernelText {
  std::string fingerprint, text;
};

Result<KernelText> AskForText(Context& context, const std::string& kernel, int threads, const std::string& target,
                              TextKind what) {
  if (target.empty()) {
    TextReply reply = HONE_TRY(
        CallForKernel(context, kernel, threads, [&](KernelName name) { return TextRequest{what, std::move(name)}; }));
    return KernelText{std::move(reply.fingerprint), std::move(reply.text)};
  }
  const auto make = [&](KernelName name) { return TargetTextRequest{what, std::move(name), target}; };
  TargetTextReply reply = HONE_TRY(CallForKernel(context, kernel, threads, make, target));
  return KernelText{std::move(reply.fingerprint), std::move(reply.text)};
}

}  // namespace

int PrintKernelText(Context& context, const Arguments& arguments, TextKind what, const char* field) {
  Result<int> threads = ReadThreadsOfKernel(arguments);
  if (!threads) return context.WrongUsage(threads.error());
  const Result<KernelText> reply =
      AskForText(context, arguments.Text("KERNEL"), *threads, arguments.Text("--target"), what);
  if (!reply) return context.Fail(reply.error());
  if (context.json()) {
    Print(Json().Set("fingerprint", reply->fingerprint).Set(field, reply->text).Dump() + "\n");
  } else {
    Print(reply->text + (reply->text.ends_with('\n') ? "" : "\n"));
  }
  return kDone;
}

}  // namespace hone::cli
