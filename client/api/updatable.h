// What a thread of the library keeps up to date (client/api/updates): a kernel that an application holds, of whatever
// kind of device, behind which versions come and go.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "base/sealed_memfd.h"
#include "client/protocol/protocol.h"
#include "ir/manifest.h"

namespace hone {

class Updates;

struct ServedFacts {
  GetReply reply;
  std::string source;  // "daemon", "disk"
  double served_us = 0;
  std::vector<std::string> operands{};  // their names in the text that was asked for; none: as in the manifest
};

// kUnsupported unless calls that are right for `held` are right for `fresh`: the same operands in the same order, the
// same sizes, nothing asked of buffers that was not asked before. Packed layouts and workspaces are a version's own.
Result<void> CheckSameCalls(const Manifest& held, const Manifest& fresh);

class Updatable {
 public:
  // What was received, checked and opened; and what can be called.
  struct Code {
    virtual ~Code() = default;
  };
  struct Version {
    virtual ~Version() = default;
  };
  // Code of the handle's kind. `canonical`: the kernel that it must be for, "" if the caller does not know.
  using Open = Result<std::unique_ptr<Code>> (*)(SealedMemfd file, const GetReply& reply, std::string_view canonical);

  virtual ~Updatable() = default;

  virtual Open opener() const = 0;
  // Of the version that is called now; and how often any was. From any thread.
  virtual ServedFacts facts() const = 0;
  virtual uint64_t calls() const = 0;

  // The rest is one thread's at a time, and not called while constants are bound (Updates sees to both).

  // Another version, with what is bound packed for it. kUnsupported: it is to be called otherwise than the held one, or
  // packs a constant that calls bring with them.
  virtual Result<std::unique_ptr<Version>> PrepareCode(std::unique_ptr<Code> code, ServedFacts facts) = 0;
  // Has calls go there from now on. REQUIRES: HasRoom().
  virtual void PublishVersion(std::unique_ptr<Version> version) = 0;
  // Releases replaced versions that nobody uses any more; true if none is left that was replaced before this call.
  virtual bool Reclaim() = 0;
  // Few versions wait for their last use, so another may be published.
  virtual bool HasRoom() const = 0;
  virtual bool HasRetired() const = 0;
  // For the client's own copies on disk. kUnsupported: there are none of this kind.
  virtual Result<SealedMemfd> CopyArtifact() const = 0;

 protected:
  // Held for moments, while versions change places: a fork finds each of them in one (Updates sees to it).
  inline static Mutex places_;

  std::shared_ptr<Updates> updates_;  // nullptr: nobody looks for better versions

 private:
  friend class Updates;
  uint64_t watch_ = 0;  // its number there
};

}  // namespace hone
