// The files that hold the keys of bundles: a secret one that signs, and a public one that says whom to trust with what.
//
//   file ::= "hone key 1\n" "kind " ("secret" | "public") "\n" "name " name "\n" "roles " role { " " role } "\n"
//            "expires " (date | "never") "\n" "public " hex:64 "\n" [ "seed " hex:64 "\n" ]
//
// date: YYYY-MM-DD, its first moment in UTC. Lines that start with # are passed over.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "cache/bundle/ed25519.h"

namespace hone {

// What a key may vouch for. Schedules are data and taken from anybody: without that role they count as nobody's.
enum Role : uint8_t { kSchedules = 1, kArtifacts = 2, kCostModels = 4 };
using Roles = uint8_t;               // of Role
std::string RolesText(Roles roles);  // "schedules artifacts"
// Words between spaces or commas. kInvalid names the unknown one; kInvalid if there is none.
Result<Roles> ParseRoles(std::string_view text);

struct KeyFile {
  std::string name;  // IsBundleName
  Roles roles = kSchedules;
  std::optional<WallTime> expires;
  PublicKey key{};
  std::optional<SigningSeed> seed;  // of a secret one
};

std::string EncodeKeyFile(const KeyFile& file);  // a secret one if there is a seed
// kInvalid with the line, `path` being the place.
Result<KeyFile> DecodeKeyFile(std::string_view text, const std::string& path);

// Of a file of either kind. kNotFound, kIo, kInvalid.
struct ReadKey {
  KeyFile file;
  std::string warning;  // a secret file that others can read; "" if all is well
};
Result<ReadKey> ReadKeyFile(const std::string& path);

// "2027-01-31" to its first moment in UTC, and back. nullopt if it is no date.
std::optional<WallTime> ParseDate(std::string_view text);
std::string DateText(WallTime time);
// Of what is made now, from when on it is refused: a date to come. kInvalid, `--expires` being the place.
Result<WallTime> ParseExpiry(std::string_view text, std::chrono::system_clock::time_point now);

}  // namespace hone
