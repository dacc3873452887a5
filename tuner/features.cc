// The list of features: one function writes names or values, so that they cannot get out of step.
#include "tuner/features.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/check.h"
#include "tuner/features_analysis.h"
#include "tuner/features_launches.h"

namespace hone {
namespace {

using features::Access;
using features::Analysis;
using features::BodyCycles;
using features::kCacheLevels;
using features::LaneAccess;
using features::Node;
using features::Operations;

constexpr int kStreams = 3;  // buffers of the hot body that are described one by one
constexpr int kLevels = 4;   // loops around the hot body that are described one by one

// Takes names or values. Magnitudes and ratios are logarithms; all are clamped to what is finite.
class Writer {
 public:
  explicit Writer(std::vector<float>* values) : values_(values) {}
  explicit Writer(std::vector<std::string>* names) : names_(names) {}

  void Group(std::string_view group, int number = -1) {
    group_ = group;
    number_ = number;
  }
  void Plain(std::string_view name, double value) { Add(name, value); }
  void Log(std::string_view name, double value) { Add(name, std::log2(1 + std::max(0.0, value))); }
  // log2 of a/b; 0 over something is far below 1, not minus infinity.
  void Ratio(std::string_view name, double a, double b) {
    constexpr double kLeast = 1e-6;
    Add(name, std::log2(std::max(a, kLeast * std::max(1.0, b))) - std::log2(std::max(b, kLeast)));
  }
  // a/b in 0 … 1, 0 of nothing.
  void Share(std::string_view name, double a, double b) { Add(name, b > 0 ? std::clamp(a / b, 0.0, 1.0) : 0); }

 private:
  void Add(std::string_view name, double value) {
    if (values_) {
      values_->push_back(std::isfinite(value) ? static_cast<float>(std::clamp(value, -64.0, 64.0)) : 0.0f);
    } else {
      std::string number = number_ < 0 ? "" : std::to_string(number_);
      names_->push_back(std::string(group_) + number + "." + std::string(name));
    }
  }
  std::vector<float>* values_ = nullptr;
  std::vector<std::string>* names_ = nullptr;
  std::string_view group_;
  int number_ = -1;
};

struct Input {
  const LoopProgram& program;
  const MachineModel& machine;
  const Analysis& analysis;
};

struct Totals {
  Operations ops;         // times executions
  double loop_trips = 0;  // of loops that stay loops
  double loop_entries = 0;
  double code = 0;  // instructions in the code
  double largest_body = 0;
  double copied_bytes = 0;
  BodyCycles cycles;       // each kind summed over bodies
  double body_cycles = 0;  // sum over bodies of their largest
  double hot_cycles = 0;
  double parallel_cycles = 0;  // of nests with a parallel loop
  double slowest_worker = 0;   // body cycles when nests run on the workers
  double fullest_tile = 0;
  int bodies = 0;
};

double Workers(const Input& in) {
  const int wanted = in.program.kernel.options.threads;
  return std::max(1, wanted > 0 ? std::min(wanted, in.machine.cores) : in.machine.cores);
}

// The longest part that a worker gets of a parallel loop: equal parts, none below the grain.
double LargestPart(const Node& loop, double workers) {
  const double trips = std::max(1.0, loop.trips);
  return std::min(1.0, std::max(static_cast<double>(loop.grain), std::ceil(trips / workers)) / trips);
}

Totals Sum(const Input& in) {
  Totals totals;
  const double workers = Workers(in);
  std::vector<double> nest_part(static_cast<size_t>(in.analysis.nests) + 1, 1.0);
  for (const Node& node : in.analysis.nodes)
    if (node.kind == LoopKind::kParallel && node.nest >= 0)
      nest_part[static_cast<size_t>(node.nest)] = LargestPart(node, workers);
  for (size_t n = 0; n < in.analysis.nodes.size(); ++n) {
    const Node& node = in.analysis.nodes[n];
    const double runs = node.executions;
    auto add = [&](double Operations::* member) { totals.ops.*member += runs * node.ops.*member; };
    for (double Operations::* member :
         {&Operations::fma, &Operations::add, &Operations::multiply, &Operations::compare, &Operations::divide,
          &Operations::transcendental, &Operations::math_calls, &Operations::convert, &Operations::integer,
          &Operations::doubles, &Operations::shuffle, &Operations::masked_load, &Operations::masked_store,
          &Operations::branch, &Operations::lanes_issued, &Operations::lanes_used, &Operations::scalar,
          &Operations::flops, &Operations::instructed})
      add(member);
    for (size_t i = 0; i < features::kLaneAccesses; ++i) {
      totals.ops.load[i] += runs * node.ops.load[i];
      totals.ops.store[i] += runs * node.ops.store[i];
    }
    totals.ops.hoisted_load += node.entries * node.ops.hoisted_load;
    const double instructions = node.ops.Instructions(in.machine);
    totals.code += node.copies * instructions;
    totals.largest_body = std::max(totals.largest_body, instructions);
    totals.copied_bytes += runs * node.copied_bytes;
    totals.fullest_tile = std::max(totals.fullest_tile, node.tile_vectors);
    totals.bodies += instructions > 0;
    if (node.IsLoop()) {
      totals.loop_trips += runs;
      totals.loop_entries += node.entries;
    }
    BodyCycles body = CyclesOf(node, in.machine);
    for (double BodyCycles::* member :
         {&BodyCycles::arithmetic, &BodyCycles::load, &BodyCycles::store, &BodyCycles::shuffle, &BodyCycles::issue,
          &BodyCycles::latency, &BodyCycles::path})
      totals.cycles.*member += runs * body.*member;
    const double cycles = runs * body.Max();
    totals.body_cycles += cycles;
    if (static_cast<int>(n) == in.analysis.hot) totals.hot_cycles = cycles;
    const double part = node.nest < 0 ? 1 : nest_part[static_cast<size_t>(node.nest)];
    totals.slowest_worker += cycles * part;
    if (part < 1) totals.parallel_cycles += cycles;
  }
  return totals;
}

double SumOf(const features::PerBuffer& values) {
  double sum = 0;
  for (double value : values) sum += value;
  return sum;
}

// What the whole kernel does.
void WriteWork(const Input& in, const Totals& totals, Writer& out) {
  const Operations& ops = totals.ops;
  const double arithmetic = ops.Arithmetic(), flops = std::max(1.0, in.analysis.needed_flops);
  out.Group("work");
  out.Log("flops", flops);
  out.Log("operand_bytes", in.analysis.operand_bytes);
  out.Ratio("intensity", flops, in.analysis.operand_bytes);
  out.Ratio("redundancy", ops.flops, flops);  // computed more than once, or in padding
  out.Log("fma", ops.fma);
  out.Log("arithmetic", arithmetic);
  out.Share("fma_share", ops.fma, arithmetic);
  out.Share("add_share", ops.add, arithmetic);
  out.Share("multiply_share", ops.multiply, arithmetic);
  out.Share("compare_share", ops.compare, arithmetic);
  out.Share("divide_share", ops.divide, arithmetic);
  out.Share("transcendental_share", ops.transcendental, arithmetic);
  out.Share("convert_share", ops.convert, arithmetic);
  out.Share("integer_share", ops.integer, arithmetic);
  out.Share("double_share", ops.doubles, arithmetic);
  out.Share("scalar_share", ops.scalar, arithmetic);
  out.Share("instruction_share", ops.instructed, ops.flops);
  out.Share("lanes_wasted", ops.lanes_issued - ops.lanes_used, ops.lanes_issued);
  out.Ratio("operations_per_flop", arithmetic, flops);
  out.Ratio("loads_per_flop", ops.Loads(), flops);
  out.Ratio("stores_per_flop", ops.Stores(), flops);
  out.Ratio("shuffles_per_flop", ops.shuffle, flops);
  out.Ratio("branches_per_flop", ops.branch, flops);
  out.Share("masked_loads", ops.masked_load, ops.Loads());
  out.Share("masked_stores", ops.masked_store, ops.Stores());
  out.Share("gathered", ops.load[static_cast<size_t>(LaneAccess::kGather)], ops.Loads());
  out.Share("scattered", ops.store[static_cast<size_t>(LaneAccess::kGather)], ops.Stores());
  out.Ratio("copied_bytes", totals.copied_bytes, in.analysis.operand_bytes);
}

// The body that takes most of the cycles.
void WriteHot(const Input& in, const Totals& totals, Writer& out) {
  static const Node kNothing;
  const Node& hot = in.analysis.nodes.empty() ? kNothing : in.analysis.nodes[static_cast<size_t>(in.analysis.hot)];
  const Operations& ops = hot.ops;
  const double arithmetic = std::max(ops.Arithmetic(), 1.0), registers = in.machine.vector_registers;
  out.Group("hot");
  out.Share("share", totals.hot_cycles, totals.body_cycles);
  out.Log("trips", hot.trips);
  out.Log("entries", hot.entries);
  out.Plain("innermost", hot.IsInnermost() ? 1 : 0);
  out.Log("instructions", ops.Instructions(in.machine));
  out.Log("arithmetic", ops.Arithmetic());
  out.Log("fma", ops.fma);
  out.Log("divide", ops.divide);
  out.Log("transcendental", ops.transcendental);
  out.Log("math_calls", ops.math_calls);
  out.Log("shuffle", ops.shuffle);
  out.Log("branch", ops.branch);
  out.Log("loads", ops.Loads());
  out.Log("stores", ops.Stores());
  out.Log("broadcasts", ops.load[static_cast<size_t>(LaneAccess::kBroadcast)]);
  out.Log("contiguous_loads", ops.load[static_cast<size_t>(LaneAccess::kContiguous)]);
  out.Log("strided_loads", ops.load[static_cast<size_t>(LaneAccess::kStrided)]);
  out.Log("gathered_loads", ops.load[static_cast<size_t>(LaneAccess::kGather)]);
  out.Log("scalar_loads", ops.load[static_cast<size_t>(LaneAccess::kScalar)]);
  out.Log("masked_loads", ops.masked_load);
  out.Log("hoisted_loads", ops.hoisted_load);
  out.Log("scattered_stores", ops.store[static_cast<size_t>(LaneAccess::kGather)]);
  out.Log("masked_stores", ops.masked_store);
  out.Ratio("loads_per_operation", ops.Loads(), arithmetic);
  out.Ratio("stores_per_operation", ops.Stores(), arithmetic);
  out.Ratio("broadcasts_per_operation", ops.load[static_cast<size_t>(LaneAccess::kBroadcast)], arithmetic);
  out.Ratio("contiguous_per_operation", ops.load[static_cast<size_t>(LaneAccess::kContiguous)], arithmetic);
  out.Plain("lanes", hot.vector_lanes);
  out.Share("lanes_wasted", ops.lanes_issued - ops.lanes_used, ops.lanes_issued);
  out.Share("scalar_share", ops.scalar, ops.Arithmetic());
  // Registers: the tile, the vectors that are shared between its rows, one for a broadcast.
  const double shared =
      hot.tile_vectors > 0 ? std::min(ops.load[static_cast<size_t>(LaneAccess::kContiguous)], registers) : 0;
  const double pressure = hot.tile_vectors + shared + ops.hoisted_load + 1;
  out.Log("tile_vectors", hot.tile_vectors);
  out.Ratio("tile_per_register", hot.tile_vectors, registers);
  out.Ratio("pressure", pressure, registers);
  out.Log("spills", pressure - registers);
  out.Log("chains", hot.chains);
  out.Ratio("chains_per_pipe", hot.chains, in.machine.FmaChains());
  out.Log("chain_links", hot.chain_links);
  out.Plain("chain_in_memory", hot.chain_in_memory ? 1 : 0);
  BodyCycles cycles = CyclesOf(hot, in.machine);
  const double most = cycles.Max();
  out.Log("cycles", most);
  out.Share("by_arithmetic", cycles.arithmetic, most);
  out.Share("by_load", cycles.load, most);
  out.Share("by_store", cycles.store, most);
  out.Share("by_shuffle", cycles.shuffle, most);
  out.Share("by_issue", cycles.issue, most);
  out.Share("by_latency", cycles.latency, most);
}

// The loops around the hot body, from the inside: what one entry of each touches.
void WriteLevels(const Input& in, Writer& out) {
  const Analysis& analysis = in.analysis;
  int node = analysis.nodes.empty() ? -1 : analysis.hot;
  for (int level = 0; level < kLevels; ++level) {
    out.Group("level", level);
    const bool exists = node >= 0;
    const Node* loop = exists ? &analysis.nodes[static_cast<size_t>(node)] : nullptr;
    const double bytes = exists ? SumOf(analysis.footprints[static_cast<size_t>(node)].inclusive) : 0;
    double flops = exists ? loop->trips * loop->ops.flops : 0;
    out.Log("trips", exists ? loop->trips : 0);
    out.Log("bytes", bytes);
    out.Ratio("of_l1", bytes, analysis.capacity[0]);
    out.Ratio("of_l2", bytes, analysis.capacity[1]);
    if (level == 0) out.Ratio("flops_per_byte", flops, bytes);
    if (exists) node = loop->parent;
  }
}

// The buffers that the hot body reads and writes most, one by one.
void WriteStreams(const Input& in, Writer& out) {
  const Analysis& analysis = in.analysis;
  const auto line = static_cast<double>(in.machine.line_bytes), page = static_cast<double>(in.machine.page_bytes);
  std::vector<const Access*> streams;
  for (const Access& access : analysis.accesses) {
    if (access.node != analysis.hot) continue;
    auto same = std::find_if(streams.begin(), streams.end(), [&](const Access* a) {
      return a->buffer == access.buffer && a->is_store == access.is_store;
    });
    if (same == streams.end())
      streams.push_back(&access);
    else if (access.count > (*same)->count)
      *same = &access;
  }
  std::sort(streams.begin(), streams.end(),
            [](const Access* a, const Access* b) { return a->count != b->count ? a->count > b->count : a < b; });
  for (int s = 0; s < kStreams; ++s) {
    out.Group("stream", s);
    const Access* access = s < static_cast<int>(streams.size()) ? streams[static_cast<size_t>(s)] : nullptr;
    // Innermost loop that stays a loop, and the next one.
    double inner_stride = 0, outer_stride = 0, loop_bytes = 0, pages = 0, element = 4, reuse = 0, runs = 0;
    double packed = 0;
    if (access) {
      const Buffer& buffer = in.program.buffer(access->buffer);
      element = static_cast<double>(ByteSize(buffer.dtype));
      packed = buffer.scope != Scope::kDefault;
      size_t first = access->trips.size();
      while (first > 0 && access->loop_node[first - 1] < 0) --first;
      runs = features::TouchedRuns(*access, first);
      int seen = 0;
      for (size_t p = access->trips.size(); p-- > 0 && seen < 2;) {
        if (access->loop_node[p] < 0) continue;
        (seen == 0 ? inner_stride : outer_stride) = std::abs(access->stride[p]) * element;
        if (seen++ == 0) first = p;
      }
      loop_bytes = features::TouchedBytes(buffer, *access, first, line);
      pages = features::TouchedBytes(buffer, *access, first, page) / page;
      const Node& node = analysis.nodes[static_cast<size_t>(access->node)];
      reuse = access->count * node.trips * element / loop_bytes;
    }
    out.Log("count", access ? access->count : 0);
    out.Plain("is_store", access && access->is_store);
    out.Plain("packed", packed);
    out.Plain("guarded", access && access->is_guarded);
    out.Plain("lanes", access ? static_cast<double>(access->lanes) : -1);
    out.Log("inner_stride", inner_stride);
    out.Log("outer_stride", outer_stride);
    out.Log("loop_bytes", loop_bytes);
    out.Ratio("of_l1", loop_bytes, analysis.capacity[0]);
    out.Log("pages", pages);
    out.Log("reuse", reuse);
    out.Log("runs", runs);
  }
}

void WriteMemory(const Input& in, Writer& out) {
  const Analysis& analysis = in.analysis;
  const double flops = std::max(1.0, analysis.needed_flops);
  IdVector<BufferId, int64_t> ahead(in.program.buffers.size());
  int64_t farthest = 0;
  for (const Access& access : analysis.accesses) {
    int64_t& of_buffer = ahead[access.buffer];
    of_buffer = std::max(of_buffer, access.prefetch);
    farthest = std::max(farthest, access.prefetch);
  }
  out.Group("memory");
  out.Log("prefetch_ahead", static_cast<double>(farthest));
  for (int level = 0; level < kCacheLevels; ++level) {
    out.Group("cache", level + 1);
    const features::PerBuffer& traffic = analysis.traffic[static_cast<size_t>(level)];
    const double bytes = SumOf(traffic);
    double worst = 0, operands = 0, prefetched = 0;
    for (BufferId b : traffic.ids()) {
      if (ahead[b] > 0) prefetched += traffic[b];
      worst = std::max(worst, traffic[b]);
      if (in.program.buffer(b).scope == Scope::kDefault || in.program.buffer(b).scope == Scope::kConst)
        operands += traffic[b];
    }
    out.Log("bytes", bytes);
    out.Ratio("bytes_per_flop", bytes, flops);
    out.Ratio("of_operands", bytes, analysis.operand_bytes);  // 1: each operand once
    out.Share("largest", worst, bytes);
    out.Share("workspace", bytes - operands, bytes);
    out.Share("prefetched", prefetched, bytes);
  }
}

void WriteStructure(const Input& in, const Totals& totals, Writer& out) {
  int depth = 0;
  for (const Node& node : in.analysis.nodes) {
    int above = 0;
    for (int parent = node.parent; parent >= 0; parent = in.analysis.nodes[static_cast<size_t>(parent)].parent) ++above;
    depth = std::max(depth, above);
  }
  const double flops = std::max(1.0, in.analysis.needed_flops);
  out.Group("structure");
  out.Plain("nests", in.analysis.nests);
  out.Plain("loops", std::max<double>(0, static_cast<double>(in.analysis.nodes.size()) - 1));
  out.Plain("depth", depth);
  out.Plain("bodies", totals.bodies);
  out.Plain("buffers", static_cast<double>(in.program.buffers.size()));
  out.Plain("packed_constants", static_cast<double>(in.program.pack.size()));
  out.Log("code", totals.code);
  out.Log("largest_body", totals.largest_body);
  out.Log("fullest_tile", totals.fullest_tile);
  out.Ratio("trips_per_flop", totals.loop_trips, flops);
  out.Ratio("entries_per_flop", totals.loop_entries, flops);
}

void WriteParallel(const Input& in, const Totals& totals, Writer& out) {
  const double workers = Workers(in);
  const Node* loop = nullptr;
  for (const Node& node : in.analysis.nodes)
    if (node.kind == LoopKind::kParallel && (!loop || node.trips > loop->trips)) loop = &node;
  out.Group("parallel");
  out.Plain("workers", workers);
  out.Log("tasks", loop ? loop->trips : 0);
  out.Log("grain", loop ? static_cast<double>(loop->grain) : 0);
  out.Ratio("imbalance", loop ? LargestPart(*loop, workers) * workers : workers, 1);
  out.Share("share", totals.parallel_cycles, totals.body_cycles);
  out.Log("cycles_per_task", loop ? totals.body_cycles / std::max(1.0, loop->trips) : totals.body_cycles);
  out.Log("private_bytes", static_cast<double>(in.program.workspace_per_worker));
  out.Log("shared_bytes", static_cast<double>(in.program.workspace_common));
  out.Ratio("private_of_l2", static_cast<double>(in.program.workspace_per_worker), in.analysis.capacity[1]);
}

void WriteLaunches(const Input& in, Writer& out) {
  const features::Launches l = features::AnalyzeLaunches(in.program, in.machine, in.analysis);
  const double flops = std::max(1.0, in.analysis.needed_flops), units = std::max(1, in.machine.cores);
  out.Group("launch");
  out.Plain("launches", l.launches);
  out.Share("share", l.cycles, l.all_cycles);
  out.Log("blocks", l.blocks);
  out.Ratio("blocks_per_unit", l.blocks, units);
  // Of the last blocks, when fewer are left than there are units.
  out.Share("waste", std::ceil(l.blocks / units) * units - l.blocks, std::ceil(l.blocks / units) * units);
  out.Log("threads", l.threads);
  out.Log("threads_x", l.threads_x);
  out.Log("all_threads", l.blocks * l.threads);
  out.Log("thread_cycles", l.thread_cycles);
  out.Log("barriers", l.barriers);
  out.Log("cycles_per_barrier", l.barriers > 0 ? l.thread_cycles / l.barriers : 0);
  out.Share("block_bytes", l.block_bytes, static_cast<double>(in.machine.block_bytes));
  out.Plain("trips_ahead", l.trips_ahead);
  out.Ratio("accesses_per_flop", l.global_accesses, flops);
  out.Ratio("sectors_per_flop", l.global_sectors, flops);
  out.Log("sectors", l.global_accesses > 0 ? l.global_sectors / l.global_accesses : 0);
  out.Ratio("passes_per_flop", l.shared_passes, flops);
  out.Log("passes", l.least_passes > 0 ? l.shared_passes / l.least_passes : 0);
  out.Share("in_block_storage", l.shared_accesses, l.shared_accesses + l.global_accesses);
}

// Cycles of the whole program by what could limit it, and how far that is from what the kernel needs at least.
void WriteBounds(const Input& in, const Totals& totals, Writer& out) {
  const double lanes = in.machine.Lanes(4);
  const double ideal = std::max(in.analysis.needed_flops / (2 * in.machine.fma_per_cycle * lanes),
                                in.analysis.operand_bytes / in.machine.stream_bytes_per_cycle[kCacheLevels - 1] / 8) +
                       1;
  double memory[kCacheLevels];
  for (size_t level = 0; level < kCacheLevels; ++level)
    memory[level] = SumOf(in.analysis.traffic[level]) / in.machine.stream_bytes_per_cycle[level];
  // Traffic of operands that fit the last level does not come from memory again when the kernel is called again.
  if (in.analysis.operand_bytes <= in.analysis.capacity[2]) memory[2] = 0;
  const double scale = totals.body_cycles > 0 ? totals.slowest_worker / totals.body_cycles : 1;
  const double loops = totals.loop_entries * in.machine.loop_entry_cycles;
  const double compute = (totals.body_cycles + loops) * scale;
  const double slowest = std::max({compute, memory[0] * scale, memory[1] * scale, memory[2]});
  out.Group("bound");
  out.Log("ideal", ideal);
  out.Log("cycles", slowest + 1);
  out.Log("sum", compute + memory[0] * scale + memory[1] * scale + memory[2]);
  out.Ratio("efficiency", ideal, slowest + 1);
  out.Ratio("arithmetic", totals.cycles.arithmetic, ideal);
  out.Ratio("load", totals.cycles.load, ideal);
  out.Ratio("store", totals.cycles.store, ideal);
  out.Ratio("shuffle", totals.cycles.shuffle, ideal);
  out.Ratio("issue", totals.cycles.issue, ideal);
  out.Ratio("latency", totals.cycles.latency, ideal);
  out.Ratio("path", totals.cycles.path, ideal);
  out.Ratio("bodies", totals.body_cycles, ideal);
  out.Ratio("loops", loops, ideal);
  out.Ratio("l2", memory[0], ideal);
  out.Ratio("l3", memory[1], ideal);
  out.Ratio("memory", memory[2], ideal);
  out.Group("target");
  out.Plain("lanes", lanes);
  out.Plain("registers", in.machine.vector_registers);
  out.Log("l1", in.analysis.capacity[0]);
  out.Log("l2", in.analysis.capacity[1]);
  out.Log("l3", in.analysis.capacity[2]);
}

void WriteAll(const Input& in, Writer& out) {
  const Totals totals = Sum(in);
  WriteWork(in, totals, out);
  WriteHot(in, totals, out);
  WriteLevels(in, out);
  WriteStreams(in, out);
  WriteMemory(in, out);
  WriteStructure(in, totals, out);
  WriteParallel(in, totals, out);
  WriteLaunches(in, out);
  WriteBounds(in, totals, out);
}

}  // namespace

std::span<const std::string_view> FeatureNames() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    Writer writer(&names);
    WriteAll({LoopProgram{}, ModelMachine(Target{}), Analysis{}}, writer);
    return names;
  }();
  static const std::vector<std::string_view> kViews(kNames.begin(), kNames.end());
  return kViews;
}

std::vector<float> ExtractFeatures(const LoopProgram& program, const Target& target) {
  Analysis analysis;
  const MachineModel machine = ModelMachine(target);
  features::AnalyzeLoops(program, machine, analysis);
  features::AnalyzeMemory(program, machine, analysis);
  std::vector<float> values;
  values.reserve(FeatureNames().size());
  Writer writer(&values);
  WriteAll({program, machine, analysis}, writer);
  HONE_CHECK(values.size() == FeatureNames().size());
  return values;
}

}  // namespace hone
