// What a kind of device has to bring to be served and tuned: all that code above codegen/ and backends/ knows of it.
// Neither processes nor files of one kind are named anywhere else. The CPU's is backends/cpu/cpu_backend; a row in
// backends/registry.cc, or a call of AddBackend, puts another beside it. CONTRIBUTING.md has the steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/copy_speed.h"
#include "backends/machine_peaks.h"
#include "backends/processes/worker_pools.h"
#include "base/result.h"
#include "codegen/device_kinds.h"
#include "ir/manifest.h"
#include "ir/target.h"

namespace hone {

// A device of this machine, and what users call it: its kind, if it is the only one of it, or kind and number.
struct Device {
  std::string name;  // "cpu", "opencl:0"
  Target target;
};

// Thread-safe, and lasts as long as the program. A backend lives in honed, so it loads no driver and runs nothing that
// it built: processes of its own do (StartPools), also to find out which devices there are.
class Backend {
 public:
  virtual ~Backend() = default;

  // Name, machine model and scheduling rules.
  virtual const DeviceKind& kind() const = 0;

  // The devices of this machine, the one that is meant by the kind's name first; none: empty. Behind them those that
  // code can be built for though they are not here (kUncheckedFact). Errors are logged, and leave the kind out; whoever
  // asks for one of its devices is told. kNotFound: what would have to be installed; nobody is to blame.
  virtual Result<std::vector<Device>> Probe() const = 0;

  // A device that people name, and that need not be here: "neoverse-n1" of "cpu:neoverse-n1". nullopt: this kind's have
  // no names. kInvalid with the names that there are.
  virtual Result<std::optional<Target>> Named(std::string_view) const { return std::optional<Target>(); }

  // A target that somebody asked for, in full, if code for it can be checked on these devices, which Probe gave and are
  // here.
  // kUnsupported with what is lacking.
  virtual Result<Target> Accept(const Target& asked, std::span<const Device> devices) const = 0;

  // Whether a device of this kind that is here runs code for the target. Where Accept takes others, an emulator checks
  // their code.
  virtual bool RunsHere(const Target&) const { return true; }

  // What builds, as precisely as is needed to tell whether an artifact is still what it would build. `program`: of the
  // options' builders, as for StartPools.
  virtual Result<std::string> CompilerName(const std::string& program) const = 0;

  // The gate: what an artifact says of itself, or why it is none of this kind's, is damaged, or could do harm where it
  // is loaded (kCorrupt, kInvalid, kUnsupported). Called with bytes from disk. `size`: exact; 0: not known.
  virtual Result<Manifest> OpenArtifact(std::span<const std::byte> bytes, uint64_t size) const = 0;

  // Builds, checks and times for the devices of this kind, in processes. What `options` says of executables, arguments
  // and memory is about the CPU's.
  virtual Result<std::unique_ptr<WorkerPools>> StartPools(const WorkerPoolsOptions& options) const = 0;

  // The roofs of one of Probe's targets, all of `threads` together; a roof of 0 could not be measured. Some tenths of a
  // second.
  virtual MachinePeaks MeasurePeaks(const Target& target, int threads) const = 0;

  // How fast operands get to one of Probe's devices that is here, and back: CopySpeed{} where kernels compute on the
  // host's memory. Some tenths of a second, and a driver's start. kUnavailable, and errors of the driver.
  virtual Result<CopySpeed> MeasureCopies(const Target&) const { return CopySpeed{}; }
};

}  // namespace hone
