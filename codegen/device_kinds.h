// What code generation knows of each kind of device: how to model one, and by which rules its default schedules are
// made. A table with a row for each kind: those that are built in, and those that a backend brings along
// (backends/registry.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codegen/machine_model.h"
#include "ir/target.h"

namespace hone {

struct RuleTable;  // codegen/rules/schedule_rules.h

struct DeviceKind {
  std::string name;                                       // first word of its targets
  MachineModel (*model)(const Target& target) = nullptr;  // REQUIRES: a target of this kind
  const RuleTable* rules = nullptr;                       // for as long as the program runs
  std::string_view language = "";  // that its code is written in, a dialect of codegen/gpu; "": machine code
};

// nullptr: there is no such row. Thread-safe; what it points to stays.
const DeviceKind* FindDeviceKind(std::string_view name);
// kUnsupported with the kinds that there are: for targets that others wrote, before code is thought about.
Result<const DeviceKind*> DeviceKindOf(const Target& target);
std::vector<std::string> DeviceKindNames();

// Thread-safe. A name that is there already is refused: kInvalid.
Result<void> AddDeviceKind(DeviceKind kind);

// Whether tiles that suit one suit the other: devices of one kind with the same vectors and registers.
bool HaveSameRegisters(const Target& a, const Target& b);

}  // namespace hone
