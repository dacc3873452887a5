// Tests run it against a driver without a device (tests/support/fake_cuda), bench/gpu_machine.py on a GPU.
#include "backends/drivers/cuda_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>

#include "backends/drivers/cuda_kernel.h"
#include "backends/drivers/cuda_queue.h"
#include "backends/drivers/fact_word.h"
#include "backends/drivers/shared_code.h"

namespace hone {
namespace {

using cuda::Driver;

// Of its own, or an application's.
class CudaContext : public BorrowedContext {
 public:
  CudaContext(DeviceTarget target, std::unique_ptr<CudaQueue> queue)
      : BorrowedContext(std::move(target)), queue_(std::move(queue)) {}

  Result<std::unique_ptr<LoadedKernel>> Load(const DeviceArtifact& artifact, Operands operands) override {
    return std::unique_ptr<LoadedKernel>(HONE_TRY(
        CudaKernel::Make(*queue_, HONE_TRY(ModuleOf(artifact)), artifact, operands, CudaKernel::Guards::kBothSides)));
  }

  Result<std::unique_ptr<BorrowedKernel>> LoadBorrowed(const DeviceArtifact& artifact) override {
    return std::unique_ptr<BorrowedKernel>(HONE_TRY(CudaKernel::Make(*queue_, HONE_TRY(ModuleOf(artifact)), artifact,
                                                                     Operands::kPlaced, CudaKernel::Guards::kNone)));
  }

  Result<std::unique_ptr<DeviceMemory>> Allocate(size_t bytes) override {
    const CudaQueue::Inside inside = HONE_TRY(queue_->Enter());
    return std::unique_ptr<DeviceMemory>(
        std::make_unique<CudaDeviceMemory>(HONE_TRY(queue_->Allocate(std::max<size_t>(bytes, 16)))));
  }
  Result<void> Write(const DeviceMemory& to, size_t offset, std::span<const std::byte> data) override {
    const CudaQueue::Inside inside = HONE_TRY(queue_->Enter());
    return queue_->Write(CudaMemoryOf(to).address() + offset, data);
  }
  Result<void> Read(const DeviceMemory& from, size_t offset, std::span<std::byte> data) override {
    const CudaQueue::Inside inside = HONE_TRY(queue_->Enter());
    return queue_->Read(CudaMemoryOf(from).address() + offset, data);
  }
  Result<void> Copy(const DeviceMemory& from, size_t from_offset, const DeviceMemory& to, size_t to_offset,
                    size_t bytes) override {
    if (bytes == 0) return {};
    const CudaQueue::Inside inside = HONE_TRY(queue_->Enter());
    return CheckCuda(
        queue_->cu(), "copying on the device",
        queue_->cu().cuMemcpyDtoDAsync_v2(CudaMemoryOf(to).address() + to_offset,
                                          CudaMemoryOf(from).address() + from_offset, bytes, queue_->stream()));
  }
  Result<void> Finish() override {
    const CudaQueue::Inside inside = HONE_TRY(queue_->Enter());
    return queue_->Finish();
  }

  // Memory of pools and of mappings is no context's.
  Result<MemoryRange> Find(const BorrowedBuffer& buffer, uint64_t bytes, bool, uint64_t) const override {
    const auto invalid = [](std::string what) { return Error{ErrorKind::kInvalid, std::move(what), ""}; };
    const CudaQueue::Inside inside = HONE_TRY(queue_->Enter());
    cuda::Context context = nullptr;
    if (queue_->cu().cuPointerGetAttribute(&context, cuda::kPointerContext, buffer.handle) != cuda::kSuccess)
      return invalid("it is no memory that CUDA knows");
    if (context != nullptr && context != queue_->context()) return invalid("the buffer is another context's");
    if (buffer.bytes < bytes)
      return invalid(fmt::format("the buffer has {} bytes, the operand {}", buffer.bytes, bytes));
    if (buffer.handle % kCudaAlignment != 0)
      return invalid(fmt::format("its address is no multiple of {} bytes", kCudaAlignment));
    return MemoryRange{0, buffer.handle, buffer.bytes};
  }

  Result<void> Check(const BorrowedQueue& queue) const override {
    const auto refuse = [](ErrorKind kind, std::string what) { return Error{kind, std::move(what), "stream"}; };
    const CudaQueue::Inside inside = HONE_TRY(queue_->Enter());
    auto* stream = static_cast<cuda::Stream>(queue.queue);
    cuda::Context context = nullptr;
    cuda::CaptureStatus captures = cuda::kCapturesNothing;
    if (queue_->cu().cuStreamGetCtx(stream, &context) != cuda::kSuccess)
      return refuse(ErrorKind::kInvalid, "it is no stream of CUDA's");
    if (context != queue_->context()) return refuse(ErrorKind::kInvalid, "the stream is another context's");
    if (queue_->cu().cuStreamIsCapturing(stream, &captures) != cuda::kSuccess || captures != cuda::kCapturesNothing)
      return refuse(ErrorKind::kUnsupported,
                    "the stream is being captured: a graph would call code that may be replaced and released");
    return {};
  }

  bool CanOrder() const override { return true; }

 private:
  // The same code at other places is loaded once, for as long as somebody has it.
  Result<std::shared_ptr<const CudaModule>> ModuleOf(const DeviceArtifact& artifact) {
    if (artifact.language != kCubin || artifact.sources.size() != 1)
      return Error{ErrorKind::kUnsupported, "an artifact in " + artifact.language + " for CUDA", "artifact"};
    if (std::shared_ptr<const CudaModule> module = modules_.Find(artifact.sources[0])) return module;
    const CudaQueue::Inside inside = HONE_TRY(queue_->Enter());
    std::string log(16 << 10, '\0');
    std::array<cuda::JitOption, 2> options{cuda::kJitErrorLog, cuda::kJitErrorLogBytes};
    std::array<void*, 2> values{log.data(), reinterpret_cast<void*>(log.size() - 1)};
    cuda::Module module = nullptr;
    const cuda::Status code = queue_->cu().cuModuleLoadDataEx(&module, artifact.sources[0].data(), options.size(),
                                                              options.data(), values.data());
    if (code != cuda::kSuccess) {
      log.resize(std::min(log.find('\0'), log.size()));
      Error error = CudaFailed(queue_->cu(), "taking the code", code);
      if (code == cuda::kInvalidImage || code == cuda::kNoBinaryForGpu) error.kind = ErrorKind::kBuildFailed;
      if (!log.empty()) error.message += ": " + log;
      return error;
    }
    return modules_.Add(artifact.sources[0], std::make_shared<const CudaModule>(*queue_, module));
  }

  const std::unique_ptr<CudaQueue> queue_;
  SharedCode<CudaModule> modules_;
};

}  // namespace

Result<std::vector<DeviceTarget>> FindCudaDevices() {
  const Driver& cu = *HONE_TRY(LoadCuda());
  std::vector<DeviceTarget> targets;
  for (CudaFound& found : HONE_TRY(FindCuda(cu))) targets.push_back(std::move(found.target));
  return targets;
}

Result<std::unique_ptr<GpuContext>> OpenCudaDevice(const DeviceTarget& target) {
  const Driver& cu = *HONE_TRY(LoadCuda());
  const std::vector<CudaFound> all = HONE_TRY(FindCuda(cu));
  const auto found = std::ranges::find(all, target, &CudaFound::target);
  if (found == all.end()) return DeviceIsGone(target);
  return std::unique_ptr<GpuContext>(
      std::make_unique<CudaContext>(target, HONE_TRY(CudaQueue::Open(cu, found->device))));
}

Result<std::unique_ptr<BorrowedContext>> BorrowCudaContext(CUctx_st* context) {
  const Driver& cu = *HONE_TRY(LoadCuda());
  if (context == nullptr) cu.cuCtxGetCurrent(&context);
  if (context == nullptr)
    return Error{ErrorKind::kInvalid, "no context was given, and none is current in this thread", "context"};
  std::unique_ptr<CudaQueue> queue = HONE_TRY(CudaQueue::Borrow(cu, context));
  const CudaQueue::Inside inside = HONE_TRY(queue->Enter());
  cuda::Device device = 0;
  HONE_TRY(CheckCuda(cu, "asking for the context's device", cu.cuCtxGetDevice(&device)));
  return std::unique_ptr<BorrowedContext>(std::make_unique<CudaContext>(DescribeCuda(cu, device), std::move(queue)));
}

}  // namespace hone
