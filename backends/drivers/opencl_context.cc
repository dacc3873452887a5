#include "backends/drivers/opencl_context.h"

#include <fmt/format.h>

#include "base/clock.h"

#if __has_include(<CL/cl.h>)
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>

namespace hone {
namespace {

// The functions that we call, found in the loader.
// clang-format off
#define HONE_OPENCL_FUNCTIONS(F)                                                              \
  F(clGetPlatformIDs) F(clGetPlatformInfo) F(clGetDeviceIDs) F(clGetDeviceInfo)               \
  F(clCreateContext) F(clReleaseContext) F(clCreateCommandQueue) F(clReleaseCommandQueue)     \
  F(clCreateProgramWithSource) F(clBuildProgram) F(clGetProgramBuildInfo) F(clReleaseProgram) \
  F(clCreateKernel) F(clReleaseKernel) F(clSetKernelArg) F(clCreateBuffer)                    \
  F(clCreateSubBuffer) F(clReleaseMemObject) F(clEnqueueWriteBuffer) F(clEnqueueReadBuffer)   \
  F(clEnqueueNDRangeKernel) F(clEnqueueCopyBuffer) F(clFinish) F(clGetEventProfilingInfo) F(clReleaseEvent)
// clang-format on

struct OpenCl {
#define HONE_DECLARE(function) decltype(&::function) function = nullptr;
  HONE_OPENCL_FUNCTIONS(HONE_DECLARE)
#undef HONE_DECLARE
};

Result<const OpenCl*> LoadOpenCl() {
  static OpenCl cl;
  static const std::optional<Error> failure = []() -> std::optional<Error> {
    // Oclgrind puts itself before the library.
    void* library =
        ::dlsym(RTLD_DEFAULT, "clGetPlatformIDs") != nullptr ? RTLD_DEFAULT : ::dlopen("libOpenCL.so.1", RTLD_NOW);
    if (library == nullptr && ::dlsym(RTLD_DEFAULT, "clGetPlatformIDs") == nullptr)
      return Error{ErrorKind::kNotFound, "there is no libOpenCL.so.1 here (Debian: ocl-icd-libopencl1)", ""};
#define HONE_FIND(name)                                                   \
  cl.name = reinterpret_cast<decltype(&::name)>(::dlsym(library, #name)); \
  if (cl.name == nullptr) return Error{ErrorKind::kUnsupported, "libOpenCL.so.1 has no " #name, ""};
    HONE_OPENCL_FUNCTIONS(HONE_FIND)
#undef HONE_FIND
    return std::nullopt;
  }();
  if (failure) return *failure;
  return &cl;
}

std::string_view NameOf(cl_int code) {
  switch (code) {
    case CL_DEVICE_NOT_AVAILABLE: return "the device is not available";
    case CL_MEM_OBJECT_ALLOCATION_FAILURE: return "the device has no memory left";
    case CL_OUT_OF_RESOURCES: return "the device ran out of resources";
    case CL_OUT_OF_HOST_MEMORY: return "the driver has no memory left";
    case CL_INVALID_BUFFER_SIZE: return "the buffer is larger than the device allows";
    case CL_INVALID_WORK_GROUP_SIZE: return "the device allows no such block";
    case CL_INVALID_KERNEL_NAME: return "there is no such function";
    default: return "";
  }
}

Error Failed(const std::string& what, cl_int code) {
  const bool is_memory = code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_INVALID_BUFFER_SIZE;
  const std::string_view name = NameOf(code);
  return {is_memory ? ErrorKind::kLimit : ErrorKind::kRunFailed,
          fmt::format("{} failed: {} (OpenCL's error {})", what, name.empty() ? "see cl.h" : name, code), ""};
}

struct Found {
  cl_device_id device = nullptr;
  DeviceTarget target;
};

template <typename T>
T Ask(const OpenCl& cl, cl_device_id device, cl_device_info what) {
  T value{};
  cl.clGetDeviceInfo(device, what, sizeof value, &value, nullptr);
  return value;
}

std::string AskText(const OpenCl& cl, cl_device_id device, cl_device_info what) {
  std::string text(1024, '\0');
  cl.clGetDeviceInfo(device, what, text.size() - 1, text.data(), nullptr);
  return FactWord(std::move(text));
}

DeviceTarget Describe(const OpenCl& cl, cl_platform_id platform, cl_device_id device) {
  std::string name(1024, '\0');
  cl.clGetPlatformInfo(platform, CL_PLATFORM_NAME, name.size() - 1, name.data(), nullptr);
  DeviceTarget target;
  target.kind = kOpenClKind;
  auto number = [&](const char* fact, auto value) { target.facts[fact] = std::to_string(value); };
  target.facts["platform"] = FactWord(std::move(name));
  target.facts["device"] = AskText(cl, device, CL_DEVICE_NAME);
  target.facts["driver"] = AskText(cl, device, CL_DRIVER_VERSION);
  target.facts["type"] = (Ask<cl_device_type>(cl, device, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CPU) != 0 ? "cpu" : "gpu";
  number("units", Ask<cl_uint>(cl, device, CL_DEVICE_MAX_COMPUTE_UNITS));
  number("block_threads", Ask<size_t>(cl, device, CL_DEVICE_MAX_WORK_GROUP_SIZE));
  number("block_bytes", Ask<cl_ulong>(cl, device, CL_DEVICE_LOCAL_MEM_SIZE));
  number("f64", Ask<cl_device_fp_config>(cl, device, CL_DEVICE_DOUBLE_FP_CONFIG) != 0 ? 1 : 0);
  if ((Ask<cl_device_fp_config>(cl, device, CL_DEVICE_SINGLE_FP_CONFIG) & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT) != 0)
    target.facts["exact_divide"] = "1";
  return target;
}

Result<std::vector<Found>> Find(const OpenCl& cl) {
  std::array<cl_platform_id, 16> platforms{};
  cl_uint count = 0;
  // A loader without drivers has an error of its own for that.
  if (cl.clGetPlatformIDs(platforms.size(), platforms.data(), &count) != CL_SUCCESS) count = 0;
  std::vector<Found> found;
  for (cl_platform_id platform : std::span(platforms).first(std::min<size_t>(count, platforms.size()))) {
    std::array<cl_device_id, 64> devices{};
    cl_uint here = 0;
    if (cl.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, devices.size(), devices.data(), &here) != CL_SUCCESS) continue;
    for (cl_device_id device : std::span(devices).first(std::min<size_t>(here, devices.size())))
      if (Ask<cl_bool>(cl, device, CL_DEVICE_AVAILABLE) && Ask<cl_bool>(cl, device, CL_DEVICE_COMPILER_AVAILABLE))
        found.push_back({device, Describe(cl, platform, device)});
  }
  return found;
}

// Released with its owner.
template <typename T>
class Owned {
 public:
  Owned() = default;
  Owned(T object, cl_int (*release)(T)) : object_(object), release_(release) {}
  Owned(Owned&& other) noexcept : object_(std::exchange(other.object_, nullptr)), release_(other.release_) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(object_, other.object_), std::swap(release_, other.release_);
    return *this;
  }
  ~Owned() {
    if (object_ != nullptr) release_(object_);
  }
  T get() const { return object_; }

 private:
  T object_ = nullptr;
  cl_int (*release_)(T) = nullptr;
};

struct Memory {
  Owned<cl_mem> whole, inside;  // with guards and without; of memory that is somebody else's, the part alone
  size_t bytes = 0;
};

struct OpenClMemory : DeviceMemory {
  explicit OpenClMemory(Owned<cl_mem> owned) : memory(std::move(owned)) {}
  Owned<cl_mem> memory;
};

cl_mem Of(const DeviceMemory& memory) { return static_cast<const OpenClMemory&>(memory).memory.get(); }

struct Entry {
  Owned<cl_kernel> kernel;
  std::vector<int32_t> buffers;
  std::array<size_t, 3> global{}, local{};
};

class OpenClKernel : public LoadedKernel {
 public:
  OpenClKernel(const OpenCl& cl, cl_command_queue queue, std::shared_ptr<Owned<cl_program>> program,
               std::vector<Memory> memory, std::vector<Entry> pack, std::vector<Entry> entries)
      : cl_(cl),
        queue_(queue),
        program_(std::move(program)),
        memory_(std::move(memory)),
        pack_(std::move(pack)),
        entries_(std::move(entries)) {}

  Result<void> Place(size_t buffer, const DeviceMemory& memory, size_t offset) override {
    const cl_buffer_region region{offset, memory_[buffer].bytes};
    cl_int code = CL_SUCCESS;
    Owned<cl_mem> part(
        cl_.clCreateSubBuffer(Of(memory), CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region, &code),
        cl_.clReleaseMemObject);
    if (code == CL_MISALIGNED_SUB_BUFFER_OFFSET)
      return Error{ErrorKind::kUnsupported, fmt::format("a buffer at offset {}", offset), ""};
    if (code != CL_SUCCESS) return Failed("placing a buffer", code);
    memory_[buffer].whole = {};
    memory_[buffer].inside = std::move(part);
    for (std::vector<Entry>* entries : {&pack_, &entries_})
      for (Entry& entry : *entries) HONE_TRY(Pass(entry, static_cast<int32_t>(buffer)));
    return {};
  }

  Result<void> Enqueue() override {
    for (const Entry& entry : entries_) {
      const cl_int code = cl_.clEnqueueNDRangeKernel(queue_, entry.kernel.get(), 3, nullptr, entry.global.data(),
                                                     entry.local.data(), 0, nullptr, nullptr);
      if (code != CL_SUCCESS) return Failed("launching", code);
    }
    return {};
  }

  Result<void> Write(size_t buffer, std::span<const std::byte> data) override {
    if (data.empty()) return {};
    const cl_int code = cl_.clEnqueueWriteBuffer(queue_, memory_[buffer].inside.get(), CL_TRUE, 0, data.size(),
                                                 data.data(), 0, nullptr, nullptr);
    if (code != CL_SUCCESS) return Failed("copying to the device", code);
    return {};
  }

  Result<void> Read(size_t buffer, std::span<std::byte> data) override {
    if (data.empty()) return {};
    const cl_int code = cl_.clEnqueueReadBuffer(queue_, memory_[buffer].inside.get(), CL_TRUE, 0, data.size(),
                                                data.data(), 0, nullptr, nullptr);
    if (code != CL_SUCCESS) return Failed("copying from the device", code);
    return {};
  }

  Result<int64_t> Pack() override { return Run(pack_, 1); }
  Result<int64_t> Call(int calls) override { return Run(entries_, calls); }

  Result<std::optional<size_t>> FindOverrun() override {
    std::vector<std::byte> guard(kDeviceGuardBytes);
    for (size_t i = 0; i < memory_.size(); ++i) {
      const Memory& memory = memory_[i];
      if (memory.whole.get() == nullptr) continue;
      for (const size_t at : {size_t{0}, kDeviceGuardBytes + memory.bytes}) {
        const cl_int code = cl_.clEnqueueReadBuffer(queue_, memory.whole.get(), CL_TRUE, at, kDeviceGuardBytes,
                                                    guard.data(), 0, nullptr, nullptr);
        if (code != CL_SUCCESS) return Failed("copying from the device", code);
        if (std::ranges::any_of(guard, [](std::byte b) { return b != kDeviceGuardByte; })) return std::optional(i);
      }
    }
    return std::optional<size_t>();
  }

 private:
  // A buffer as an argument of a launch that has it.
  Result<void> Pass(Entry& entry, int32_t buffer) {
    cl_mem argument = memory_[static_cast<size_t>(buffer)].inside.get();
    for (cl_uint position = 0; position < entry.buffers.size(); ++position) {
      if (entry.buffers[position] != buffer) continue;
      const cl_int code = cl_.clSetKernelArg(entry.kernel.get(), position, sizeof argument, &argument);
      if (code != CL_SUCCESS) return Failed("passing an argument", code);
    }
    return {};
  }

  Result<int64_t> Run(const std::vector<Entry>& entries, int calls) {
    if (entries.empty()) return 0;
    cl_event first = nullptr, last = nullptr;
    cl_int code = CL_SUCCESS;
    const Stopwatch watch;
    for (int call = 0; call < calls && code == CL_SUCCESS; ++call) {
      for (size_t i = 0; i < entries.size() && code == CL_SUCCESS; ++i) {
        const Entry& entry = entries[i];
        const bool begins = call == 0 && i == 0, ends = call == calls - 1 && i + 1 == entries.size();
        code = cl_.clEnqueueNDRangeKernel(queue_, entry.kernel.get(), 3, nullptr, entry.global.data(),
                                          entry.local.data(), 0, nullptr,
                                          begins ? &first
                                          : ends ? &last
                                                 : nullptr);
      }
    }
    const cl_int finished = cl_.clFinish(queue_);
    const double host_ns = watch.Microseconds() * 1000;
    cl_ulong begin = 0, end = 0;
    if (first != nullptr) cl_.clGetEventProfilingInfo(first, CL_PROFILING_COMMAND_START, sizeof begin, &begin, nullptr);
    if (cl_event of_last = last != nullptr ? last : first; of_last != nullptr)
      cl_.clGetEventProfilingInfo(of_last, CL_PROFILING_COMMAND_END, sizeof end, &end, nullptr);
    for (cl_event event : {first, last})
      if (event != nullptr) cl_.clReleaseEvent(event);
    if (code != CL_SUCCESS) return Failed("launching", code);
    if (finished != CL_SUCCESS) return Failed("running", finished);
    return end > begin && begin > 0 ? static_cast<int64_t>(end - begin) : static_cast<int64_t>(host_ns);
  }

  const OpenCl& cl_;
  const cl_command_queue queue_;
  const std::shared_ptr<Owned<cl_program>> program_;
  std::vector<Memory> memory_;
  std::vector<Entry> pack_, entries_;
};

class OpenClContext : public GpuContext {
 public:
  OpenClContext(const OpenCl& cl, Found found, Owned<cl_context> context, Owned<cl_command_queue> queue)
      : cl_(cl), found_(std::move(found)), context_(std::move(context)), queue_(std::move(queue)) {}

  Result<std::unique_ptr<LoadedKernel>> Load(const DeviceArtifact& artifact, Operands operands) override {
    std::shared_ptr<Owned<cl_program>> program = HONE_TRY(ProgramOf(artifact));
    std::vector<Memory> memory;
    for (const DeviceBuffer& buffer : artifact.buffers) {
      const auto bytes = static_cast<size_t>(buffer.bytes);
      const bool is_elsewhere = operands == Operands::kPlaced && buffer.operand >= 0;
      memory.push_back(is_elsewhere ? Memory{{}, {}, bytes} : HONE_TRY(AllocateGuarded(bytes)));
    }
    std::vector<Entry> pack, entries;
    for (const DeviceLaunch& launch : artifact.launches)
      (launch.packs ? pack : entries).push_back(HONE_TRY(MakeEntry(program->get(), launch, memory)));
    return std::unique_ptr<LoadedKernel>(std::make_unique<OpenClKernel>(
        cl_, queue_.get(), std::move(program), std::move(memory), std::move(pack), std::move(entries)));
  }

  Result<std::unique_ptr<DeviceMemory>> Allocate(size_t bytes) override {
    cl_int code = CL_SUCCESS;
    Owned<cl_mem> memory(
        cl_.clCreateBuffer(context_.get(), CL_MEM_READ_WRITE, std::max<size_t>(bytes, 16), nullptr, &code),
        cl_.clReleaseMemObject);
    if (code != CL_SUCCESS) return Failed(fmt::format("allocating {} bytes", bytes), code);
    return std::unique_ptr<DeviceMemory>(std::make_unique<OpenClMemory>(std::move(memory)));
  }

  Result<void> Write(const DeviceMemory& to, size_t offset, std::span<const std::byte> data) override {
    if (data.empty()) return {};
    const cl_int code =
        cl_.clEnqueueWriteBuffer(queue_.get(), Of(to), CL_TRUE, offset, data.size(), data.data(), 0, nullptr, nullptr);
    if (code != CL_SUCCESS) return Failed("copying to the device", code);
    return {};
  }

  Result<void> Read(const DeviceMemory& from, size_t offset, std::span<std::byte> data) override {
    if (data.empty()) return {};
    const cl_int code =
        cl_.clEnqueueReadBuffer(queue_.get(), Of(from), CL_TRUE, offset, data.size(), data.data(), 0, nullptr, nullptr);
    if (code != CL_SUCCESS) return Failed("copying from the device", code);
    return {};
  }

  Result<void> Copy(const DeviceMemory& from, size_t from_offset, const DeviceMemory& to, size_t to_offset,
                    size_t bytes) override {
    if (bytes == 0) return {};
    const cl_int code =
        cl_.clEnqueueCopyBuffer(queue_.get(), Of(from), Of(to), from_offset, to_offset, bytes, 0, nullptr, nullptr);
    if (code != CL_SUCCESS) return Failed("copying on the device", code);
    return {};
  }

  Result<void> Finish() override {
    const cl_int code = cl_.clFinish(queue_.get());
    if (code != CL_SUCCESS) return Failed("running", code);
    return {};
  }

 private:
  // The same code at other places is compiled once, for as long as it is loaded.
  Result<std::shared_ptr<Owned<cl_program>>> ProgramOf(const DeviceArtifact& artifact) {
    std::weak_ptr<Owned<cl_program>>& known = programs_[artifact.sources.empty() ? "" : artifact.sources[0]];
    if (std::shared_ptr<Owned<cl_program>> program = known.lock()) return program;
    auto program = std::make_shared<Owned<cl_program>>(HONE_TRY(Build(artifact)));
    known = program;
    return program;
  }

  Result<Owned<cl_program>> Build(const DeviceArtifact& artifact) {
    if (artifact.language != "opencl" || artifact.sources.size() != 1)
      return Error{ErrorKind::kUnsupported, "an artifact in " + artifact.language + " for OpenCL", "artifact"};
    const char* text = artifact.sources[0].c_str();
    cl_int code = CL_SUCCESS;
    Owned<cl_program> program(cl_.clCreateProgramWithSource(context_.get(), 1, &text, nullptr, &code),
                              cl_.clReleaseProgram);
    if (code != CL_SUCCESS) return Failed("taking the source", code);
    std::string options = "-cl-std=CL1.2";
    if (found_.target.facts.contains("exact_divide")) options += " -cl-fp32-correctly-rounded-divide-sqrt";
    code = cl_.clBuildProgram(program.get(), 1, &found_.device, options.c_str(), nullptr, nullptr);
    if (code == CL_SUCCESS) return program;
    std::string log(16 << 10, '\0');
    cl_.clGetProgramBuildInfo(program.get(), found_.device, CL_PROGRAM_BUILD_LOG, log.size() - 1, log.data(), nullptr);
    log.resize(std::min(log.find('\0'), log.size()));
    return Error{ErrorKind::kBuildFailed, "the device's compiler refuses the code: " + log, ""};
  }

  Result<Memory> AllocateGuarded(size_t bytes) {
    Memory memory;
    memory.bytes = std::max<size_t>(bytes, 16);
    const std::vector<std::byte> guard(kDeviceGuardBytes, kDeviceGuardByte);
    cl_int code = CL_SUCCESS;
    memory.whole = {
        cl_.clCreateBuffer(context_.get(), CL_MEM_READ_WRITE, memory.bytes + 2 * kDeviceGuardBytes, nullptr, &code),
        cl_.clReleaseMemObject};
    if (code != CL_SUCCESS) return Failed(fmt::format("allocating {} bytes", memory.bytes), code);
    for (const size_t at : {size_t{0}, kDeviceGuardBytes + memory.bytes}) {
      code = cl_.clEnqueueWriteBuffer(queue_.get(), memory.whole.get(), CL_TRUE, at, kDeviceGuardBytes, guard.data(), 0,
                                      nullptr, nullptr);
      if (code != CL_SUCCESS) return Failed("copying to the device", code);
    }
    const cl_buffer_region region{kDeviceGuardBytes, memory.bytes};
    memory.inside = {
        cl_.clCreateSubBuffer(memory.whole.get(), CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region, &code),
        cl_.clReleaseMemObject};
    if (code != CL_SUCCESS) return Failed("placing a buffer", code);
    return memory;
  }

  Result<Entry> MakeEntry(cl_program program, const DeviceLaunch& launch, const std::vector<Memory>& memory) {
    cl_int code = CL_SUCCESS;
    Entry entry;
    entry.kernel = {cl_.clCreateKernel(program, launch.entry.c_str(), &code), cl_.clReleaseKernel};
    if (code != CL_SUCCESS) return Failed("finding " + launch.entry, code);
    entry.buffers = launch.buffers;
    for (cl_uint position = 0; position < launch.buffers.size(); ++position) {
      cl_mem argument = memory[static_cast<size_t>(launch.buffers[position])].inside.get();
      if (argument == nullptr) continue;  // placed later
      code = cl_.clSetKernelArg(entry.kernel.get(), position, sizeof argument, &argument);
      if (code != CL_SUCCESS) return Failed("passing the arguments of " + launch.entry, code);
    }
    for (size_t d = 0; d < 3; ++d) {
      entry.local[d] = static_cast<size_t>(launch.block[d]);
      entry.global[d] = entry.local[d] * static_cast<size_t>(launch.grid[d]);
    }
    return entry;
  }

  const OpenCl& cl_;
  const Found found_;
  Owned<cl_context> context_;
  Owned<cl_command_queue> queue_;
  std::map<std::string, std::weak_ptr<Owned<cl_program>>> programs_;  // by source
};

}  // namespace

Result<std::vector<DeviceTarget>> FindOpenClDevices() {
  const OpenCl& cl = *HONE_TRY(LoadOpenCl());
  std::vector<DeviceTarget> targets;
  for (Found& found : HONE_TRY(Find(cl))) targets.push_back(std::move(found.target));
  return targets;
}

Result<std::unique_ptr<GpuContext>> OpenOpenClDevice(const DeviceTarget& target) {
  const OpenCl& cl = *HONE_TRY(LoadOpenCl());
  std::vector<Found> all = HONE_TRY(Find(cl));
  const auto found = std::ranges::find(all, target, &Found::target);
  if (found == all.end()) return DeviceIsGone(target);
  cl_int code = CL_SUCCESS;
  Owned<cl_context> context(cl.clCreateContext(nullptr, 1, &found->device, nullptr, nullptr, &code),
                            cl.clReleaseContext);
  if (code != CL_SUCCESS) return Failed("making a context", code);
  Owned<cl_command_queue> queue(cl.clCreateCommandQueue(context.get(), found->device, CL_QUEUE_PROFILING_ENABLE, &code),
                                cl.clReleaseCommandQueue);
  if (code != CL_SUCCESS) return Failed("making a queue", code);
  return std::unique_ptr<GpuContext>(
      std::make_unique<OpenClContext>(cl, std::move(*found), std::move(context), std::move(queue)));
}

}  // namespace hone

#else

namespace hone {

Result<std::vector<DeviceTarget>> FindOpenClDevices() {
  return Error{ErrorKind::kUnsupported, "built without OpenCL's headers (Debian: opencl-headers)", ""};
}
Result<std::unique_ptr<GpuContext>> OpenOpenClDevice(const DeviceTarget&) {
  return Error{ErrorKind::kUnsupported, "built without OpenCL's headers (Debian: opencl-headers)", ""};
}

}  // namespace hone

#endif
