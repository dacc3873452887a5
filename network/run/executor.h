// Runs a network through kernels that honed serves: constants bound and packed once, memory planned ahead, calls in
// order. Two of them: on the CPU (host_executor) and on a device with a driver (device_executor).
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/api/client.h"
#include "network/onnx/model_file.h"
#include "network/run/constant_store.h"
#include "network/run/kernel_calls.h"
#include "network/run/memory_plan.h"
#include "network/run/shared_arena.h"

namespace hone {

// Kernels that LowerServed had served and opened, by their text.
using OpenedKernels = std::map<std::string, OpenedKernel>;

struct ExecutorOptions {
  GetOptions get;
  int connections = 3;  // over which kernels are asked for at once, so that builders work side by side
  // On the CPU: where executors of one model share constants, and of one program, which run in turns, the memory
  // between their calls. Both live longer. nullptr: with nobody.
  ConstantStore* constants = nullptr;
  SharedArena* arena = nullptr;
  // On the CPU: where LowerServed leaves what it had opened, for Create to take. nullptr: Create asks again.
  OpenedKernels* opened = nullptr;
  // Where the model's large tensors are, if they have not been copied: mapped when LowerServed and Create are called,
  // and not while kernels are made. What Create returns needs them no more but for what it reads from the file again:
  // constants that better code packs otherwise. On the CPU only; nullptr: in memory.
  std::shared_ptr<ModelFile> file = nullptr;
};

// Whether the target is a device with a driver.
bool IsForDevice(const ExecutorOptions& options);

// Not thread-safe: one call of Run at a time.
class Executor {
 public:
  // Gets every kernel and binds its constants: on the CPU, or on the device that `options.get.target` names. `graph`
  // must know all constants (SeedWeights) and live as long as this. Errors of Client::Fetch, with the call's label;
  // kLimit: no memory; on a device errors of its driver.
  static Result<std::unique_ptr<Executor>> Create(Client& client, Graph& graph, const CallPlan& plan,
                                                  const ExecutorOptions& options);
  virtual ~Executor() = default;

  // Elements of an input, to be written before Run; of an output, to be read after it, and good until the next one. In
  // the order of Graph::inputs and Graph::outputs.
  virtual std::span<std::byte> Input(size_t i) = 0;
  virtual Result<std::span<const std::byte>> Output(size_t i) = 0;

  // Has the next runs read an input, or write an output, where the caller keeps it; nullptr: in memory of the
  // executor's own again. False where that cannot be: on a device, at an address that is no multiple of an element's
  // size, for an output that is an input or a part of another value. Then it is in the executor's own memory.
  virtual bool UseInput(size_t, const void*) { return false; }
  virtual bool UseOutput(size_t, void*) { return false; }

  // Errors say which call failed: kInvalid, kLimit, kRunFailed. Inputs are taken when the first call runs.
  Result<void> Run() { return RunCalls(0, call_count()); }
  virtual Result<void> RunCalls(size_t begin, size_t end) = 0;

  size_t call_count() const { return plan_.calls.size(); }
  bool is_host(size_t call) const { return plan_.calls[call].is_host(); }
  const ArenaPlan& arena() const { return arena_; }
  int64_t constant_bytes() const { return constant_bytes_; }
  // Of a kernel, as honed served it. REQUIRES: !is_host(call).
  virtual const Manifest& manifest(size_t call) const = 0;
  virtual double expected_us(size_t call) const = 0;

  // For checks: what a call reads and then writes, in the kernel's order, constants included, as it is now. Good until
  // the next call of this, or of RunCalls.
  virtual Result<std::span<void* const>> Operands(size_t call) = 0;
  // What was written there becomes the call's output.
  virtual Result<void> SetOutput(size_t call) = 0;

 protected:
  Executor(Graph& graph, const CallPlan& plan) : graph_(graph), plan_(plan) {}

  // Lays out what flows between calls: a step a call. Inputs have memory of their own, which calls leave alone; outputs
  // stay until the end. Values that own memory begin at multiples of `alignment`, or of kArenaAlignment if that is
  // more.
  void PlanMemory(int64_t alignment);
  // Where an error of a call belongs.
  static Error InCall(Error error, const KernelCall& call);

  Graph& graph_;
  const CallPlan& plan_;
  ArenaPlan arena_;
  std::map<ValueId, int64_t> offsets_;  // in the arena, of values that own a part of it
  int64_t constant_bytes_ = 0;
};

// Bytes of a value as kernels hold it.
int64_t KernelBytes(const Graph& graph, ValueId value);

}  // namespace hone
