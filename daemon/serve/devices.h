// The devices that this daemon serves: found at the start by each backend (backends/registry.h), the machine's CPU
// first. Whoever has to do with a target asks here whose it is.
#pragma once

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

// Immutable, never empty; thread-safe.
class Devices {
 public:
  // Of every backend; one whose devices cannot be found is left out, and the log says why. `builder`: the CPU's, "":
  // the usual one. Errors: the CPU cannot be used.
  static Result<Devices> Probe(const std::string& builder);
  // A CPU alone, and any devices of registered kinds.
  static Devices OfCpu(CpuTarget host, std::string compiler);
  void Add(Device device, const Backend& backend, std::string compiler);

  const std::vector<ServedDevice>& all() const { return devices_; }
  // What is meant where nothing is said.
  const ServedDevice& host() const { return devices_.front(); }
  // A target's; nullptr: it is another machine's, or no device of that kind is served.
  const ServedDevice* Find(std::string_view target_text) const;
  const ServedDevice* OfKind(std::string_view kind) const;  // the first of that kind; nullptr: none
  std::vector<const Backend*> backends() const;             // each once, the CPU's first

  // Which target is asked for: "" the host, a device's name, or a target's text, which may be another than the devices'
  // own where these can run code for it. kInvalid, kUnsupported; the message says which devices there are.
  struct Choice {
    Target target;
    const ServedDevice* device;  // one of that kind: its backend is the target's
  };
  Result<Choice> Choose(const std::string& text) const;

 private:
  Devices() = default;
  std::vector<ServedDevice> devices_;
};

// The pools of all kinds that are served: the CPU's are started now if `eager`, the others' when wanted first.
Result<std::unique_ptr<WorkerPools>> StartPools(const Devices& devices, const WorkerPoolsOptions& options, bool eager);

}  // namespace hone
