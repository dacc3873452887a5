// Devices on other machines that clients lend: each for as long as the command runs that leads to it. A client asks for
// it on a connection of its own (AttachRequest), which then is the channel to the device's hone-runner; the client
// starts the command with the connection as its standard input and output, so the command has the client's rights, and
// honed starts nothing. What is tuned there is stored under the device's target. Requests name such a device by
// "on:NUMBER" in place of a target; only who lent it, and root, may.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backends/backend.h"
#include "backends/processes/remote_runner.h"
#include "backends/processes/worker_pools.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "daemon/serve/clients.h"
#include "daemon/serve/devices.h"
#include "daemon/serve/event_loop.h"
#include "daemon/serve/peer.h"
#include "ir/target.h"

namespace hone {

// One that has said what it is.
struct AttachedDevice {
  Target target;
  std::string target_text;
  std::string program;     // "hone-runner 0.1.0"
  bool runs_here = false;  // this machine runs code for its target, too
  std::shared_ptr<RemoteRunner> runner;
  std::shared_ptr<WorkerPools> pools;  // of a miss's builders, and this device
};
using AttachedDevicePtr = std::shared_ptr<const AttachedDevice>;

// The pools of such a device with other builders: a search's.
std::unique_ptr<WorkerPools> PoolsOn(const AttachedDevice& device, std::shared_ptr<WorkerPools> own, int builders);

// Used by the event loop's thread alone; a thread for each device waits for its first words.
class AttachedDevices {
 public:
  // `serving`: who builds what is missing.
  AttachedDevices(EventLoop& loop, WorkerPools& serving, Devices devices);
  ~AttachedDevices();

  // For one more: kBusy.
  Result<void> MakeRoom();
  std::string NextName() const;  // of the one that is attached next
  // Named so from now on. `silence`: how long it may be without a sign of life while it is at work; 0: as usual.
  void Attach(const ClientId& client, UniqueFd channel, std::chrono::milliseconds silence);

  // Calls `known` once it has said what it is, or with why there will be no such device: at once or later, in the loop.
  // The connection that asks first keeps the device: it is given back when that one ends.
  void WhenKnown(const std::string& name, const PeerPtr& peer,
                 std::function<void(const Result<AttachedDevicePtr>&)> known);
  void OnGone(const Peer& peer);
  // The device that a request's target names; nullptr: it is not the name of one. kNotFound, kBusy (it has not said
  // what it is yet), and why it is lost.
  Result<AttachedDevicePtr> Find(const std::string& target, const ClientId& client);

  size_t count() const { return lent_.size(); }
  void Close();  // all are given up, and threads waited for

 private:
  using Clock = std::chrono::steady_clock;
  struct Lent {
    ClientId client;
    std::shared_ptr<RemoteRunner> runner;
    Result<AttachedDevicePtr> device;  // nullptr: it has not said yet
    std::vector<std::function<void(const Result<AttachedDevicePtr>&)>> waiting;
    const Peer* keeper = nullptr;  // whose connection it lasts as long as; none: as long as it is used
    Clock::time_point used = Clock::now();
    std::jthread greeter;  // last: ends first
    bool IsOver() const;
  };
  Lent* FindLent(const std::string& name, const ClientId& client);
  void OnHello(const std::string& name, Result<RemoteHello> hello);
  Result<AttachedDevicePtr> Admit(const std::shared_ptr<RemoteRunner>& runner, RemoteHello hello);
  void Sweep();

  EventLoop& loop_;
  WorkerPools& serving_;
  const Devices devices_;
  uint64_t last_ = 0;
  bool is_sweeping_ = false;
  std::map<std::string, Lent> lent_;
  // Where threads hand what they heard to: outlives them, empty once this object is closed.
  std::shared_ptr<AttachedDevices*> self_ = std::make_shared<AttachedDevices*>(this);
};

}  // namespace hone
