// The C API over the C++ client: nothing but translation, and no exception leaves it.
#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "client/client.h"
#include "client/hone.h"

struct hone_client {
  std::unique_ptr<hone::Client> client;
};

struct hone_kernel {
  std::unique_ptr<hone::KernelHandle> handle;
  // What every version of the kernel has in common, for as long as the kernel is held.
  std::string fingerprint, class_name, target;
  std::vector<hone_operand_info> operands;
};

namespace {

using hone::Error;
using hone::ErrorKind;

// Cut at `size` bytes, but not within a UTF-8 sequence.
void CopyText(const std::string& text, char* out, size_t size) {
  size_t length = std::min(text.size(), size - 1);
  while (length > 0 && length < text.size() && (static_cast<unsigned char>(text[length]) & 0xc0) == 0x80) --length;
  std::memcpy(out, text.data(), length);
  out[length] = '\0';
}

int Report(const Error& from, hone_error* error, uint32_t retry_after_ms = 0) {
  if (error != nullptr && error->struct_size >= sizeof(hone_error)) {
    error->kind = static_cast<int32_t>(from.kind);
    error->retry_after_ms = retry_after_ms;
    CopyText(from.message, error->message, sizeof error->message);
    CopyText(from.where, error->where, sizeof error->where);
  }
  return static_cast<int>(from.kind);
}

// The caller's options as far as it knew them, defaults for the rest: programs built against an older header pass a
// shorter structure, newer ones a longer one, whose end must then be zero.
template <typename Options>
hone::Result<Options> ReadOptions(const Options* from, const Options& defaults, const char* name) {
  Options options = defaults;
  if (from == nullptr) return options;
  uint32_t size = from->struct_size;
  if (size < sizeof(uint32_t)) {
    return Error{ErrorKind::kInvalid, "struct_size is not set; initialise with the macro", name};
  }
  auto* bytes = reinterpret_cast<const unsigned char*>(from);
  for (size_t i = sizeof(Options); i < size; ++i) {
    if (bytes[i] != 0) return Error{ErrorKind::kUnsupported, "options that this version of libhone lacks", name};
  }
  std::memcpy(&options, from, std::min<size_t>(size, sizeof(Options)));
  return options;
}

// Runs `body`, which returns a Result; what libraries throw (memory, above all) becomes an error.
template <typename Body>
auto Guard(const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Error{ErrorKind::kLimit, "out of memory", "libhone"};
  } catch (const std::exception& exception) { return Error{ErrorKind::kInternal, exception.what(), "libhone"}; }
}

// A word that hone_info gives out, as text that outlives the version it was said of.
const char* Lasting(const std::string& word) {
  for (const char* known : {"default", "tuned", "transferred", "imported", "daemon", "disk"}) {
    if (word == known) return known;
  }
  return "unknown";
}

hone::Result<std::unique_ptr<hone_client>> Connect(const hone_connect_options* given) {
  hone_connect_options options =
      HONE_TRY(ReadOptions<hone_connect_options>(given, HONE_CONNECT_OPTIONS_INIT, "hone_connect_options"));
  hone::ClientOptions to;
  if (options.socket != nullptr) to.socket = options.socket;
  if (options.disk_cache != nullptr) to.disk_cache = options.disk_cache;
  to.use_disk_cache = !(options.flags & HONE_NO_DISK_CACHE);
  to.start_daemon = options.flags & HONE_START_DAEMON;
  to.threads.threads = options.threads;
  if (options.spin_us != 0) to.threads.spin = std::chrono::microseconds(std::max(0, options.spin_us));
  if (options.parallel_for != nullptr) {
    if (options.threads < 1) {
      return Error{ErrorKind::kInvalid, "parallel_for needs `threads`: how many workers it has",
                   "hone_connect_options"};
    }
    to.application = {nullptr, options.pool, options.parallel_for, options.threads};
  }
  auto client = std::make_unique<hone_client>();
  client->client = HONE_TRY(hone::Client::Create(std::move(to)));
  return client;
}

hone::Result<std::unique_ptr<hone_kernel>> Get(hone_client* client, const char* text, const hone_get_options* given,
                                               uint32_t* retry_after_ms) {
  hone_get_options options = HONE_TRY(ReadOptions<hone_get_options>(given, HONE_GET_OPTIONS_INIT, "hone_get_options"));
  if (client == nullptr || text == nullptr) {
    return Error{ErrorKind::kInvalid, client == nullptr ? "no client" : "no kernel", "hone_get"};
  }
  if (options.threads < 0 || options.budget_us < 0 || options.deadline_us < 0) {
    return Error{ErrorKind::kInvalid, "threads, budget_us and deadline_us are not negative", "hone_get_options"};
  }
  hone::GetOptions to;
  to.threads = options.threads;
  to.budget = std::chrono::microseconds(options.budget_us);
  // A year is for ever, and adds to a clock without overflow.
  constexpr int64_t kYear = int64_t{365} * 24 * 3600 * 1'000'000;
  if (options.deadline_us > 0) to.deadline = std::chrono::microseconds(std::min(options.deadline_us, kYear));
  to.frozen = options.frozen != 0;
  to.no_compile = options.no_compile != 0;
  auto kernel = std::make_unique<hone_kernel>();
  kernel->handle = HONE_TRY(client->client->Get(text, to, retry_after_ms));
  hone::GetReply reply = kernel->handle->facts().reply;
  kernel->fingerprint = std::move(reply.fingerprint);
  kernel->class_name = std::move(reply.class_name);
  kernel->target = std::move(reply.target);
  const hone::Manifest& manifest = kernel->handle->manifest();
  for (size_t i = 0; i < manifest.operands.size(); ++i) {
    const hone::ManifestOperand& from = manifest.operands[i];
    if (from.shape.size() > HONE_MAX_RANK) {
      return Error{ErrorKind::kUnsupported, "an operand of rank " + std::to_string(from.shape.size()), from.name};
    }
    hone_operand_info info{};
    info.name = from.name.c_str();
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
