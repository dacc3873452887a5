// Readers of bundles and key files. Whatever the bytes, they are read or refused, and nothing is allocated that the
// bytes do not pay for. The first byte chooses: a file as it is, a manifest under a right checksum, which random bytes
// would never get past, or a key file.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/check.h"
#include "cache/bundle/bundle.h"
#include "cache/bundle/key_file.h"

namespace hone {
namespace {

void ReadAll(std::string_view bytes) {
  Result<Bundle> bundle = Bundle::Open(AsBytes(bytes));
  if (!bundle) return;
  HONE_CHECK(IsBundleName(bundle->manifest().name));
  (void)bundle->CheckFrames();
  (void)bundle->ForEachEntry([&](BundleEntry&& entry) -> Result<void> {
    if (entry.record.artifact_digest) HONE_TRY(bundle->Artifact(*entry.record.artifact_digest));
    return {};
  });
}

// The manifest's bytes up to the length that the first two bytes give, frames behind it.
void ReadBehindAHead(std::string_view rest) {
  if (rest.size() < 2) return;
  const size_t said = static_cast<uint8_t>(rest[0]) | static_cast<size_t>(static_cast<uint8_t>(rest[1])) << 8;
  rest.remove_prefix(2);
  const std::string_view manifest = rest.substr(0, said), frames = rest.substr(manifest.size());
  ByteWriter out;
  out.Raw("hone.bdl");
  out.U16(1);
  out.U16(0);
  out.U32(static_cast<uint32_t>(manifest.size()));
  out.U64(frames.size());
  out.Raw(std::span<const uint8_t>(HeadCheck(out.view(), manifest)));
  out.Raw(manifest);
  out.Raw(frames);
  ReadAll(out.view());
  Result<BundleManifest> decoded = DecodeBundleManifest(manifest, 0, frames.size());
  if (decoded) HONE_CHECK(EncodeBundleManifest(*decoded) == manifest);
}

void Run(uint8_t choice, std::string_view rest) {
  if (choice % 3 == 0) return ReadAll(rest);
  if (choice % 3 == 1) return ReadBehindAHead(rest);
  Result<KeyFile> key = DecodeKeyFile(rest, "key");
  if (key) HONE_CHECK(DecodeKeyFile(EncodeKeyFile(*key), "key").has_value());
}

}  // namespace
}  // namespace hone

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 0) hone::Run(data[0], {reinterpret_cast<const char*>(data) + 1, size - 1});
  return 0;
}
