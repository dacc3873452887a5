#include "backends/runner/workload.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "ir/graph/specialize.h"
#include "ir/language/canonical.h"
#include "ir/language/parse.h"
#include "ir/schedule/schedule_cases.h"

namespace hone {
namespace {

// Beside outputs in their first and last page: what must still be there after a run.
constexpr auto kEdge = std::byte{0xc3};

// Operands up to this size have memory of their own when they are measured.
constexpr uint64_t kMeasuredInPlace = uint64_t{1} << 30;

// Multiply-adds of the reference above which nobody would wait.
constexpr double kReferenceLimit = 2e10;

uint64_t RoundUp(uint64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

Error Differs(std::string_view what, std::string_view seen, std::string_view wanted) {
  return Error{ErrorKind::kInvalid, fmt::format("the artifact's {} is {}, the kernel wants {}", what, seen, wanted),
               ""};
}

}  // namespace

Workload::Workload(std::string text, Kernel asked, Kernel kernel, std::vector<int64_t> sizes, Arena& arena,
                   Placement placement)
    : text_(std::move(text)),
      asked_(std::move(asked)),
      kernel_(std::move(kernel)),
      sizes_(std::move(sizes)),
      arena_(arena),
      placement_(placement) {}

Workload::~Workload() {
  interpreter_.reset();
  for (const MappedBuffer& mapped : repeated_)
    if (mapped.base != nullptr) ::munmap(mapped.base, mapped.size);
}

const Tensor& Workload::OperandTensor(size_t operand) const { return kernel_.tensors[kernel_.operands[operand]]; }

Result<std::unique_ptr<Workload>> Workload::Open(const std::string& text, const std::vector<int64_t>& sizes,
                                                 Arena& arena, Placement placement) {
  Kernel asked = HONE_TRY(ParseKernel(text));
  std::vector<int64_t> values = sizes;
  if (values.empty())
    for (const Size& size : asked.sizes)
      if (!size.is_constant()) values.push_back(size.hi);
  Kernel kernel = HONE_TRY(AtSizes(asked, values));
  if (kernel.operands.size() > kMaxOperands)
    return Error{ErrorKind::kLimit, fmt::format("{} operands, the limit is {}", kernel.operands.size(), kMaxOperands),
                 ""};
  std::string canonical = Canonicalize(asked).text;
  std::unique_ptr<Workload> workload(
      new Workload(text, std::move(asked), Specialize(std::move(kernel)), std::move(values), arena, placement));
  workload->canonical_ = std::move(canonical);
  HONE_TRY(workload->LayOut());
  HONE_TRY(workload->FillInputs());
  workload->FillOutputs();
  return workload;
}

Result<void> Workload::LayOut() {
  uint64_t file = kStatusBytes;
  for (size_t i = 0; i < kernel_.operands.size(); ++i) {
    const Tensor& tensor = OperandTensor(i);
    BufferPlan plan;
    uint64_t element = static_cast<uint64_t>(ByteSize(tensor.dtype));
    plan.bytes = static_cast<uint64_t>(ElementCount(kernel_, tensor)) * element;
    plan.writable = tensor.kind == TensorKind::kOutput;
    plan.slack = placement_ == Placement::kAtGuards ? SlackToEnd(plan.bytes, element) : 0;
    plan.file_offset = file;
    // Repeated pages stay in the cache: right for checking, wrong for measuring.
    uint64_t repeat_above = placement_ == Placement::kAtGuards ? static_cast<uint64_t>(kInputPeriod) : kMeasuredInPlace;
    if (!plan.writable && plan.bytes > repeat_above) plan.repeat_bytes = static_cast<uint64_t>(kInputPeriod);
    file += plan.repeat_bytes > 0 ? plan.repeat_bytes : plan.pages() * kPageBytes;
    plans_.push_back(plan);
  }
  return arena_.Reset(file);
}

std::span<std::byte> Workload::FileBytes(size_t operand) const {
  const BufferPlan& plan = plans_[operand];
  return arena_.bytes().subspan(plan.file_offset,
                                plan.repeat_bytes > 0 ? plan.repeat_bytes : plan.pages() * kPageBytes);
}

Result<void> Workload::FillInputs() {
  uint64_t seed = InputSeed(kernel_);
  for (size_t i = 0; i < plans_.size(); ++i) {
    const BufferPlan& plan = plans_[i];
    if (plan.writable) continue;
    std::span<std::byte> file = FileBytes(i);
    if (plan.repeat_bytes == 0) {
      FillScratch(file.first(RoundUp(plan.slack)));  // a read before the start meets NaN
      FillInput(kernel_, static_cast<int>(i), seed, file.subspan(plan.slack, plan.bytes));
      inputs_.push_back({file.data() + plan.slack});
      continue;
    }
    // The buffer starts `slack` bytes into its first page, so the period is turned by as much.
    std::vector<std::byte> period(plan.repeat_bytes);
    FillInput(kernel_, static_cast<int>(i), seed, period);
    std::memcpy(file.data() + plan.slack, period.data(), period.size() - plan.slack);
    std::memcpy(file.data(), period.data() + (period.size() - plan.slack), plan.slack);
    repeated_.push_back(HONE_TRY(MapBuffer(plan, arena_.fd(), false)));
    inputs_.push_back({repeated_.back().data});
  }
  interpreter_ = std::make_unique<Interpreter>(kernel_, inputs_);
  return {};
}

Result<void> Workload::ComputeReference(const SampleOptions& options) {
  int outputs = 0;
  double cost = 0;
  for (size_t i = 0; i < plans_.size(); ++i) {
    if (!plans_[i].writable) continue;
    double elements = static_cast<double>(ElementCount(kernel_, OperandTensor(i)));
    double compared = options.full ? elements : std::min(elements, static_cast<double>(kFewestSamples));
    cost += interpreter_->CostPerElement(outputs++) * compared;
  }
  if (cost > kReferenceLimit)
    return Error{
        ErrorKind::kLimit,
        fmt::format("the reference would take {:.2g} multiply-adds, the limit is {:.2g}", cost, kReferenceLimit), ""};
  samples_ = ComputeSamples(kernel_, *interpreter_, options, InputSeed(kernel_), inputs_);
  return {};
}

Result<void> Workload::CheckManifest(const Manifest& manifest) const {
  if (manifest.kernel != canonical_) return Differs("kernel", manifest.kernel, canonical_);
  std::map<int64_t, int32_t> dynamic;  // index into Kernel::sizes -> index into hone_entry's sizes
  for (size_t s = 0; s < asked_.sizes.size(); ++s)
    if (!asked_.sizes[s].is_constant()) dynamic.emplace(s, static_cast<int32_t>(dynamic.size()));
  if (manifest.dynamic_sizes.size() != dynamic.size())
    return Differs("number of dynamic sizes", std::to_string(manifest.dynamic_sizes.size()),
                   std::to_string(dynamic.size()));
  for (auto [s, position] : dynamic)
    if (manifest.dynamic_sizes[static_cast<size_t>(position)] != asked_.sizes[static_cast<size_t>(s)].name)
      return Differs("dynamic size", manifest.dynamic_sizes[static_cast<size_t>(position)],
                     asked_.sizes[static_cast<size_t>(s)].name);
  if (manifest.accuracy != kernel_.options.accuracy) return Differs("accuracy class", "another", "its own");
  if (manifest.operands.size() != plans_.size())
    return Differs("number of operands", std::to_string(manifest.operands.size()), std::to_string(plans_.size()));
  uint64_t memory = 0;
  for (size_t i = 0; i < plans_.size(); ++i) {
    const ManifestOperand& operand = manifest.operands[i];
    const Tensor& tensor = OperandTensor(i);
    std::string name = fmt::format("operand {} ({})", i, tensor.name);
    if (operand.dtype != tensor.dtype) return Differs(name, Name(operand.dtype), Name(tensor.dtype));
    if (operand.is_output != plans_[i].writable) return Differs(name, "in the other direction", "in this one");
    if (operand.is_const != tensor.is_const) return Differs(name + "'s constness", "another", "its own");
    if (operand.alignment < 1 || operand.alignment > ByteSize(tensor.dtype))
      return Differs(name + "'s alignment", std::to_string(operand.alignment), "no more than an element");
    const Tensor& asked = asked_.tensors[asked_.operands[i]];
    const std::vector<Expr>& shape = asked.declared.empty() ? asked.shape : asked.declared;
    if (operand.shape.size() != shape.size())
      return Differs(name + "'s rank", std::to_string(operand.shape.size()), std::to_string(shape.size()));
    for (size_t d = 0; d < shape.size(); ++d) {
      const ManifestDim& dim = operand.shape[d];
      const int64_t lo = LowerExtent(asked_, shape[d]), hi = UpperExtent(asked_, shape[d]);
      if (dim.lo != lo || dim.hi != hi)
        return Differs(fmt::format("{}'s dimension {}", name, d), fmt::format("{}..{}", dim.lo, dim.hi),
                       fmt::format("{}..{}", lo, hi));
      const bool is_size = lo != hi && shape[d].op() == Op::kSize;
      const int32_t wanted = is_size ? dynamic.at(shape[d].int_value()) : -1;
      if (dim.size_index != wanted)
        return Differs(fmt::format("{}'s dimension {}", name, d), fmt::format("size {}", dim.size_index),
                       fmt::format("size {}", wanted));
    }
    if (operand.packed_bytes < 0 || operand.packed_bytes % 64 != 0 || (operand.packed_bytes > 0 && !tensor.is_const))
      return Differs(name + "'s packed size", std::to_string(operand.packed_bytes), "0, or of a constant by 64 bytes");
    memory += static_cast<uint64_t>(operand.packed_bytes);
  }
  if (manifest.workspace_common < 0 || manifest.workspace_per_worker < 0 || manifest.workspace_per_worker % 64 != 0)
    return Differs("workspace", "not a number of cache lines", "one that is");
  memory += static_cast<uint64_t>(manifest.workspace_common);
  if (memory > AvailableMemory() / 4 * 3)
    return Error{ErrorKind::kLimit, fmt::format("packed operands and workspace take {} MiB", memory >> 20), ""};
  return {};
}

void Workload::BeforeRun() {
  if (!outputs_are_fresh_) FillOutputs();
  outputs_are_fresh_ = false;
}

void Workload::FillOutputs() {
  for (size_t i = 0; i < plans_.size(); ++i) {
    const BufferPlan& plan = plans_[i];
    if (!plan.writable) continue;
    std::span<std::byte> file = FileBytes(i);
    std::fill_n(file.begin(), plan.slack, kEdge);
    FillUnwritten(OperandTensor(i).dtype, file.subspan(plan.slack, plan.bytes));
    std::fill(file.begin() + static_cast<ptrdiff_t>(plan.slack + plan.bytes), file.end(), kEdge);
  }
  outputs_are_fresh_ = true;
}

std::optional<Error> Workload::CheckEdges() const {
  for (size_t i = 0; i < plans_.size(); ++i) {
    const BufferPlan& plan = plans_[i];
    if (!plan.writable) continue;
    std::span<const std::byte> file = FileBytes(i);
    for (size_t at = 0; at < file.size(); ++at) {
      if (at == plan.slack) at += plan.bytes;
      if (at >= file.size() || file[at] == kEdge) continue;
      std::string place = at < plan.slack ? fmt::format("{} bytes before the start", plan.slack - at)
                                          : fmt::format("{} bytes past the end", at - plan.slack - plan.bytes);
      return Error{ErrorKind::kWrongResult, fmt::format("it wrote {} of {}", place, OperandTensor(i).name), ""};
    }
  }
  return std::nullopt;
}

Comparison Workload::Compare() {
  std::vector<std::span<const std::byte>> outputs;
  for (size_t i = 0; i < plans_.size(); ++i)
    if (plans_[i].writable) outputs.push_back(FileBytes(i).subspan(plans_[i].slack, plans_[i].bytes));
  return CompareOutputs(kernel_, *interpreter_, samples_, outputs);
}

}  // namespace hone
