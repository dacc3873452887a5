// layout   ::= oci-layout index.json blobs/sha256/HEX…
// index    → manifest → config (none: the empty object), layer (the bundle)
#include "client/cli/oci_layout.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "cache/bundle/key_file.h"
#include "cache/bundle/sha256.h"
#include "client/cli/json.h"

namespace hone::cli {
namespace {

constexpr std::string_view kEmpty = "{}";

std::string DigestOf(std::string_view bytes) { return "sha256:" + HexOf(Sha256(bytes)); }

Json Descriptor(std::string_view media_type, std::string_view bytes) {
  return Json().Set("mediaType", media_type).Set("digest", DigestOf(bytes)).Set("size", bytes.size());
}

std::string StampText(WallTime time) {
  const std::chrono::hh_mm_ss clock(
      std::chrono::floor<std::chrono::seconds>(time - std::chrono::floor<std::chrono::days>(time)));
  return fmt::format("{}T{:02}:{:02}:{:02}Z", DateText(time), clock.hours().count(), clock.minutes().count(),
                     clock.seconds().count());
}

Result<void> WriteBlob(const std::string& directory, std::string_view bytes) {
  return WriteFileAtomically(fmt::format("{}/blobs/sha256/{}", directory, HexOf(Sha256(bytes))), bytes, 0644);
}

Result<void> WriteInto(const std::string& directory, const BundleManifest& manifest, std::string_view bundle) {
  const std::string version = std::to_string(manifest.version), issued = StampText(manifest.issued);
  Json layer = Descriptor(kBundleMediaType, bundle);
  layer.Set("annotations", Json().Set("org.opencontainers.image.title", manifest.name + ".bundle"));
  Json image;
  image.Set("schemaVersion", 2)
      .Set("mediaType", "application/vnd.oci.image.manifest.v1+json")
      .Set("artifactType", kBundleMediaType)
      .Set("config", Descriptor("application/vnd.oci.empty.v1+json", kEmpty).Set("data", "e30="))
      .Set("layers", std::vector<Json>{std::move(layer)})
      .Set("annotations", Json()
                              .Set("org.opencontainers.image.created", issued)
                              .Set("org.opencontainers.image.title", manifest.name)
                              .Set("org.opencontainers.image.version", version));
  const std::string image_text = image.Dump();
  Json described = Descriptor("application/vnd.oci.image.manifest.v1+json", image_text);
  described.Set("artifactType", kBundleMediaType)
      .Set("annotations", Json().Set("org.opencontainers.image.ref.name", version));
  Json index;
  index.Set("schemaVersion", 2)
      .Set("mediaType", "application/vnd.oci.image.index.v1+json")
      .Set("manifests", std::vector<Json>{std::move(described)});
  HONE_TRY(CreateDirectories(directory + "/blobs/sha256", 0755));
  for (const std::string_view blob : {bundle, kEmpty, std::string_view(image_text)})
    HONE_TRY(WriteBlob(directory, blob));
  HONE_TRY(WriteFileAtomically(directory + "/index.json", index.Dump(), 0644));
  return WriteFileAtomically(directory + "/oci-layout", Json().Set("imageLayoutVersion", "1.0.0").Dump(), 0644);
}

}  // namespace

Result<void> WriteOciLayout(const std::string& directory, const BundleManifest& manifest, std::string_view bundle) {
  std::string place = directory;
  while (place.size() > 1 && place.ends_with('/')) place.pop_back();
  if (::access(place.c_str(), F_OK) == 0) {
    const Result<std::vector<std::string>> there = ListDirectory(place);
    if (!there || !there->empty())
      return Error{ErrorKind::kInvalid, "something is there; wanted a directory that is new or empty", directory};
  }
  const std::string unfinished = fmt::format("{}.{}.unfinished", place, ::getpid());
  Result<void> written = WriteInto(unfinished, manifest, bundle);
  if (written && ::rename(unfinished.c_str(), place.c_str()) != 0) written = ErrnoError(errno, directory);
  std::error_code ignored;
  if (!written) std::filesystem::remove_all(unfinished, ignored);
  return written;
}

}  // namespace hone::cli
