// What there is to tell of one kernel: its time without compiling it, why its code is as it is, and that code as text.
#include <chrono>
#include <optional>

#include "daemon/inspect/insight.h"
#include "daemon/inspect/record_facts.h"
#include "daemon/routes.h"
#include "ir/schedule/schedule.h"
#include "ir/target.h"

namespace hone {

Result<PredictReply> AnswerPredict(Admin& admin, const PredictRequest& request) {
  return admin.insight->Predict(HONE_TRY(admin.path.Identify({request.kernel, "", request.threads})));
}

Result<CopySpeedReply> AnswerCopySpeed(Admin& admin, const CopySpeedRequest& request) {
  const CopySpeed speed = HONE_TRY(admin.insight->Copies(request.target));
  return CopySpeedReply{speed.to_gb_s, speed.from_gb_s, speed.to_us, speed.from_us};
}

Result<ExplainReply> AnswerExplain(Admin& admin, const ExplainRequest& request) {
  Record record = HONE_TRY(admin.FindRecordOf(request.name));
  ExplainReply reply = HONE_TRY(admin.insight->Explain(record));
  reply.row = RowOf(record, HONE_TRY(admin.cache.UseOf(record.key.fingerprint)));
  std::vector<Fact> reasons = admin.ReasonsFor(record);
  reply.reasons.insert(reply.reasons.begin(), reasons.begin(), reasons.end());
  return reply;
}

Result<TextReply> AnswerText(Admin& admin, const TextRequest& request) {
  const Record record = HONE_TRY(admin.FindRecordOf(request.name));
  if (request.what == TextKind::kSchedule)
    return TextReply{record.key.fingerprint.Hex(), InWordsOfToday(record.schedule)};
  const Target target = HONE_TRY(ParseTarget(record.key.target));
  std::string code = HONE_TRY(admin.own.Explain({record.key.canonical, record.schedule, target},
                                                std::chrono::steady_clock::now() + std::chrono::seconds(30)));
  return TextReply{record.key.fingerprint.Hex(), std::move(code)};
}

Result<TargetTextReply> AnswerTargetText(Admin& admin, const TargetTextRequest& request) {
  KernelRequest ask{request.name.kernel, request.target, request.name.threads};
  if (request.name.is_fingerprint) {
    const Record of_some_target = HONE_TRY(admin.FindRecord(request.name.kernel));
    ask.kernel = of_some_target.key.canonical;
    ask.threads = 0;  // the text says
  }
  const ResolvedKernel identity = HONE_TRY(admin.path.Identify(ask));
  const std::optional<CacheHit> hit = HONE_TRY(admin.cache.Lookup(identity.key, Counting::kNot));
  TargetTextReply reply{identity.key.fingerprint.Hex(), hit ? InWordsOfToday(hit->record.schedule) : ""};
  if (request.what == TextKind::kCode)
    reply.text = HONE_TRY(admin.own.Explain({identity.key.canonical, hit ? hit->record.schedule : "", identity.target},
                                            std::chrono::steady_clock::now() + std::chrono::seconds(30)));
  else if (!hit)
    return Error{ErrorKind::kNotFound, "there is no record of it for this device", request.target};
  return reply;
}

}  // namespace hone
