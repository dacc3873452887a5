#include "client/cli/edit.h"

namespace hone::cli {

int EditRecords(Context& context, const Arguments& arguments, EditAction action, const char* done) {
  int status = kDone;
  for (const std::string& digits : arguments.Texts("FP")) {
    Result<EditReply> reply = context.Call(EditRequest{action, digits});
    if (!reply) {
      status = context.Fail(reply.error());
    } else if (context.json()) {
      Print(Json().Set("fingerprint", reply->fingerprint).Set(done, true).Dump() + "\n");
    } else {
      Print(std::string(done) + " " + reply->fingerprint + "\n");
    }
  }
  return status;
}

}  // namespace hone::cli
