#include "cache/bundle_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <utility>

#include "base/file.h"

namespace hone {
namespace {

Result<HeldBundle> OpenBundle(const UniqueFd& directory, const std::string& name, const std::string& path,
                              const TrustedKeys& keys, WallTime now) {
  UniqueFd file = HONE_TRY(OpenPrivateFile(directory.get(), name, O_RDONLY, Owner::kSelfOrRoot, path));
  struct stat info{};
  if (::fstat(file.get(), &info) != 0) return ErrnoError(errno, "fstat");
  const auto size = static_cast<uint64_t>(info.st_size);
  if (size > BundleLimits::kBytes)
    return Error{ErrorKind::kLimit, fmt::format("{} bytes, a bundle has at most {}", size, BundleLimits::kBytes), ""};
  ReadOnlyMapping bytes = HONE_TRY(ReadOnlyMapping::Map(file.get(), size));
  Bundle bundle = HONE_TRY(Bundle::Open(bytes.bytes()));
  Judgement judgement = HONE_TRY(keys.Judge(bundle, now));
  if (!judgement.Allows(kArtifacts))
    return Error{ErrorKind::kInvalid,
                 judgement.vouched == Vouched::kUnsigned  ? "it is not signed, so its code is not taken"
                 : judgement.vouched == Vouched::kUnknown ? "no trusted key signed it, so its code is not taken; "
                                                            "trusted keys are NAME.pub in /etc/hone/keys"
                                                          : "the roles of the key that signed it do not include "
                                                            "artifacts",
                 ""};
  return HeldBundle{path, std::move(bytes), std::move(bundle), *std::move(judgement.key)};
}

// The one of the same key and name, if there is one.
HeldBundle* FindSibling(HeldBundles& held, const HeldBundle& other) {
  for (HeldBundle& one : held.bundles)
    if (one.key.key == other.key.key && one.bundle.manifest().name == other.bundle.manifest().name) return &one;
  return nullptr;
}

void OpenDirectory(const std::string& directory, const TrustedKeys& keys, WallTime now, HeldBundles& held) {
  auto leave_out = [&](const std::string& path, const Error& error) {
    held.left_out.push_back(fmt::format("{}: {}", path, error.where == path ? error.message : error.Text()));
  };
  Result<UniqueFd> opened = OpenPrivateDirectory(directory, Owner::kSelfOrRoot);
  if (!opened && opened.error().kind == ErrorKind::kNotFound) return;
  if (!opened) return leave_out(directory, opened.error());
  Result<std::vector<std::string>> names = ListDirectory(directory);
  if (!names) return leave_out(directory, names.error());
  for (const std::string& name : *names) {
    if (!name.ends_with(".bundle")) continue;
    const std::string path = directory + "/" + name;
    Result<HeldBundle> bundle = OpenBundle(*opened, name, path, keys, now);
    if (!bundle) {
      leave_out(path, bundle.error());
      continue;
    }
    HeldBundle* sibling = FindSibling(held, *bundle);
    if (sibling == nullptr) {
      held.bundles.push_back(*std::move(bundle));
      continue;
    }
    if (Result<void> follows = CheckFollows(bundle->bundle, PredecessorOf(sibling->bundle)); !follows) {
      leave_out(path, follows.error());
      continue;
    }
    if (sibling->bundle.digest() != bundle->bundle.digest())
      held.left_out.push_back(fmt::format("{}: {} is a later version of it", sibling->path, path));
    *sibling = *std::move(bundle);
  }
}

}  // namespace

HeldBundles OpenBundles(const std::vector<std::string>& directories, const TrustedKeys& keys, WallTime now) {
  HeldBundles held;
  for (const std::string& directory : directories) OpenDirectory(directory, keys, now, held);
  return held;
}

}  // namespace hone
