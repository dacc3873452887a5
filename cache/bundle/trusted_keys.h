// Whom bundles are believed: the public keys in directories that nobody else can change, and those that were revoked.
//
//   DIR/NAME.pub   a public key file: cache/bundle/key_file.h
//   DIR/revoked    a key a line, 64 hexadecimal digits; what follows on the line is the reason, # begins a comment
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "cache/bundle/bundle.h"
#include "cache/bundle/key_file.h"

namespace hone {

// Who vouches for a bundle.
enum class Vouched : uint8_t {
  kUnsigned,  // nobody
  kUnknown,   // a key that is not trusted here
  kKnown,     // a trusted key
};

struct Judgement {
  Vouched vouched = Vouched::kUnsigned;
  std::optional<KeyFile> key;  // the trusted one
  bool Allows(Role role) const { return key && (key->roles & role) != 0; }
};

class TrustedKeys {
 public:
  // $XDG_CONFIG_HOME/hone/keys (~/.config) and /etc/hone/keys; what is not there is left out.
  static std::vector<std::string> StandardDirectories();
  // A directory that is not there holds no keys. kInvalid: others can change it or a file in it, or a file is no key;
  // the place names it.
  static Result<TrustedKeys> Read(const std::vector<std::string>& directories);

  // Which of any keys were revoked there, whatever other files are like. Errors: as Read, of the files `revoked`.
  static Result<std::set<PublicKey>> ReadRevoked(const std::vector<std::string>& directories);

  // One more, for now; never one that was revoked.
  void Add(KeyFile key) { keys_.insert_or_assign(key.key, std::move(key)); }
  // The same of a key that may be known: what all of its files say counts, so each narrows it.
  void Narrow(KeyFile key);
  void Revoke(const PublicKey& key, std::string reason) { revoked_.insert_or_assign(key, std::move(reason)); }

  // kInvalid: signed by a key that has expired or was revoked, or past its own date. Says nothing about older bundles:
  // see CheckFollows.
  Result<Judgement> Judge(const Bundle& bundle, WallTime now) const;

 private:
  std::map<PublicKey, KeyFile> keys_;
  std::map<PublicKey, std::string> revoked_;
};

// What was imported last of a key and a name. Kept by the cache, so that nobody can bring back an older one.
struct Predecessor {
  uint64_t version = 0;
  WallTime issued{};
  Digest256 digest{};
};
std::string EncodePredecessor(const Predecessor& predecessor);
Result<Predecessor> DecodePredecessor(std::string_view text);
// kInvalid: the bundle is older than that, or another one of the same version.
Result<void> CheckFollows(const Bundle& bundle, const Predecessor& predecessor);
Predecessor PredecessorOf(const Bundle& bundle);

}  // namespace hone
