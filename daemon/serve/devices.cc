#include "daemon/serve/devices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <future>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <ranges>
#include <utility>

#include "backends/registry.h"
#include "base/check.h"
#include "base/log.h"
#include "base/parallel.h"

namespace hone {

namespace {

ServedDevice Serve(Device device, const Backend& backend, std::string compiler) {
  HONE_CHECK(device.target.kind() == backend.kind().name);
  std::string text = PrintTarget(device.target);
  return {std::move(device.name), std::move(device.target), std::move(text), &backend, std::move(compiler)};
}

// Those of a backend. Its compiler counts only where it has devices.
Result<std::vector<ServedDevice>> ProbeOne(const Backend& backend, const std::string& builder) {
  std::vector<Device> found = HONE_TRY(backend.Probe());
  std::vector<ServedDevice> served;
  if (found.empty()) return served;
  const std::string compiler = HONE_TRY(backend.CompilerName(builder));
  for (Device& device : found) served.push_back(Serve(std::move(device), backend, compiler));
  return served;
}

}  // namespace

std::shared_future<Devices::Others> Devices::Ready(Others others) {
  std::promise<Others> promise;
  promise.set_value(std::move(others));
  return promise.get_future().share();
}

Result<Devices> Devices::Probe(const std::string& builder) {
  const std::vector<const Backend*> backends = Backends();
  std::vector<ServedDevice> hosts = HONE_TRY(ProbeOne(*backends.front(), builder));
  if (hosts.empty()) return Error{ErrorKind::kUnsupported, "there is no device to serve", ""};
  Found found{hosts.front(), {}};
  const auto look = [backends, hosts] {
    const size_t count = backends.size() - 1;
    std::vector<std::optional<Result<std::vector<ServedDevice>>>> asked(count);
    ForEachIndex(count, static_cast<int>(count), [&](size_t i) { asked[i] = ProbeOne(*backends[i + 1], ""); });
    Others others{hosts, {}};
    for (size_t i = 0; i < count; ++i) {
      Result<std::vector<ServedDevice>>& devices = *asked[i];
      if (devices) {
        std::ranges::move(*devices, std::back_inserter(others.all));
        continue;
      }
      const std::string& kind = backends[i + 1]->kind().name;
      others.missing[kind] = devices.error().message;
      if (devices.error().kind != ErrorKind::kNotFound)
        LogWarn("devices_left_out", {{"kind", kind}, {"why", devices.error().Text()}});
    }
    return others;
  };
  // Where there is no thread for it, who asks for them first looks: by a copy, as one that was moved to a thread that
  // did not start has nothing left.
  found.others = std::async(std::launch::async | std::launch::deferred, look);
  return Devices(std::make_shared<const Found>(std::move(found)));
}

Devices Devices::OfCpu(CpuTarget host, std::string compiler) {
  ServedDevice device =
      Serve({std::string(kCpuKind), Target(std::move(host))}, *FindBackend(kCpuKind), std::move(compiler));
  return Devices(std::make_shared<const Found>(Found{device, Ready({{device}, {}})}));
}

void Devices::Add(Device device, const Backend& backend, std::string compiler) {
  Others more = found_->others.get();
  more.all.push_back(Serve(std::move(device), backend, std::move(compiler)));
  found_ = std::make_shared<const Found>(Found{host(), Ready(std::move(more))});
}

const ServedDevice* Devices::Find(std::string_view target_text) const {
  if (host().target_text == target_text) return &host();
  if (KindOfTarget(target_text) == host().target.kind()) return nullptr;
  const auto found = std::ranges::find(all(), target_text, &ServedDevice::target_text);
  return found == all().end() ? nullptr : &*found;
}

const ServedDevice* Devices::OfKind(std::string_view kind) const {
  if (host().target.kind() == kind) return &host();
  const auto found = std::ranges::find_if(all(), [&](const ServedDevice& each) { return each.target.kind() == kind; });
  return found == all().end() ? nullptr : &*found;
}

Result<std::optional<Target>> Devices::Named(const std::string& text) const {
  const size_t colon = text.find(':');
  if (text.find(' ') != std::string::npos || colon == std::string::npos) return std::optional<Target>();
  const ServedDevice* of_kind = OfKind(std::string_view(text).substr(0, colon));
  if (of_kind == nullptr) return std::optional<Target>();
  return of_kind->backend->Named(std::string_view(text).substr(colon + 1));
}

Result<Devices::Choice> Devices::Choose(const std::string& text) const {
  if (text.empty() || text == host().name || text == host().target_text) return Choice{host().target, &host()};
  const auto refuse = [&](const std::string& what, std::string_view kind) {
    std::vector<std::string_view> names;
    for (const ServedDevice& device : all()) names.push_back(device.name);
    const auto missing = found_->others.get().missing.find(kind);
    return Error{ErrorKind::kUnsupported,
                 fmt::format("{} is served here; there is: {}{}", what, fmt::join(names, ", "),
                             missing == found_->others.get().missing.end() ? "" : " (" + missing->second + ")"),
                 "target"};
  };
  if (text.find(' ') == std::string::npos && text.find(':') != std::string::npos) {
    const auto here = std::ranges::find(all(), text, &ServedDevice::name);
    if (here != all().end()) return Choice{here->target, &*here};
  }
  const std::optional<Target> named = HONE_TRY(Named(text));
  if (!named && text.find(' ') == std::string::npos && text.find(':') != std::string::npos)
    return refuse(fmt::format("no device \"{}\"", text), std::string_view(text).substr(0, text.find(':')));
  const Target target = named ? *named : HONE_TRY(ParseTarget(text));
  if (const auto same = std::ranges::find(all(), target, &ServedDevice::target); same != all().end())
    return Choice{same->target, &*same};
  const ServedDevice* of_kind = OfKind(target.kind());
  if (of_kind == nullptr || !IsChecked(of_kind->target))
    return refuse(fmt::format("no device of kind \"{}\"", target.kind()), target.kind());
  if (of_kind == &host()) {
    const Device peer{host().name, host().target};
    return Choice{HONE_TRY(of_kind->backend->Accept(target, {&peer, 1})), of_kind};
  }
  std::vector<Device> peers;
  for (const ServedDevice& device : all())
    if (device.backend == of_kind->backend && IsChecked(device.target)) peers.push_back({device.name, device.target});
  return Choice{HONE_TRY(of_kind->backend->Accept(target, peers)), of_kind};
}

Result<std::unique_ptr<WorkerPools>> StartPools(const WorkerPoolsOptions& options, bool eager) {
  std::map<std::string, StartWorkerPools, std::less<>> kinds;
  for (const Backend* backend : Backends())
    kinds[backend->kind().name] = [backend, options] { return backend->StartPools(options); };
  if (eager) {
    const Backend& host = *Backends().front();
    auto started = std::make_shared<std::unique_ptr<WorkerPools>>(HONE_TRY(host.StartPools(options)));
    kinds[host.kind().name] = [started]() -> Result<std::unique_ptr<WorkerPools>> {
      return std::move(*started);  // asked for once
    };
  }
  return MakePoolsByKind(std::move(kinds));
}

}  // namespace hone
