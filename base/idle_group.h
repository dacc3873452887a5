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

// One below this process' own group, with this process' number in its name. In version 2 it is a threaded one, for
// which the group has to be ours: handed over by the service manager (Delegate=), or shared already. REQUIRES: its
// processes end before it does.
class IdleGroup {
 public:
  // kUnsupported: the system has none, or we may not make one.
  static Result<IdleGroup> Create();
  static Result<IdleGroup> CreateBelow(const GroupPlace& own);

  IdleGroup(IdleGroup&& other) noexcept
      : own_(std::move(other.own_)), directory_(std::exchange(other.directory_, "")) {}
  ~IdleGroup();

  // What a process writes "0" to in order to join.
  std::string entrance() const { return directory_ + "/cgroup.procs"; }

  // While it lives, or until they are recalled, the calling thread and those that it begins run in the group (nullptr:
  // as they did). For pure computing: whoever holds a lock there may be kept from the processor for seconds.
  class Visit {
   public:
    explicit Visit(const IdleGroup* group);
    ~Visit();  // REQUIRES: in the same thread
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

   private:
    const IdleGroup* const group_;
  };

  // Sends threads of this process back that visit, before they are done. From any thread that may take milliseconds.
  void Recall() const;

 private:
  IdleGroup(GroupPlace own, std::string directory) : own_(std::move(own)), directory_(std::move(directory)) {}
  std::string ThreadsOf(const std::string& directory) const;  // the file that lists them, and lets others in

  GroupPlace own_;
  std::string directory_;
};

}  // namespace hone
