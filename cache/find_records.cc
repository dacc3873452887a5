// Finding and listing records. Every read goes through the layers; a value that does not decode is set aside and the
// next layer asked.
#include <map>

#include "base/bytes.h"
#include "base/check.h"
#include "cache/cache_impl.h"

namespace hone {

void CacheImpl::ScanRecords(std::string_view prefix, const std::function<bool(Found&&)>& visit, std::string_view from) {
  auto open = [&](std::string_view key, std::string_view value, CacheLayer layer) {
    Opened opened = Open(Family::kRecords, key, value, layer);
    if (opened.record && !visit(Found{std::string(key), *std::move(opened.record), layer})) return Take::kStop;
    return opened.take;
  };
  store_->Scan(Family::kRecords, prefix, open, nullptr, from);
}

std::vector<CacheImpl::Found> CacheImpl::FindKernel(const Fingerprint& fingerprint) {
  std::vector<Found> found;
  std::optional<KernelUse> use = StoredUse(fingerprint);
  if (!use) return found;
  ScanRecords(KernelPrefix(use->class_fingerprint, fingerprint), [&](Found&& one) {
    found.push_back(std::move(one));
    return true;
  });
  return found;
}

Result<std::vector<Record>> CacheImpl::RecordsOf(const Fingerprint& fingerprint) {
  std::vector<Record> records;
  for (Found& found : FindKernel(fingerprint)) records.push_back(std::move(found.record));
  return records;
}

Result<void> CacheImpl::ForEachRecord(const std::optional<Fingerprint>& class_fingerprint,
                                      const std::function<bool(const Record&)>& visit) {
  std::string prefix = class_fingerprint ? ClassPrefix(*class_fingerprint) : "";
  ScanRecords(prefix, [&](Found&& found) { return visit(found.record); });
  return {};
}

Result<bool> CacheImpl::ForEachRecordAfter(std::string& place, const std::function<bool(const Record&)>& visit) {
  const std::string from = place.empty() ? "" : place + '\0';  // the least key behind it
  bool at_end = true;
  auto pass = [&](Found&& found) {
    at_end = visit(found.record);
    place = std::move(found.key);
    return at_end;
  };
  ScanRecords("", pass, from);
  return at_end;
}

std::string CacheImpl::ClassTextOf(const Fingerprint& class_fingerprint) {
  std::string text;
  store_->Read(Family::kKernels, ClassKey(class_fingerprint),
               [&](std::string_view, std::string_view value, CacheLayer) {
                 Result<ClassInfo> info = DecodeClass(value);
                 if (info) text = info->class_text;
                 return info ? Take::kTaken : Take::kTryNextLayer;
               });
  return text;
}

bool CacheImpl::InSystemLayer(const std::string& key) {
  bool found = false;
  store_->Read(Family::kRecords, key, [&](std::string_view, std::string_view, CacheLayer layer) {
    found = layer == CacheLayer::kSystem;
    return Take::kTryNextLayer;
  });
  return found;
}

Result<std::vector<Fingerprint>> CacheImpl::FindByPrefix(std::string_view hex_digits, size_t limit) {
  const std::string wanted = HONE_TRY(BeginningOfFingerprint(hex_digits));
  // An odd last digit stands for the upper half of a byte: it is filtered for below.
  std::vector<uint8_t> bytes(wanted.size() / 2);
  HONE_CHECK(ParseHex(wanted.substr(0, bytes.size() * 2), bytes));
  std::string prefix(1, kUseTag);
  prefix.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::vector<Fingerprint> found;
  store_->Scan(Family::kKernels, prefix, [&](std::string_view key, std::string_view, CacheLayer) {
    std::optional<Fingerprint> fingerprint = TaggedFingerprint(kUseTag, key);
    if (fingerprint && fingerprint->Hex().starts_with(wanted) && !FindKernel(*fingerprint).empty())
      found.push_back(*fingerprint);
    return found.size() < limit ? Take::kTaken : Take::kStop;
  });
  return found;
}

Result<std::vector<ClassSummary>> CacheImpl::Classes() {
  std::map<Fingerprint, ClassSummary> classes;
  store_->Scan(Family::kKernels, std::string(1, kClassTag),
               [&](std::string_view key, std::string_view value, CacheLayer layer) {
                 Result<ClassInfo> info = DecodeClass(value);
                 std::optional<Fingerprint> fingerprint = TaggedFingerprint(kClassTag, key);
                 if (!info || !fingerprint) {
                   SetAside(Family::kKernels, key, value, layer,
                            info ? Error{ErrorKind::kCorrupt, "not a class's key", ""} : info.error());
                   return Take::kTryNextLayer;
                 }
                 info->fingerprint = *fingerprint;
                 classes[*fingerprint].info = *std::move(info);
                 return Take::kTaken;
               });
  store_->Scan(Family::kKernels, std::string(1, kUseTag),
               [&](std::string_view key, std::string_view value, CacheLayer layer) {
                 Result<KernelUse> use = DecodeKernelUse(value);
                 if (!use) {
                   SetAside(Family::kKernels, key, value, layer, use.error());
                   return Take::kTryNextLayer;
                 }
                 ClassSummary& summary = classes[use->class_fingerprint];
                 summary.info.fingerprint = use->class_fingerprint;
                 ++summary.kernels;
                 return Take::kTaken;
               });
  std::vector<ClassSummary> summaries;
  for (auto& [fingerprint, summary] : classes)
    if (summary.kernels > 0) summaries.push_back(std::move(summary));
  return summaries;
}

}  // namespace hone
