#include "network/run/device_executor.h"

#include <algorithm>
#include <cstring>

#include "backends/drivers/gpu_context.h"
#include "base/bytes.h"
#include "base/check.h"
#include "client/api/device_code.h"
#include "network/run/host_call.h"

namespace hone {
namespace {

// Where values begin in the arena: what any device wants the parts of a buffer aligned to.
constexpr int64_t kAlignment = 512;

// Elements on the device.
struct Location {
  const DeviceMemory* memory = nullptr;
  size_t offset = 0, bytes = 0;
};

struct Code {
  DeviceArtifact artifact;
  double expected_us = 0;
};

class DeviceExecutor : public Executor {
 public:
  DeviceExecutor(Graph& graph, const CallPlan& plan) : Executor(graph, plan) {}
  ~DeviceExecutor() override {
    // What is on the device goes before the device.
    calls_.clear();
  }

  Result<void> Prepare(Client& client, const ExecutorOptions& options) {
    for (const KernelCall& call : plan_.calls) {
      if (call.is_host() || codes_.contains(call.kernel)) continue;
      Result<Served> served = client.Fetch(call.kernel, options.get);
      if (!served) return InCall(served.error(), call);
      Result<DeviceArtifact> artifact = OpenDeviceCode(*served);
      if (!artifact) return InCall(artifact.error(), call);
      if (context_ == nullptr) {
        const Target target = HONE_TRY(ParseTarget(artifact->manifest.target));
        HONE_CHECK(target.device() != nullptr);
        context_ = HONE_TRY(OpenDevice(*target.device()));
      }
      codes_.emplace(call.kernel, Code{*std::move(artifact), served->reply.expected_us});
    }
    if (context_ == nullptr)
      return Error{ErrorKind::kUnsupported, "no node of this network has a kernel; run it without --target", ""};
    PlanMemory(kAlignment);
    memory_ = HONE_TRY(context_->Allocate(static_cast<size_t>(arena_.bytes)));
    for (ValueId input : graph_.inputs) {
      const auto bytes = static_cast<size_t>(KernelBytes(graph_, input));
      inputs_.push_back({HONE_TRY(context_->Allocate(bytes)), std::vector<std::byte>(bytes)});
    }
    for (const KernelCall& call : plan_.calls) {
      Result<Call> prepared = PrepareCall(call);
      if (!prepared) return InCall(prepared.error(), call);
      calls_.push_back(*std::move(prepared));
    }
    return {};
  }

  std::span<std::byte> Input(size_t i) override { return inputs_[i].host; }

  Result<std::span<const std::byte>> Output(size_t i) override {
    outputs_.resize(graph_.outputs.size());
    HONE_TRY(Read(graph_.outputs[i], outputs_[i]));
    return std::span<const std::byte>(outputs_[i]);
  }

  // Waits for the last one, so that who measures sees what it took.
  Result<void> RunCalls(size_t begin, size_t end) override {
    if (begin == 0)
      for (const GraphInput& input : inputs_) HONE_TRY(context_->Write(*input.memory, 0, input.host));
    for (size_t i = begin; i < end; ++i)
      if (const Result<void> ran = RunCall(i); !ran) return InCall(ran.error(), plan_.calls[i]);
    return context_->Finish();
  }

  const Manifest& manifest(size_t call) const override { return CodeOf(call).artifact.manifest; }
  double expected_us(size_t call) const override { return CodeOf(call).expected_us; }

  Result<std::span<void* const>> Operands(size_t call) override {
    HONE_TRY(ReadAll(plan_.calls[call].inputs, shown_));
    std::vector<std::vector<std::byte>> outputs;
    HONE_TRY(ReadAll(OutputsOf(graph_, plan_.calls[call]), outputs));
    for (std::vector<std::byte>& output : outputs) shown_.push_back(std::move(output));
    shown_pointers_.clear();
    for (std::vector<std::byte>& each : shown_) shown_pointers_.push_back(each.data());
    return std::span<void* const>(shown_pointers_);
  }

  Result<void> SetOutput(size_t call) override {
    const Location to = HONE_TRY(Locate(plan_.calls[call].output));
    return context_->Write(*to.memory, to.offset, shown_.back());
  }

 private:
  struct GraphInput {
    std::unique_ptr<DeviceMemory> memory;
    std::vector<std::byte> host;
  };

  // A part of a value that the device's kernels cannot begin at: copied to or from memory that they can.
  struct Detour {
    std::unique_ptr<DeviceMemory> memory;
    Location value;
  };

  struct Call {
    std::unique_ptr<LoadedKernel> kernel;  // nullptr: on the host
    std::vector<Detour> before, after;
  };

  const Code& CodeOf(size_t call) const { return codes_.at(plan_.calls[call].kernel); }

  Result<Call> PrepareCall(const KernelCall& plan) {
    Call call;
    if (plan.is_host()) return call;
    const DeviceArtifact& artifact = codes_.at(plan.kernel).artifact;
    HONE_CHECK(artifact.manifest.operands.size() == plan.inputs.size() + 1);
    call.kernel = HONE_TRY(context_->Load(artifact, hone::Operands::kPlaced));
    for (size_t b = 0; b < artifact.buffers.size(); ++b) {
      if (artifact.buffers[b].operand < 0) continue;
      const auto operand = static_cast<size_t>(artifact.buffers[b].operand);
      const bool is_output = operand == plan.inputs.size();
      const Location value = HONE_TRY(Locate(is_output ? plan.output : plan.inputs[operand]));
      HONE_CHECK(value.bytes == static_cast<size_t>(artifact.buffers[b].bytes));
      const Result<void> placed = call.kernel->Place(b, *value.memory, value.offset);
      if (placed) continue;
      if (placed.error().kind != ErrorKind::kUnsupported) return placed.error();
      Detour detour{HONE_TRY(context_->Allocate(value.bytes)), value};
      HONE_TRY(call.kernel->Place(b, *detour.memory, 0));
      (is_output ? call.after : call.before).push_back(std::move(detour));
    }
    for (const Detour& detour : call.before) HONE_TRY(Take(detour));  // constants, for packing
    HONE_TRY(call.kernel->Pack());
    return call;
  }

  Result<void> Take(const Detour& detour) {
    return context_->Copy(*detour.value.memory, detour.value.offset, *detour.memory, 0, detour.value.bytes);
  }

  Result<void> RunCall(size_t i) {
    const Call& call = calls_[i];
    if (call.kernel == nullptr) return RunOnHost(plan_.calls[i]);
    for (const Detour& detour : call.before) HONE_TRY(Take(detour));
    HONE_TRY(call.kernel->Enqueue());
    for (const Detour& detour : call.after)
      HONE_TRY(context_->Copy(*detour.memory, 0, *detour.value.memory, detour.value.offset, detour.value.bytes));
    return {};
  }

  Result<void> RunOnHost(const KernelCall& call) {
    std::vector<std::vector<std::byte>> operands;
    HONE_TRY(ReadAll(call.inputs, operands));
    const std::vector<ValueId> outputs = OutputsOf(graph_, call);
    for (ValueId output : outputs) operands.emplace_back(static_cast<size_t>(KernelBytes(graph_, output)));
    std::vector<void*> pointers;
    for (std::vector<std::byte>& operand : operands) pointers.push_back(operand.data());
    HONE_TRY(RunHostCall(graph_, call, pointers));
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Location to = HONE_TRY(Locate(outputs[i]));
      HONE_TRY(context_->Write(*to.memory, to.offset, operands[call.inputs.size() + i]));
    }
    return {};
  }

  Result<void> ReadAll(const std::vector<ValueId>& values, std::vector<std::vector<std::byte>>& to) {
    to.resize(values.size());
    for (size_t i = 0; i < values.size(); ++i) HONE_TRY(Read(values[i], to[i]));
    return {};
  }

  Result<void> Read(ValueId value, std::vector<std::byte>& to) {
    const Location from = HONE_TRY(Locate(value));
    to.resize(from.bytes);
    return context_->Read(*from.memory, from.offset, to);
  }

  Result<Location> Locate(ValueId value) {
    const auto bytes = static_cast<size_t>(KernelBytes(graph_, value));
    if (graph_.is_constant(value)) {
      std::unique_ptr<DeviceMemory>& memory = constants_[value];
      if (memory == nullptr) {
        memory = HONE_TRY(context_->Allocate(bytes));
        const std::shared_ptr<const HostTensor> tensor = HONE_TRY(graph_.Tensor(value));
        HONE_TRY(context_->Write(*memory, 0, AsBytes(tensor->data).first(bytes)));
        constant_bytes_ += static_cast<int64_t>(bytes);
      }
      return Location{memory.get(), 0, bytes};
    }
    const Place& place = plan_.place[value];
    const auto within = static_cast<size_t>(place.offset * ByteSize(graph_.dtype(value)));
    const auto input = std::find(graph_.inputs.begin(), graph_.inputs.end(), place.root);
    if (input != graph_.inputs.end())
      return Location{inputs_[static_cast<size_t>(input - graph_.inputs.begin())].memory.get(), within, bytes};
    const auto owned = offsets_.find(place.root);
    HONE_CHECK(owned != offsets_.end() || bytes == 0);
    const auto offset = owned == offsets_.end() ? 0 : static_cast<size_t>(owned->second);
    return Location{memory_.get(), offset + within, bytes};
  }

  std::unique_ptr<GpuContext> context_;
  std::map<std::string, Code> codes_;  // by kernel
  std::unique_ptr<DeviceMemory> memory_;
  std::vector<GraphInput> inputs_;
  std::map<ValueId, std::unique_ptr<DeviceMemory>> constants_;
  std::vector<Call> calls_;
  std::vector<std::vector<std::byte>> outputs_, shown_;
  std::vector<void*> shown_pointers_;
};

}  // namespace

Result<std::unique_ptr<Executor>> MakeDeviceExecutor(Client& client, Graph& graph, const CallPlan& plan,
                                                     const ExecutorOptions& options) {
  auto executor = std::make_unique<DeviceExecutor>(graph, plan);
  HONE_TRY(executor->Prepare(client, options));
  return std::unique_ptr<Executor>(std::move(executor));
}

}  // namespace hone
