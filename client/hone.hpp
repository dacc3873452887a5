// libhone for C++17: owners for its handles, errors as exceptions. Everything is in this header; the library's
// interface is the C one.
#ifndef HONE_CLIENT_HONE_HPP_
#define HONE_CLIENT_HONE_HPP_

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "hone.h"

namespace hone_api {

class Error : public std::runtime_error {
 public:
  explicit Error(const hone_error& error)
      : std::runtime_error(error.where[0] ? std::string(error.where) + ": " + error.message : error.message),
        kind(static_cast<hone_error_kind>(error.kind)),
        retry_after_ms(error.retry_after_ms) {}
  const hone_error_kind kind;
  const uint32_t retry_after_ms;
};

// Callable code. Calls may come from any number of threads at once.
class Kernel {
 public:
  explicit Kernel(hone_kernel* kernel) : kernel_(kernel) {}

  void Bind(int32_t operand, const void* data) {
    hone_error error = HONE_ERROR_INIT;
    if (hone_bind(kernel_.get(), operand, data, &error) != 0) throw Error(error);
  }
  // Buffers in the order of the operands, nullptr for those that are bound.
  void operator()(const std::vector<void*>& buffers, const int64_t* sizes = nullptr) const {
    if (int status = hone_call(kernel_.get(), buffers.data(), sizes); status != 0) {
      hone_error error = HONE_ERROR_INIT;
      error.kind = HONE_CALL_KIND(status);
      std::string text = "the call was refused or failed, operand " + std::to_string(HONE_CALL_OPERAND(status));
      text.copy(error.message, sizeof error.message - 1);
      throw Error(error);
    }
  }
  hone_kernel_info Info() const {
    hone_kernel_info info = HONE_KERNEL_INFO_INIT;
    hone_info(kernel_.get(), &info);
    return info;
  }
  hone_kernel* get() const { return kernel_.get(); }

 private:
  struct Release {
    void operator()(hone_kernel* kernel) const { hone_release(kernel); }
  };
  std::unique_ptr<hone_kernel, Release> kernel_;
};

class Client {
 public:
  explicit Client(const hone_connect_options* options = nullptr) {
    hone_error error = HONE_ERROR_INIT;
    client_.reset(hone_connect(options, &error));
    if (!client_) throw Error(error);
  }
  Kernel Get(const std::string& kernel, const hone_get_options* options = nullptr) const {
    hone_error error = HONE_ERROR_INIT;
    hone_kernel* got = hone_get(client_.get(), kernel.c_str(), options, &error);
    if (got == nullptr) throw Error(error);
    return Kernel(got);
  }

 private:
  struct Close {
    void operator()(hone_client* client) const { hone_close(client); }
  };
  std::unique_ptr<hone_client, Close> client_;
};

}  // namespace hone_api

#endif  // HONE_CLIENT_HONE_HPP_
