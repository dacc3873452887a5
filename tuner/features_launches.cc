#include "tuner/features_launches.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "codegen/gpu/simt_counts.h"

namespace hone::features {
namespace {

constexpr int64_t kWarp = 32;

using Extents = std::array<double, 3>;  // along x, y, z

double Product(const Extents& extents) { return extents[0] * extents[1] * extents[2]; }

struct Nest {
  double cycles = 0, thread_cycles = 0, barriers = 0, trips_ahead = 0;
  Extents grid = {1, 1, 1}, block = {1, 1, 1};
  double lanes = 1, runs = 1;  // of threads along x

  void Widen(const Node& bound) {
    double& extent = bound.axis == LaunchAxis::kLaneX       ? lanes
                     : bound.axis == LaunchAxis::kSubGroupX ? runs
                     : IsBlockAxis(bound.axis)              ? grid[DimensionOf(bound.axis)]
                                                            : block[DimensionOf(bound.axis)];
    extent = std::max(extent, std::round(bound.trips));
  }
  double ThreadsAlongX() const { return std::max(block[0], lanes * runs); }
  double Threads() const { return ThreadsAlongX() * block[1] * block[2]; }
};

// How often one thread executes the node's body.
double RunsOfAThread(const Analysis& analysis, int node) {
  double runs = analysis.nodes[static_cast<size_t>(node)].executions;
  bool is_counted = true;  // threads around what all compute together are not
  for (int n = node; n >= 0; n = analysis.nodes[static_cast<size_t>(n)].parent) {
    const Node& loop = analysis.nodes[static_cast<size_t>(n)];
    if (loop.kind == LoopKind::kBound && (is_counted || IsBlockAxis(loop.axis))) runs /= loop.trips;
    is_counted = is_counted && !loop.is_together;
  }
  return runs;
}

// Elements of block storage that one load moves where a thread loads them one by one: as codegen/gpu/merge_loads makes
// of those side by side in one piece of code.
int64_t MovedAtOnce(const Access& access, int64_t element_bytes) {
  constexpr int64_t kMergedBytes = 4, kWidest = 4;
  if (access.is_store || access.is_guarded || access.elements != 1 || element_bytes != kMergedBytes) return 1;
  const auto divides = [&](double value, int64_t width) { return std::fmod(value, static_cast<double>(width)) == 0; };
  for (size_t along = 0; along < access.trips.size(); ++along) {
    if (access.loop_node[along] >= 0 || std::abs(access.stride[along]) != 1) continue;
    for (int64_t width = kWidest; width > 1; width /= 2) {
      bool is_aligned = divides(access.trips[along], width);
      for (size_t p = 0; p < access.stride.size(); ++p)
        is_aligned = is_aligned && (p == along || divides(access.stride[p], width));
      if (is_aligned) return width;
    }
  }
  return 1;
}

// The bytes of its buffer, from its own first on, that each thread of a block's first warp touches at the access. Those
// along an axis that no loop around it is bound to do nothing but for the first.
std::vector<simt::Bytes> TouchedByAWarp(const Access& access, const Analysis& analysis, const Nest& nest, int64_t bytes,
                                        int64_t element_bytes) {
  constexpr size_t kLane = 3, kRun = 4;  // places beside those along x, y and z
  std::array<double, 5> stride = {}, trips = {1, 1, 1, 1, 1};
  for (size_t p = 0; p < access.trips.size(); ++p) {
    if (access.loop_node[p] < 0) continue;
    const Node& loop = analysis.nodes[static_cast<size_t>(access.loop_node[p])];
    if (loop.is_together) stride = {}, trips = {1, 1, 1, 1, 1};
    if (!loop.IsOfThreads()) continue;
    const size_t along = loop.axis == LaunchAxis::kLaneX       ? kLane
                         : loop.axis == LaunchAxis::kSubGroupX ? kRun
                                                               : DimensionOf(loop.axis);
    trips[along] = access.trips[p];
    stride[along] += access.stride[p];
  }
  std::vector<simt::Bytes> touched;
  const auto lanes = static_cast<int64_t>(nest.lanes), x = static_cast<int64_t>(nest.ThreadsAlongX()),
             y = static_cast<int64_t>(nest.block[1]);
  const bool by_lanes = trips[kLane] > 1 || trips[kRun] > 1;
  for (int64_t t = 0; t < std::min(kWarp, static_cast<int64_t>(nest.Threads())); ++t) {
    // Along x threads have their numbers, or those of lanes and runs: never both.
    const int64_t along_x = t % x;
    const std::array<int64_t, 5> place = {by_lanes ? 0 : along_x, t / x % y, t / x / y, by_lanes ? along_x % lanes : 0,
                                          by_lanes ? along_x / lanes : 0};
    bool works = true;
    double at = 0;
    for (size_t d = 0; d < place.size(); ++d) {
      works = works && static_cast<double>(place[d]) < trips[d];
      at += std::abs(stride[d]) * static_cast<double>(place[d]);
    }
    const int64_t first = static_cast<int64_t>(at) * element_bytes;
    if (works) touched.emplace_back(first, first + bytes);
  }
  return touched;
}

}  // namespace

Launches AnalyzeLaunches(const LoopProgram& program, const MachineModel& machine, const Analysis& analysis) {
  Launches all;
  if (!program.for_gpu || analysis.nests == 0) return all;
  std::vector<Nest> nests(static_cast<size_t>(analysis.nests));
  for (size_t n = 0; n < analysis.nodes.size(); ++n) {
    const Node& node = analysis.nodes[n];
    if (node.nest < 0) continue;
    Nest& nest = nests[static_cast<size_t>(node.nest)];
    const double cycles = CyclesOf(node, machine).Max(), runs = RunsOfAThread(analysis, static_cast<int>(n));
    nest.cycles += node.executions * cycles;
    nest.thread_cycles += runs * cycles;
    nest.barriers += runs * node.barriers;
    nest.trips_ahead = std::max(nest.trips_ahead, static_cast<double>(node.ahead));
    if (node.kind == LoopKind::kBound) nest.Widen(node);
  }
  const auto hot = std::ranges::max_element(nests, {}, &Nest::cycles);
  all.launches = static_cast<double>(nests.size());
  for (const Nest& nest : nests) all.all_cycles += nest.cycles;
  all.cycles = hot->cycles;
  all.blocks = Product(hot->grid);
  all.threads = hot->Threads();
  all.threads_x = hot->ThreadsAlongX();
  all.thread_cycles = hot->thread_cycles;
  all.barriers = hot->barriers;
  all.trips_ahead = hot->trips_ahead;
  const auto& stmt = *program.entry[static_cast<size_t>(hot - nests.begin())];
  for (BufferId id : UsedBuffers(program, stmt)) {
    const Buffer& buffer = program.buffer(id);
    if (buffer.scope == Scope::kBlock) all.block_bytes += static_cast<double>(buffer.elements * ByteSize(buffer.dtype));
  }
  for (const Access& access : analysis.accesses) {
    const Node& node = analysis.nodes[static_cast<size_t>(access.node)];
    const Buffer& buffer = program.buffer(access.buffer);
    const bool is_shared = buffer.scope == Scope::kBlock;
    const Nest nest = node.nest < 0 ? Nest() : nests[static_cast<size_t>(node.nest)];
    const int64_t element_bytes = ByteSize(buffer.dtype), merged = is_shared ? MovedAtOnce(access, element_bytes) : 1;
    const int64_t bytes = static_cast<int64_t>(std::ceil(access.elements)) * merged * element_bytes;
    const std::vector<simt::Bytes> touched = TouchedByAWarp(access, analysis, nest, bytes, element_bytes);
    const double warps = node.executions * access.count /
                         static_cast<double>(merged * static_cast<int64_t>(std::max<size_t>(1, touched.size())));
    (is_shared ? all.shared_accesses : all.global_accesses) += warps;
    if (is_shared) {
      all.shared_passes += warps * static_cast<double>(simt::PassesOf(touched));
      all.least_passes += warps * static_cast<double>(simt::LeastPassesOf(touched));
    } else {
      all.global_sectors += warps * static_cast<double>(simt::SectorsOf(touched));
    }
  }
  return all;
}

}  // namespace hone::features
