#if __has_include(<CL/cl.h>)
#include "backends/drivers/opencl_driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "backends/drivers/fact_word.h"

namespace hone {
namespace {

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

}  // namespace

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

Error OpenClFailed(const std::string& what, cl_int code) {
  const bool is_memory = code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_INVALID_BUFFER_SIZE ||
                         code == CL_OUT_OF_RESOURCES || code == CL_OUT_OF_HOST_MEMORY;
  const std::string_view name = NameOf(code);
  return {is_memory ? ErrorKind::kLimit : ErrorKind::kRunFailed,
          fmt::format("{} failed: {} (OpenCL's error {})", what, name.empty() ? "see cl.h" : name, code), ""};
}

DeviceTarget DescribeOpenCl(const OpenCl& cl, cl_device_id device) {
  std::string name(1024, '\0');
  cl.clGetPlatformInfo(Ask<cl_platform_id>(cl, device, CL_DEVICE_PLATFORM), CL_PLATFORM_NAME, name.size() - 1,
                       name.data(), nullptr);
  DeviceTarget target;
  target.kind = kOpenClKind;
  auto number = [&](const char* fact, auto value) { target.facts[fact] = std::to_string(value); };
  target.facts["platform"] = FactWord(std::move(name));
  target.facts["device"] = AskText(cl, device, CL_DEVICE_NAME);
  target.facts["driver"] = AskText(cl, device, CL_DRIVER_VERSION);
  target.facts["type"] = (Ask<cl_device_type>(cl, device, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CPU) != 0 ? "cpu" : "gpu";
  if (target.facts["type"] == "cpu") number("lanes", Ask<cl_uint>(cl, device, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT));
  number("units", Ask<cl_uint>(cl, device, CL_DEVICE_MAX_COMPUTE_UNITS));
  number("block_threads", Ask<size_t>(cl, device, CL_DEVICE_MAX_WORK_GROUP_SIZE));
  number("block_bytes", Ask<cl_ulong>(cl, device, CL_DEVICE_LOCAL_MEM_SIZE));
  number("f64", Ask<cl_device_fp_config>(cl, device, CL_DEVICE_DOUBLE_FP_CONFIG) != 0 ? 1 : 0);
  if ((Ask<cl_device_fp_config>(cl, device, CL_DEVICE_SINGLE_FP_CONFIG) & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT) != 0)
    target.facts["exact_divide"] = "1";
  return target;
}

Result<std::vector<OpenClFound>> FindOpenCl(const OpenCl& cl) {
  std::array<cl_platform_id, 16> platforms{};
  cl_uint count = 0;
  // A loader without drivers has an error of its own for that.
  if (cl.clGetPlatformIDs(platforms.size(), platforms.data(), &count) != CL_SUCCESS) count = 0;
  std::vector<OpenClFound> found;
  for (cl_platform_id platform : std::span(platforms).first(std::min<size_t>(count, platforms.size()))) {
    std::array<cl_device_id, 64> devices{};
    cl_uint here = 0;
    if (cl.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, devices.size(), devices.data(), &here) != CL_SUCCESS) continue;
    for (cl_device_id device : std::span(devices).first(std::min<size_t>(here, devices.size())))
      if (Ask<cl_bool>(cl, device, CL_DEVICE_AVAILABLE) && Ask<cl_bool>(cl, device, CL_DEVICE_COMPILER_AVAILABLE))
        found.push_back({device, DescribeOpenCl(cl, device)});
  }
  return found;
}

}  // namespace hone

#endif
