#include "client/cli/kernel_text.h"

namespace hone::cli {
namespace {

Result<TextReply> Fetch(Context& context, const std::string& argument, TextKind what) {
  if (IsFingerprint(argument)) return context.Call<TextReply>(TextRequest{what, argument, true});
  NamedKernel kernel = HONE_TRY(ReadKernel(argument));
  TextRequest request{what, kernel.text, false};
  Result<TextReply> reply = context.Call<TextReply>(request);
  if (!reply && reply.error().kind == ErrorKind::kNotFound) {
    Client* client = HONE_TRY(context.Daemon());
    GetOptions options;
    options.deadline = std::chrono::minutes(2);
    if (Result<Served> served = client->Fetch(kernel.text, options); !served) return AtPlace(served.error(), kernel);
    reply = context.Call<TextReply>(request);
  }
  if (!reply) return AtPlace(reply.error(), kernel);
  return reply;
}

}  // namespace

int PrintKernelText(Context& context, const std::string& argument, TextKind what, const char* field) {
  Result<TextReply> reply = Fetch(context, argument, what);
  if (!reply) return context.Fail(reply.error());
  if (context.json()) {
    Print(Json().Set("fingerprint", reply->fingerprint).Set(field, reply->text).Dump() + "\n");
  } else {
    Print(reply->text + (reply->text.ends_with('\n') ? "" : "\n"));
  }
  return kDone;
}

}  // namespace hone::cli
