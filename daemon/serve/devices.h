// The devices that this daemon serves: found at the start by each backend (backends/registry.h), the machine's CPU
// first. Drivers take their time to say what there is, so the others are looked for beside everything else; who asks
// for them waits. Whoever has to do with a target asks here whose it is.
#pragma once

#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backends/backend.h"
#include "base/result.h"
#include "ir/target.h"

namespace hone {

struct ServedDevice {
  std::string name;  // "cpu", "opencl:0"
  Target target;
  std::string target_text;  // PrintTarget
  const Backend* backend = nullptr;
  std::string compiler;  // of the artifacts that are current
};

// Never empty; copies are one; thread-safe but for Add.
class Devices {
 public:
  // Of every backend; one whose devices cannot be found is left out, and the log says why. `builder`: the CPU's, "":
  // the usual one. Errors: the CPU cannot be used.
  static Result<Devices> Probe(const std::string& builder);
  // A CPU alone, and any devices of registered kinds.
  static Devices OfCpu(CpuTarget host, std::string compiler);
  void Add(Device device, const Backend& backend, std::string compiler);

  // What is meant where nothing is said: never waits.
  const ServedDevice& host() const { return found_->host; }
  // The host first; of a kind, those that are here first (IsChecked).
  const std::vector<ServedDevice>& all() const { return found_->others.get().all; }
  // A target's; nullptr: it is another machine's, or no device of that kind is served.
  const ServedDevice* Find(std::string_view target_text) const;
  const ServedDevice* OfKind(std::string_view kind) const;  // the first of that kind; nullptr: none

  // A target by its device's name, be it here or not: "cpu:neoverse-n1". nullopt: the text is no such name. kInvalid.
  Result<std::optional<Target>> Named(const std::string& text) const;

  // Which target is asked for: "" the host, a device's name (Named, too), or a target's text, which may be another than
  // the devices' own where these can run code for it. Code that nobody can run is for who names such a device, or its
  // target in full. kInvalid, kUnsupported; the message says which devices there are.
  struct Choice {
    Target target;
    const ServedDevice* device;  // one of that kind: its backend is the target's
  };
  Result<Choice> Choose(const std::string& text) const;

 private:
  struct Others {
    std::vector<ServedDevice> all;
    std::map<std::string, std::string, std::less<>> missing;  // why there is none of a kind
  };
  struct Found {
    ServedDevice host;
    std::shared_future<Others> others;
  };
  static std::shared_future<Others> Ready(Others others);
  explicit Devices(std::shared_ptr<const Found> found) : found_(std::move(found)) {}
  std::shared_ptr<const Found> found_;
};

// The pools of all kinds: the host's are started now if `eager`, the others' when wanted first.
Result<std::unique_ptr<WorkerPools>> StartPools(const WorkerPoolsOptions& options, bool eager);

}  // namespace hone
