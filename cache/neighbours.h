// Whose schedule to try on a kernel that nobody has tuned: the tuned kernels that are most like it, of its class by
// their sizes, and of other classes by what their main computation looks like (a dense layer, a 1×1 convolution and a
// matrix product are one thing to a schedule).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "cache/record.h"
#include "ir/graph/kernel.h"
#include "ir/language/fingerprint.h"

namespace hone {

// What is left of a kernel when its names are gone: its costliest stage as a contraction. Products of extents, log2.
struct Silhouette {
  std::string kind;      // reduction and what is reduced: kernels of different kinds have no schedules for each other
  double batch = 0;      // axes along which every operand moves
  double rows = 0;       // … the first operand alone
  double columns = 0;    // … another one
  double reduction = 0;  // summed over
  double window = 0;     // of these, read by sums of axes: a convolution's window
  double innermost = 0;  // extent of the last axis: what vectors run along
  double stages = 0;     // how many there are: not a logarithm
};
// Ranges count with their upper ends.
Silhouette SilhouetteOf(const Kernel& kernel);
// 0: the same; about 1: one extent is twice the other's. Infinite between kinds.
double Distance(const Silhouette& a, const Silhouette& b);

// A kernel whose schedule may be of use to others.
struct Donor {
  Fingerprint fingerprint;
  Fingerprint class_fingerprint;
  std::string canonical;
  std::string target;
  int32_t threads = 1;
  std::string label;
  std::string request;
  std::string schedule;  // with its choices, as in the record
  double gain = 0;       // of it over the default schedule, log2; 0: not known
  WallTime updated{};
  Silhouette silhouette;
};

struct Neighbour {
  std::shared_ptr<const Donor> donor;
  bool is_same_class = false;
  double distance = 0;
};

// Thread-safe.
class Neighbours {
 public:
  // Takes in a record: a donor if it was tuned here or came in with a schedule, nobody's otherwise (and no longer, if
  // it was one). `gain`: of its schedule over the default, log2.
  void Put(const Record& record, double gain = 0);
  void Remove(const Fingerprint& fingerprint);
  size_t size() const;

  struct Query {
    Fingerprint fingerprint;  // itself is no neighbour, but on another target or with other threads
    Fingerprint class_fingerprint;
    Silhouette silhouette;
    std::string target;
    int32_t threads = 1;
    size_t of_class = 6;
    size_t of_others = 4;
    // Which donors are left out besides; empty: none.
    std::function<bool(const Donor&)> leave_out;
  };
  // Of devices of the same kind. Those of the class first, each part by distance; donors tuned for this target and
  // number of threads before others.
  std::vector<Neighbour> Nearest(const Query& query) const;

  // The donor of that name, newest first if it was tuned several times; nullptr: there is none.
  std::shared_ptr<const Donor> Find(const Fingerprint& fingerprint) const;

 private:
  mutable Mutex mutex_;
  // By fingerprint, target and threads.
  std::map<std::string, std::shared_ptr<const Donor>, std::less<>> donors_ HONE_GUARDED_BY(mutex_);
};

}  // namespace hone
