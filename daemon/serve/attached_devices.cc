#include "daemon/serve/attached_devices.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "backends/processes/remote_pools.h"
#include "base/log.h"
#include "base/start_thread.h"

namespace hone {
namespace {

constexpr std::string_view kPrefix = "on:";
constexpr size_t kMost = 8;
constexpr std::chrono::milliseconds kShortestSilence{100}, kLongestSilence{600'000};
constexpr std::chrono::seconds kSweepEvery{1};
constexpr std::chrono::minutes kUnused{10};     // without anybody who keeps it
constexpr std::chrono::minutes kRemembered{1};  // one that is over

Error Unknown(const std::string& name) {
  return {ErrorKind::kNotFound, fmt::format("no device \"{}\" is attached, or no longer", name), "device"};
}

}  // namespace

std::unique_ptr<WorkerPools> PoolsOn(const AttachedDevice& device, std::shared_ptr<WorkerPools> own, int builders) {
  return MakeRemotePools({std::move(own), device.runner, device.runs_here, builders});
}

AttachedDevices::AttachedDevices(EventLoop& loop, WorkerPools& serving, Devices devices)
    : loop_(loop), serving_(serving), devices_(std::move(devices)) {}

AttachedDevices::~AttachedDevices() { Close(); }

void AttachedDevices::Close() {
  *self_ = nullptr;
  for (auto& [_, lent] : lent_) {
    lent.runner->GiveUp({ErrorKind::kUnavailable, "is given back: honed ends", "device"});
    lent.waiting.clear();
  }
  lent_.clear();
}

Result<void> AttachedDevices::MakeRoom() {
  if (lent_.size() >= kMost) std::erase_if(lent_, [](const auto& each) { return each.second.IsOver(); });
  if (lent_.size() < kMost) return {};
  return Error{ErrorKind::kBusy, fmt::format("{} devices are attached, and no more are taken", kMost), "honed"};
}

std::string AttachedDevices::NextName() const { return fmt::format("{}{}", kPrefix, last_ + 1); }

void AttachedDevices::Attach(const ClientId& client, UniqueFd channel, std::chrono::milliseconds silence) {
  const std::string name = NextName();
  ++last_;
  RemoteLimits limits;
  if (silence.count() > 0) limits.silence = std::clamp(silence, kShortestSilence, kLongestSilence);
  Lent& lent = lent_[name];
  lent.client = client;
  lent.runner = std::make_shared<RemoteRunner>(std::move(channel), limits);
  lent.device = AttachedDevicePtr();
  Result<std::jthread> greeter = StartThread([this, self = self_, name, runner = lent.runner] {
    auto hello = std::make_shared<Result<RemoteHello>>(runner->Greet());
    loop_.Post([self, name, hello] {
      if (*self != nullptr) (*self)->OnHello(name, std::move(*hello));
    });
  });
  if (greeter)
    lent.greeter = *std::move(greeter);
  else
    OnHello(name, greeter.error());
  LogInfo("device_attached", {{"device", name}, {"uid", client.uid}, {"pid", client.pid}});
  if (!std::exchange(is_sweeping_, true)) Sweep();
}

void AttachedDevices::OnHello(const std::string& name, Result<RemoteHello> hello) {
  const auto found = lent_.find(name);
  if (found == lent_.end()) return;
  Lent& lent = found->second;
  lent.device = hello ? Admit(lent.runner, *std::move(hello)) : Result<AttachedDevicePtr>(hello.error());
  if (lent.device)
    LogInfo("device_known",
            {{"device", name}, {"target", (*lent.device)->target_text}, {"runner", (*lent.device)->program}});
  else
    lent.runner->GiveUp({lent.device.error().kind, "was refused", "device"});
  const Result<AttachedDevicePtr> device = lent.device;
  for (const auto& known : std::exchange(lent.waiting, {})) known(device);
}

Result<AttachedDevicePtr> AttachedDevices::Admit(const std::shared_ptr<RemoteRunner>& runner, RemoteHello hello) {
  auto device = std::make_shared<AttachedDevice>();
  const ServedDevice* of_kind = devices_.OfKind(hello.target.kind());
  device->target_text = PrintTarget(hello.target);
  if (of_kind == nullptr || !IsChecked(hello.target))
    return Error{ErrorKind::kUnsupported,
                 fmt::format("nothing here builds for what the device is: {}", device->target_text), "device"};
  // Its times would count for this machine, on which they were not measured.
  if (devices_.Find(device->target_text) != nullptr)
    return Error{
        ErrorKind::kUnsupported,
        fmt::format("the device says that it is what this machine is ({}): tune here, without --on, or have it "
                    "pass for another target (hone-runner --stdio --target T)",
                    device->target_text),
        "device"};
  device->runs_here = of_kind->backend->RunsHere(hello.target);
  device->target = std::move(hello.target);
  device->program = std::move(hello.program);
  device->runner = runner;
  device->pools = PoolsOn(*device, {std::shared_ptr<void>(), &serving_}, 1);
  return AttachedDevicePtr(std::move(device));
}

AttachedDevices::Lent* AttachedDevices::FindLent(const std::string& name, const ClientId& client) {
  const auto found = lent_.find(name);
  if (found == lent_.end() || (found->second.client.uid != client.uid && client.uid != 0)) return nullptr;
  found->second.used = Clock::now();
  return &found->second;
}

void AttachedDevices::WhenKnown(const std::string& name, const PeerPtr& peer,
                                std::function<void(const Result<AttachedDevicePtr>&)> known) {
  Lent* lent = FindLent(name, peer->client());
  if (lent == nullptr) return known(Unknown(name));
  if (lent->keeper == nullptr) {
    lent->keeper = peer.get();
    peer->Keep();
  }
  if (!lent->device || *lent->device) return known(lent->device);
  lent->waiting.push_back(std::move(known));
}

void AttachedDevices::OnGone(const Peer& peer) {
  for (auto& [_, lent] : lent_)
    if (lent.keeper == &peer) lent.runner->GiveUp({ErrorKind::kUnavailable, "was given back", "device"});
}

Result<AttachedDevicePtr> AttachedDevices::Find(const std::string& target, const ClientId& client) {
  if (!target.starts_with(kPrefix)) return AttachedDevicePtr();
  Lent* lent = FindLent(target, client);
  if (lent == nullptr) return Unknown(target);
  if (std::optional<Error> lost = lent->runner->Lost()) return lent->device ? *lost : lent->device.error();
  if (lent->device && !*lent->device)
    return Error{ErrorKind::kBusy, "the device has not said what it is yet", "device"};
  return lent->device;
}

bool AttachedDevices::Lent::IsOver() const { return (!device || *device) && runner->Lost(); }

// Forgets those that have hung up, a while after, so that whoever asks hears why; and gives back what nobody uses.
void AttachedDevices::Sweep() {
  const Clock::time_point now = Clock::now();
  for (auto& [name, lent] : lent_) {
    if (lent.keeper != nullptr || lent.runner->IsAtWork()) continue;
    if (now - lent.used > kUnused) lent.runner->GiveUp({ErrorKind::kUnavailable, "was not used for ten minutes", ""});
  }
  std::erase_if(lent_, [&](const auto& each) { return each.second.IsOver() && now - each.second.used > kRemembered; });
  is_sweeping_ = !lent_.empty();
  if (!is_sweeping_) return;
  loop_.After(kSweepEvery, [self = self_] {
    if (*self != nullptr) (*self)->Sweep();
  });
}

}  // namespace hone
