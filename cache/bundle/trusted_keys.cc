#include "cache/bundle/trusted_keys.h"

#include <fcntl.h>
#include <fmt/format.h>

#include "base/bytes.h"
#include "base/file.h"
#include "base/paths.h"

namespace hone {
namespace {

constexpr size_t kKeyLimit = 4096;
constexpr size_t kRevokedLimit = size_t{1} << 20;

// Of a file in a directory that was looked at.
Result<std::string> ReadIn(const UniqueFd& directory, const std::string& name, const std::string& path, size_t limit) {
  UniqueFd file = HONE_TRY(OpenPrivateFile(directory.get(), name, O_RDONLY, Owner::kSelfOrRoot, path));
  return ReadAll(file.get(), limit);
}

Result<void> ReadRevoked(std::string_view text, const std::string& path, TrustedKeys& keys) {
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line = line.substr(0, line.find('#'));
    while (!line.empty() && line.back() == ' ') line.remove_suffix(1);
    if (line.empty()) continue;
    const size_t digits = std::min(line.find(' '), line.size());
    PublicKey key;
    if (!ParseHex(line.substr(0, digits), key))
      return Error{ErrorKind::kInvalid, "wanted a key's 64 hexadecimal digits, then the reason",
                   fmt::format("{}:{}", path, number)};
    keys.Revoke(key, std::string(digits < line.size() ? line.substr(digits + 1) : ""));
  }
  return {};
}

enum class Reads : uint8_t { kAll, kRevoked };

Result<void> ReadDirectory(const std::string& directory, Reads reads, TrustedKeys& keys) {
  Result<UniqueFd> opened = OpenPrivateDirectory(directory, Owner::kSelfOrRoot);
  if (!opened && opened.error().kind == ErrorKind::kNotFound) return {};
  if (!opened) return std::move(opened).error();
  for (const std::string& name : HONE_TRY(ListDirectory(directory))) {
    const std::string path = directory + "/" + name;
    if (name == "revoked") HONE_TRY(ReadRevoked(HONE_TRY(ReadIn(*opened, name, path, kRevokedLimit)), path, keys));
    if (reads == Reads::kRevoked || !name.ends_with(".pub")) continue;
    KeyFile key = HONE_TRY(DecodeKeyFile(HONE_TRY(ReadIn(*opened, name, path, kKeyLimit)), path));
    if (key.seed) return Error{ErrorKind::kInvalid, "holds a secret key, and a public one belongs here", path};
    keys.Narrow(std::move(key));
  }
  return {};
}

}  // namespace

std::vector<std::string> TrustedKeys::StandardDirectories() {
  std::vector<std::string> directories;
  if (std::optional<std::string> config = Environment("XDG_CONFIG_HOME"); config && config->starts_with('/'))
    directories.push_back(*config + "/hone/keys");
  else if (std::optional<std::string> home = Environment("HOME"); home && home->starts_with('/'))
    directories.push_back(*home + "/.config/hone/keys");
  directories.push_back("/etc/hone/keys");
  return directories;
}

void TrustedKeys::Narrow(KeyFile key) {
  auto [known, is_new] = keys_.try_emplace(key.key, key);
  if (is_new) return;
  KeyFile& both = known->second;
  both.roles &= key.roles;
  if (key.expires && (!both.expires || *key.expires < *both.expires)) both.expires = key.expires;
}

Result<TrustedKeys> TrustedKeys::Read(const std::vector<std::string>& directories) {
  TrustedKeys keys;
  for (const std::string& directory : directories) HONE_TRY(ReadDirectory(directory, Reads::kAll, keys));
  return keys;
}

Result<std::set<PublicKey>> TrustedKeys::ReadRevoked(const std::vector<std::string>& directories) {
  TrustedKeys keys;
  for (const std::string& directory : directories) HONE_TRY(ReadDirectory(directory, Reads::kRevoked, keys));
  std::set<PublicKey> revoked;
  for (const auto& [key, reason] : keys.revoked_) revoked.insert(key);
  return revoked;
}

Result<Judgement> TrustedKeys::Judge(const Bundle& bundle, WallTime now) const {
  const BundleManifest& manifest = bundle.manifest();
  auto refuse = [&](std::string why) { return Error{ErrorKind::kInvalid, std::move(why), ""}; };
  if (manifest.expires && *manifest.expires <= now)
    return refuse(fmt::format("the bundle {} has expired on {}: ask for a newer one", manifest.name,
                              DateText(*manifest.expires)));
  if (!bundle.signer()) return Judgement{};
  if (auto revoked = revoked_.find(*bundle.signer()); revoked != revoked_.end())
    return refuse(fmt::format("the key that signed the bundle, {}, was revoked{}{}", HexOf(*bundle.signer()),
                              revoked->second.empty() ? "" : ": ", revoked->second));
  auto known = keys_.find(*bundle.signer());
  if (known == keys_.end()) return Judgement{Vouched::kUnknown, std::nullopt};
  const KeyFile& key = known->second;
  if (key.expires && *key.expires <= now)
    return refuse(fmt::format("the key that signed the bundle, {}, has expired on {}: ask for one that was signed anew",
                              key.name, DateText(*key.expires)));
  return Judgement{Vouched::kKnown, key};
}

std::string EncodePredecessor(const Predecessor& predecessor) {
  ByteWriter out;
  out.Varint(predecessor.version);
  out.SignedVarint(predecessor.issued.time_since_epoch().count());
  out.Raw(std::span<const uint8_t>(predecessor.digest));
  return out.Take();
}

Result<Predecessor> DecodePredecessor(std::string_view text) {
  ByteReader in(text);
  Predecessor predecessor;
  predecessor.version = HONE_TRY(in.Varint());
  predecessor.issued = WallTime(std::chrono::milliseconds(HONE_TRY(in.SignedVarint())));
  predecessor.digest = HONE_TRY(in.Array<32>());
  HONE_TRY(in.Finish());
  return predecessor;
}

Predecessor PredecessorOf(const Bundle& bundle) {
  return {bundle.manifest().version, bundle.manifest().issued, bundle.digest()};
}

Result<void> CheckFollows(const Bundle& bundle, const Predecessor& predecessor) {
  const BundleManifest& manifest = bundle.manifest();
  if (bundle.digest() == predecessor.digest) return {};
  const std::string known =
      fmt::format("version {} of {}, issued on {}", predecessor.version, manifest.name, DateText(predecessor.issued));
  if (manifest.version < predecessor.version)
    return Error{
        ErrorKind::kInvalid,
        fmt::format("the bundle is version {}, issued on {}; {}, was imported before, and an older one does not "
                    "replace it; if it is newer, export it with a higher --bundle-version",
                    manifest.version, DateText(manifest.issued), known),
        ""};
  if (manifest.version == predecessor.version)
    return Error{
        ErrorKind::kInvalid,
        fmt::format("{}, was imported before, and this is another bundle of the same version: export it with a "
                    "higher --bundle-version",
                    known),
        ""};
  return {};
}

}  // namespace hone
