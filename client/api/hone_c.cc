// The C API over the C++ client: nothing but translation, and no exception leaves it.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "client/api/c_kernel_info.h"

struct hone_client {
  std::unique_ptr<hone::Client> client;
};

struct hone_kernel {
  std::unique_ptr<hone::KernelHandle> handle;
  hone::KernelTexts texts;
};

namespace {

using hone::Error;
using hone::ErrorKind;
using hone::Guard;
using hone::ReadOptions;
using hone::Report;

hone::Result<std::unique_ptr<hone_client>> Connect(const hone_connect_options* given) {
  auto client = std::make_unique<hone_client>();
  client->client = HONE_TRY(hone::Client::Create(HONE_TRY(hone::ClientOptionsOf(given))));
  return client;
}

hone::Result<std::unique_ptr<hone_kernel>> Get(hone_client* client, const char* text, const hone_get_options* given,
                                               uint32_t* retry_after_ms) {
  if (client == nullptr || text == nullptr) {
    return Error{ErrorKind::kInvalid, client == nullptr ? "no client" : "no kernel", "hone_get"};
  }
  const hone::GetOptions to = HONE_TRY(hone::GetOptionsOf(given));
  auto kernel = std::make_unique<hone_kernel>();
  kernel->handle = HONE_TRY(client->client->Get(text, to, retry_after_ms));
  HONE_TRY(kernel->texts.Fill(kernel->handle->facts(), kernel->handle->manifest()));
  return kernel;
}

}  // namespace

extern "C" {

hone_client* hone_connect(const hone_connect_options* options, hone_error* error) {
  auto client = Guard([&] { return Connect(options); });
  if (client) return client->release();
  Report(client.error(), error);
  return nullptr;
}

hone_kernel* hone_get(hone_client* client, const char* kernel, const hone_get_options* options, hone_error* error) {
  uint32_t retry_after_ms = 0;
  auto got = Guard([&] { return Get(client, kernel, options, &retry_after_ms); });
  if (got) return got->release();
  Report(got.error(), error, retry_after_ms);
  return nullptr;
}

int hone_bind(hone_kernel* kernel, int32_t operand, const void* data, hone_error* error) {
  auto bound = Guard([&]() -> hone::Result<void> {
    if (kernel == nullptr) return Error{ErrorKind::kInvalid, "no kernel", "hone_bind"};
    return kernel->handle->Bind(operand, data);
  });
  return bound ? 0 : Report(bound.error(), error);
}

int hone_call(hone_kernel* kernel, void* const* buffers, const int64_t* sizes) {
  return kernel == nullptr ? static_cast<int>(HONE_INVALID) : kernel->handle->Call(buffers, sizes);
}

int hone_shape(const hone_kernel* kernel, int32_t operand, const int64_t* sizes, int64_t* shape) {
  if (kernel == nullptr || shape == nullptr) return HONE_INVALID;
  return kernel->handle->ShapeOf(operand, sizes, shape);
}

int hone_info(const hone_kernel* kernel, hone_kernel_info* info) {
  if (kernel == nullptr || info == nullptr || info->struct_size < sizeof(uint32_t)) return HONE_INVALID;
  hone::ServedFacts facts;
  if (!Guard([&]() -> hone::Result<void> {
        facts = kernel->handle->facts();
        return {};
      })) {
    return HONE_LIMIT;
  }
  hone_kernel_info full = HONE_KERNEL_INFO_INIT;
  full.size_count = static_cast<int32_t>(kernel->handle->manifest().dynamic_sizes.size());
  full.threads = kernel->handle->workers();
  full.flops = kernel->handle->manifest().flops;
  full.updates = static_cast<int64_t>(kernel->handle->swaps());
  hone::WriteKernelInfo(kernel->texts, facts, full, info);
  return HONE_OK;
}

void hone_release(hone_kernel* kernel) { delete kernel; }

void hone_close(hone_client* client) { delete client; }

}  // extern "C"
