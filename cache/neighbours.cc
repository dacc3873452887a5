#include "cache/neighbours.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "ir/language/parse.h"

namespace hone {
namespace {

// A donor for another target or number of threads counts as so much further away: its tiles may not suit.
constexpr double kOtherTarget = 4;
constexpr double kOtherThreads = 1;

double Log2(int64_t extent) { return std::log2(static_cast<double>(std::max<int64_t>(1, extent))); }

int64_t Points(const Kernel& kernel, const Stage& stage) {
  double points = 1;
  for (AxisId axis : stage.axis_ids()) points *= static_cast<double>(UpperExtent(kernel, stage.axis(axis).extent));
  return points > 9e18 ? std::numeric_limits<int64_t>::max() : static_cast<int64_t>(points);
}

std::string NameOf(const Fingerprint& fingerprint, const std::string& target, int32_t threads) {
  return fmt::format("{} {} {}", fingerprint.Hex(), threads, target);
}

bool IsDonor(const Record& record) {
  return !record.schedule.empty() && (record.origin == Origin::kTuned || record.origin == Origin::kImported);
}

}  // namespace

Silhouette SilhouetteOf(const Kernel& kernel) {
  Silhouette silhouette;
  silhouette.stages = static_cast<double>(kernel.stages.size());
  // Of stages that work equally much, the one that reduces, or else the last.
  const Stage* main = nullptr;
  for (const Stage& stage : kernel.stages) {
    auto weight = [&](const Stage& s) { return std::pair(Points(kernel, s), s.reduction != Reduction::kNone); };
    if (main == nullptr || weight(stage) >= weight(*main)) main = &stage;
  }
  if (main == nullptr) return silhouette;

  std::vector<std::set<AxisId>> moves;  // axes by which each load moves
  std::set<AxisId> window;
  Walk(main->body, [&](const Expr& e) {
    if (e.op() != Op::kLoad) return;
    std::set<AxisId>& axes = moves.emplace_back();
    for (const Expr& index : e.args()) {
      std::set<AxisId> of_index;
      Walk(index, [&](const Expr& part) {
        if (part.op() == Op::kAxis) of_index.insert(part.axis());
      });
      axes.insert(of_index.begin(), of_index.end());
      if (of_index.size() < 2) continue;
      for (AxisId axis : of_index)
        if (main->Reduces(axis)) window.insert(axis);
    }
  });
  for (AxisId axis : main->spatial_ids()) {
    const double extent = Log2(UpperExtent(kernel, main->axis(axis).extent));
    const auto readers = std::count_if(moves.begin(), moves.end(), [&](const auto& m) { return m.contains(axis); });
    if (readers == static_cast<std::ptrdiff_t>(moves.size()) && moves.size() > 1)
      silhouette.batch += extent;
    else if (!moves.empty() && moves[0].contains(axis))
      silhouette.rows += extent;
    else
      silhouette.columns += extent;
  }
  for (AxisId axis : main->reduce_ids()) {
    const double extent = Log2(UpperExtent(kernel, main->axis(axis).extent));
    silhouette.reduction += extent;
    if (window.contains(axis)) silhouette.window += extent;
  }
  if (!main->axes.empty()) silhouette.innermost = Log2(UpperExtent(kernel, main->axes.back().extent));
  silhouette.kind =
      fmt::format("{} of {} {}{}", static_cast<int>(main->reduction), moves.size(),
                  static_cast<int>(kernel.tensors[main->output].dtype),
                  main->reduction != Reduction::kNone && silhouette.batch >= silhouette.columns && moves.size() > 1
                      ? " side by side"
                      : "");
  return silhouette;
}

double Distance(const Silhouette& a, const Silhouette& b) {
  if (a.kind != b.kind) return std::numeric_limits<double>::infinity();
  double sum = 0;
  for (double Silhouette::* part : {&Silhouette::batch, &Silhouette::rows, &Silhouette::columns, &Silhouette::reduction,
                                    &Silhouette::window, &Silhouette::innermost}) {
    const double difference = a.*part - b.*part;
    sum += difference * difference;
  }
  return std::sqrt(sum) + 0.5 * std::abs(a.stages - b.stages);
}

void Neighbours::Put(const Record& record, double gain) {
  const std::string name = NameOf(record.key.fingerprint, record.key.target, record.key.threads);
  std::shared_ptr<Donor> donor;
  if (IsDonor(record)) {
    // One schedule for a range of sizes, or several, is no neighbour's to follow.
    if (Result<Kernel> kernel = ParseKernel(record.key.canonical); kernel && IsStatic(*kernel)) {
      donor = std::make_shared<Donor>();
      donor->fingerprint = record.key.fingerprint;
      donor->class_fingerprint = record.key.class_fingerprint;
      donor->canonical = record.key.canonical;
      donor->target = record.key.target;
      donor->threads = record.key.threads;
      donor->label = record.label;
      donor->request = record.request;
      donor->schedule = record.schedule;
      donor->gain = gain;
      donor->updated = record.updated;
      donor->silhouette = SilhouetteOf(*kernel);
    }
  }
  MutexLock lock(mutex_);
  if (donor)
    donors_[name] = std::move(donor);
  else
    donors_.erase(name);
}

void Neighbours::Remove(const Fingerprint& fingerprint) {
  const std::string prefix = fingerprint.Hex();
  MutexLock lock(mutex_);
  for (auto at = donors_.lower_bound(prefix); at != donors_.end() && at->first.starts_with(prefix);)
    at = donors_.erase(at);
}

size_t Neighbours::size() const {
  MutexLock lock(mutex_);
  return donors_.size();
}

std::shared_ptr<const Donor> Neighbours::Find(const Fingerprint& fingerprint) const {
  const std::string prefix = fingerprint.Hex();
  std::shared_ptr<const Donor> newest;
  MutexLock lock(mutex_);
  for (auto at = donors_.lower_bound(prefix); at != donors_.end() && at->first.starts_with(prefix); ++at)
    if (!newest || at->second->updated > newest->updated) newest = at->second;
  return newest;
}

std::vector<Neighbour> Neighbours::Nearest(const Query& query) const {
  std::vector<Neighbour> all;
  const std::string_view kind = KindOfTarget(query.target);
  {
    MutexLock lock(mutex_);
    for (const auto& [_, donor] : donors_) {
      const bool is_alike = donor->target == query.target && donor->threads == query.threads;
      if (is_alike && donor->fingerprint == query.fingerprint) continue;
      if (KindOfTarget(donor->target) != kind) continue;
      if (query.leave_out && query.leave_out(*donor)) continue;
      Neighbour neighbour{donor, donor->class_fingerprint == query.class_fingerprint,
                          Distance(donor->silhouette, query.silhouette)};
      neighbour.distance += donor->target == query.target ? 0 : kOtherTarget;
      neighbour.distance += donor->threads == query.threads ? 0 : kOtherThreads;
      if (std::isfinite(neighbour.distance)) all.push_back(std::move(neighbour));
    }
  }
  // By name among equals, so that the same store gives the same answer.
  std::sort(all.begin(), all.end(), [](const Neighbour& a, const Neighbour& b) {
    return std::tuple(!a.is_same_class, a.distance, a.donor->fingerprint) <
           std::tuple(!b.is_same_class, b.distance, b.donor->fingerprint);
  });
  std::vector<Neighbour> nearest;
  size_t of_class = 0, of_others = 0;
  for (Neighbour& neighbour : all) {
    size_t& count = neighbour.is_same_class ? of_class : of_others;
    if (count == (neighbour.is_same_class ? query.of_class : query.of_others)) continue;
    ++count;
    nearest.push_back(std::move(neighbour));
  }
  return nearest;
}

}  // namespace hone
