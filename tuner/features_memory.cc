// Footprints of loops and the traffic into each cache level.
//
// What an access touches while some of its loops run is a box: per dimension the span of its index, no more elements
// than there are trips. In lines, rows that lie next to each other in memory are one. The traffic follows the classic
// rule of reuse: while what one trip of a loop touches fits the cache, what trips have in common stays there, and the
// loop costs its footprint; where it does not, every trip pays anew.
#include <algorithm>
#include <cmath>

#include "tuner/features_analysis.h"

namespace hone::features {
namespace {

double Units(double bytes, double element, double unit, bool aligned) {
  // Buffers begin at a line. A run that begins anywhere crosses a border now and then.
  return aligned ? std::ceil(bytes / unit) : (bytes - element) / unit + 1;
}

}  // namespace

double TouchedBytes(const Buffer& buffer, const Access& access, size_t first, double unit) {
  const size_t depth = access.trips.size();
  const size_t rank = depth == 0 ? 0 : access.step.size() / depth;
  const double element = static_cast<double>(ByteSize(buffer.dtype));
  double units = 1, run = element;  // units so far; bytes from the first to the last element
  bool is_run = true;               // nothing but one run so far
  for (size_t d = rank; d-- > 0;) {
    double span = 1, count = 1;
    for (size_t p = first; p < depth; ++p) {
      const double step = access.step[d * depth + p];
      if (step == 0) continue;
      span += step * (access.trips[p] - 1);
      count *= access.trips[p];
    }
    span = std::min(std::ceil(span - 1e-9), static_cast<double>(buffer.extents[d]));
    const double distinct = std::min(count, span);
    const double stride = static_cast<double>(buffer.strides[d]) * element;
    if (distinct <= 1 && d + 1 < rank) continue;
    run += (span - 1) * stride;
    const double outer = d == 0 ? 0 : static_cast<double>(buffer.strides[d - 1]) * element;  // from run to run
    const double in_run = Units(run, element, unit, std::fmod(outer, unit) == 0);
    // Elements (or inner rows) less than a unit apart share units; others have their own.
    units = is_run && stride <= unit ? std::min(in_run, std::max(distinct, 1.0)) : std::min(in_run, units * distinct);
    const bool dense = d + 1 == rank ? span >= static_cast<double>(buffer.extents[d]) : is_run;
    is_run = is_run && dense && (d == 0 || run + 0.5 * element >= outer);
  }
  return std::max(1.0, units) * unit;
}

double TouchedRuns(const Access& access, size_t first) {
  const size_t depth = access.trips.size();
  const size_t rank = depth == 0 ? 0 : access.step.size() / depth;
  double runs = 1;
  for (size_t d = 0; d + 1 < rank; ++d) {
    double span = 1, count = 1;
    for (size_t p = first; p < depth; ++p) {
      const double step = access.step[d * depth + p];
      if (step == 0) continue;
      span += step * (access.trips[p] - 1);
      count *= access.trips[p];
    }
    runs *= std::max(1.0, std::min(span, count));
  }
  return runs;
}

void AnalyzeMemory(const LoopProgram& program, const MachineModel& machine, Analysis& analysis) {
  const size_t buffers = program.buffers.size();
  analysis.capacity = {static_cast<double>(machine.l1_bytes), static_cast<double>(machine.l2_bytes),
                       static_cast<double>(machine.l3_bytes)};
  Footprint empty{PerBuffer(buffers), PerBuffer(buffers)};
  analysis.footprints.assign(analysis.nodes.size(), empty);
  std::vector<Footprint> direct = analysis.footprints;  // `body`: what the straight-line code alone touches
  const auto line = static_cast<double>(machine.line_bytes);
  IdVector<BufferId, char> stored(buffers);
  for (const Access& access : analysis.accesses) {
    const BufferId b = access.buffer;
    stored[b] |= access.is_store;
    // From the body outwards: each loop adds its trips.
    size_t first = access.trips.size();
    while (first > 0 && access.loop_node[first - 1] < 0) --first;
    double touched = TouchedBytes(program.buffer(b), access, first, line);
    int node = access.node;
    double& alone = direct[static_cast<size_t>(node)].body[b];
    alone = std::max(alone, touched);
    for (;;) {
      Footprint& footprint = analysis.footprints[static_cast<size_t>(node)];
      footprint.body[b] = std::max(footprint.body[b], touched);
      if (node > 0) {
        while (first > 0 && access.loop_node[first - 1] != node) --first;
        if (first > 0) --first;
        touched = std::max(touched, TouchedBytes(program.buffer(b), access, first, line));
      }
      footprint.inclusive[b] = std::max(footprint.inclusive[b], touched);
      if (node == 0) break;
      node = analysis.nodes[static_cast<size_t>(node)].parent;
    }
  }

  for (size_t level = 0; level < kCacheLevels; ++level) {
    std::vector<PerBuffer> traffic(analysis.nodes.size(), PerBuffer(buffers));
    for (size_t n = analysis.nodes.size(); n-- > 0;) {
      const Node& node = analysis.nodes[n];
      const Footprint& footprint = analysis.footprints[n];
      double together = 0;
      for (double bytes : footprint.body) together += bytes;
      for (BufferId b : program.buffers.ids()) {
        if (together <= analysis.capacity[level]) {
          traffic[n][b] = footprint.inclusive[b];
          continue;
        }
        double once = node.children.empty() ? footprint.body[b] : direct[n].body[b];
        for (int child : node.children) once += traffic[static_cast<size_t>(child)][b];
        traffic[n][b] = std::max(node.trips * once, footprint.inclusive[b]);
      }
    }
    // What is written comes in first and goes out again.
    for (BufferId b : program.buffers.ids())
      if (stored[b] && !traffic.empty()) traffic[0][b] *= 2;
    analysis.traffic[level] = traffic.empty() ? PerBuffer(buffers) : std::move(traffic[0]);
  }
}

}  // namespace hone::features
