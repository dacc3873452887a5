// gpu_lab: a kernel's code for GPUs, in this process: shows it, executes it in the machine model, and compiles and runs
// it on an OpenCL device where there is one (PoCL makes a processor one), beside the reference.
//
//   gpu_lab [--target TARGET] [--schedule FILE | --choices TEXT] [--show] [--print opencl|cuda|glsl|hip]
//   [--simt] [--no-run]
//           KERNEL…
//
// TARGET, such as "cuda arch=sm_90 block_bytes=49152 block_bytes_most=232448 block_threads=1024 units=132", need not be
// here; without it code is for what every device can do.
//
// libOpenCL is loaded when it is needed. A build without OpenCL's headers says so and shows code only.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "codegen/device_kinds.h"
#include "codegen/gpu/print_launch.h"
#include "codegen/gpu/simt_run.h"
#include "codegen/gpu/straighten.h"
#include "codegen/lower/lower.h"
#include "codegen/machine_model.h"
#include "codegen/rules/choices.h"
#include "codegen/rules/default_schedule.h"
#include "ir/graph/specialize.h"
#include "ir/language/parse.h"
#include "ir/reference/accuracy.h"
#include "ir/reference/check_output.h"
#include "ir/schedule/apply.h"

#if __has_include(<CL/cl.h>)
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#define HONE_HAS_OPENCL 1
#endif

namespace hone {
namespace {

// What every device that we know of can do.
Target SomeDevice() {
  return DeviceTarget{std::string(kOpenClKind), {{"block_threads", "256"}, {"block_bytes", "32768"}}};
}

struct Lab {
  std::string target, schedule, choices, print;
  bool show = false, simt = false, run = true;
};

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// A kernel's operands with inputs filled in.
struct Operands {
  std::vector<std::vector<std::byte>> storage;

  explicit Operands(const Kernel& kernel) {
    for (size_t i = 0; i < kernel.operands.size(); ++i) {
      const Tensor& tensor = kernel.tensors[kernel.operands[i]];
      storage.emplace_back(static_cast<size_t>(ElementCount(kernel, tensor) * ByteSize(tensor.dtype)));
      if (tensor.kind == TensorKind::kInput)
        FillInput(kernel, static_cast<int>(i), InputSeed(kernel), storage.back());
      else
        FillUnwritten(tensor.dtype, storage.back());
    }
  }
};

Result<double> Checked(const Kernel& kernel, const Operands& operands) {
  std::vector<OperandView> inputs;
  std::vector<std::span<const std::byte>> outputs;
  for (size_t i = 0; i < kernel.operands.size(); ++i) {
    if (kernel.tensors[kernel.operands[i]].kind == TensorKind::kInput)
      inputs.push_back({operands.storage[i].data()});
    else
      outputs.push_back(operands.storage[i]);
  }
  Interpreter interpreter(kernel, inputs);
  const std::vector<Samples> samples = ComputeSamples(kernel, interpreter, {}, 1, inputs);
  Comparison comparison = CompareOutputs(kernel, interpreter, samples, outputs);
  if (comparison.failure) return *std::move(comparison.failure);
  return comparison.max_rel_err / Tolerance(kernel);
}

#ifdef HONE_HAS_OPENCL

Error Failed(const std::string& what, cl_int code) {
  return {ErrorKind::kRunFailed, what + " failed with OpenCL's error " + std::to_string(code), ""};
}

// The first device of the first platform.
class OpenClDevice {
 public:
  static Result<OpenClDevice*> Get() {
    static OpenClDevice device;
    HONE_TRY(device.Open());
    return &device;
  }

  Result<double> Run(const Kernel& kernel, const straight::Program& program, Operands& operands);
  const std::string& name() const { return name_; }

 private:
  template <typename F>
  F Find(const char* name, F) const {
    return reinterpret_cast<F>(dlsym(library_, name));
  }
#define HONE_CL(function) Find(#function, &::function)

  Result<void> Open();
  Result<cl_program> Build(const std::string& source);

  void* library_ = nullptr;
  cl_device_id device_ = nullptr;
  cl_context context_ = nullptr;
  cl_command_queue queue_ = nullptr;
  std::string name_;
};

Result<void> OpenClDevice::Open() {
  if (queue_ != nullptr) return {};
  // Oclgrind puts itself before the library.
  const bool is_loaded = dlsym(RTLD_DEFAULT, "clGetPlatformIDs") != nullptr;
  library_ = is_loaded ? RTLD_DEFAULT : dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr && !is_loaded) return Error{ErrorKind::kUnsupported, "there is no libOpenCL.so.1 here", ""};
  cl_platform_id platform = nullptr;
  cl_int code = HONE_CL(clGetPlatformIDs)(1, &platform, nullptr);
  if (code == CL_SUCCESS) code = HONE_CL(clGetDeviceIDs)(platform, CL_DEVICE_TYPE_ALL, 1, &device_, nullptr);
  if (code != CL_SUCCESS) return Failed("finding a device", code);
  char name[256] = {};
  HONE_CL(clGetDeviceInfo)(device_, CL_DEVICE_NAME, sizeof name - 1, name, nullptr);
  name_ = name;
  context_ = HONE_CL(clCreateContext)(nullptr, 1, &device_, nullptr, nullptr, &code);
  if (code != CL_SUCCESS) return Failed("making a context", code);
  queue_ = HONE_CL(clCreateCommandQueue)(context_, device_, CL_QUEUE_PROFILING_ENABLE, &code);
  if (code != CL_SUCCESS) return Failed("making a queue", code);
  return {};
}

Result<cl_program> OpenClDevice::Build(const std::string& source) {
  cl_int code = CL_SUCCESS;
  const char* text = source.c_str();
  cl_program program = HONE_CL(clCreateProgramWithSource)(context_, 1, &text, nullptr, &code);
  if (code != CL_SUCCESS) return Failed("taking the source", code);
  code = HONE_CL(clBuildProgram)(program, 1, &device_, "-cl-std=CL1.2", nullptr, nullptr);
  if (code == CL_SUCCESS) return program;
  std::vector<char> log(1 << 16);
  HONE_CL(clGetProgramBuildInfo)(program, device_, CL_PROGRAM_BUILD_LOG, log.size() - 1, log.data(), nullptr);
  return Error{ErrorKind::kRunFailed, std::string("the device's compiler refuses the code:\n") + log.data(), ""};
}

// Seconds of all launches together, the least of a few runs.
Result<double> OpenClDevice::Run(const Kernel& kernel, const straight::Program& program, Operands& operands) {
  std::vector<cl_program> built;  // of each launch
  for (const std::string& source : PrintSources(program, *FindDialect("opencl")))
    built.push_back(HONE_TRY(Build(source)));
  std::map<BufferId, cl_mem> buffers;
  cl_int code = CL_SUCCESS;
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const BufferId id(static_cast<int>(i));
    const Buffer& buffer = program.buffers[id];
    if (buffer.scope == Scope::kBlock || buffer.scope == Scope::kRegisters) continue;
    const bool is_operand = buffer.scope == Scope::kDefault;
    const auto bytes = static_cast<size_t>(std::max<int64_t>(16, buffer.elements * ByteSize(buffer.dtype)));
    std::vector<std::byte> start(bytes);
    if (is_operand) {
      const auto& operand = operands.storage[static_cast<size_t>(buffer.operand)];
      std::copy(operand.begin(), operand.end(), start.begin());
    }
    buffers[id] =
        HONE_CL(clCreateBuffer)(context_, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, bytes, start.data(), &code);
    if (code != CL_SUCCESS) return Failed("making a buffer for " + buffer.name, code);
  }
  double least = 1e9;
  for (int repeat = 0; repeat < 5; ++repeat) {
    double total = 0;
    for (size_t i = repeat == 0 ? 0 : program.pack.size(); i < program.pack.size() + program.launches.size(); ++i) {
      const bool packs = i < program.pack.size();
      const straight::Launch& launch = packs ? program.pack[i] : program.launches[i - program.pack.size()];
      cl_kernel entry = HONE_CL(clCreateKernel)(built[i], LaunchName(program, i).c_str(), &code);
      if (code != CL_SUCCESS) return Failed("finding " + LaunchName(program, i), code);
      cl_uint position = 0;
      for (BufferId id : launch.params)
        code |= HONE_CL(clSetKernelArg)(entry, position++, sizeof(cl_mem), &buffers.at(id));
      size_t global[3], local[3];
      for (size_t d = 0; d < 3; ++d) {
        local[d] = static_cast<size_t>(launch.block[d]);
        global[d] = local[d] * static_cast<size_t>(straight::BlocksAlong(program, launch, d, {}));
      }
      cl_event event = nullptr;
      if (code == CL_SUCCESS)
        code = HONE_CL(clEnqueueNDRangeKernel)(queue_, entry, 3, nullptr, global, local, 0, nullptr, &event);
      if (code == CL_SUCCESS) code = HONE_CL(clFinish)(queue_);
      if (code != CL_SUCCESS) return Failed("launching " + LaunchName(program, i), code);
      cl_ulong begin = 0, end = 0;
      HONE_CL(clGetEventProfilingInfo)(event, CL_PROFILING_COMMAND_START, sizeof begin, &begin, nullptr);
      HONE_CL(clGetEventProfilingInfo)(event, CL_PROFILING_COMMAND_END, sizeof end, &end, nullptr);
      if (!packs) total += static_cast<double>(end - begin) * 1e-9;
      HONE_CL(clReleaseEvent)(event);
      HONE_CL(clReleaseKernel)(entry);
    }
    least = std::min(least, total);
    if (repeat > 0) continue;
    // The first run is checked: later ones would find outputs that are right already.
    for (const auto& [id, memory] : buffers) {
      const Buffer& buffer = program.buffers[id];
      if (buffer.scope != Scope::kDefault || !buffer.written) continue;
      auto& operand = operands.storage[static_cast<size_t>(buffer.operand)];
      code =
          HONE_CL(clEnqueueReadBuffer)(queue_, memory, CL_TRUE, 0, operand.size(), operand.data(), 0, nullptr, nullptr);
      if (code != CL_SUCCESS) return Failed("reading " + buffer.name, code);
    }
  }
  for (const auto& [id, memory] : buffers) HONE_CL(clReleaseMemObject)(memory);
  for (cl_program of_launch : built) HONE_CL(clReleaseProgram)(of_launch);
  return least;
}

Result<void> RunOnDevice(const std::string& text, const Kernel& kernel, const straight::Program& program) {
  OpenClDevice* device = HONE_TRY(OpenClDevice::Get());
  Operands operands(kernel);
  const double seconds = HONE_TRY(device->Run(kernel, program, operands));
  Result<double> error = Checked(kernel, operands);
  std::printf("%-64s %9.1f us %7.1f GFLOP/s  %s  on %s\n", text.substr(0, 64).c_str(), seconds * 1e6,
              FlopCount(kernel) / seconds / 1e9, error ? "ok" : "WRONG", device->name().c_str());
  std::fflush(stdout);  // whole lines, whatever else writes there
  if (!error) return std::move(error).error();
  return {};
}

#else

Result<void> RunOnDevice(const std::string&, const Kernel&, const straight::Program&) {
  return Error{ErrorKind::kUnsupported,
               "built without OpenCL's headers (CL/cl.h): no OpenCL devices; --print shows code", ""};
}

#endif

Result<void> Run(const Lab& lab, const std::string& text) {
  const Kernel kernel = Specialize(HONE_TRY(ParseKernel(text)));
  const Target target = lab.target.empty() ? SomeDevice() : HONE_TRY(ParseTarget(lab.target));
  Schedule schedule;
  if (lab.schedule.empty() && lab.choices.empty()) {
    schedule = HONE_TRY(DefaultSchedule(kernel, target));
  } else if (lab.schedule.empty()) {
    const Chooser chooser = HONE_TRY(ParseChoices(lab.choices));
    schedule = HONE_TRY(PlanSchedule(kernel, target, chooser)).schedule;
  } else {
    schedule = HONE_TRY(ParseSchedule(lab.schedule));
  }
  const LoopProgram loops = HONE_TRY(Lower(HONE_TRY(ApplySchedule(kernel, schedule))));
  if (lab.show) std::printf("%s\n%s\n", PrintSchedule(schedule).c_str(), PrintProgram(loops).c_str());
  const straight::Program program = HONE_TRY(Straighten(loops, straight::LimitsOf(ModelMachine(target))));
  if (!lab.print.empty()) {
    const Dialect* dialect = FindDialect(lab.print);
    if (dialect == nullptr)
      return Error{ErrorKind::kInvalid, "there is no dialect " + lab.print + "; there are opencl, cuda, glsl, hip", ""};
    for (size_t i = 0; i < program.launches.size(); ++i) {
      const straight::Launch& launch = program.launches[i];
      std::printf("// launch %zu:", i);
      for (size_t d = 0; d < 3; ++d) std::printf(" %ld", static_cast<long>(BlocksAlong(program, launch, d, {})));
      std::printf(" blocks of");
      for (size_t d = 0; d < 3; ++d) std::printf(" %ld", static_cast<long>(launch.block[d]));
      std::printf(" threads\n");
    }
    for (const std::string& source : PrintSources(program, *dialect)) std::printf("%s\n", source.c_str());
  }
  if (lab.simt) {
    Operands operands(kernel);
    std::vector<void*> pointers;
    for (auto& operand : operands.storage) pointers.push_back(operand.data());
    const SimtReport report = HONE_TRY(SimtRun(program, pointers, {}, {.count = true}));
    for (const std::string& finding : report.findings) std::printf("  %s\n", finding.c_str());
    std::printf(
        "%-64s %ld blocks, at most %ld threads, %ld barriers; %.2f sectors an access, %.2f passes over banks, %.2f "
        "times what they had to be; %s\n",
        text.substr(0, 64).c_str(), static_cast<long>(report.blocks), static_cast<long>(report.most_threads),
        static_cast<long>(report.barriers),
        static_cast<double>(report.global_sectors) / static_cast<double>(std::max<int64_t>(1, report.global_accesses)),
        static_cast<double>(report.shared_passes) / static_cast<double>(std::max<int64_t>(1, report.shared_accesses)),
        static_cast<double>(report.shared_passes) / static_cast<double>(std::max<int64_t>(1, report.least_passes)),
        report.findings.empty() && Checked(kernel, operands) ? "ok" : "WRONG");
  }
  if (lab.run) return RunOnDevice(text, kernel, program);
  return {};
}

}  // namespace
}  // namespace hone

int main(int argc, char** argv) {
  hone::Lab lab;
  int failures = 0;
  auto run = [&](const std::string& text) {
    const hone::Result<void> ran = hone::Run(lab, text);
    if (ran) return;
    std::fprintf(stderr, "%s: %s\n", text.c_str(), ran.error().Text().c_str());
    ++failures;
  };
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const auto value = [&] { return i + 1 < argc ? std::string(argv[++i]) : std::string(); };
    if (arg == "--target") {
      lab.target = value();
    } else if (arg == "--schedule") {
      lab.schedule = hone::ReadAll(value());
    } else if (arg == "--choices") {
      lab.choices = value();
    } else if (arg == "--print") {
      lab.print = value();
    } else if (arg == "--show") {
      lab.show = true;
    } else if (arg == "--simt") {
      lab.simt = true;
    } else if (arg == "--no-run") {
      lab.run = false;
    } else if (arg.ends_with(".kernels")) {
      std::istringstream lines(hone::ReadAll(arg));
      for (std::string line; std::getline(lines, line);)
        if (!line.empty() && line[0] != '#') run(line.substr(line.find(' ') + 1));
    } else {
      run(arg.ends_with(".hone") ? hone::ReadAll(arg) : arg);
    }
  }
  return failures != 0;
}
