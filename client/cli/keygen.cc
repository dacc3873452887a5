// hone keygen: a pair of keys for bundles.
#include <fmt/format.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "cache/bundle/bundle.h"
#include "cache/bundle/key_file.h"
#include "client/cli/command.h"
#include "client/cli/context.h"

namespace hone::cli {
namespace {

Result<KeyFile> Describe(const Arguments& arguments) {
  KeyFile file;
  file.name = arguments.Text("NAME");
  if (!IsBundleName(file.name))
    return Error{ErrorKind::kInvalid, "wanted 1 to 64 letters, digits or \"._+-\", the first no dot", "NAME"};
  file.roles = kSchedules | kArtifacts;
  if (arguments.Has("--roles")) {
    Result<Roles> roles = ParseRoles(arguments.Text("--roles"));
    if (!roles) return Error{ErrorKind::kInvalid, roles.error().message, "--roles"};
    file.roles = *roles;
  }
  if (arguments.Has("--expires"))
    file.expires = HONE_TRY(ParseExpiry(arguments.Text("--expires"), std::chrono::system_clock::now()));
  return file;
}

int RunKeygen(Context& context, const Arguments& arguments) {
  Result<KeyFile> file = Describe(arguments);
  if (!file) return context.WrongUsage(file.error());
  const std::string directory = arguments.Has("--dir") ? arguments.Text("--dir") + "/" : "";
  const std::string secret = directory + file->name + ".key", open = directory + file->name + ".pub";
  for (const std::string& path : {secret, open})
    if (access(path.c_str(), F_OK) == 0)
      return context.Fail({ErrorKind::kInvalid, "is there already: choose another name, or move it away", path});
  file->seed = RandomSigningSeed();
  file->key = PublicKeyOf(*file->seed);
  Result<void> written = WriteFileAtomically(secret, EncodeKeyFile(*file), 0600);
  file->seed.reset();
  if (written) written = WriteFileAtomically(open, EncodeKeyFile(*file), 0644);
  if (!written) return context.Fail(written.error());
  if (context.json()) {
    Json json;
    json.Set("name", file->name).Set("public", HexOf(file->key)).Set("roles", RolesText(file->roles));
    json.Set("secret_file", secret).Set("public_file", open);
    Print(json.Dump() + "\n");
  } else {
    Print(
        fmt::format("{}: keep it secret, hone export --key signs with it\n{}: in ~/.config/hone/keys or /etc/hone/keys "
                    "it makes bundles of this key trusted ({})\n",
                    secret, open, RolesText(file->roles)));
  }
  return kDone;
}

}  // namespace

Command KeygenCommand() {
  return {
      .name = "keygen",
      .summary = "make a pair of keys that sign bundles and have them trusted",
      .details = R"(Writes NAME.key, which is secret, and NAME.pub. Whoever puts NAME.pub into ~/.config/hone/keys or
/etc/hone/keys takes code that this key signed; a line in the file "revoked" there ends that, at honed's
next start or SIGHUP also for code that was taken before, which is then compiled here.

Examples:
  hone keygen fleet
  hone keygen pool --roles schedules --expires 2030-12-31)",
      .positionals = {{"NAME", "the key's name"}},
      .options = {{"--roles", "ROLES", "what it may vouch for (default: schedules,artifacts)"},
                  {"--expires", "DATE", "bundles are refused from this day on, such as 2030-12-31"},
                  {"--dir", "DIR", "where the files go (default: here)"}},
      .run = RunKeygen};
}

}  // namespace hone::cli
