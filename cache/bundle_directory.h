// The bundles in directories that packages and administrators fill: those that may run here.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/sealed_memfd.h"
#include "cache/bundle/bundle.h"
#include "cache/bundle/trusted_keys.h"

namespace hone {

struct HeldBundle {
  std::string path;
  ReadOnlyMapping bytes;
  Bundle bundle;  // of these bytes
  KeyFile key;    // the trusted one that signed it: its roles include artifacts
};

struct HeldBundles {
  std::vector<HeldBundle> bundles;    // by directory, in it by name
  std::vector<std::string> left_out;  // "FILE: why", one line each
};

// Every DIR/NAME.bundle whose code a key of `keys` vouches for, the signature checked; of one key and name only the
// last version. A directory that is not there holds none. Others, or what others could change, are left out, as is a
// file that is no sound bundle. A file must be replaced by renaming another one over it, never written in place.
HeldBundles OpenBundles(const std::vector<std::string>& directories, const TrustedKeys& keys, WallTime now);

}  // namespace hone
