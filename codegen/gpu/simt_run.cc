#include "codegen/gpu/simt_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "base/arithmetic.h"
#include "base/check.h"
#include "codegen/gpu/simt_counts.h"
#include "codegen/gpu/simt_group.h"
#include "codegen/gpu/simt_memory.h"
#include "codegen/gpu/simt_steps.h"
#include "codegen/gpu/simt_values.h"
#include "codegen/gpu/simt_warp.h"

namespace hone {
namespace simt {
namespace {

using straight::Code;
using straight::Do;
using straight::Node;
using straight::Value;
using straight::ValueId;

constexpr int64_t kWarp = 32;

class Machine {
 public:
  Machine(const straight::Program& program, std::span<const int64_t> sizes, const SimtOptions& options)
      : program_(program), sizes_(sizes), options_(options) {}

  void AddMemory(BufferId id, Memory memory) { memories_.emplace(id, std::move(memory)); }
  void Run(const straight::Launch& launch);
  SimtReport Take() { return std::move(report_); }

 private:
  // An element that a copy ahead will bring.
  struct Arrival {
    BufferId buffer;
    int64_t index;
    double value;
  };
  struct Thread {
    IdVector<ValueId, Slot> slots;
    size_t pc = 0;
    std::array<int64_t, 3> at = {};
    std::map<size_t, int64_t> visits;         // of each access, when counting
    std::deque<std::vector<Arrival>> groups;  // copies ahead that have not arrived
    std::vector<Arrival> ahead;               // those of no group yet
    std::set<ValueId> unfenced;               // registers set since the last fence of sums
    int64_t fences = 0, fences_before = 0;    // of storage; before the last barrier
  };

  bool IsOver() const { return report_.findings.size() >= options_.findings; }
  // Nothing where `what` is empty.
  void Find(std::string what) {
    if (what.empty() || IsOver()) return;
    // One of a kind and a buffer is enough.
    const std::string kind = what.substr(0, what.find('['));
    if (seen_.insert(kind.substr(0, 24)).second) report_.findings.push_back(std::move(what));
  }

  void RunBlock(const straight::Launch& launch, const std::array<int64_t, 3>& block);
  enum class Stop : uint8_t { kEnd, kBarrier, kTogether };  // kTogether: what its warp does
  Stop RunThread(Thread& thread);
  // The threads of a warp, or of a group of warps where the launch has such products, to the next barrier or the end;
  // the number of those that wait at a barrier.
  size_t RunWarp(std::span<Thread> warp, int64_t first);
  void Together(const Node& node, std::span<Thread> warp, int64_t first);
  void Execute(const Node& node, Thread& thread);
  Slot Evaluate(const Value& value, Thread& thread, const Code& code, IdVector<ValueId, Slot>& slots);
  Slot Load(const Value& value, Thread& thread, IdVector<ValueId, Slot>& slots);
  Lane Element(BufferId buffer, int64_t index, DType type);
  void LoadMatrices(const Node& node, std::span<Thread> warp, int64_t first);
  void CopyAhead(const Node& node, Thread& thread);
  void Await(size_t groups, Thread& thread);
  const Slot& Read(ValueId id, const Code& code, const IdVector<ValueId, Slot>& slots);
  Slot Call(const Value& call, Thread& thread, const Code& code, const IdVector<ValueId, Slot>& slots);
  void Count(BufferId buffer, int64_t index, int64_t lanes, Thread& thread);

  const straight::Program& program_;
  std::span<const int64_t> sizes_;
  const SimtOptions& options_;
  std::map<BufferId, Memory> memories_;
  std::map<BufferId, Memory> shared_;
  IdVector<BufferId, Memory*> places_;  // of both, for the launch that runs
  SimtReport report_;
  std::set<std::string> seen_;

  const Code* code_ = nullptr;
  std::vector<Step> steps_;
  IdVector<ValueId, Slot> constants_;
  Actor actor_;
  size_t together_ = kWarp;              // threads that do things together
  std::vector<Thread> threads_;          // of the block
  std::vector<GroupProducts> products_;  // of each of its groups of warps
  bool is_counting_ = false;
  AccessCounts counts_;
};

const Slot& Machine::Read(ValueId id, const Code& code, const IdVector<ValueId, Slot>& slots) {
  const Slot& slot = slots[id];
  if (!slot.is_set)
    Find(fmt::format("{} is read before it is set[",
                     code.values[id].what == Do::kRegister ? code.values[id].name : "a value"));
  return slot;
}

void Machine::Count(BufferId buffer, int64_t index, int64_t lanes, Thread& thread) {
  if (!is_counting_) return;
  const bool is_shared = shared_.contains(buffer);
  const int64_t bytes = ByteSize(program_.buffers[buffer].dtype);
  const int64_t visit = thread.visits[thread.pc * 4096 + static_cast<size_t>(buffer.value)]++;
  counts_.Add({actor_.thread / kWarp, thread.pc * 4096 + static_cast<size_t>(buffer.value), visit, is_shared},
              index * bytes, (index + lanes) * bytes);
}

Slot Machine::Load(const Value& value, Thread& thread, IdVector<ValueId, Slot>& slots) {
  Slot slot;
  slot.is_set = true;
  slot.Widen(value.lanes);
  if (value.args.size() > 1 && Read(value.args[1], *code_, slots).lanes[0].number == 0) {
    const Lane fill = Read(value.args[2], *code_, slots).lanes[0];
    for (size_t lane = 0; lane < static_cast<size_t>(value.lanes); ++lane) slot.At(lane) = fill;
    return slot;
  }
  const int64_t base = value.args[0] ? Read(value.args[0], *code_, slots).lanes[0].number : 0;
  Count(value.buffer, base + value.number, value.lanes, thread);
  for (int lane = 0; lane < value.lanes; ++lane)
    slot.At(static_cast<size_t>(lane)) = Element(value.buffer, base + value.number + lane, value.type);
  return slot;
}

Lane Machine::Element(BufferId buffer, int64_t index, DType type) {
  Memory& memory = *places_[buffer];
  std::string wrong = memory.Read(index, actor_);
  const bool is_stray = wrong.starts_with("stray");
  Find(std::move(wrong));
  const double element = is_stray ? 0 : memory.Load(index);
  return IsFloat(type) ? Lane{element, 0} : Lane{0, static_cast<int64_t>(element)};
}

void Machine::LoadMatrices(const Node& node, std::span<Thread> warp, int64_t first) {
  const Value& value = code_->values[node.value];
  const int64_t bytes = ByteSize(value.type), of_row = 16 / bytes;
  std::vector<std::vector<Lane>> rows(warp.size());
  for (size_t t = 0; t < rows.size() && t < 8 * static_cast<size_t>(value.lanes); ++t) {
    actor_.thread = first + static_cast<int64_t>(t);
    int64_t at = value.number;
    if (value.args[0]) at += Read(value.args[0], *code_, warp[t].slots).lanes[0].number;
    if (at * bytes % 16 != 0) Find("misaligned: a row of a matrix begins at no multiple of 16 bytes[");
    Count(value.buffer, at, of_row, warp[t]);
    for (int64_t i = 0; i < of_row; ++i) rows[t].push_back(Element(value.buffer, at + i, value.type));
  }
  for (size_t t = 0; t < rows.size(); ++t) {
    Slot& slot = warp[t].slots[node.value];
    slot.is_set = true;
    slot.words = WordsOf(value, rows, t);
  }
}

Slot Machine::Call(const Value& call, Thread& thread, const Code& code, const IdVector<ValueId, Slot>& of_caller) {
  const straight::Function& function = program_.functions[static_cast<size_t>(call.number)];
  IdVector<ValueId, Slot> slots(function.code.values.size());
  for (ValueId id : slots.ids()) {
    const Value& value = function.code.values[id];
    if (value.what != Do::kConstant) continue;
    slots[id].lanes[0] = {value.real, value.number};
    slots[id].is_set = true;
  }
  for (size_t i = 0; i < call.args.size(); ++i) slots[function.params[i]] = Read(call.args[i], code, of_caller);
  for (const Node& node : function.code.nodes)
    slots[node.value] = Evaluate(function.code.values[node.value], thread, function.code, slots);
  return slots[function.result];
}

Slot Machine::Evaluate(const Value& value, Thread& thread, const Code& code, IdVector<ValueId, Slot>& slots) {
  const auto arg = [&](size_t i) -> const Slot& { return Read(value.args[i], code, slots); };
  Slot slot;
  slot.is_set = true;
  switch (value.what) {
    case Do::kLoad: return Load(value, thread, slots);
    case Do::kCall: return Call(value, thread, code, slots);
    case Do::kWord: slot.lanes = arg(0).words[static_cast<size_t>(value.number)]; return slot;
    case Do::kLane:
    case Do::kPack:
    case Do::kPart:
    case Do::kEverySecond: {
      std::vector<const Slot*> of;
      for (size_t i = 0; i < value.args.size(); ++i) of.push_back(&arg(i));
      return Arranged(value, of);
    }
    default: break;
  }
  const DType from = code.values[value.args[0]].type;
  slot.Widen(value.lanes);
  for (size_t lane = 0; lane < static_cast<size_t>(value.lanes); ++lane) {
    std::array<Lane, 3> of = {};
    for (size_t i = 0; i < value.args.size(); ++i) of[i] = arg(i).At(code.values[value.args[i]].lanes == 1 ? 0 : lane);
    slot.At(lane) = Computed(value, from, of.data());
  }
  return slot;
}

void Machine::Execute(const Node& node, Thread& thread) {
  switch (node.kind) {
    case Node::Kind::kLet:
      thread.slots[node.value] = Evaluate(code_->values[node.value], thread, *code_, thread.slots);
      return;
    case Node::Kind::kDeclare: thread.slots[node.value] = {}; return;
    case Node::Kind::kAssign: {
      const Slot value = Read(node.a, *code_, thread.slots);
      thread.slots[node.value] = value;
      if (together_ > kWarp) thread.unfenced.insert(node.value);
      return;
    }
    case Node::Kind::kStore: {
      const Slot value = Read(node.b, *code_, thread.slots);
      const int64_t base = node.a ? Read(node.a, *code_, thread.slots).lanes[0].number : 0;
      const Value& stored = code_->values[node.b];
      Memory& memory = *places_[node.buffer];
      Count(node.buffer, base + node.offset, stored.lanes, thread);
      for (int lane = 0; lane < stored.lanes; ++lane) {
        const int64_t index = base + node.offset + lane;
        std::string wrong = memory.Write(index, actor_);
        const bool is_stray = wrong.starts_with("stray");
        Find(std::move(wrong));
        const Lane& from = value.At(static_cast<size_t>(lane));
        if (!is_stray) memory.Store(index, IsFloat(stored.type) ? from.real : static_cast<double>(from.number));
      }
      return;
    }
    case Node::Kind::kCopyAhead: return CopyAhead(node, thread);
    case Node::Kind::kCommit: thread.groups.push_back(std::exchange(thread.ahead, {})); return;
    case Node::Kind::kAwait: return Await(static_cast<size_t>(node.offset), thread);
    case Node::Kind::kFenceStorage: actor_.fences = ++thread.fences; return;
    default: HONE_CHECK(!"a node without a body");
  }
}

// From now on nobody may touch the place, until what is there has been waited for.
void Machine::CopyAhead(const Node& node, Thread& thread) {
  const bool holds = node.args.empty() || Read(node.args[0], *code_, thread.slots).lanes[0].number != 0;
  const int64_t to = (node.a ? Read(node.a, *code_, thread.slots).lanes[0].number : 0) + node.offset;
  const int64_t from = (node.b ? Read(node.b, *code_, thread.slots).lanes[0].number : 0) + node.source_offset;
  Memory &source = *places_[node.source], &block = *places_[node.buffer];
  if (holds) Count(node.source, from, node.lanes, thread);
  Count(node.buffer, to, node.lanes, thread);
  for (int64_t lane = 0; lane < node.lanes; ++lane) {
    std::string stray = holds ? source.Read(from + lane, actor_) : "";
    const bool is_here = holds && !stray.starts_with("stray");
    Find(std::move(stray));
    Find(block.Write(to + lane, actor_));
    thread.ahead.push_back({node.buffer, to + lane, is_here ? source.Load(from + lane) : 0});
  }
}

void Machine::Await(size_t groups, Thread& thread) {
  for (; thread.groups.size() > groups; thread.groups.pop_front())
    for (const Arrival& arrival : thread.groups.front()) {
      Memory& block = *places_[arrival.buffer];
      std::string wrong = block.Write(arrival.index, actor_);
      const bool is_stray = wrong.starts_with("stray");
      Find(std::move(wrong));
      if (!is_stray) block.Store(arrival.index, arrival.value);
    }
}

Machine::Stop Machine::RunThread(Thread& thread) {
  while (thread.pc < steps_.size()) {
    const Step& step = steps_[thread.pc];
    const Node& node = *step.node;
    switch (step.kind) {
      case Step::Kind::kNode:
        if (node.kind == Node::Kind::kBarrier) return Stop::kBarrier;
        if (IsTogether(node, *code_)) return Stop::kTogether;
        Execute(node, thread);
        ++thread.pc;
        break;
      case Step::Kind::kSkipUnless:
        thread.pc = Read(node.a, *code_, thread.slots).lanes[0].number != 0 ? thread.pc + 1 : step.target;
        break;
      case Step::Kind::kLoopBegin: {
        Slot& counter = thread.slots[node.value];
        counter = Read(node.a, *code_, thread.slots);
        const bool enters = counter.lanes[0].number < Read(node.b, *code_, thread.slots).lanes[0].number;
        thread.pc = enters ? thread.pc + 1 : step.target;
        break;
      }
      case Step::Kind::kLoopEnd: {
        Slot& counter = thread.slots[node.value];
        ++counter.lanes[0].number;
        const bool again = counter.lanes[0].number < Read(node.b, *code_, thread.slots).lanes[0].number;
        thread.pc = again ? step.target : thread.pc + 1;
        break;
      }
    }
  }
  return Stop::kEnd;
}

size_t Machine::RunWarp(std::span<Thread> warp, int64_t first) {
  for (;;) {
    size_t waiting = 0, together = 0;
    for (size_t t = 0; t < warp.size() && !IsOver(); ++t) {
      actor_.thread = first + static_cast<int64_t>(t);
      actor_.fences = warp[t].fences;
      const Stop stop = RunThread(warp[t]);
      waiting += stop == Stop::kBarrier ? 1 : 0;
      together += stop == Stop::kTogether ? 1 : 0;
    }
    if (together == 0 || IsOver()) return waiting;
    const size_t at = warp[0].pc;
    const auto here = static_cast<size_t>(std::ranges::count(warp, at, &Thread::pc));
    const size_t all = at < steps_.size() && IsShuffle(*steps_[at].node, *code_) ? warp.size() : together_;
    if (here < all) {
      Find(fmt::format("divergent warp: {} of {} threads come to what all of them do together[", here, all));
      return waiting;
    }
    Together(*steps_[at].node, warp, first);
    for (Thread& thread : warp) ++thread.pc;
  }
}

void Machine::Together(const Node& node, std::span<Thread> warp, int64_t first) {
  if (IsShuffle(node, *code_)) {
    const Value& of = code_->values[node.value];
    for (size_t t = 0; t < warp.size(); ++t)
      warp[t].slots[node.value] = Read(of.args[0], *code_, warp[t ^ static_cast<size_t>(of.number)].slots);
    return;
  }
  if (node.kind == Node::Kind::kLet) return LoadMatrices(node, warp, first);
  if (node.kind == Node::Kind::kMultiply) {
    std::vector<std::vector<Slot>> of(warp.size());
    for (size_t t = 0; t < warp.size(); ++t)
      for (ValueId arg : node.args) of[t].push_back(Read(arg, *code_, warp[t].slots));
    Multiply(*node.instruction, of);
    for (size_t t = 0; t < warp.size(); ++t)
      for (size_t i = 0; i < kSums; ++i) warp[t].slots[node.args[i]] = of[t][i];
    return;
  }
  GroupProducts& products = products_[static_cast<size_t>(first) / together_];
  actor_.thread = first;
  std::vector<GroupThread> group;
  for (Thread& thread : warp) {
    group.push_back({&thread.slots, node.offset, node.source_offset});
    if (node.kind == Node::Kind::kFenceSums) thread.unfenced.clear();
    if (node.kind != Node::Kind::kProduct) continue;
    if (node.a) group.back().a += Read(node.a, *code_, thread.slots).lanes[0].number;
    if (node.b) group.back().b += Read(node.b, *code_, thread.slots).lanes[0].number;
    if (std::ranges::any_of(node.args, [&](ValueId sum) { return thread.unfenced.contains(sum); }))
      Find("no fence: a product adds to a sum that was set after the last one[");
  }
  switch (node.kind) {
    case Node::Kind::kProduct: return products.Begin(node, group, actor_);
    case Node::Kind::kCommitProducts: return products.Commit();
    case Node::Kind::kAwaitProducts: return products.Await(static_cast<size_t>(node.offset), group, actor_);
    default: return;
  }
}

void Machine::RunBlock(const straight::Launch& launch, const std::array<int64_t, 3>& block) {
  for (auto& [id, memory] : shared_) memory.Settle(true);
  std::vector<Thread>& threads = threads_;
  threads.assign(static_cast<size_t>(launch.Threads()), {});
  products_.assign(CeilDiv(threads.size(), together_),
                   GroupProducts([this](std::string what) { Find(std::move(what)); },
                                 [this](BufferId id) -> Memory& { return *places_[id]; },
                                 [this](const Actor& writer) {
                                   return writer.block != actor_.block ||
                                          threads_[static_cast<size_t>(writer.thread)].fences_before > writer.fences;
                                 }));
  for (size_t t = 0; t < threads.size(); ++t) {
    const auto number = static_cast<int64_t>(t);
    threads[t].slots = constants_;
    threads[t].at = {number % launch.block[0], number / launch.block[0] % launch.block[1],
                     number / launch.block[0] / launch.block[1]};
    for (ValueId id : constants_.ids()) {
      const Value& value = launch.code.values[id];
      Slot& slot = threads[t].slots[id];
      const auto axis = static_cast<size_t>(value.number);
      if (value.what == Do::kThread)
        slot.lanes[0].number = threads[t].at[axis];
      else if (value.what == Do::kBlock)
        slot.lanes[0].number = block[axis];
      else
        continue;
      slot.is_set = true;
    }
  }
  actor_.interval = 0;
  for (bool goes_on = true; goes_on && !IsOver();) {
    size_t waiting = 0;
    std::optional<size_t> where;
    bool is_divergent = false;
    for (size_t first = 0; first < threads.size() && !IsOver(); first += together_) {
      const std::span<Thread> warp = std::span(threads).subspan(first, std::min(together_, threads.size() - first));
      waiting += RunWarp(warp, static_cast<int64_t>(first));
      for (const Thread& thread : warp) {
        if (thread.pc >= steps_.size()) continue;
        is_divergent |= where && thread.pc != *where;
        where = thread.pc;
      }
    }
    if (IsOver()) return;
    if (is_divergent || (waiting > 0 && waiting < threads.size())) {
      Find(fmt::format("divergent barrier: {} of {} threads wait at one that others do not come to[", waiting,
                       threads.size()));
      return;
    }
    goes_on = waiting > 0;
    if (!goes_on) {
      for (const Thread& thread : threads)
        if (!thread.ahead.empty() ||
            std::ranges::any_of(thread.groups, [](const auto& group) { return !group.empty(); }))
          Find("a copy ahead for which nobody waits[");
      if (!std::ranges::all_of(products_, &GroupProducts::IsIdle)) Find("a product for which nobody waits[");
      return;
    }
    ++report_.barriers;
    ++actor_.interval;
    for (Thread& thread : threads) {
      ++thread.pc;
      thread.fences_before = thread.fences;
    }
  }
}

void Machine::Run(const straight::Launch& launch) {
  code_ = &launch.code;
  steps_ = StepsOf(launch.code.nodes);
  together_ = kWarp;
  for (const Step& step : steps_)
    if (step.node->kind == Node::Kind::kProduct)
      together_ = static_cast<size_t>(MeaningOf(*step.node->instruction).threads);
  shared_.clear();
  for (BufferId id : launch.shared) {
    const Buffer& buffer = program_.buffers[id];
    shared_.emplace(id, Memory(buffer.name, buffer.dtype, buffer.elements, nullptr, false));
  }
  places_ = IdVector<BufferId, Memory*>(program_.buffers.size());
  for (auto* memories : {&memories_, &shared_})
    for (auto& [id, memory] : *memories) places_[id] = &memory;
  constants_ = IdVector<ValueId, Slot>(launch.code.values.size());
  for (ValueId id : constants_.ids()) {
    const Value& value = launch.code.values[id];
    if (value.what == Do::kConstant)
      constants_[id].lanes[0] = {value.real, value.number};
    else if (value.what == Do::kSize)
      constants_[id].lanes[0].number = sizes_[static_cast<size_t>(value.number)];
    else
      continue;
    constants_[id].is_set = true;
  }
  std::array<int64_t, 3> grid = {};
  for (size_t d = 0; d < 3; ++d) grid[d] = straight::BlocksAlong(program_, launch, d, sizes_);
  report_.most_threads = std::max(report_.most_threads, launch.Threads());
  actor_.block = 0;
  for (int64_t z = 0; z < grid[2]; ++z)
    for (int64_t y = 0; y < grid[1]; ++y)
      for (int64_t x = 0; x < grid[0] && !IsOver(); ++x) {
        is_counting_ = options_.count && actor_.block == 0;
        RunBlock(launch, {x, y, z});
        ++actor_.block;
        ++report_.blocks;
      }
  counts_.AddTo(report_);
  for (auto& [id, memory] : memories_) memory.Settle(false);
}

}  // namespace
}  // namespace simt

Result<SimtReport> SimtRun(const straight::Program& program, std::span<void* const> operands,
                           std::span<const int64_t> sizes, const SimtOptions& options) {
  if (operands.size() != program.kernel.operands.size())
    return Error{ErrorKind::kInvalid,
                 fmt::format("{} operands, the kernel has {}", operands.size(), program.kernel.operands.size()), ""};
  simt::Machine machine(program, sizes, options);
  for (BufferId id : program.buffers.ids()) {
    const Buffer& buffer = program.buffers[id];
    if (!straight::IsInGlobalMemory(buffer)) continue;
    const bool is_operand = buffer.scope == Scope::kDefault;
    void* data = is_operand ? operands[static_cast<size_t>(buffer.operand)] : nullptr;
    const int64_t elements = is_operand ? straight::ElementsAt(program, buffer, sizes) : buffer.elements;
    machine.AddMemory(id, simt::Memory(buffer.name, buffer.dtype, elements, data, is_operand && !buffer.written));
  }
  for (const auto* launches : {&program.pack, &program.launches})
    for (const straight::Launch& launch : *launches) machine.Run(launch);
  return machine.Take();
}

}  // namespace hone
