// Runs a network through kernels that honed serves: constants bound and packed once, memory planned ahead, calls in
// order.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/api/client.h"
#include "network/run/kernel_calls.h"
#include "network/run/memory_plan.h"

namespace hone {

struct ExecutorOptions {
  GetOptions get;
  int connections = 3;  // over which kernels are asked for at once, so that builders work side by side
};

// Not thread-safe: one call of Run at a time.
class Executor {
 public:
  // Gets every kernel and binds its constants. `graph` must know all constants (SeedWeights) and live as long as this.
  // Errors of Client::Get, with the call's label; kLimit: no memory.
  static Result<std::unique_ptr<Executor>> Create(Client& client, Graph& graph, const CallPlan& plan,
                                                  const ExecutorOptions& options);

  // Elements of an input, to be written before Run; of an output, to be read after it. In the order
  // of Graph::inputs and Graph::outputs.
  std::span<std::byte> Input(size_t i);
  std::span<const std::byte> Output(size_t i) const;

  // Errors say which call failed: kInvalid, kLimit, kRunFailed.
  Result<void> Run() { return RunCalls(0, calls_.size()); }
  Result<void> RunCalls(size_t begin, size_t end);

  size_t call_count() const { return calls_.size(); }
  const ArenaPlan& arena() const { return arena_; }
  int64_t constant_bytes() const { return constant_bytes_; }
  bool is_host(size_t call) const { return calls_[call].handle == nullptr; }
  const KernelHandle& handle(size_t call) const { return *calls_[call].handle; }  // REQUIRES: !is_host(call)
  // What a call reads and then writes, in the kernel's order, constants included.
  std::span<void* const> operands(size_t call) const { return calls_[call].operands; }

 private:
  struct Call {
    std::shared_ptr<KernelHandle> handle;  // shared where no constants are bound; nullptr: no kernel
    std::vector<void*> buffers;            // nullptr for what is bound
    std::vector<void*> operands;
    std::string label;
  };

  Executor(Graph& graph, const CallPlan& plan) : graph_(graph), plan_(plan) {}
  Result<void> PlanMemory();
  Result<void*> ConstantData(ValueId value);
  Result<void*> Address(ValueId value);
  Result<void> Prepare(Client& client, const ExecutorOptions& options);

  Graph& graph_;
  const CallPlan& plan_;
  ArenaPlan arena_;
  AlignedBytes memory_;
  std::vector<AlignedBytes> inputs_;
  std::map<ValueId, AlignedBytes> constants_;
  int64_t constant_bytes_ = 0;
  std::map<ValueId, int64_t> offsets_;  // of values that own a part of the arena
  std::vector<Call> calls_;
};

// Bytes of a value as kernels hold it.
int64_t KernelBytes(const Graph& graph, ValueId value);

}  // namespace hone
