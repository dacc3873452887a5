// OpenCL's functions, found in the loader of installed drivers, and devices as targets. What is here needs OpenCL's
// headers; includers ask for them first (opencl_context.cc).
#pragma once

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "ir/target.h"

namespace hone {

// The functions that we call.
// clang-format off
#define HONE_OPENCL_FUNCTIONS(F)                                                              \
  F(clGetPlatformIDs) F(clGetPlatformInfo) F(clGetDeviceIDs) F(clGetDeviceInfo)               \
  F(clCreateContext) F(clRetainContext) F(clReleaseContext) F(clGetContextInfo)               \
  F(clCreateCommandQueue) F(clRetainCommandQueue) F(clReleaseCommandQueue)                    \
  F(clGetCommandQueueInfo) F(clCreateProgramWithSource) F(clBuildProgram)                     \
  F(clGetProgramBuildInfo) F(clReleaseProgram) F(clCreateKernel) F(clReleaseKernel)           \
  F(clSetKernelArg) F(clCreateBuffer) F(clCreateSubBuffer) F(clRetainMemObject)               \
  F(clReleaseMemObject) F(clGetMemObjectInfo) F(clEnqueueWriteBuffer) F(clEnqueueReadBuffer)  \
  F(clEnqueueNDRangeKernel) F(clEnqueueCopyBuffer) F(clFlush) F(clFinish)                     \
  F(clGetEventProfilingInfo) F(clGetEventInfo) F(clWaitForEvents) F(clRetainEvent)            \
  F(clReleaseEvent)
// clang-format on

struct OpenCl {
#define HONE_DECLARE(function) decltype(&::function) function = nullptr;
  HONE_OPENCL_FUNCTIONS(HONE_DECLARE)
#undef HONE_DECLARE
};

// kNotFound: no loader is installed.
Result<const OpenCl*> LoadOpenCl();

// kLimit: out of memory or of what else the device has; kRunFailed otherwise.
Error OpenClFailed(const std::string& what, cl_int code);

struct OpenClFound {
  cl_device_id device = nullptr;
  DeviceTarget target;
};

// All devices that compile.
Result<std::vector<OpenClFound>> FindOpenCl(const OpenCl& cl);
DeviceTarget DescribeOpenCl(const OpenCl& cl, cl_device_id device);

// Released with its owner.
template <typename T>
class OpenClOwned {
 public:
  OpenClOwned() = default;
  OpenClOwned(T object, cl_int (*release)(T)) : object_(object), release_(release) {}
  OpenClOwned(OpenClOwned&& other) noexcept
      : object_(std::exchange(other.object_, nullptr)), release_(other.release_) {}
  OpenClOwned& operator=(OpenClOwned&& other) noexcept {
    std::swap(object_, other.object_), std::swap(release_, other.release_);
    return *this;
  }
  ~OpenClOwned() {
    if (object_ != nullptr) release_(object_);
  }
  T get() const { return object_; }

 private:
  T object_ = nullptr;
  cl_int (*release_)(T) = nullptr;
};

}  // namespace hone
