#include "network/run/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <set>
#include <thread>

#include "base/check.h"
#include "network/run/host_call.h"

namespace hone {
namespace {

Result<AlignedBytes> Allocate(int64_t bytes) {
  AlignedBytes memory = AllocateAligned(std::max<int64_t>(bytes, 1));
  if (!memory) return Error{ErrorKind::kLimit, fmt::format("no memory for {} bytes", bytes), ""};
  return memory;
}

// Has the daemon make what it does not have, over several connections at once. What fails is asked for again, and said,
// one by one.
void FetchAll(Client& client, const CallPlan& plan, const ExecutorOptions& options) {
  std::set<std::string> distinct;
  for (const KernelCall& call : plan.calls)
    if (!call.is_host()) distinct.insert(call.kernel);
  std::vector<std::string> kernels(distinct.begin(), distinct.end());
  std::atomic<size_t> next{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < std::min<int>(options.connections, static_cast<int>(kernels.size())); ++i) {
    threads.emplace_back([&] {
      for (size_t at; (at = next.fetch_add(1)) < kernels.size();) (void)client.Fetch(kernels[at], options.get);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

int64_t KernelBytes(const Graph& graph, ValueId value) {
  return CountOf(graph.shape(value)) * ByteSize(graph.dtype(value));
}

Result<std::unique_ptr<Executor>> Executor::Create(Client& client, Graph& graph, const CallPlan& plan,
                                                   const ExecutorOptions& options) {
  std::unique_ptr<Executor> executor(new Executor(graph, plan));
  HONE_TRY(executor->PlanMemory());
  FetchAll(client, plan, options);
  HONE_TRY(executor->Prepare(client, options));
  graph.ForgetElements();
  return executor;
}

// A step a call. Inputs have memory of their own, which calls leave alone; outputs stay until the end.
Result<void> Executor::PlanMemory() {
  std::map<ValueId, Lifetime> alive;
  auto step = [](size_t i) { return static_cast<int>(i); };
  auto root = [&](ValueId value) { return plan_.place[value].root; };
  for (size_t i = 0; i < plan_.calls.size(); ++i) {
    for (ValueId output : OutputsOf(graph_, plan_.calls[i])) {
      ValueId written = root(output);
      auto [found, is_new] = alive.emplace(written, Lifetime{KernelBytes(graph_, written), step(i), step(i)});
      found->second.last = step(i);
    }
    for (ValueId input : plan_.calls[i].inputs) {
      if (auto read = alive.find(root(input)); read != alive.end()) read->second.last = step(i);
    }
  }
  for (ValueId output : graph_.outputs) {
    if (auto found = alive.find(root(output)); found != alive.end()) found->second.last = step(plan_.calls.size());
  }
  std::vector<Lifetime> lifetimes;
  for (const auto& [_, lifetime] : alive) lifetimes.push_back(lifetime);
  arena_ = PlanArena(lifetimes);
  size_t at = 0;
  for (const auto& [value, _] : alive) offsets_[value] = arena_.offsets[at++];
  memory_ = HONE_TRY(Allocate(arena_.bytes));
  std::memset(memory_.get(), 0, static_cast<size_t>(arena_.bytes));
  for (ValueId input : graph_.inputs) {
    int64_t bytes = KernelBytes(graph_, input);
    inputs_.push_back(HONE_TRY(Allocate(bytes)));
    std::memset(inputs_.back().get(), 0, static_cast<size_t>(bytes));
  }
  return {};
}

Result<void*> Executor::ConstantData(ValueId value) {
  if (auto found = constants_.find(value); found != constants_.end()) return found->second.get();
  int64_t bytes = KernelBytes(graph_, value);
  AlignedBytes memory = HONE_TRY(Allocate(bytes));
  const GraphValue& constant = graph_.values[value];
  if (constant.data != nullptr) {
    std::memcpy(memory.get(), constant.data->data.data(), static_cast<size_t>(bytes));
  } else {
    HostTensor tensor = ToHost(*HONE_TRY(graph_.Elements(value)), constant.type.dtype);
    std::memcpy(memory.get(), tensor.data.data(), static_cast<size_t>(bytes));
    graph_.ForgetElements();  // doubles of large weights
  }
  constant_bytes_ += bytes;
  return constants_.emplace(value, std::move(memory)).first->second.get();
}

Result<void*> Executor::Address(ValueId value) {
  if (graph_.is_constant(value)) return ConstantData(value);
  const Place& place = plan_.place[value];
  const int64_t within = place.offset * ByteSize(graph_.dtype(value));
  auto input = std::find(graph_.inputs.begin(), graph_.inputs.end(), place.root);
  if (input != graph_.inputs.end()) {
    return static_cast<char*>(static_cast<void*>(inputs_[static_cast<size_t>(input - graph_.inputs.begin())].get())) +
           within;
  }
  const auto owned = offsets_.find(place.root);
  if (owned == offsets_.end()) {  // of no elements, so that no call writes it
    HONE_CHECK(KernelBytes(graph_, place.root) == 0);
    return memory_.get();
  }
  return static_cast<char*>(memory_.get()) + owned->second + within;
}

Result<void> Executor::Prepare(Client& client, const ExecutorOptions& options) {
  std::map<std::string, std::shared_ptr<KernelHandle>> shared;  // what binds nothing, and by what is bound
  for (const KernelCall& plan : plan_.calls) {
    auto fail = [&](Error error) {
      error.where =
          fmt::format("{} (node {}){}{}", plan.label, plan.nodes.front(), error.where.empty() ? "" : ": ", error.where);
      return error;
    };
    Call call;
    call.label = plan.label;
    if (plan.is_host()) {
      for (ValueId input : plan.inputs) call.operands.push_back(HONE_TRY(Address(input)));
      for (ValueId output : OutputsOf(graph_, plan)) call.operands.push_back(HONE_TRY(Address(output)));
      calls_.push_back(std::move(call));
      continue;
    }
    std::string with_constants = plan.kernel;
    for (ValueId input : plan.inputs)
      with_constants += graph_.is_constant(input) ? fmt::format(" {}", input.value) : std::string(" -");
    const bool is_bound = shared.count(with_constants) != 0;
    if (auto found = shared.find(is_bound ? with_constants : plan.kernel); found != shared.end()) {
      call.handle = found->second;
    } else {
      Result<std::unique_ptr<KernelHandle>> handle = client.Get(plan.kernel, options.get);
      if (!handle) return fail(handle.error());
      call.handle = *std::move(handle);
    }
    const std::vector<ManifestOperand>& operands = call.handle->manifest().operands;
    HONE_CHECK(operands.size() == plan.inputs.size() + 1);
    bool binds = false;
    for (size_t i = 0; i < operands.size(); ++i) {
      ValueId value = i < plan.inputs.size() ? plan.inputs[i] : plan.output;
      HONE_CHECK(call.handle->BytesOf(static_cast<int>(i)) == KernelBytes(graph_, value));
      void* address = HONE_TRY(Address(value));
      call.operands.push_back(address);
      call.buffers.push_back(operands[i].is_const ? nullptr : address);
      if (!operands[i].is_const) continue;
      binds = true;
      if (is_bound) continue;
      if (Result<void> bound = call.handle->Bind(static_cast<int>(i), address); !bound) return fail(bound.error());
    }
    shared.emplace(binds ? with_constants : plan.kernel, call.handle);
    calls_.push_back(std::move(call));
  }
  return {};
}

std::span<std::byte> Executor::Input(size_t i) {
  return {static_cast<std::byte*>(inputs_[i].get()), static_cast<size_t>(KernelBytes(graph_, graph_.inputs[i]))};
}

std::span<const std::byte> Executor::Output(size_t i) const {
  ValueId output = graph_.outputs[i];
  // An output's address was found when it was written, or is an input's, or a constant's.
  Result<void*> address = const_cast<Executor*>(this)->Address(output);
  HONE_CHECK(address);
  return {static_cast<const std::byte*>(*address), static_cast<size_t>(KernelBytes(graph_, output))};
}

Result<void> Executor::RunCalls(size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    if (calls_[i].handle == nullptr) {
      HONE_TRY(RunHostCall(graph_, plan_.calls[i], calls_[i].operands));
      continue;
    }
    int status = calls_[i].handle->Call(calls_[i].buffers.data(), nullptr);
    if (status == 0) continue;
    return Error{static_cast<ErrorKind>(status & 0xff),
                 fmt::format("the call was refused or failed, status {}", status),
                 fmt::format("{}, operand {}", calls_[i].label, (status >> 8) - 1)};
  }
  return {};
}

}  // namespace hone
