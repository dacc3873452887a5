// The kinds of GPUs, a row each: what is known of a kind without its driver. Code generation, the backends and the
// registry take them from here; the driver's two functions are in backends/drivers/gpu_context.cc, since honed, which
// knows all kinds, has no drivers.
#pragma once

#include <array>
#include <string_view>

#include "ir/target.h"

namespace hone {

struct GpuKind {
  std::string_view name;      // first word of its targets
  std::string_view language;  // that its code is written in: a dialect of codegen/gpu
  // Whether a driver is worth asking for devices: a user names one by a variable, an installed one is a file of a
  // directory. nullptr: no more.
  std::array<const char*, 3> variables = {}, directories = {};
  std::string_view install;  // what to, where there is none
};

inline constexpr GpuKind kGpuKinds[] = {
    {kOpenClKind,
     "opencl",
     {"OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "OPENCL_VENDOR_PATH"},
     {"/etc/OpenCL/vendors"},
     "no driver for OpenCL is installed (Debian: pocl-opencl-icd makes processors such devices)"},
    {kVulkanKind,
     "glsl",
     {"VK_ICD_FILENAMES", "VK_DRIVER_FILES"},
     {"/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/etc/vulkan/icd.d"},
     "no driver for Vulkan is installed (Debian: mesa-vulkan-drivers makes processors such devices)"},
    {kCudaKind,
     "cuda",
     {"CUDA_VISIBLE_DEVICES"},
     {"/proc/driver/nvidia/gpus"},
     "NVIDIA's driver is not installed, or has no device"},
};

}  // namespace hone
