// hone run MODEL.onnx: the whole network through hone's kernels, timed and checked.
#pragma once

#include <string>

#include "client/cli/context.h"
#include "network/onnx/import_network.h"

namespace hone::cli {

struct ModelRunOptions {
  GetOptions get;
  ImportOptions import;
  int repeats = 15;
  uint64_t seed = 1;  // of weights that the file lacks, and of the inputs
  bool check = true;
  std::string export_dir;  // "": nothing is written
  std::string against;     // the model whose layers this one's are compared with; "": none
};

// Prints the result; the exit status.
int RunModel(Context& context, const std::string& path, const ModelRunOptions& options);

}  // namespace hone::cli
