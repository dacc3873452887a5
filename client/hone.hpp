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
  explicit Kernel(hone_kernel* kernel) : kernel_(kernel), info_(HONE_KERNEL_INFO_INIT) { hone_info(kernel, &info_); }

  void Bind(int32_t operand, const void* data) {
    hone_error error = HONE_ERROR_INIT;
    if (hone_bind(kernel_.get(), operand, data, &error) != 0) throw Error(error);
  }
  // By the operand's name in the kernel's text; those of library operations are in docs/kernel_language.md.
  void Bind(const std::string& operand, const void* data) {
    for (int32_t i = 0; i < info_.operand_count; ++i) {
      if (info_.operands[i].name == operand) return Bind(i, data);
    }
    throw Invalid("no operand is called " + operand);
  }
  // Buffers in the order of the operands, nullptr for those that are bound.
  void operator()(const std::vector<void*>& buffers, const std::vector<int64_t>& sizes) const {
    if (sizes.size() != static_cast<size_t>(info_.size_count)) {
      throw Invalid(std::to_string(sizes.size()) + " sizes, wanted " + std::to_string(info_.size_count));
    }
    (*this)(buffers, sizes.data());
  }
  void operator()(const std::vector<void*>& buffers, const int64_t* sizes = nullptr) const {
    if (buffers.size() != static_cast<size_t>(info_.operand_count)) {
      throw Invalid(std::to_string(buffers.size()) + " buffers, wanted " + std::to_string(info_.operand_count));
    }
    if (sizes == nullptr && info_.size_count > 0) {
      throw Invalid("no sizes, wanted " + std::to_string(info_.size_count));
    }
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
  static Error Invalid(const std::string& message) {
    hone_error error = HONE_ERROR_INIT;
    error.kind = HONE_INVALID;
    message.copy(error.message, sizeof error.message - 1);
    return Error(error);
  }

  struct Release {
    void operator()(hone_kernel* kernel) const { hone_release(kernel); }
  };
  std::unique_ptr<hone_kernel, Release> kernel_;
  hone_kernel_info info_;  // of the code that was called first: the counts and operands of all versions
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
