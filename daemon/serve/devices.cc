#include "daemon/serve/devices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "backends/registry.h"
#include "base/check.h"
#include "base/log.h"

namespace hone {

Result<Devices> Devices::Probe(const std::string& builder) {
  Devices devices;
  for (const Backend* backend : Backends()) {
    const bool is_host = devices.devices_.empty();
    Result<std::vector<Device>> found = backend->Probe();
    Result<std::string> compiler = found && !found->empty() ? backend->CompilerName(is_host ? builder : "") : "";
    if (is_host) HONE_TRY(found), HONE_TRY(compiler);
    if (!found || !compiler) {
      LogWarn("devices_left_out",
              {{"kind", backend->kind().name}, {"why", found ? compiler.error().Text() : found.error().Text()}});
      continue;
    }
    for (Device& device : *found) devices.Add(std::move(device), *backend, *compiler);
  }
  if (devices.devices_.empty()) return Error{ErrorKind::kUnsupported, "there is no device to serve", ""};
  return devices;
}

Devices Devices::OfCpu(CpuTarget host, std::string compiler) {
  Devices devices;
  devices.Add({std::string(kCpuKind), Target(std::move(host))}, *FindBackend(kCpuKind), std::move(compiler));
  return devices;
}

void Devices::Add(Device device, const Backend& backend, std::string compiler) {
  HONE_CHECK(device.target.kind() == backend.kind().name);
  std::string text = PrintTarget(device.target);
  devices_.push_back(
      {std::move(device.name), std::move(device.target), std::move(text), &backend, std::move(compiler)});
}

const ServedDevice* Devices::Find(std::string_view target_text) const {
  auto found =
      std::ranges::find_if(devices_, [&](const ServedDevice& each) { return each.target_text == target_text; });
  return found == devices_.end() ? nullptr : &*found;
}

const ServedDevice* Devices::OfKind(std::string_view kind) const {
  auto found = std::ranges::find_if(devices_, [&](const ServedDevice& each) { return each.target.kind() == kind; });
  return found == devices_.end() ? nullptr : &*found;
}

std::vector<const Backend*> Devices::backends() const {
  std::vector<const Backend*> backends;
  for (const ServedDevice& device : devices_)
    if (std::ranges::find(backends, device.backend) == backends.end()) backends.push_back(device.backend);
  return backends;
}

Result<Devices::Choice> Devices::Choose(const std::string& text) const {
  if (text.empty()) return Choice{host().target, &host()};
  for (const ServedDevice& device : devices_)
    if (device.name == text || device.target_text == text) return Choice{device.target, &device};
  const Target target = HONE_TRY(ParseTarget(text));
  const ServedDevice* of_kind = OfKind(target.kind());
  if (of_kind == nullptr) {
    std::vector<std::string_view> names;
    for (const ServedDevice& device : devices_) names.push_back(device.name);
    return Error{
        ErrorKind::kUnsupported,
        fmt::format("no device of kind \"{}\" is served here; there is: {}", target.kind(), fmt::join(names, ", ")),
        "target"};
  }
  std::vector<Device> peers;
  for (const ServedDevice& device : devices_)
    if (device.backend == of_kind->backend) peers.push_back({device.name, device.target});
  return Choice{HONE_TRY(of_kind->backend->Accept(target, peers)), of_kind};
}

Result<std::unique_ptr<WorkerPools>> StartPools(const Devices& devices, const WorkerPoolsOptions& options, bool eager) {
  const std::vector<const Backend*> backends = devices.backends();
  if (eager && backends.size() == 1) return backends.front()->StartPools(options);
  std::map<std::string, StartWorkerPools, std::less<>> kinds;
  for (const Backend* backend : backends)
    kinds[backend->kind().name] = [backend, options] { return backend->StartPools(options); };
  if (eager) {
    auto started = std::make_shared<std::unique_ptr<WorkerPools>>(HONE_TRY(backends.front()->StartPools(options)));
    kinds[backends.front()->kind().name] = [started]() -> Result<std::unique_ptr<WorkerPools>> {
      return std::move(*started);  // asked for once
    };
  }
  return MakePoolsByKind(std::move(kinds));
}

}  // namespace hone
