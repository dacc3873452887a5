// Our declarations of CUDA's driver API beside its own, where a cuda.h is found (tests/CMakeLists.txt looks).
#include "backends/drivers/cuda_driver.h"

#include <gtest/gtest.h>

#if __has_include(<cuda.h>)
#define __CUDA_API_VERSION_INTERNAL  // declares functions by the names that libraries have
#include <cuda.h>

#include <type_traits>

namespace hone::cuda {
namespace {

// An enumeration is passed as an int is.
template <typename T>
struct Passed {
  using Type = std::conditional_t<std::is_enum_v<T>, int, T>;
};
template <typename T>
struct Passed<T*> {
  using Type = typename Passed<T>::Type*;
};
template <typename R, typename... A>
struct Passed<R (*)(A...)> {
  using Type = typename Passed<R>::Type (*)(typename Passed<A>::Type...);
};

#define HONE_COMPARE(name, ...) \
  static_assert(std::is_same_v<Passed<decltype(&::name)>::Type, decltype(Driver::name)>, #name " is another");
HONE_CUDA_FUNCTIONS(HONE_COMPARE)
#undef HONE_COMPARE

static_assert(kSuccess == CUDA_SUCCESS && kInvalidValue == CUDA_ERROR_INVALID_VALUE &&
              kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY && kStubLibrary == CUDA_ERROR_STUB_LIBRARY &&
              kNoDevice == CUDA_ERROR_NO_DEVICE && kInvalidImage == CUDA_ERROR_INVALID_IMAGE &&
              kNoBinaryForGpu == CUDA_ERROR_NO_BINARY_FOR_GPU && kNotFound == CUDA_ERROR_NOT_FOUND &&
              kNotReady == CUDA_ERROR_NOT_READY);
static_assert(kEventDisableTiming == CU_EVENT_DISABLE_TIMING && kPointerContext == CU_POINTER_ATTRIBUTE_CONTEXT &&
              kMaxDynamicSharedBytes == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES &&
              kCapturesNothing == CU_STREAM_CAPTURE_STATUS_NONE);
static_assert(kMaxThreadsPerBlock == CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK &&
              kMaxSharedPerBlock == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK &&
              kMaxSharedPerBlockOptIn == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN &&
              kMultiprocessors == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT &&
              kComputeMode == CU_DEVICE_ATTRIBUTE_COMPUTE_MODE && kL2Bytes == CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE &&
              kMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR &&
              kMinor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(kComputeModeProhibited == CU_COMPUTEMODE_PROHIBITED && kStreamNonBlocking == CU_STREAM_NON_BLOCKING &&
              kJitErrorLog == CU_JIT_ERROR_LOG_BUFFER && kJitErrorLogBytes == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);

TEST(CudaDriver, IsDeclaredAsByItsOwnHeader) {}  // by the compiler, above

}  // namespace
}  // namespace hone::cuda

#else

TEST(CudaDriver, IsDeclaredAsByItsOwnHeader) { GTEST_SKIP() << "[SKIP] there is no cuda.h here to compare with"; }

#endif
