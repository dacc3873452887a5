#include "network/run/host_executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>

#include "base/aligned_bytes.h"
#include "base/arithmetic.h"
#include "base/check.h"
#include "base/parallel.h"
#include "network/run/host_call.h"

namespace hone {
namespace {

constexpr uintptr_t kConstantAlignment = 64;  // as AllocateAligned's: no kernel wants more
constexpr unsigned kMostPackers = 4;          // memory sets the pace

Error NoMemory(int64_t bytes) { return {ErrorKind::kLimit, fmt::format("no memory for {} bytes", bytes), ""}; }

Result<AlignedBytes> Allocate(int64_t bytes) {
  AlignedBytes memory = AllocateAligned(std::max<int64_t>(bytes, 1));
  if (!memory) return NoMemory(bytes);
  return memory;
}

class HostExecutor : public Executor {
 public:
  HostExecutor(Graph& graph, const CallPlan& plan) : Executor(graph, plan) {}

  Result<void> Prepare(Client& client, const ExecutorOptions& options) {
    PlanMemory(1);
    memory_bytes_ = arena_.bytes;
    for (ValueId input : graph_.inputs) {
      input_offsets_.push_back(memory_bytes_);
      memory_bytes_ += RoundUp(KernelBytes(graph_, input), kArenaAlignment);
    }
    SharedArena own;
    memory_ = (options.arena != nullptr ? *options.arena : own).Take(memory_bytes_);
    if (memory_ == nullptr) return NoMemory(memory_bytes_);
    if (options.constants != nullptr) {
      store_ = options.constants;
      keys_ = store_->KeysOf(graph_);
    }
    file_ = options.file;
    return PrepareCalls(client, options);
  }

  std::span<std::byte> Input(size_t i) override {
    return {static_cast<std::byte*>(BaseOf(graph_.inputs[i])),
            static_cast<size_t>(KernelBytes(graph_, graph_.inputs[i]))};
  }

  bool UseInput(size_t i, const void* data) override {
    // What a run gave may be what the next one takes: it is read while new results are written over it.
    const auto* at = static_cast<const std::byte*>(data);
    const bool is_own =
        std::less_equal<const std::byte*>()(memory_.get(), at) && std::less<>()(at, memory_.get() + memory_bytes_);
    // Nothing writes there: calls write what they compute.
    return Use(graph_.inputs[i], is_own ? nullptr : const_cast<void*>(data));
  }
  bool UseOutput(size_t i, void* data) override {
    const ValueId output = graph_.outputs[i];
    const Place& place = plan_.place[output];
    if (graph_.is_constant(output) || !offsets_.contains(place.root) || place.offset != 0 ||
        KernelBytes(graph_, output) != KernelBytes(graph_, place.root))
      return false;
    for (size_t other = 0; other < graph_.outputs.size(); ++other)
      if (other != i && plan_.place[graph_.outputs[other]].root == place.root) return false;
    return Use(place.root, data);
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

  // Where a call has the address of a value that is no constant.
  struct Reference {
    size_t call, operand;
    int64_t within;  // bytes behind the value that owns the memory
  };

  // A constant that a kernel is to have: from memory, or from the file.
  struct Binding {
    KernelHandle* handle;
    int operand;
    const void* data;
    std::shared_ptr<const ConstantSource> source;
    const KernelCall* call;
  };

  Result<void> PrepareCalls(Client& client, const ExecutorOptions& options);
  static Result<std::unique_ptr<KernelHandle>> Hold(Client& client, const std::string& kernel,
                                                    const ExecutorOptions& options);
  static Result<void> BindAll(const std::vector<Binding>& bindings);
  Result<const void*> ConstantData(ValueId value);
  std::shared_ptr<const ConstantSource> InFile(ValueId value);
  const void* InPlace(ValueId value);
  Result<void*> Address(ValueId value);
  Result<void*> OperandOf(size_t call, size_t operand, ValueId value);
  void* BaseOf(ValueId root) const;
  bool Use(ValueId root, void* data);

  SharedArena::Memory memory_;  // the arena, then the inputs
  int64_t memory_bytes_ = 0;
  std::vector<int64_t> input_offsets_;
  ConstantStore* store_ = nullptr;
  IdVector<ValueId, ConstantStore::Key> keys_;  // none without a store
  std::map<ValueId, ConstantStore::Elements> constants_;
  std::map<ValueId, std::shared_ptr<const HostTensor>> in_place_;
  std::shared_ptr<ModelFile> file_;  // until calls are prepared
  std::map<ValueId, std::shared_ptr<const ConstantSource>> in_file_;
  std::vector<Call> calls_;
  std::map<ValueId, std::vector<Reference>> references_;  // by the value that owns the memory
  std::map<ValueId, void*> elsewhere_;                    // what the caller keeps
};

Result<const void*> HostExecutor::ConstantData(ValueId value) {
  if (auto found = constants_.find(value); found != constants_.end()) return found->second.get();
  const int64_t bytes = KernelBytes(graph_, value);
  auto make = [&]() -> Result<ConstantStore::Elements> {
    std::shared_ptr<const HostTensor> tensor = HONE_TRY(graph_.Tensor(value));
    const void* const data = tensor->data.data();
    const bool stays = file_ == nullptr || !file_->Holds(tensor->data);
    if (stays && reinterpret_cast<uintptr_t>(data) % kConstantAlignment == 0 &&
        std::cmp_equal(tensor->data.size(), bytes))
      return ConstantStore::Elements(std::move(tensor), data);  // as large tensors of files are
    AlignedBytes memory = HONE_TRY(Allocate(bytes));
    std::memcpy(memory.get(), data, static_cast<size_t>(bytes));
    return ConstantStore::Elements(std::move(memory));
  };
  ConstantStore::Elements elements = HONE_TRY(store_ != nullptr ? store_->Take(keys_[value], bytes, make) : make());
  constant_bytes_ += bytes;
  return constants_.emplace(value, std::move(elements)).first->second.get();
}

// A constant that kernels pack from the file.
class FileConstant : public ConstantSource {
 public:
  FileConstant(std::shared_ptr<const ModelFile> file, std::string_view part) : file_(std::move(file)), part_(part) {}
  Result<std::shared_ptr<const void>> Read() const override { return file_->Read(part_); }

 private:
  const std::shared_ptr<const ModelFile> file_;
  const std::string_view part_;
};

// The elements of a constant that the model has in its file; nullptr if it has none there.
std::shared_ptr<const ConstantSource> HostExecutor::InFile(ValueId value) {
  const std::shared_ptr<const HostTensor>& tensor = graph_.values[value].data;
  if (file_ == nullptr || !graph_.is_constant(value) || tensor == nullptr || !file_->Holds(tensor->data) ||
      std::cmp_not_equal(tensor->data.size(), KernelBytes(graph_, value)))
    return nullptr;
  std::shared_ptr<const ConstantSource>& source = in_file_[value];
  if (source == nullptr) {
    source = std::make_shared<FileConstant>(file_, tensor->data.view());
    constant_bytes_ += KernelBytes(graph_, value);
  }
  return source;
}

// A constant where the model has it, for kernels that read it once, to pack it; nullptr if it is computed.
const void* HostExecutor::InPlace(ValueId value) {
  const std::shared_ptr<const HostTensor>& tensor = graph_.values[value].data;
  if (!graph_.is_constant(value) || tensor == nullptr || constants_.contains(value)) return nullptr;
  if (std::cmp_not_equal(tensor->data.size(), KernelBytes(graph_, value))) return nullptr;
  const auto [found, is_new] = in_place_.try_emplace(value, tensor);
  if (is_new) constant_bytes_ += KernelBytes(graph_, value);
  return found->second->data.data();
}

Result<void*> HostExecutor::Address(ValueId value) {
  // Calls only read it.
  if (graph_.is_constant(value)) return const_cast<void*>(HONE_TRY(ConstantData(value)));
  const Place& place = plan_.place[value];
  return static_cast<char*>(BaseOf(place.root)) + place.offset * ByteSize(graph_.dtype(value));
}

// As a call has it: it follows the value to where the caller keeps it.
Result<void*> HostExecutor::OperandOf(size_t call, size_t operand, ValueId value) {
  if (!graph_.is_constant(value)) {
    const Place& place = plan_.place[value];
    references_[place.root].push_back({call, operand, place.offset * ByteSize(graph_.dtype(value))});
  }
  return Address(value);
}

// The memory of a value that owns some.
void* HostExecutor::BaseOf(ValueId root) const {
  if (const auto found = elsewhere_.find(root); found != elsewhere_.end()) return found->second;
  const auto input = std::find(graph_.inputs.begin(), graph_.inputs.end(), root);
  if (input != graph_.inputs.end())
    return memory_.get() + input_offsets_[static_cast<size_t>(input - graph_.inputs.begin())];
  const auto owned = offsets_.find(root);
  if (owned == offsets_.end()) {  // of no elements, so that no call writes it
    HONE_CHECK(KernelBytes(graph_, root) == 0);
    return memory_.get();
  }
  return memory_.get() + owned->second;
}

bool HostExecutor::Use(ValueId root, void* data) {
  const bool fits = data != nullptr && reinterpret_cast<uintptr_t>(data) % ByteSize(graph_.dtype(root)) == 0;
  const void* before = BaseOf(root);
  elsewhere_.erase(root);
  if (fits) elsewhere_[root] = data;
  char* const base = static_cast<char*>(BaseOf(root));
  if (base == before) return fits;
  for (const Reference& reference : references_[root]) {
    Call& call = calls_[reference.call];
    call.operands[reference.operand] = base + reference.within;
    if (call.handle != nullptr && call.buffers[reference.operand] != nullptr)
      call.buffers[reference.operand] = base + reference.within;
  }
  return fits;
}

// Calls of one kernel with constants of their own share its code.
Result<std::unique_ptr<KernelHandle>> HostExecutor::Hold(Client& client, const std::string& kernel,
                                                         const ExecutorOptions& options) {
  if (options.opened == nullptr) return client.Get(kernel, options.get);
  auto found = options.opened->find(kernel);
  if (found == options.opened->end())
    found = options.opened->emplace(kernel, HONE_TRY(client.Open(kernel, options.get))).first;
  return client.Hold(found->second, options.get);
}

// Constants are packed, which takes most of what a session takes to open: several kernels' at once.
Result<void> HostExecutor::BindAll(const std::vector<Binding>& bindings) {
  std::vector<size_t> begins;  // of each kernel's
  for (size_t i = 0; i < bindings.size(); ++i)
    if (i == 0 || bindings[i].handle != bindings[i - 1].handle) begins.push_back(i);
  std::vector<Result<void>> bound(bindings.size());
  const auto threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, kMostPackers));
  ForEachIndex(begins.size(), threads, [&](size_t kernel) {
    const size_t end = kernel + 1 < begins.size() ? begins[kernel + 1] : bindings.size();
    for (size_t i = begins[kernel]; i < end; ++i)
      bound[i] = bindings[i].source != nullptr ? bindings[i].handle->Bind(bindings[i].operand, bindings[i].source)
                                               : bindings[i].handle->Bind(bindings[i].operand, bindings[i].data);
  });
  for (size_t i = 0; i < bindings.size(); ++i)
    if (!bound[i]) return InCall(bound[i].error(), *bindings[i].call);
  return {};
}

Result<void> HostExecutor::PrepareCalls(Client& client, const ExecutorOptions& options) {
  std::map<std::string, std::shared_ptr<KernelHandle>> shared;  // what binds nothing, and by what is bound
  std::vector<Binding> bindings;
  for (const KernelCall& plan : plan_.calls) {
    Call call;
    if (plan.is_host()) {
      std::vector<ValueId> values = plan.inputs;
      for (ValueId output : OutputsOf(graph_, plan)) values.push_back(output);
      for (ValueId value : values)
        call.operands.push_back(HONE_TRY(OperandOf(calls_.size(), call.operands.size(), value)));
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
      Result<std::unique_ptr<KernelHandle>> handle = Hold(client, plan.kernel, options);
      if (!handle) return InCall(handle.error(), plan);
      call.handle = *std::move(handle);
    }
    const std::vector<ManifestOperand>& operands = call.handle->manifest().operands;
    HONE_CHECK(operands.size() == plan.inputs.size() + 1);
    bool binds = false;
    for (size_t i = 0; i < operands.size(); ++i) {
      ValueId value = i < plan.inputs.size() ? plan.inputs[i] : plan.output;
      HONE_CHECK(call.handle->BytesOf(static_cast<int>(i)) == KernelBytes(graph_, value));
      const bool is_packed = operands[i].packed_bytes > 0;
      std::shared_ptr<const ConstantSource> source = is_packed && operands[i].is_const ? InFile(value) : nullptr;
      const void* in_place = is_packed && source == nullptr ? InPlace(value) : nullptr;
      void* address = const_cast<void*>(in_place);
      if (in_place == nullptr && source == nullptr) address = HONE_TRY(OperandOf(calls_.size(), i, value));
      call.operands.push_back(address);
      call.buffers.push_back(operands[i].is_const ? nullptr : address);
      if (!operands[i].is_const) continue;
      binds = true;
      if (!is_bound) bindings.push_back({call.handle.get(), static_cast<int>(i), address, std::move(source), &plan});
    }
    shared.emplace(binds ? with_constants : plan.kernel, call.handle);
    calls_.push_back(std::move(call));
  }
  if (file_ != nullptr) {
    for (ValueId output : graph_.outputs)
      if (graph_.is_constant(output)) HONE_TRY(ConstantData(output));  // which runs find no more
    file_->Unmap();
    file_ = nullptr;
  }
  return BindAll(bindings);
}

}  // namespace

Result<std::unique_ptr<Executor>> MakeHostExecutor(Client& client, Graph& graph, const CallPlan& plan,
                                                   const ExecutorOptions& options) {
  auto executor = std::make_unique<HostExecutor>(graph, plan);
  HONE_TRY(executor->Prepare(client, options));
  return std::unique_ptr<Executor>(std::move(executor));
}

}  // namespace hone
