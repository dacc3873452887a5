// A context of CUDA's and a stream in it: what is asked of it is done in that order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backends/drivers/cuda_driver.h"
#include "base/result.h"
#include "ir/target.h"

namespace hone {

// kNotFound: no driver, or no device.
Result<const cuda::Driver*> LoadCuda();
// kLimit: out of memory; kRunFailed otherwise, and the context may be good for nothing any more.
Error CudaFailed(const cuda::Driver& cu, const std::string& what, cuda::Status code);
Result<void> CheckCuda(const cuda::Driver& cu, const std::string& what, cuda::Status code);

struct CudaFound {
  cuda::Device device = 0;
  DeviceTarget target;
};

// All devices that let others compute.
Result<std::vector<CudaFound>> FindCuda(const cuda::Driver& cu);
DeviceTarget DescribeCuda(const cuda::Driver& cu, cuda::Device device);

class CudaQueue;

// Memory of a context, which lives longer.
class CudaMemory {
 public:
  CudaMemory() = default;
  CudaMemory(CudaQueue& queue, cuda::Address address, size_t bytes)
      : queue_(&queue), address_(address), bytes_(bytes) {}
  CudaMemory(CudaMemory&& other) noexcept
      : queue_(other.queue_), address_(std::exchange(other.address_, 0)), bytes_(std::exchange(other.bytes_, 0)) {}
  CudaMemory& operator=(CudaMemory&& other) noexcept {
    std::swap(queue_, other.queue_), std::swap(address_, other.address_), std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~CudaMemory();
  cuda::Address address() const { return address_; }
  size_t bytes() const { return bytes_; }

 private:
  CudaQueue* queue_ = nullptr;
  cuda::Address address_ = 0;
  size_t bytes_ = 0;
};

class CudaQueue {
 public:
  // A device's primary context, or an application's, which lives longer.
  static Result<std::unique_ptr<CudaQueue>> Open(const cuda::Driver& cu, cuda::Device device);
  static Result<std::unique_ptr<CudaQueue>> Borrow(const cuda::Driver& cu, cuda::Context context);
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;
  ~CudaQueue();

  const cuda::Driver& cu() const { return cu_; }
  cuda::Context context() const { return context_; }
  cuda::Stream stream() const { return stream_; }

  // For as long as it lives, this context is the thread's; then the one that was.
  class Inside {
   public:
    explicit Inside(const cuda::Driver& cu) : cu_(&cu) {}
    Inside(Inside&& other) noexcept : cu_(std::exchange(other.cu_, nullptr)) {}
    Inside& operator=(Inside&&) = delete;
    ~Inside() {
      cuda::Context context = nullptr;
      if (cu_ != nullptr) cu_->cuCtxPopCurrent_v2(&context);
    }

   private:
    const cuda::Driver* cu_;
  };
  // Whatever thread this is. Before everything else.
  Result<Inside> Enter() {
    HONE_TRY(CheckCuda(cu_, "entering the context", cu_.cuCtxPushCurrent_v2(context_)));
    return Inside(cu_);
  }

  // The rest inside.
  Result<void> Finish() { return CheckCuda(cu_, "running", cu_.cuStreamSynchronize(stream_)); }
  Result<CudaMemory> Allocate(size_t bytes);
  Result<void> Write(cuda::Address to, std::span<const std::byte> data);
  Result<void> Read(cuda::Address from, std::span<std::byte> data);

  // Nanoseconds of the device for what `enqueue` enqueues.
  template <typename Enqueue>
  Result<int64_t> Time(Enqueue&& enqueue) {
    HONE_TRY(CheckCuda(cu_, "marking the begin", cu_.cuEventRecord(first_, stream_)));
    HONE_TRY(enqueue());
    HONE_TRY(CheckCuda(cu_, "marking the end", cu_.cuEventRecord(last_, stream_)));
    HONE_TRY(Finish());
    float milliseconds = 0;
    HONE_TRY(CheckCuda(cu_, "reading times", cu_.cuEventElapsedTime(&milliseconds, first_, last_)));
    return static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6);
  }

 private:
  CudaQueue(const cuda::Driver& cu, cuda::Device device, cuda::Context context, bool is_owned)
      : cu_(cu), device_(device), context_(context), is_owned_(is_owned) {}
  Result<void> MakeParts();

  const cuda::Driver& cu_;
  const cuda::Device device_;  // if owned
  const cuda::Context context_;
  const bool is_owned_;
  cuda::Stream stream_ = nullptr;
  cuda::Event first_ = nullptr, last_ = nullptr;
};

}  // namespace hone
