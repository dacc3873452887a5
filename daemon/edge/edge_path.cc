#include "daemon/edge/edge_path.h"

#include <utility>

#include "base/log.h"

namespace hone {

Result<LookUpResult> EdgePath::LookUp(const KernelRequest& ask, Counting counting) {
  LookUpResult found = HONE_TRY(LookupPath::LookUp(ask, counting));
  if (found.code || found.is_to_check) return found;
  const ResolvedKernel& identity = found.identity;
  // A number of threads that came beside the text is said in the canonical one.
  const std::string& text = ask.threads > 0 ? identity.key.canonical : identity.request;
  if (missing_.Note(identity.key.fingerprint, text))
    LogWarn("not_here", {{"fingerprint", identity.key.fingerprint.Hex()}, {"kernel", text}});
  return Error{
      ErrorKind::kNotFound,
      "not here: no bundle on this device has code for it, and there is no compiler. `hone missing` lists such "
      "kernels; warm and export them on a machine with hone, for this device's target",
      identity.label};
}

Result<Compiled> EdgePath::Compile(const LookUpResult& found, const CompileRequest& options) {
  Result<Compiled> checked = CheckImported(found, options);
  if (checked) return checked;
  const Error& error = checked.error();
  if (error.kind == ErrorKind::kUnavailable || error.kind == ErrorKind::kBusy) return checked;
  ++metrics_.imported_refused;
  const std::string bundle = found.known->source ? found.known->source->bundle : "";
  LogError("imported_code_refused", {{"fingerprint", found.identity.key.fingerprint.Hex()},
                                     {"bundle", bundle},
                                     {"why", error.Text()},
                                     {"then", "it is not served"}});
  return std::move(checked).error().Context("bundle " + bundle);
}

}  // namespace hone
