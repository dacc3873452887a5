#include "codegen/device_kinds.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <list>
#include <span>

#include "base/check.h"
#include "base/mutex.h"
#include "codegen/rules/schedule_rules.h"
#include "ir/gpu_kinds.h"

namespace hone {
namespace {

// These are asked for with every candidate: no lock.
std::span<const DeviceKind> BuiltIn() {
  static const std::vector<DeviceKind>& kinds = *new std::vector<DeviceKind>([] {
    std::vector<DeviceKind> made;
    made.push_back({std::string(kCpuKind), [](const Target& target) { return ModelCpu(*target.cpu()); }, &kCpuRules});
    for (const GpuKind& gpu : kGpuKinds)
      made.push_back({std::string(gpu.name), [](const Target& target) { return ModelGpu(*target.device()); },
                      &kGpuRules, gpu.language});
    return made;
  }());
  return kinds;
}

struct Others {
  Mutex mutex;
  std::list<DeviceKind> kinds HONE_GUARDED_BY(mutex);  // never removed
};

Others& TheOthers() {
  static Others& others = *new Others;  // outlives whoever registers
  return others;
}

}  // namespace

const DeviceKind* FindDeviceKind(std::string_view name) {
  for (const DeviceKind& kind : BuiltIn())
    if (kind.name == name) return &kind;
  Others& others = TheOthers();
  MutexLock lock(others.mutex);
  for (const DeviceKind& kind : others.kinds)
    if (kind.name == name) return &kind;
  return nullptr;
}

std::vector<std::string> DeviceKindNames() {
  std::vector<std::string> names;
  for (const DeviceKind& kind : BuiltIn()) names.push_back(kind.name);
  Others& others = TheOthers();
  MutexLock lock(others.mutex);
  for (const DeviceKind& kind : others.kinds) names.push_back(kind.name);
  return names;
}

Result<const DeviceKind*> DeviceKindOf(const Target& target) {
  if (const DeviceKind* kind = FindDeviceKind(target.kind())) return kind;
  return Error{ErrorKind::kUnsupported,
               fmt::format("no backend is for devices of kind \"{}\"; there are backends for: {}", target.kind(),
                           fmt::join(DeviceKindNames(), ", ")),
               "target"};
}

Result<void> AddDeviceKind(DeviceKind kind) {
  HONE_CHECK(kind.model != nullptr && kind.rules != nullptr);
  if (FindDeviceKind(kind.name))
    return Error{ErrorKind::kInvalid, fmt::format("there is a kind of device \"{}\" already", kind.name), ""};
  Others& others = TheOthers();
  MutexLock lock(others.mutex);
  others.kinds.push_back(std::move(kind));
  return {};
}

bool HaveSameRegisters(const Target& a, const Target& b) {
  if (a.kind() != b.kind() || !FindDeviceKind(a.kind())) return false;
  const MachineModel of_a = ModelMachine(a), of_b = ModelMachine(b);
  return of_a.vector_bits == of_b.vector_bits && of_a.vector_registers == of_b.vector_registers;
}

MachineModel ModelMachine(const Target& target) {
  const DeviceKind* kind = FindDeviceKind(target.kind());
  HONE_CHECK(kind != nullptr);
  return kind->model(target);
}

const RuleTable& RulesFor(const Target& target) {
  const DeviceKind* kind = FindDeviceKind(target.kind());
  HONE_CHECK(kind != nullptr);
  return *kind->rules;
}

}  // namespace hone
