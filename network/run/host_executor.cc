#include "network/run/host_executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "network/run/host_call.h"

namespace hone {
namespace {

Result<AlignedBytes> Allocate(int64_t bytes) {
  AlignedBytes memory = AllocateAligned(std::max<int64_t>(bytes, 1));
  if (!memory) return Error{ErrorKind::kLimit, fmt::format("no memory for {} bytes", bytes), ""};
  return memory;
}

class HostExecutor : public Executor {
 public:
  HostExecutor(Graph& graph, const CallPlan& plan) : Executor(graph, plan) {}

  Result<void> Prepare(Client& client, const ExecutorOptions& options) {
    PlanMemory(1);
    memory_ = HONE_TRY(Allocate(arena_.bytes));
    std::memset(memory_.get(), 0, static_cast<size_t>(arena_.bytes));
    for (ValueId input : graph_.inputs) {
      const int64_t bytes = KernelBytes(graph_, input);
      inputs_.push_back(HONE_TRY(Allocate(bytes)));
      std::memset(inputs_.back().get(), 0, static_cast<size_t>(bytes));
    }
    return PrepareCalls(client, options);
  }

  std::span<std::byte> Input(size_t i) override {
    return {static_cast<std::byte*>(inputs_[i].get()), static_cast<size_t>(KernelBytes(graph_, graph_.inputs[i]))};
  }

  Result<std::span<const std::byte>> Output(size_t i) override {
    const ValueId output = graph_.outputs[i];
    return std::span<const std::byte>(static_cast<const std::byte*>(HONE_TRY(Address(output))),
                                      static_cast<size_t>(KernelBytes(graph_, output)));
  }

  Result<void> RunCalls(size_t begin, size_t end) override {
    for (size_t i = begin; i < end; ++i) {
      if (calls_[i].handle == nullptr) {
        HONE_TRY(RunHostCall(graph_, plan_.calls[i], calls_[i].operands));
        continue;
      }
      const int status = calls_[i].handle->Call(calls_[i].buffers.data(), nullptr);
      if (status == 0) continue;
      return Error{static_cast<ErrorKind>(status & 0xff),
                   fmt::format("the call was refused or failed, status {}", status),
                   fmt::format("{}, operand {}", plan_.calls[i].label, (status >> 8) - 1)};
    }
    return {};
  }

  const Manifest& manifest(size_t call) const override { return calls_[call].handle->manifest(); }
  double expected_us(size_t call) const override { return calls_[call].handle->facts().reply.expected_us; }
  Result<std::span<void* const>> Operands(size_t call) override {
    return std::span<void* const>(calls_[call].operands);
  }
  Result<void> SetOutput(size_t) override { return {}; }

 private:
  struct Call {
    std::shared_ptr<KernelHandle> handle;  // shared where no constants are bound; nullptr: no kernel
    std::vector<void*> buffers;            // nullptr for what is bound
    std::vector<void*> operands;
  };

  Result<void> PrepareCalls(Client& client, const ExecutorOptions& options);
  Result<void*> ConstantData(ValueId value);
  Result<void*> Address(ValueId value);

  AlignedBytes memory_;
  std::vector<AlignedBytes> inputs_;
  std::map<ValueId, AlignedBytes> constants_;
  std::vector<Call> calls_;
};

Result<void*> HostExecutor::ConstantData(ValueId value) {
  if (auto found = constants_.find(value); found != constants_.end()) return found->second.get();
  const int64_t bytes = KernelBytes(graph_, value);
  AlignedBytes memory = HONE_TRY(Allocate(bytes));
  std::memcpy(memory.get(), HONE_TRY(Constant(value))->data.data(), static_cast<size_t>(bytes));
  constant_bytes_ += bytes;
  return constants_.emplace(value, std::move(memory)).first->second.get();
}

Result<void*> HostExecutor::Address(ValueId value) {
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

Result<void> HostExecutor::PrepareCalls(Client& client, const ExecutorOptions& options) {
  std::map<std::string, std::shared_ptr<KernelHandle>> shared;  // what binds nothing, and by what is bound
  for (const KernelCall& plan : plan_.calls) {
    Call call;
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
      if (!handle) return InCall(handle.error(), plan);
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
      if (Result<void> bound = call.handle->Bind(static_cast<int>(i), address); !bound)
        return InCall(bound.error(), plan);
    }
    shared.emplace(binds ? with_constants : plan.kernel, call.handle);
    calls_.push_back(std::move(call));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Executor>> MakeHostExecutor(Client& client, Graph& graph, const CallPlan& plan,
                                                   const ExecutorOptions& options) {
  auto executor = std::make_unique<HostExecutor>(graph, plan);
  HONE_TRY(executor->Prepare(client, options));
  return std::unique_ptr<Executor>(std::move(executor));
}

}  // namespace hone
