#if __has_include(<CL/cl.h>)
#include "backends/drivers/opencl_kernel.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"

namespace hone {
namespace {

// An event, and the queue that has to be flushed before others wait for it.
class OpenClWork : public EnqueuedWork {
 public:
  OpenClWork(const OpenCl& cl, cl_command_queue queue, OpenClOwned<cl_event> event)
      : cl_(cl), queue_(queue, cl.clReleaseCommandQueue), event_(std::move(event)) {
    cl.clRetainCommandQueue(queue);
  }

  // A device that was lost runs nothing any more.
  bool HasEnded() override {
    cl_int status = CL_COMPLETE;
    const cl_int code =
        cl_.clGetEventInfo(event_.get(), CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, nullptr);
    return code != CL_SUCCESS || status <= CL_COMPLETE;
  }
  void Wait() override {
    cl_event event = event_.get();
    cl_.clWaitForEvents(1, &event);
  }

  // As something that work on `queue` begins after.
  cl_event For(cl_command_queue queue) const {
    if (queue != queue_.get()) cl_.clFlush(queue_.get());
    return event_.get();
  }

 private:
  const OpenCl& cl_;
  const OpenClOwned<cl_command_queue> queue_;
  const OpenClOwned<cl_event> event_;
};

bool IsOutOfOrder(const OpenCl& cl, cl_command_queue queue) {
  cl_command_queue_properties properties = 0;
  cl.clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES, sizeof properties, &properties, nullptr);
  return (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) != 0;
}

}  // namespace

Result<std::unique_ptr<OpenClKernel>> OpenClKernel::Make(const Home& home, std::vector<Program> programs,
                                                         const DeviceArtifact& artifact, Operands operands,
                                                         Guards guards) {
  auto plan =
      std::make_shared<const Plan>(Plan{std::move(programs), artifact.buffers, artifact.launches, operands, guards});
  std::unique_ptr<OpenClKernel> kernel(new OpenClKernel(home, std::move(plan)));
  HONE_TRY(kernel->Fill(nullptr));
  return kernel;
}

Result<std::unique_ptr<BorrowedKernel>> OpenClKernel::Another() {
  std::unique_ptr<OpenClKernel> kernel(new OpenClKernel(home_, plan_));
  HONE_TRY(kernel->Fill(this));
  return std::unique_ptr<BorrowedKernel>(std::move(kernel));
}

Result<void> OpenClKernel::Fill(const OpenClKernel* packed) {
  const std::vector<bool> is_packed = PackedBuffers(plan_->buffers, plan_->launches);
  for (size_t i = 0; i < plan_->buffers.size(); ++i) {
    const auto bytes = static_cast<size_t>(plan_->buffers[i].bytes);
    if (plan_->operands == Operands::kPlaced && plan_->buffers[i].operand >= 0)
      memory_.push_back(std::make_shared<Memory>(Memory{{}, {}, nullptr, bytes}));
    else if (packed != nullptr && is_packed[i])
      memory_.push_back(packed->memory_[i]);
    else
      memory_.push_back(std::make_shared<Memory>(HONE_TRY(Allocate(bytes))));
  }
  for (const DeviceLaunch& launch : plan_->launches)
    if (!launch.packs || packed == nullptr) (launch.packs ? pack_ : entries_).push_back(HONE_TRY(MakeEntry(launch)));
  return {};
}

Result<OpenClKernel::Memory> OpenClKernel::Allocate(size_t bytes) const {
  Memory memory;
  memory.bytes = std::max<size_t>(bytes, 16);
  cl_int code = CL_SUCCESS;
  const bool is_guarded = plan_->guards == Guards::kBothSides;
  const size_t all = memory.bytes + (is_guarded ? 2 * kDeviceGuardBytes : 0);
  OpenClOwned<cl_mem> whole(cl_.clCreateBuffer(home_.context, CL_MEM_READ_WRITE, all, nullptr, &code),
                            cl_.clReleaseMemObject);
  if (code != CL_SUCCESS) return OpenClFailed(fmt::format("allocating {} bytes", memory.bytes), code);
  if (!is_guarded) {
    memory.inside = std::move(whole);
    memory.argument = memory.inside.get();
    return memory;
  }
  memory.whole = std::move(whole);
  const std::vector<std::byte> guard(kDeviceGuardBytes, kDeviceGuardByte);
  for (const size_t at : {size_t{0}, kDeviceGuardBytes + memory.bytes}) {
    code = cl_.clEnqueueWriteBuffer(home_.queue, memory.whole.get(), CL_TRUE, at, kDeviceGuardBytes, guard.data(), 0,
                                    nullptr, nullptr);
    if (code != CL_SUCCESS) return OpenClFailed("copying to the device", code);
  }
  const cl_buffer_region region{kDeviceGuardBytes, memory.bytes};
  memory.inside = {
      cl_.clCreateSubBuffer(memory.whole.get(), CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region, &code),
      cl_.clReleaseMemObject};
  if (code != CL_SUCCESS) return OpenClFailed("placing a buffer", code);
  memory.argument = memory.inside.get();
  return memory;
}

Result<OpenClKernel::Entry> OpenClKernel::MakeEntry(const DeviceLaunch& launch) const {
  cl_int code = CL_SUCCESS;
  Entry entry;
  const Program& program = plan_->programs[static_cast<size_t>(launch.source)];
  entry.kernel = {cl_.clCreateKernel(program->get(), launch.entry.c_str(), &code), cl_.clReleaseKernel};
  if (code != CL_SUCCESS) return OpenClFailed("finding " + launch.entry, code);
  entry.buffers = launch.buffers;
  for (const int32_t buffer : launch.buffers)
    if (memory_[static_cast<size_t>(buffer)]->argument != nullptr)  // else it is placed later
      HONE_TRY(Pass(entry, buffer));
  for (size_t d = 0; d < 3; ++d) {
    entry.local[d] = static_cast<size_t>(launch.block[d]);
    entry.global[d] = entry.local[d] * static_cast<size_t>(launch.grid[d]);
  }
  return entry;
}

Result<void> OpenClKernel::Place(size_t buffer, const DeviceMemory& memory, size_t offset) {
  const cl_buffer_region region{offset, memory_[buffer]->bytes};
  cl_int code = CL_SUCCESS;
  OpenClOwned<cl_mem> part(
      cl_.clCreateSubBuffer(HandleOf(memory), CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region, &code),
      cl_.clReleaseMemObject);
  if (code == CL_MISALIGNED_SUB_BUFFER_OFFSET)
    return Error{ErrorKind::kUnsupported, fmt::format("a buffer at offset {}", offset), ""};
  if (code != CL_SUCCESS) return OpenClFailed("placing a buffer", code);
  cl_mem argument = part.get();
  return Put(buffer, std::move(part), argument);
}

// Not retained: what is enqueued retains it.
Result<void> OpenClKernel::PlaceBorrowed(size_t buffer, const BorrowedBuffer& memory) {
  return Put(buffer, {}, reinterpret_cast<cl_mem>(memory.handle));
}

Result<void> OpenClKernel::Put(size_t buffer, OpenClOwned<cl_mem> part, cl_mem argument) {
  memory_[buffer]->whole = {};
  memory_[buffer]->inside = std::move(part);
  memory_[buffer]->argument = argument;
  for (const std::vector<Entry>* entries : {&pack_, &entries_})
    for (const Entry& entry : *entries) HONE_TRY(Pass(entry, static_cast<int32_t>(buffer)));
  return {};
}

Result<void> OpenClKernel::Pass(const Entry& entry, int32_t buffer) const {
  cl_mem argument = memory_[static_cast<size_t>(buffer)]->argument;
  for (cl_uint position = 0; position < entry.buffers.size(); ++position) {
    if (entry.buffers[position] != buffer) continue;
    const cl_int code = cl_.clSetKernelArg(entry.kernel.get(), position, sizeof argument, &argument);
    if (code != CL_SUCCESS) return OpenClFailed("passing an argument", code);
  }
  return {};
}

Result<void> OpenClKernel::Enqueue() {
  for (const Entry& entry : entries_) {
    const cl_int code = cl_.clEnqueueNDRangeKernel(home_.queue, entry.kernel.get(), 3, nullptr, entry.global.data(),
                                                   entry.local.data(), 0, nullptr, nullptr);
    if (code != CL_SUCCESS) return OpenClFailed("launching", code);
  }
  return {};
}

Result<std::unique_ptr<EnqueuedWork>> OpenClKernel::EnqueueOn(const BorrowedQueue& to, EnqueuedWork* after) {
  auto* queue = static_cast<cl_command_queue>(to.queue);
  const bool in_any_order = IsOutOfOrder(cl_, queue);
  std::vector<cl_event> waits;
  for (void* event : to.waits) waits.push_back(static_cast<cl_event>(event));
  if (after != nullptr) waits.push_back(static_cast<OpenClWork*>(after)->For(queue));
  OpenClOwned<cl_event> last;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    const bool wants_event = in_any_order || i + 1 == entries_.size();
    cl_event event = nullptr;
    const cl_int code = cl_.clEnqueueNDRangeKernel(
        queue, entry.kernel.get(), 3, nullptr, entry.global.data(), entry.local.data(),
        static_cast<cl_uint>(waits.size()), waits.empty() ? nullptr : waits.data(), wants_event ? &event : nullptr);
    if (code != CL_SUCCESS) {
      if (i > 0) cl_.clFinish(queue);
      return OpenClFailed("launching", code);
    }
    waits.clear();
    if (event != nullptr) last = {event, cl_.clReleaseEvent};
    if (in_any_order) waits.push_back(last.get());
  }
  if (to.done != nullptr) {
    cl_.clRetainEvent(last.get());
    *to.done = last.get();
  }
  return std::unique_ptr<EnqueuedWork>(std::make_unique<OpenClWork>(cl_, queue, std::move(last)));
}

Result<void> OpenClKernel::Write(size_t buffer, std::span<const std::byte> data) {
  if (data.empty()) return {};
  const cl_int code = cl_.clEnqueueWriteBuffer(home_.queue, memory_[buffer]->inside.get(), CL_TRUE, 0, data.size(),
                                               data.data(), 0, nullptr, nullptr);
  if (code != CL_SUCCESS) return OpenClFailed("copying to the device", code);
  return {};
}

Result<void> OpenClKernel::Read(size_t buffer, std::span<std::byte> data) {
  if (data.empty()) return {};
  const cl_int code = cl_.clEnqueueReadBuffer(home_.queue, memory_[buffer]->inside.get(), CL_TRUE, 0, data.size(),
                                              data.data(), 0, nullptr, nullptr);
  if (code != CL_SUCCESS) return OpenClFailed("copying from the device", code);
  return {};
}

Result<std::optional<size_t>> OpenClKernel::FindOverrun() {
  std::vector<std::byte> guard(kDeviceGuardBytes);
  for (size_t i = 0; i < memory_.size(); ++i) {
    const Memory& memory = *memory_[i];
    if (memory.whole.get() == nullptr) continue;
    for (const size_t at : {size_t{0}, kDeviceGuardBytes + memory.bytes}) {
      const cl_int code = cl_.clEnqueueReadBuffer(home_.queue, memory.whole.get(), CL_TRUE, at, kDeviceGuardBytes,
                                                  guard.data(), 0, nullptr, nullptr);
      if (code != CL_SUCCESS) return OpenClFailed("copying from the device", code);
      if (std::ranges::any_of(guard, [](std::byte b) { return b != kDeviceGuardByte; })) return std::optional(i);
    }
  }
  return std::optional<size_t>();
}

Result<int64_t> OpenClKernel::Run(const std::vector<Entry>& entries, int calls) {
  if (entries.empty()) return 0;
  cl_event first = nullptr, last = nullptr;
  cl_int code = CL_SUCCESS;
  const Stopwatch watch;
  for (int call = 0; call < calls && code == CL_SUCCESS; ++call) {
    for (size_t i = 0; i < entries.size() && code == CL_SUCCESS; ++i) {
      const Entry& entry = entries[i];
      const bool begins = call == 0 && i == 0, ends = call == calls - 1 && i + 1 == entries.size();
      code = cl_.clEnqueueNDRangeKernel(home_.queue, entry.kernel.get(), 3, nullptr, entry.global.data(),
                                        entry.local.data(), 0, nullptr,
                                        begins ? &first
                                        : ends ? &last
                                               : nullptr);
    }
  }
  const cl_int finished = cl_.clFinish(home_.queue);
  const double host_ns = watch.Microseconds() * 1000;
  cl_ulong begin = 0, end = 0;
  if (first != nullptr) cl_.clGetEventProfilingInfo(first, CL_PROFILING_COMMAND_START, sizeof begin, &begin, nullptr);
  if (cl_event of_last = last != nullptr ? last : first; of_last != nullptr)
    cl_.clGetEventProfilingInfo(of_last, CL_PROFILING_COMMAND_END, sizeof end, &end, nullptr);
  for (cl_event event : {first, last})
    if (event != nullptr) cl_.clReleaseEvent(event);
  if (code != CL_SUCCESS) return OpenClFailed("launching", code);
  if (finished != CL_SUCCESS) return OpenClFailed("running", finished);
  return end > begin && begin > 0 ? static_cast<int64_t>(end - begin) : static_cast<int64_t>(host_ns);
}

}  // namespace hone

#endif
