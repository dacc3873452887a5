#include "backends/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "backends/cpu/cpu_backend.h"
#include "backends/gpu/gpu_backend.h"
#include "base/check.h"
#include "base/mutex.h"

namespace hone {
namespace {

std::vector<const Backend*> BuiltIn() {
  std::vector<const Backend*> backends{&CpuBackend()};
  backends.insert(backends.end(), GpuBackends().begin(), GpuBackends().end());
  return backends;
}

struct Added {
  Mutex mutex;
  std::vector<std::unique_ptr<const Backend>> backends HONE_GUARDED_BY(mutex);  // never removed
};

Added& TheAdded() {
  static Added& added = []() -> Added& {
    for (const Backend* backend : BuiltIn())
      if (!FindDeviceKind(backend->kind().name)) HONE_CHECK(AddDeviceKind(backend->kind()));
    return *new Added;  // outlives whoever asks
  }();
  return added;
}

}  // namespace

std::vector<const Backend*> Backends() {
  Added& added = TheAdded();
  std::vector<const Backend*> backends = BuiltIn();
  MutexLock lock(added.mutex);
  for (const auto& backend : added.backends) backends.push_back(backend.get());
  return backends;
}

const Backend* FindBackend(std::string_view kind) {
  for (const Backend* backend : Backends())
    if (backend->kind().name == kind) return backend;
  return nullptr;
}

Result<const Backend*> BackendOf(const Target& target) {
  if (const Backend* backend = FindBackend(target.kind())) return backend;
  std::vector<std::string> kinds;
  for (const Backend* backend : Backends()) kinds.push_back(backend->kind().name);
  return Error{ErrorKind::kUnsupported,
               fmt::format("no backend is for devices of kind \"{}\"; there are backends for: {}", target.kind(),
                           fmt::join(kinds, ", ")),
               "target"};
}

Result<void> AddBackend(std::unique_ptr<const Backend> backend) {
  HONE_TRY(AddDeviceKind(backend->kind()));
  Added& added = TheAdded();
  MutexLock lock(added.mutex);
  added.backends.push_back(std::move(backend));
  return {};
}

}  // namespace hone
