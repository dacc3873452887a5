#include "daemon/edge/edge_path.h"

#include <utility>

#include "base/log.h"
#include "ir/language/instance_sizes.h"
#include "ir/language/parse.h"

namespace hone {
namespace {

// How many kernels a range of sizes holds.
double Width(const std::string& canonical) {
  const Result<Kernel> kernel = ParseKernel(canonical);
  double width = 1;
  if (kernel)
    for (const Size& size : kernel->sizes) width *= static_cast<double>(size.hi - size.lo + 1);
  return width;
}

}  // namespace

Result<LookUpResult> EdgePath::LookUp(const KernelRequest& ask, Counting counting) {
  LookUpResult found = HONE_TRY(LookupPath::LookUp(ask, counting));
  if (found.code || found.is_to_check) return found;
  const ResolvedKernel& identity = found.identity;
  if (std::optional<LookUpResult> range = HONE_TRY(LookUpRange(identity, ask, counting))) return *std::move(range);
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

Result<std::optional<LookUpResult>> EdgePath::LookUpRange(const ResolvedKernel& identity, const KernelRequest& ask,
                                                          Counting counting) {
  if (!ranges_ || identity.is_dynamic) return std::optional<LookUpResult>();
  const std::vector<Record> ranges = HONE_TRY(ranges_(identity.key.class_fingerprint));
  const Record* narrowest = nullptr;
  double least = 0;
  for (const Record& record : ranges) {
    if (!InstanceSizes(identity.key.canonical, record.key.canonical)) continue;
    const double width = Width(record.key.canonical);
    if (narrowest != nullptr && width >= least) continue;
    narrowest = &record;
    least = width;
  }
  if (narrowest == nullptr) return std::optional<LookUpResult>();
  LookUpResult found = HONE_TRY(LookupPath::LookUp({narrowest->key.canonical, ask.target, 0}, counting));
  if (!found.code && !found.is_to_check) return std::optional<LookUpResult>();
  LogDebug("served_from_a_range",
           {{"fingerprint", identity.key.fingerprint.Hex()}, {"range", found.identity.key.fingerprint.Hex()}});
  return std::optional<LookUpResult>(std::move(found));
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
