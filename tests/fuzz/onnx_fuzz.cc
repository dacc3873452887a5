// ONNX files: whatever the bytes, they are refused or become kernels that parse, in memory and time in proportion.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "ir/language/parse.h"
#include "network/graph/simplify.h"
#include "network/onnx/import_network.h"
#include "network/run/kernel_calls.h"

namespace hone {
namespace {

void Run(std::string_view bytes) {
  Result<OnnxModel> model = ParseOnnx(bytes, {"fuzz.onnx", ""});
  if (!model) return;
  ImportOptions options;
  options.folding_limit = 1 << 12;
  Result<Network> network = BuildNetwork(*model, "fuzz.onnx", options);
  if (!network) {
    HONE_CHECK(network.error().kind != ErrorKind::kInternal);
    return;
  }
  if (Result<void> simplified = Simplify(network->graph); !simplified) {
    HONE_CHECK(simplified.error().kind != ErrorKind::kInternal);
    return;
  }
  for (const KernelCall& call : Lower(network->graph).calls) {
    if (call.is_host()) continue;
    // Library operations are within hone's limits or refused for one.
    Result<Kernel> kernel = ParseKernel(call.kernel);
    HONE_CHECK(kernel || call.is_library);
  }
}

}  // namespace
}  // namespace hone

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hone::Run({reinterpret_cast<const char*>(data), size});
  return 0;
}
