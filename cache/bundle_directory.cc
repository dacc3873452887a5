#include "cache/bundle_directory.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <utility>

#include "base/file.h"
#include "cache/bundle/bundle_files.h"

namespace hone {
namespace {

Result<HeldBundle> OpenBundle(const UniqueFd& file, const std::string& path, const TrustedKeys& keys, WallTime now) {
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

// kInvalid: there is a later one of the same key and name.
Result<void> Hold(HeldBundle bundle, HeldBundles& held) {
  HeldBundle* sibling = FindSibling(held, bundle);
  if (sibling == nullptr) {
    held.bundles.push_back(std::move(bundle));
    return {};
  }
  HONE_TRY(CheckFollows(bundle.bundle, PredecessorOf(sibling->bundle)));
  if (sibling->bundle.digest() != bundle.bundle.digest())
    held.left_out.push_back(fmt::format("{}: {} is a later version of it", sibling->path, bundle.path));
  *sibling = std::move(bundle);
  return {};
}

}  // namespace

HeldBundles OpenBundles(const std::vector<std::string>& directories, const TrustedKeys& keys, WallTime now) {
  HeldBundles held;
  const BundleFileVisitor visitor{
      .visit = [&](const UniqueFd& file, const std::string& path) -> Result<void> {
        return Hold(HONE_TRY(OpenBundle(file, path, keys, now)), held);
      },
      .leave_out =
          [&](const std::string& path, const Error& error) {
            held.left_out.push_back(fmt::format("{}: {}", path, error.where == path ? error.message : error.Text()));
          }};
  for (const std::string& directory : directories) ForEachBundleFile(directory, visitor);
  return held;
}

}  // namespace hone
