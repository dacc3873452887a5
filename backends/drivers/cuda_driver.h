// What we call of CUDA's driver API, declared here: no package of Debian's main archive has cuda.h. Names, numbers and
// types are its own; where a cuda.h is found, tests/backends/drivers/cuda_driver_test.cc compares them.
#pragma once

#include <cstddef>

// The API's own names, so that types are the same where both headers are included.
struct CUctx_st;
struct CUmod_st;
struct CUfunc_st;
struct CUstream_st;
struct CUevent_st;

namespace hone::cuda {

using Status = int;                  // CUresult
using Device = int;                  // CUdevice
using Attribute = int;               // CUdevice_attribute
using JitOption = int;               // CUjit_option
using PointerAttribute = int;        // CUpointer_attribute
using FunctionAttribute = int;       // CUfunction_attribute
using CaptureStatus = int;           // CUstreamCaptureStatus
using Address = unsigned long long;  // CUdeviceptr
using Context = CUctx_st*;
using Module = CUmod_st*;
using Function = CUfunc_st*;
using Stream = CUstream_st*;
using Event = CUevent_st*;

inline constexpr Status kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kStubLibrary = 34, kNoDevice = 100,
                        kInvalidImage = 200, kNoBinaryForGpu = 209, kNotFound = 500, kNotReady = 600;
inline constexpr Attribute kMaxThreadsPerBlock = 1, kMaxSharedPerBlock = 8, kMultiprocessors = 16, kComputeMode = 20,
                           kL2Bytes = 38, kMajor = 75, kMinor = 76, kMaxSharedPerBlockOptIn = 97;
inline constexpr int kComputeModeProhibited = 2;
inline constexpr unsigned kStreamNonBlocking = 1, kEventDisableTiming = 2;
inline constexpr PointerAttribute kPointerContext = 1;
inline constexpr FunctionAttribute kMaxDynamicSharedBytes = 8;
inline constexpr CaptureStatus kCapturesNothing = 0;
inline constexpr JitOption kJitErrorLog = 5, kJitErrorLogBytes = 6;

// X(name, parameters…): each returns a Status.
#define HONE_CUDA_FUNCTIONS(X)                                                                                    \
  X(cuInit, unsigned)                                                                                             \
  X(cuDriverGetVersion, int*)                                                                                     \
  X(cuGetErrorString, ::hone::cuda::Status, const char**)                                                         \
  X(cuDeviceGetCount, int*)                                                                                       \
  X(cuDeviceGet, ::hone::cuda::Device*, int)                                                                      \
  X(cuDeviceGetName, char*, int, ::hone::cuda::Device)                                                            \
  X(cuDeviceGetAttribute, int*, ::hone::cuda::Attribute, ::hone::cuda::Device)                                    \
  X(cuDevicePrimaryCtxRetain, ::hone::cuda::Context*, ::hone::cuda::Device)                                       \
  X(cuDevicePrimaryCtxRelease_v2, ::hone::cuda::Device)                                                           \
  X(cuCtxPushCurrent_v2, ::hone::cuda::Context)                                                                   \
  X(cuCtxPopCurrent_v2, ::hone::cuda::Context*)                                                                   \
  X(cuCtxGetCurrent, ::hone::cuda::Context*)                                                                      \
  X(cuCtxGetDevice, ::hone::cuda::Device*)                                                                        \
  X(cuModuleLoadDataEx, ::hone::cuda::Module*, const void*, unsigned, ::hone::cuda::JitOption*, void**)           \
  X(cuModuleUnload, ::hone::cuda::Module)                                                                         \
  X(cuModuleGetFunction, ::hone::cuda::Function*, ::hone::cuda::Module, const char*)                              \
  X(cuFuncSetAttribute, ::hone::cuda::Function, ::hone::cuda::FunctionAttribute, int)                             \
  X(cuMemAlloc_v2, ::hone::cuda::Address*, size_t)                                                                \
  X(cuMemFree_v2, ::hone::cuda::Address)                                                                          \
  X(cuMemsetD8Async, ::hone::cuda::Address, unsigned char, size_t, ::hone::cuda::Stream)                          \
  X(cuMemcpyHtoDAsync_v2, ::hone::cuda::Address, const void*, size_t, ::hone::cuda::Stream)                       \
  X(cuMemcpyDtoHAsync_v2, void*, ::hone::cuda::Address, size_t, ::hone::cuda::Stream)                             \
  X(cuMemcpyDtoDAsync_v2, ::hone::cuda::Address, ::hone::cuda::Address, size_t, ::hone::cuda::Stream)             \
  X(cuLaunchKernel, ::hone::cuda::Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
    ::hone::cuda::Stream, void**, void**)                                                                         \
  X(cuStreamCreate, ::hone::cuda::Stream*, unsigned)                                                              \
  X(cuStreamDestroy_v2, ::hone::cuda::Stream)                                                                     \
  X(cuStreamGetCtx, ::hone::cuda::Stream, ::hone::cuda::Context*)                                                 \
  X(cuStreamIsCapturing, ::hone::cuda::Stream, ::hone::cuda::CaptureStatus*)                                      \
  X(cuStreamWaitEvent, ::hone::cuda::Stream, ::hone::cuda::Event, unsigned)                                       \
  X(cuPointerGetAttribute, void*, ::hone::cuda::PointerAttribute, ::hone::cuda::Address)                          \
  X(cuEventQuery, ::hone::cuda::Event)                                                                            \
  X(cuEventSynchronize, ::hone::cuda::Event)                                                                      \
  X(cuStreamSynchronize, ::hone::cuda::Stream)                                                                    \
  X(cuEventCreate, ::hone::cuda::Event*, unsigned)                                                                \
  X(cuEventDestroy_v2, ::hone::cuda::Event)                                                                       \
  X(cuEventRecord, ::hone::cuda::Event, ::hone::cuda::Stream)                                                     \
  X(cuEventElapsedTime, float*, ::hone::cuda::Event, ::hone::cuda::Event)

struct Driver {
#define HONE_DECLARE(name, ...) Status (*name)(__VA_ARGS__) = nullptr;
  HONE_CUDA_FUNCTIONS(HONE_DECLARE)
#undef HONE_DECLARE
};

}  // namespace hone::cuda
