// Random legal schedules. Proposes steps of every kind, often nonsense and sometimes what a good schedule would do, and
// keeps those that apply and lower.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/rng.h"
#include "ir/graph/kernel.h"
#include "ir/schedule/apply.h"
#include "ir/schedule/schedule.h"
#include "ir/target.h"

namespace hone {

class RandomSchedule {
 public:
  // All begin with the steps of `start`. REQUIRES: the kernel was specialised, and `start` applies to it. `target`
  // outlives this object.
  RandomSchedule(Kernel kernel, const Target& target, Rng& rng, Schedule start = {});

  // Called with every list of steps before it is tried, so that a crash can be told.
  std::function<void(const Schedule&)> on_try = [](const Schedule&) {};

  Schedule Make();
  // How many proposals were refused, by who refused and the kind of step: "lower: vectorize".
  const std::map<std::string, int64_t>& refusals() const { return refusals_; }

 private:
  // Appends all of the steps, or none if the schedule is refused then.
  bool Propose(std::vector<Step> steps);

  void Inline();
  void FuseAxes();
  void CacheWrite();
  void Im2col();
  void MaxIgnoreNan();
  void Reindex();
  void SplitClamp();
  void OnlineReduction();
  void TrimPadding();
  void Rfactor();
  void ShiftSign();
  void Bf16Factors();
  void PadReduction();
  void CacheRead();

  void SplitLoop();
  void TileStage();
  void FuseLoops();
  void ReorderLoops();
  void UnrollLoop();
  void VectorizeLoop();
  void ParallelLoop();
  void PlaceStage();
  void StoreStage();
  void RegisterTile();
  void SetTail();
  void Prefetch();
  void Tensorize();

  const Stage& AnyStage(StageId* id = nullptr);
  const StageSchedule& LoopsOf(const Stage& stage) const;
  std::string NameOf(const Stage& stage) const;
  static std::vector<std::string> NamesOf(const std::vector<Axis>& axes);
  std::string AnyLoop(const StageSchedule& stage);
  // Extents of a stage's loops by path, as far as the axes' extents and the factors tell.
  std::map<std::string, int64_t> Extents(const Stage& stage) const;
  std::vector<LayoutDim> AnyLayout(const Stage& stage);
  std::string FreshName() { return "r" + std::to_string(++fresh_); }
  int64_t AnyFactor();
  template <typename T>
  const T& Pick(const std::vector<T>& list) {
    return list[rng_.Below(list.size())];
  }

  const Kernel kernel_;
  const Target& target_;
  Rng& rng_;
  Schedule schedule_;
  ScheduledKernel state_;
  std::map<std::string, int64_t> refusals_;
  int fresh_ = 0;
};

// `schedule` without the steps that `fails` does not need: what is left still fails, and no single step can go.
Schedule ShrinkSchedule(Schedule schedule, const std::function<bool(const Schedule&)>& fails);

}  // namespace hone
