// Decoders of stored values: records, use counts, classes, manifests, devices' artifacts. Whatever the bytes, they
// decode or are refused; and what decodes has one spelling. The first byte chooses the decoder and whether the rest is
// a whole value or the body of a sound envelope, which random bytes would never get past.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/check.h"
#include "base/envelope.h"
#include "cache/record.h"
#include "ir/device_artifact.h"
#include "ir/manifest.h"

namespace hone {
namespace {

template <typename Decode, typename Encode>
void Check(std::string_view value, Decode decode, Encode encode) {
  auto decoded = decode(value);
  if (decoded) HONE_CHECK(encode(*decoded) == value);
}

// What an older version wrote is written as the newest does.
void CheckRecordValue(std::string_view value) {
  Result<Record> decoded = DecodeRecord(value);
  if (!decoded) return;
  const std::string today = EncodeRecord(*decoded);
  HONE_CHECK(SealedVersion(value) < kRecordVersion ? *DecodeRecord(today) == *decoded : today == value);
}

void Run(uint8_t choice, std::string_view rest) {
  if (choice >= 0xc0) {
    const Result<DeviceArtifact> artifact = DecodeDeviceArtifact(AsBytes(rest));
    if (artifact) HONE_CHECK(EncodeDeviceArtifact(*artifact) == rest);
    return;
  }
  auto value = [&](ValueType type, uint8_t version = 1) {
    return choice & 4 ? Seal(type, version, rest) : std::string(rest);
  };
  switch (choice & 3) {
    case 0:
      return CheckRecordValue(
          value(ValueType::kRecord, choice & 8 ? 1 + (choice >> 4) % (kRecordVersion - 1) : kRecordVersion));
    case 1: return Check(value(ValueType::kKernelUse), DecodeKernelUse, EncodeKernelUse);
    case 2: return Check(value(ValueType::kClass), DecodeClass, EncodeClass);
    case 3:
      return Check(
          value(ValueType::kManifest), [](std::string_view bytes) { return DecodeManifest(AsBytes(bytes)); },
          EncodeManifest);
  }
}

}  // namespace
}  // namespace hone

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 0) hone::Run(data[0], {reinterpret_cast<const char*>(data) + 1, size - 1});
  return 0;
}
