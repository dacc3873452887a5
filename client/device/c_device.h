// What the C interfaces of devices (hone_opencl.h, hone_cuda.h, hone_vulkan.h) have in common: nothing but translation.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>

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

// What the functions that return a status or a pointer do with what their bodies return.
template <typename Body>
int StatusOfCall(hone_error* error, const Body& body) {
  const Result<void> done = Guard(body);
  return done ? HONE_OK : Report(done.error(), error);
}

}  // namespace hone
