// The C API over the C++ client: nothing but translation, and no exception leaves it.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "client/api/c_api.h"

struct hone_client {
  std::unique_ptr<hone::Client> client;
};

struct hone_kernel {
  std::unique_ptr<hone::KernelHandle> handle;
  // What every version of the kernel has in common, for as long as the kernel is held.
  std::string fingerprint, class_name, target;
  std::vector<std::string> names;  // of the operands
  std::vector<hone_operand_info> operands;
};

namespace {

using hone::Error;
using hone::ErrorKind;
using hone::Guard;
using hone::ReadOptions;
using hone::Report;

// A word that hone_info gives out, as text that outlives the version it was said of.
const char* Lasting(const std::string& word) {
  for (const char* known : {"default", "tuned", "transferred", "imported", "daemon", "disk"}) {
    if (word == known) return known;
  }
  return "unknown";
}

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
  hone::ServedFacts facts = kernel->handle->facts();
  hone::GetReply reply = std::move(facts.reply);
  kernel->fingerprint = std::move(reply.fingerprint);
  kernel->class_name = std::move(reply.class_name);
  kernel->target = std::move(reply.target);
  const hone::Manifest& manifest = kernel->handle->manifest();
  kernel->names = std::move(facts.operands);
  if (kernel->names.size() != manifest.operands.size()) {
    kernel->names.clear();
    for (const hone::ManifestOperand& operand : manifest.operands) kernel->names.push_back(operand.name);
  }
  for (size_t i = 0; i < manifest.operands.size(); ++i) {
    const hone::ManifestOperand& from = manifest.operands[i];
    if (from.shape.size() > HONE_MAX_RANK) {
      return Error{ErrorKind::kUnsupported, "an operand of rank " + std::to_string(from.shape.size()),
                   kernel->names[i]};
    }
    hone_operand_info info{};
    info.name = kernel->names[i].c_str();
    info.dtype = static_cast<int32_t>(from.dtype);
    info.rank = static_cast<int32_t>(from.shape.size());
    for (size_t d = 0; d < from.shape.size(); ++d) info.shape[d] = from.shape[d].hi;
    info.bytes = kernel->handle->BytesOf(static_cast<int>(i));
    info.is_output = from.is_output;
    info.is_const = from.is_const;
    info.needs_bind = from.packed_bytes > 0;
    kernel->operands.push_back(info);
  }
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
  full.struct_size = info->struct_size;
  full.operand_count = static_cast<int32_t>(kernel->operands.size());
  full.operands = kernel->operands.data();
  full.size_count = static_cast<int32_t>(kernel->handle->manifest().dynamic_sizes.size());
  full.threads = kernel->handle->workers();
  full.fingerprint = kernel->fingerprint.c_str();
  full.class_name = kernel->class_name.c_str();
  full.target = kernel->target.c_str();
  full.origin = Lasting(facts.reply.origin);
  full.source = Lasting(facts.source);
  full.hit = facts.reply.hit;
  full.pinned = facts.reply.pinned;
  full.expected_us = facts.reply.expected_us;
  full.served_us = facts.served_us;
  full.flops = kernel->handle->manifest().flops;
  full.updates = static_cast<int64_t>(kernel->handle->swaps());
  std::memcpy(info, &full, std::min<size_t>(info->struct_size, sizeof full));
  return HONE_OK;
}

void hone_release(hone_kernel* kernel) { delete kernel; }

void hone_close(hone_client* client) { delete client; }

}  // extern "C"
