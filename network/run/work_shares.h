// Where the time of a network's runs goes: by kernel, and by what runs on the host, with the reason for it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "network/run/kernel_calls.h"

namespace hone {

// All calls of one kernel, or of one operator that runs on the host for one reason.
struct WorkShare {
  std::string label;     // for people, as of a KernelCall
  std::string kernel;    // as it was asked for; "": none
  std::string why_host;  // "": a kernel
  int64_t calls = 0;
  double time_us = 0;
};

// Not thread-safe.
class WorkShares {
 public:
  bool is_on = false;  // whether runs are to be timed call by call

  void Add(const KernelCall& call, double us) { Add(call.label, call.kernel, call.why_host, us); }
  void AddHost(const std::string& label, const std::string& why, double us) { Add(label, "", why, us); }
  void Clear() { shares_.clear(); }

  double total_us() const;
  std::vector<WorkShare> Sorted() const;  // largest first

 private:
  void Add(const std::string& label, const std::string& kernel, const std::string& why_host, double us);

  std::map<std::string, WorkShare> shares_;
};

}  // namespace hone
