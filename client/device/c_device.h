// What the C interfaces of devices (hone_opencl.h, hone_cuda.h, hone_vulkan.h) have in common: nothing but translation.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "client/api/c_kernel_info.h"
#include "client/api/client.h"
#include "client/device/device_handle.h"

namespace hone {

// An application's context, and who asks honed for it.
struct DeviceSession {
  std::unique_ptr<Client> client;
  std::shared_ptr<SharedDevice> device;
};

struct DeviceKernel {
  std::unique_ptr<DeviceHandle> handle;
  KernelTexts texts;
  double served_us = 0;
};

// What applications have pointers to. Who passes one that was given back, or none, is told so. Thread-safe: what is
// found stays for as long as it is looked at.
template <typename T>
class HandedOut {
 public:
  T* Add(std::shared_ptr<T> object) HONE_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    T* pointer = object.get();
    all_[pointer] = std::move(object);
    return pointer;
  }
  // kInvalid: `what` names it.
  Result<std::shared_ptr<T>> Find(const T* pointer, const char* what) HONE_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    const auto found = all_.find(pointer);
    if (found != all_.end()) return found->second;
    return Error{ErrorKind::kInvalid, pointer == nullptr ? "NULL" : "it was given back, or never was one", what};
  }
  // nullptr: there is no such one.
  std::shared_ptr<T> Remove(const T* pointer) HONE_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    const auto found = all_.find(pointer);
    if (found == all_.end()) return nullptr;
    std::shared_ptr<T> object = std::move(found->second);
    all_.erase(found);
    return object;
  }

 private:
  Mutex mutex_;
  std::unordered_map<const T*, std::shared_ptr<T>> all_ HONE_GUARDED_BY(mutex_);
};

// `session` gets the context and a client of its own, without threads for calls: those come from queues.
Result<void> OpenSession(const hone_connect_options* options, std::unique_ptr<BorrowedContext> context,
                         DeviceSession* session);

// Code for the session's device, loaded there and, unless it is frozen, kept up to date. Errors of Client::Fetch,
// OpenDeviceCode and DeviceHandle::Create.
Result<void> GetForDevice(DeviceSession& session, const char* text, const hone_get_options* given, DeviceKernel* kernel,
                          uint32_t* retry_after_ms);

// hone_info.
int InfoOfDevice(const DeviceKernel& kernel, hone_kernel_info* info);

// What a function that returns a status does with what its body returns.
template <typename Body>
int StatusOfCall(hone_error* error, const Body& body) {
  const Result<void> done = Guard(body);
  return done ? HONE_OK : Report(done.error(), error);
}

// An interface's functions but for what its device's words are: contexts, buffers and queues. `Session` and `Kernel`
// are what applications have pointers to. Thread-safe. Never destroyed: applications may release at their very end.
template <typename Session, typename Kernel>
class CDevice {
 public:
  CDevice(const char* session, const char* kernel) : session_name_(session), kernel_name_(kernel) {}

  // `borrow`: the application's context, as a Result<std::unique_ptr<BorrowedContext>>.
  template <typename Borrow>
  Session* Open(const hone_connect_options* options, hone_error* error, const Borrow& borrow) {
    return PointerOfCall<Session>(error, nullptr, [&]() -> Result<Session*> {
      auto session = std::make_shared<Session>();
      HONE_TRY(OpenSession(options, HONE_TRY(borrow()), session.get()));
      return sessions_.Add(std::move(session));
    });
  }

  Kernel* Get(const Session* from, const char* text, const hone_get_options* options, hone_error* error) {
    uint32_t retry_after_ms = 0;
    return PointerOfCall<Kernel>(error, &retry_after_ms, [&]() -> Result<Kernel*> {
      const std::shared_ptr<Session> session = HONE_TRY(sessions_.Find(from, session_name_));
      auto kernel = std::make_shared<Kernel>();
      HONE_TRY(GetForDevice(*session, text, options, kernel.get(), &retry_after_ms));
      return kernels_.Add(std::move(kernel));
    });
  }

  int Bind(const Kernel* kernel, int32_t operand, const BorrowedBuffer& data, hone_error* error) {
    return StatusOfCall(error, [&]() -> Result<void> {
      return HONE_TRY(kernels_.Find(kernel, kernel_name_))->handle->Bind(operand, data);
    });
  }

  // `buffers`: NULL, or as many as the kernel has operands, each of which `buffer_of` makes a BorrowedBuffer.
  template <typename Buffer, typename BufferOf>
  Result<void> Enqueue(const Kernel* kernel, const Buffer* buffers, const BufferOf& buffer_of,
                       const BorrowedQueue& queue) {
    const std::shared_ptr<Kernel> found = HONE_TRY(kernels_.Find(kernel, kernel_name_));
    std::vector<BorrowedBuffer> given;
    for (size_t i = 0; buffers != nullptr && i < found->texts.operands.size(); ++i)
      given.push_back(buffer_of(buffers[i]));
    return found->handle->Enqueue(buffers == nullptr ? nullptr : given.data(), queue);
  }

  int Call(const Kernel* kernel, void* const* buffers, hone_error* error) {
    return StatusOfCall(
        error, [&]() -> Result<void> { return HONE_TRY(kernels_.Find(kernel, kernel_name_))->handle->Call(buffers); });
  }

  int Info(const Kernel* kernel, hone_kernel_info* info) {
    const Result<std::shared_ptr<Kernel>> found = kernels_.Find(kernel, kernel_name_);
    return found ? InfoOfDevice(**found, info) : static_cast<int>(HONE_INVALID);
  }

  void Release(const Kernel* kernel) { kernels_.Remove(kernel); }
  void Close(const Session* session) { sessions_.Remove(session); }

 private:
  template <typename T, typename Body>
  static T* PointerOfCall(hone_error* error, const uint32_t* retry_after_ms, const Body& body) {
    const Result<T*> made = Guard(body);
    if (made) return *made;
    Report(made.error(), error, retry_after_ms == nullptr ? 0 : *retry_after_ms);
    return nullptr;
  }

  const char *const session_name_, *const kernel_name_;
  HandedOut<Session> sessions_;
  HandedOut<Kernel> kernels_;
};

}  // namespace hone
