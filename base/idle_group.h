// A control group whose processes run only when nothing else on the machine wants the processor (cpu.idle, Linux 5.15).
// SCHED_IDLE promises that within a group only: where processors are shared among groups first (services, sessions),
// what wakes up elsewhere waits for the end of a turn, some milliseconds.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace hone {

// Where the groups of this process lie, by cgroups(7).
struct GroupPlace {
  std::string directory;    // of its own group, in the hierarchy that shares processors
  bool is_unified = false;  // version 2
  bool operator==(const GroupPlace&) const = default;
};
// From the texts of /proc/self/cgroup and /proc/self/mountinfo. kUnsupported: no such hierarchy is mounted.
Result<GroupPlace> FindGroup(std::string_view groups, std::string_view mounts);

// One below this process' own group, with this process' number in its name. REQUIRES: its processes end before it does.
class IdleGroup {
 public:
  // Version 2 has groups below one that has no processes itself: where the service manager has handed the group over to
  // us (Delegate=), this process moves to a group of its own below it first.
  // REQUIRES: this process has no children yet. kUnsupported: the system has none, or we may not make one.
  static Result<IdleGroup> Create();
  static Result<IdleGroup> CreateBelow(const GroupPlace& own);

  IdleGroup(IdleGroup&& other) noexcept : directory_(std::exchange(other.directory_, "")) {}
  ~IdleGroup();

  // What a process writes "0" to in order to join.
  std::string entrance() const { return directory_ + "/cgroup.procs"; }

 private:
  explicit IdleGroup(std::string directory) : directory_(std::move(directory)) {}
  std::string directory_;
};

}  // namespace hone
