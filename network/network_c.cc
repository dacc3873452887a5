// The C interface of networks over Session: nothing but translation, and no exception leaves it.
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "client/api/c_api.h"
#include "network/hone_network.h"
#include "network/run/session.h"

struct hone_network {
  std::unique_ptr<hone::Session> session;
  hone::Mutex mutex;
  std::vector<hone::WorkShare> shares HONE_GUARDED_BY(mutex);  // whose texts the caller has
};

struct hone_network_results {
  std::vector<std::string> names;
  std::vector<hone::HostTensor> tensors;
};

namespace {

using hone::Error;
using hone::ErrorKind;

hone::Result<hone::SessionOptions> SessionOptionsOf(const hone_network_options* given) {
  constexpr char kName[] = "hone_network_options";
  hone_network_options options =
      HONE_TRY(hone::ReadOptions<hone_network_options>(given, HONE_NETWORK_OPTIONS_INIT, kName));
  hone::SessionOptions to;
  to.get = HONE_TRY(hone::GetOptionsOf(options.get));
  if (options.accuracy < 0 || options.accuracy > HONE_FAST)
    return Error{ErrorKind::kInvalid, "no such accuracy: " + std::to_string(options.accuracy), kName};
  if (options.accuracy != 0) to.accuracy = static_cast<hone::Accuracy>(options.accuracy);
  if (options.value_count < 0 || (options.value_count > 0 && options.values == nullptr))
    return Error{ErrorKind::kInvalid, "value_count without values", kName};
  for (int32_t i = 0; i < options.value_count; ++i) {
    const hone_network_value& value = options.values[i];
    if (value.name == nullptr || value.rank < 0 || value.rank > HONE_MAX_RANK)
      return Error{ErrorKind::kInvalid, "value " + std::to_string(i) + " has no name, or a rank beyond 0 … 16", kName};
    hone::Shape shape(value.shape, value.shape + value.rank);
    if (hone::Result<void> checked = hone::CheckShape(shape); !checked)
      return std::move(checked).error().Context(value.name);
    if (value.data == nullptr) {
      to.shapes[value.name] = std::move(shape);
      continue;
    }
    if (hone::ByteSize(static_cast<hone::DType>(value.dtype)) == 0)
      return Error{ErrorKind::kInvalid, "no such element type: " + std::to_string(value.dtype), value.name};
    auto tensor = std::make_shared<hone::HostTensor>();
    tensor->dtype = static_cast<hone::DType>(value.dtype);
    tensor->shape = std::move(shape);
    const int64_t bytes = hone::CountOf(tensor->shape) * hone::ByteSize(tensor->dtype);
    tensor->data = std::string(static_cast<const char*>(value.data), static_cast<size_t>(bytes));
    to.constants[value.name] = std::move(tensor);
  }
  return to;
}

const std::vector<hone::SessionValue>& ValuesOf(const hone_network& network, int32_t is_output) {
  return is_output != 0 ? network.session->outputs() : network.session->inputs();
}

void Describe(const std::string& name, hone::DType dtype, const hone::Shape& shape, hone_network_value* value) {
  *value = {};
  value->name = name.c_str();
  value->dtype = static_cast<int32_t>(dtype);
  value->rank = static_cast<int32_t>(shape.size());
  std::copy(shape.begin(), shape.end(), value->shape);
  value->bytes = hone::CountOf(shape) * hone::ByteSize(dtype);
}

hone::Result<hone::TensorView> ViewOf(const hone_network_value& value, const std::string& name) {
  if (value.rank < 0 || value.rank > HONE_MAX_RANK)
    return Error{ErrorKind::kInvalid, "a rank of " + std::to_string(value.rank), "input " + name};
  if (hone::ByteSize(static_cast<hone::DType>(value.dtype)) == 0)
    return Error{ErrorKind::kInvalid, "no such element type: " + std::to_string(value.dtype), "input " + name};
  const hone::Shape shape(value.shape, value.shape + value.rank);
  if (value.data == nullptr) return Error{ErrorKind::kInvalid, "it has no elements", "input " + name};
  return hone::TensorView{static_cast<hone::DType>(value.dtype), shape, value.data};
}

}  // namespace

extern "C" {

hone_network* hone_network_open(const char* path, const hone_connect_options* connect,
                                const hone_network_options* options, hone_error* error) {
  auto opened = hone::Guard([&]() -> hone::Result<std::unique_ptr<hone_network>> {
    if (path == nullptr) return Error{ErrorKind::kInvalid, "no path", "hone_network_open"};
    auto network = std::make_unique<hone_network>();
    network->session = HONE_TRY(
        hone::Session::Open(path, HONE_TRY(hone::ClientOptionsOf(connect)), HONE_TRY(SessionOptionsOf(options))));
    return network;
  });
  if (opened) return opened->release();
  hone::Report(opened.error(), error);
  return nullptr;
}

int32_t hone_network_count(const hone_network* network, int32_t is_output) {
  return network == nullptr ? 0 : static_cast<int32_t>(ValuesOf(*network, is_output).size());
}

int hone_network_describe(const hone_network* network, int32_t is_output, int32_t index, hone_network_value* value) {
  if (network == nullptr || value == nullptr || index < 0 || index >= hone_network_count(network, is_output))
    return HONE_INVALID;
  const hone::SessionValue& from = ValuesOf(*network, is_output)[static_cast<size_t>(index)];
  static_assert(HONE_MAX_RANK >= 8);  // CheckShape's limit
  Describe(from.name, from.dtype, from.shape, value);
  if (!from.has_shape) value->rank = -1;
  if (from.is_open()) value->bytes = -1;
  return HONE_OK;
}

int hone_network_run(hone_network* network, const void* const* inputs, void* const* outputs, hone_error* error) {
  auto ran = hone::Guard([&]() -> hone::Result<void> {
    if (network == nullptr) return Error{ErrorKind::kInvalid, "no network", "hone_network_run"};
    auto all = [](auto* pointers, size_t count) {
      return count == 0 || (pointers != nullptr &&
                            std::all_of(pointers, pointers + count, [](auto* pointer) { return pointer != nullptr; }));
    };
    const size_t in = ValuesOf(*network, 0).size(), out = ValuesOf(*network, 1).size();
    if (!all(inputs, in) || !all(outputs, out))
      return Error{ErrorKind::kInvalid, "an input or an output is missing", "hone_network_run"};
    return network->session->Run({inputs, in}, {outputs, out});
  });
  return ran ? 0 : hone::Report(ran.error(), error);
}

hone_network_results* hone_network_compute(hone_network* network, const hone_network_value* inputs, hone_error* error) {
  auto computed = hone::Guard([&]() -> hone::Result<std::unique_ptr<hone_network_results>> {
    if (network == nullptr) return Error{ErrorKind::kInvalid, "no network", "hone_network_compute"};
    const std::vector<hone::SessionValue>& wanted = ValuesOf(*network, 0);
    if (inputs == nullptr && !wanted.empty()) return Error{ErrorKind::kInvalid, "no inputs", "hone_network_compute"};
    std::vector<hone::TensorView> views;
    for (size_t i = 0; i < wanted.size(); ++i) views.push_back(HONE_TRY(ViewOf(inputs[i], wanted[i].name)));
    auto results = std::make_unique<hone_network_results>();
    results->tensors = HONE_TRY(network->session->Compute(views));
    for (const hone::SessionValue& output : ValuesOf(*network, 1)) results->names.push_back(output.name);
    return results;
  });
  if (computed) return computed->release();
  hone::Report(computed.error(), error);
  return nullptr;
}

int hone_network_result(const hone_network_results* results, int32_t index, hone_network_value* value) {
  if (results == nullptr || value == nullptr || index < 0 || static_cast<size_t>(index) >= results->tensors.size())
    return HONE_INVALID;
  const auto at = static_cast<size_t>(index);
  const hone::HostTensor& tensor = results->tensors[at];
  Describe(results->names[at], tensor.dtype, tensor.shape, value);
  value->data = tensor.data.data();
  return HONE_OK;
}

void hone_network_results_free(hone_network_results* results) { delete results; }

void hone_network_time_calls(hone_network* network, int is_on) {
  if (network != nullptr) network->session->CountShares(is_on != 0);
}

int32_t hone_network_shares(hone_network* network, hone_network_share* shares, int32_t capacity) {
  if (network == nullptr || (shares == nullptr && capacity > 0)) return 0;
  const hone::MutexLock lock(network->mutex);
  network->shares = network->session->Shares();
  for (size_t i = 0; i < network->shares.size() && static_cast<int64_t>(i) < capacity; ++i) {
    const hone::WorkShare& share = network->shares[i];
    shares[i] = {share.label.c_str(), share.kernel.c_str(), share.why_host.c_str(), share.calls, share.time_us};
  }
  return static_cast<int32_t>(network->shares.size());
}

void hone_network_close(hone_network* network) { delete network; }

}  // extern "C"
