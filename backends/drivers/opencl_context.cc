#include "backends/drivers/opencl_context.h"

#include <fmt/format.h>

#if __has_include(<CL/cl.h>)
#include <algorithm>
#include <atomic>
#include <memory>
#include <span>

#include "backends/drivers/fact_word.h"
#include "backends/drivers/opencl_driver.h"
#include "backends/drivers/opencl_kernel.h"
#include "backends/drivers/pocl_builtins.h"
#include "backends/drivers/shared_code.h"

namespace hone {
namespace {

template <typename T>
T AskMemory(const OpenCl& cl, cl_mem memory, cl_mem_info what) {
  T value{};
  cl.clGetMemObjectInfo(memory, what, sizeof value, &value, nullptr);
  return value;
}

// Of its own, or an application's, which its queue is then beside.
class OpenClContext : public BorrowedContext {
 public:
  OpenClContext(const OpenCl& cl, OpenClFound found, OpenClOwned<cl_context> context,
                OpenClOwned<cl_command_queue> queue)
      : BorrowedContext(found.target),
        cl_(cl),
        device_(found.device),
        context_(std::move(context)),
        queue_(std::move(queue)) {}

  Result<std::unique_ptr<LoadedKernel>> Load(const DeviceArtifact& artifact, Operands operands) override {
    return std::unique_ptr<LoadedKernel>(HONE_TRY(Make(artifact, operands, OpenClKernel::Guards::kBothSides)));
  }

  Result<std::unique_ptr<BorrowedKernel>> LoadBorrowed(const DeviceArtifact& artifact) override {
    return std::unique_ptr<BorrowedKernel>(HONE_TRY(Make(artifact, Operands::kPlaced, OpenClKernel::Guards::kNone)));
  }

  Result<std::unique_ptr<DeviceMemory>> Allocate(size_t bytes) override {
    cl_int code = CL_SUCCESS;
    OpenClOwned<cl_mem> memory(
        cl_.clCreateBuffer(context_.get(), CL_MEM_READ_WRITE, std::max<size_t>(bytes, 16), nullptr, &code),
        cl_.clReleaseMemObject);
    if (code != CL_SUCCESS) return OpenClFailed(fmt::format("allocating {} bytes", bytes), code);
    return std::unique_ptr<DeviceMemory>(std::make_unique<OpenClMemory>(std::move(memory)));
  }

  Result<void> Write(const DeviceMemory& to, size_t offset, std::span<const std::byte> data) override {
    if (data.empty()) return {};
    const cl_int code = cl_.clEnqueueWriteBuffer(queue_.get(), HandleOf(to), CL_TRUE, offset, data.size(), data.data(),
                                                 0, nullptr, nullptr);
    if (code != CL_SUCCESS) return OpenClFailed("copying to the device", code);
    return {};
  }

  Result<void> Read(const DeviceMemory& from, size_t offset, std::span<std::byte> data) override {
    if (data.empty()) return {};
    const cl_int code = cl_.clEnqueueReadBuffer(queue_.get(), HandleOf(from), CL_TRUE, offset, data.size(), data.data(),
                                                0, nullptr, nullptr);
    if (code != CL_SUCCESS) return OpenClFailed("copying from the device", code);
    return {};
  }

  Result<void> Copy(const DeviceMemory& from, size_t from_offset, const DeviceMemory& to, size_t to_offset,
                    size_t bytes) override {
    if (bytes == 0) return {};
    const cl_int code = cl_.clEnqueueCopyBuffer(queue_.get(), HandleOf(from), HandleOf(to), from_offset, to_offset,
                                                bytes, 0, nullptr, nullptr);
    if (code != CL_SUCCESS) return OpenClFailed("copying on the device", code);
    return {};
  }

  Result<void> Finish() override {
    const cl_int code = cl_.clFinish(queue_.get());
    if (code != CL_SUCCESS) return OpenClFailed("running", code);
    return {};
  }

  Result<MemoryRange> Find(const BorrowedBuffer& buffer, uint64_t bytes, bool is_written, uint64_t) const override {
    auto* memory = reinterpret_cast<cl_mem>(buffer.handle);
    const auto invalid = [](std::string what) { return Error{ErrorKind::kInvalid, std::move(what), ""}; };
    cl_context context = nullptr;
    const cl_int code = cl_.clGetMemObjectInfo(memory, CL_MEM_CONTEXT, sizeof context, &context, nullptr);
    if (code != CL_SUCCESS || AskMemory<cl_mem_object_type>(cl_, memory, CL_MEM_TYPE) != CL_MEM_OBJECT_BUFFER)
      return invalid("it is no buffer of OpenCL's");
    if (context != context_.get()) return invalid("the buffer is another context's");
    const uint64_t size = AskMemory<size_t>(cl_, memory, CL_MEM_SIZE);
    if (size < bytes) return invalid(fmt::format("the buffer has {} bytes, the operand {}", size, bytes));
    const auto flags = AskMemory<cl_mem_flags>(cl_, memory, CL_MEM_FLAGS);
    if (is_written && (flags & CL_MEM_READ_ONLY) != 0) return invalid("the buffer is one that kernels only read");
    if (!is_written && (flags & CL_MEM_WRITE_ONLY) != 0) return invalid("the buffer is one that kernels only write");
    auto* whole = AskMemory<cl_mem>(cl_, memory, CL_MEM_ASSOCIATED_MEMOBJECT);
    return MemoryRange{reinterpret_cast<uint64_t>(whole != nullptr ? whole : memory),
                       AskMemory<size_t>(cl_, memory, CL_MEM_OFFSET), size};
  }

  Result<void> Check(const BorrowedQueue& borrowed) const override {
    auto* queue = static_cast<cl_command_queue>(borrowed.queue);
    const auto invalid = [](std::string what) { return Error{ErrorKind::kInvalid, std::move(what), "queue"}; };
    cl_context context = nullptr;
    cl_device_id device = nullptr;
    if (queue == nullptr ||
        cl_.clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof context, &context, nullptr) != CL_SUCCESS ||
        cl_.clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof device, &device, nullptr) != CL_SUCCESS)
      return invalid("it is no command queue of OpenCL's");
    if (context != context_.get()) return invalid("the queue is another context's");
    if (device != device_)
      return invalid("the queue is another device's: the kernel was asked for with this context's other one");
    return {};
  }

  bool CanOrder() const override { return true; }

 private:
  Result<std::unique_ptr<OpenClKernel>> Make(const DeviceArtifact& artifact, Operands operands,
                                             OpenClKernel::Guards guards) {
    return OpenClKernel::Make({cl_, context_.get(), queue_.get()}, HONE_TRY(ProgramsOf(artifact)), artifact, operands,
                              guards);
  }

  // The same code at other places is compiled once, for as long as it is loaded.
  Result<std::vector<OpenClKernel::Program>> ProgramsOf(const DeviceArtifact& artifact) {
    if (artifact.language != "opencl")
      return Error{ErrorKind::kUnsupported, "an artifact in " + artifact.language + " for OpenCL", "artifact"};
    std::vector<OpenClKernel::Program> programs;
    for (const std::string& source : artifact.sources) {
      OpenClKernel::Program program = programs_.Find(source);
      if (program == nullptr)
        program = programs_.Add(source, std::make_shared<const OpenClOwned<cl_program>>(HONE_TRY(Build(source))));
      programs.push_back(std::move(program));
    }
    return programs;
  }

  Result<OpenClOwned<cl_program>> Build(const std::string& source) {
    std::string options = "-cl-std=CL1.2";
    if (target().facts.contains("exact_divide")) options += " -cl-fp32-correctly-rounded-divide-sqrt";
    if (IsPocl(target()) && takes_builtins_) {
      const std::string declared = WithPoclBuiltins(source);
      Result<OpenClOwned<cl_program>> program = Compile(declared, options + std::string(kWithoutPoclsHeader));
      if (program) return program;
      // Another version of PoCL's, or code that is wrong: as it comes, with what is then said of it.
      program = Compile(source, options);
      takes_builtins_ = !program;
      return program;
    }
    return Compile(source, options);
  }

  Result<OpenClOwned<cl_program>> Compile(const std::string& source, const std::string& options) {
    const char* text = source.c_str();
    cl_int code = CL_SUCCESS;
    OpenClOwned<cl_program> program(cl_.clCreateProgramWithSource(context_.get(), 1, &text, nullptr, &code),
                                    cl_.clReleaseProgram);
    if (code != CL_SUCCESS) return OpenClFailed("taking the source", code);
    code = cl_.clBuildProgram(program.get(), 1, &device_, options.c_str(), nullptr, nullptr);
    if (code == CL_SUCCESS) return program;
    if (Error failed = OpenClFailed("compiling", code); failed.kind == ErrorKind::kLimit) return failed;
    std::string log(16 << 10, '\0');
    cl_.clGetProgramBuildInfo(program.get(), device_, CL_PROGRAM_BUILD_LOG, log.size() - 1, log.data(), nullptr);
    log.resize(std::min(log.find('\0'), log.size()));
    return Error{ErrorKind::kBuildFailed, "the device's compiler refuses the code: " + log, ""};
  }

  const OpenCl& cl_;
  const cl_device_id device_;
  const OpenClOwned<cl_context> context_;
  const OpenClOwned<cl_command_queue> queue_;
  SharedCode<OpenClOwned<cl_program>> programs_;
  std::atomic<bool> takes_builtins_ = true;  // PoCL compiled all code with the declarations that it compiled at all
};

Result<std::unique_ptr<OpenClContext>> MakeContext(const OpenCl& cl, OpenClFound found,
                                                   OpenClOwned<cl_context> context) {
  cl_int code = CL_SUCCESS;
  OpenClOwned<cl_command_queue> queue(
      cl.clCreateCommandQueue(context.get(), found.device, CL_QUEUE_PROFILING_ENABLE, &code), cl.clReleaseCommandQueue);
  if (code != CL_SUCCESS) return OpenClFailed("making a queue", code);
  return std::make_unique<OpenClContext>(cl, std::move(found), std::move(context), std::move(queue));
}

}  // namespace

Result<std::vector<DeviceTarget>> FindOpenClDevices() {
  const OpenCl& cl = *HONE_TRY(LoadOpenCl());
  std::vector<DeviceTarget> targets;
  for (OpenClFound& found : HONE_TRY(FindOpenCl(cl))) targets.push_back(std::move(found.target));
  return targets;
}

Result<std::unique_ptr<GpuContext>> OpenOpenClDevice(const DeviceTarget& target) {
  const OpenCl& cl = *HONE_TRY(LoadOpenCl());
  std::vector<OpenClFound> all = HONE_TRY(FindOpenCl(cl));
  const auto found = std::ranges::find(all, target, &OpenClFound::target);
  if (found == all.end()) return DeviceIsGone(target);
  cl_int code = CL_SUCCESS;
  OpenClOwned<cl_context> context(cl.clCreateContext(nullptr, 1, &found->device, nullptr, nullptr, &code),
                                  cl.clReleaseContext);
  if (code != CL_SUCCESS) return OpenClFailed("making a context", code);
  return std::unique_ptr<GpuContext>(HONE_TRY(MakeContext(cl, std::move(*found), std::move(context))));
}

Result<std::unique_ptr<BorrowedContext>> BorrowOpenClContext(cl_context context, cl_device_id device) {
  const auto invalid = [](std::string what) { return Error{ErrorKind::kInvalid, std::move(what), "context"}; };
  if (context == nullptr) return invalid("no context");
  if (device == nullptr) return invalid("no device");
  const OpenCl& cl = *HONE_TRY(LoadOpenCl());
  size_t bytes = 0;
  if (cl.clGetContextInfo(context, CL_CONTEXT_DEVICES, 0, nullptr, &bytes) != CL_SUCCESS)
    return invalid("it is no context of OpenCL's");
  std::vector<cl_device_id> devices(bytes / sizeof(cl_device_id));
  cl.clGetContextInfo(context, CL_CONTEXT_DEVICES, bytes, devices.data(), nullptr);
  if (std::ranges::find(devices, device) == devices.end()) return invalid("the device is none of this context's");
  cl.clRetainContext(context);
  return std::unique_ptr<BorrowedContext>(HONE_TRY(MakeContext(cl, OpenClFound{device, DescribeOpenCl(cl, device)},
                                                               OpenClOwned<cl_context>(context, cl.clReleaseContext))));
}

}  // namespace hone

#else

namespace hone {
namespace {
Error WithoutOpenCl() {
  return {ErrorKind::kUnsupported, "built without OpenCL's headers (Debian: opencl-headers)", ""};
}
}  // namespace

Result<std::vector<DeviceTarget>> FindOpenClDevices() { return WithoutOpenCl(); }
Result<std::unique_ptr<GpuContext>> OpenOpenClDevice(const DeviceTarget&) { return WithoutOpenCl(); }
Result<std::unique_ptr<BorrowedContext>> BorrowOpenClContext(_cl_context*, _cl_device_id*) { return WithoutOpenCl(); }

}  // namespace hone

#endif
