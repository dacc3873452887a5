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
};

// How often one thread executes the node's body.
double RunsOfAThread(const Analysis& analysis, int node) {
  double runs = analysis.nodes[static_cast<size_t>(node)].executions;
  bool is_counted = true;  // threads around what all compute together are not
  for (int n = node; n >= 0; n = analysis.nodes[static_cast<size_t>(n)].parent) {
    const Node& loop = analysis.nodes[static_cast<size_t>(n)];
    if (loop.kind == LoopKind::kBound && (is_counted || !IsThreadAxis(loop.axis))) runs /= loop.trips;
    is_counted = is_counted && !loop.is_together;
  }
  return runs;
}

// The bytes of its buffer, from its own first on, that each thread of a block's first warp touches at the access. Those
// along an axis that no loop around it is bound to do nothing but for the first.
std::vector<simt::Bytes> TouchedByAWarp(const Access& access, const Analysis& analysis, const Extents& block,
                                        int64_t element_bytes) {
  Extents stride = {}, trips = {1, 1, 1};
  for (size_t p = 0; p < access.trips.size(); ++p) {
    if (access.loop_node[p] < 0) continue;
    const Node& loop = analysis.nodes[static_cast<size_t>(access.loop_node[p])];
    if (loop.is_together) stride = {}, trips = {1, 1, 1};
    if (!loop.IsOfThreads()) continue;
    const size_t along = DimensionOf(loop.axis);
    trips[along] = access.trips[p];
    stride[along] += access.stride[p];
  }
  std::vector<std::array<int64_t, 3>> places;
  const auto threads = static_cast<int64_t>(Product(block));
  for (int64_t t = 0; t < std::min(kWarp, threads); ++t) {
    const auto x = static_cast<int64_t>(block[0]), y = static_cast<int64_t>(block[1]);
    const std::array<int64_t, 3> place = {t % x, t / x % y, t / x / y};
    bool works = true;
    for (size_t d = 0; d < 3; ++d) works = works && static_cast<double>(place[d]) < trips[d];
    if (works) places.push_back(place);
  }
  std::vector<simt::Bytes> touched;
  const auto bytes = static_cast<int64_t>(std::ceil(access.elements)) * element_bytes;
  for (const auto& place : places) {
    double at = 0;
    for (size_t d = 0; d < 3; ++d) at += std::abs(stride[d]) * static_cast<double>(place[d]);
    const int64_t first = static_cast<int64_t>(at) * element_bytes;
    touched.emplace_back(first, first + bytes);
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
    if (node.kind != LoopKind::kBound) continue;
    double& extent = (IsThreadAxis(node.axis) ? nest.block : nest.grid)[DimensionOf(node.axis)];
    extent = std::max(extent, std::round(node.trips));
  }
  const auto hot = std::ranges::max_element(nests, {}, &Nest::cycles);
  all.launches = static_cast<double>(nests.size());
  for (const Nest& nest : nests) all.all_cycles += nest.cycles;
  all.cycles = hot->cycles;
  all.blocks = Product(hot->grid);
  all.threads = Product(hot->block);
  all.threads_x = hot->block[0];
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
    const Extents block = node.nest < 0 ? Nest().block : nests[static_cast<size_t>(node.nest)].block;
    const std::vector<simt::Bytes> touched = TouchedByAWarp(access, analysis, block, ByteSize(buffer.dtype));
    const double warps = node.executions * access.count / static_cast<double>(std::max<size_t>(1, touched.size()));
    (is_shared ? all.shared_accesses : all.global_accesses) += warps;
    (is_shared ? all.shared_passes : all.global_sectors) +=
        warps * static_cast<double>(is_shared ? simt::PassesOf(touched) : simt::SectorsOf(touched));
  }
  return all;
}

}  // namespace hone::features
